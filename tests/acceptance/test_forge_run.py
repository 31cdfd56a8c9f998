"""`forge run` as a command: exit codes, what is on which stream, signals, a dry run. workers.md §13, §14; ui.md §11."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pexpect
import pytest
from tests.acceptance.conftest import FORGE, marked
from tests.deadlines import PATIENCE, ROOM, within

from golem_forge.events.serialization import Event

Desks = Callable[..., Any]


def worker(keys: str = "", name: str = "main", toolsets: str = "{filesystem: }") -> str:
    return f"---\nname: {name}\ntoolsets: {toolsets}\nsandbox: {{zones: [{{name: workspace}}]}}\n{keys}\n---\nDo it.\n"


def script(*turns: dict[str, Any]) -> str:
    return json.dumps({"turns": list(turns)})


def program(*turns: dict[str, Any], keys: str = "", **more: str) -> dict[str, str]:
    return {"forge.yaml": "model: scripted:s.yaml\n", "main.worker": worker(keys), "s.yaml": script(*turns), **more}


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"calls": [{"tool": tool, "args": args}]}


WRITE = call("write_file", path="/workspace/made.txt", content="made")
LOOK = call("list_files", path="/workspace")


@pytest.fixture
def forge_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The same command inside the test's process, for the cases that need none of their own."""
    from golem_forge.cli.main import main

    def run(place: Any, *words: str) -> tuple[int, str, str]:
        monkeypatch.chdir(place.root)
        monkeypatch.setenv("FORGE_HOME", str(place.home))
        code = main(["run", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


# ---- exit codes (W46; 130 and 143 below)


EXITS: dict[str, tuple[int, dict[str, str], list[str], str]] = {
    "W45: an answer, after a denial": (
        0,
        program(WRITE, {"say": "I may not."}),
        ["go"],
        "Auto-deny mode: write_file requires approval",
    ),
    "W33: the run failed": (
        1,
        program({"say": "no json"}, {"say": "none either"}, keys="output_schema: {type: object}"),
        ["go"],
        "the answer does not match output_schema: $",
    ),
    "the answer was withheld": (1, program({"finish": "refused"}), ["go"], "withheld its answer"),
    "W7: a broken forge.yaml": (
        2,
        program() | {"forge.yaml": "modle: x\n"},
        ["go"],
        "forge: forge.yaml:1: modle: unknown key 'modle'; did you mean 'model'?",
    ),
    "no input": (2, program(), ["-i", " "], "the input is empty: give it as words, with --input or --file"),
    "no such directory": (2, {}, ["-p", "nowhere", "go"], "forge: no such directory: "),
    "no such session": (2, {}, ["--resume", "abc", "go"], "no session 'abc'; `forge sessions list` shows them"),
    "no such module file": (
        2,
        {"main.worker": worker(toolsets="{custom: {module: ./tols.py, tools: [f]}}"), "tools.py": ""},
        ["-m", "scripted:s.yaml", "go"],
        "main.worker:3: toolsets.custom.module: Failed to load custom tools from ./tols.py: tols.py: file not found; "
        "did you mean 'tools.py'?",
    ),
    "W19: a price that nobody knows": (2, program(), ["--max-cost", "1", "go"], "add to forge.yaml `pricing:"),
    "W15: code that nobody trusts": (
        3,
        {
            "main.worker": worker(toolsets="{custom: {module: ./tools.py, tools: [f]}}"),
            "tools.py": 'open("imported", "w")\ndef f() -> int:\n    return 1\n',
        },
        ["-m", "scripted:s.yaml", "go"],
        "is not trusted; read it, then run `forge trust`",
    ),
    "W31: the iterations are used up": (
        4,
        program(LOOK, LOOK, LOOK, keys="max_iterations: 3"),
        ["go"],
        "Maximum iterations (3) exceeded",
    ),
    "no key": (5, {}, ["-m", "openai:x", "go"], "set the environment variable OPENAI_API_KEY"),
    "no model": (
        5,
        {},
        ["go"],
        "no model is configured: `forge models setup` chooses one, or give `--model provider:name`",
    ),
}


@pytest.mark.parametrize("case", EXITS)
def test_w46_each_exit_code_has_its_scenario_and_says_what_to_do(desk: Desks, forge_here: Any, case: str) -> None:
    code, files, words, says = EXITS[case]
    place = desk(files)
    ended, out, err = forge_here(place, *words)
    assert (ended, out) == (code, "I may not.\n" if code == 0 else ""), err
    assert says in err and "Traceback" not in err
    assert not (place.root / "imported").exists() and not (place.root / "made.txt").exists()
    if code in (2, 3, 5) and case != "no input":  # that is found out in the session
        assert place.journals == [], "nothing ran, so nothing is left behind"


def test_an_empty_answer_is_no_silence(desk: Desks, forge_here: Any) -> None:
    place = desk(program({"finish": "stop"}))
    warning = "the answer of scripted:s.yaml is empty; ask again, or try another model"
    for words in ((), ("-t", "quiet"), ("--json",)):
        ended, out, err = forge_here(place, *words, "go")
        assert ended == 0 and err.count(f"warning: {warning}") == 1
        if words == ("--json",):
            assert json.loads(out.splitlines()[-1])["data"]["warning"] == warning
        else:
            assert out == ""


@pytest.mark.parametrize(
    ("words", "last"),
    [
        (("run", "--json", "go"), '"runResult"'),
        pytest.param(("call", "list_files", "--path", "/workspace"), "main.worker", marks=pytest.mark.long),
    ],
)
def test_ctrl_c_after_the_last_line_changes_nothing(desk: Desks, words: tuple[str, ...], last: str) -> None:
    """Again and again, until the process is gone."""
    place = desk(program({"say": "Done."}))
    with subprocess.Popen(
        [FORGE, *words],
        cwd=place.root,
        env=place.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        while last not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.001)
        assert process.returncode == 0 and "Traceback" not in process.stderr.read()


def test_w19_a_partial_answer_is_printed_before_exit_4(desk: Desks, forge_here: Any) -> None:
    first = {"say": "So far.", **LOOK, "usage": {"input": 19_000, "output": 850}}
    place = desk(program(first, {"say": "never"}, keys="budget: {max_tokens: 20000}"))
    code, out, err = forge_here(place, "go")
    assert (code, out) == (4, "So far.\n")
    assert "budget exceeded: max_tokens 20000 (used 19850)" in err


# ---- headless (W45, U28, U37)


@pytest.mark.parametrize(
    ("words", "status"), [((), "success"), (("--set", "approval.tools.write_file=blocked"), "policy_denied")]
)
def test_w45_u37_a_tool_that_asks_is_answered_by_the_mode(
    desk: Desks, forge_here: Any, words: tuple[str, ...], status: str
) -> None:
    place = desk(program(WRITE, {"say": "I am done."}))
    code, out, err = forge_here(place, "go", "-a", "approve_all", *words)
    assert (code, out) == (0, "I am done.\n"), err
    (done,) = place.calls()
    assert (done.tool, done.status) == ("write_file", status) and done.error in err
    assert (place.root / "made.txt").exists() is (status == "success")


def test_json_says_so_where_there_is_no_session(desk: Desks, forge_here: Any) -> None:
    place = desk({})
    code, out, _ = forge_here(place, "--json", "-m", "openai:x", "go")
    events = [Event.from_json(line) for line in out.splitlines()]
    assert (code, [event.type for event in events]) == (5, ["status", "runResult"])
    assert "OPENAI_API_KEY" in events[0].wire["message"] and events[1].wire["status"] == "model_unavailable"
    assert place.journals == []


# ---- signals (W46: 130, 143)


@pytest.mark.parametrize(
    ("number", "code", "status"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_w46_a_signal_ends_a_running_tool_and_the_command(
    desk: Desks, until: Any, finish: Any, number: signal.Signals, code: int, status: str
) -> None:
    marker = f"6{os.getpid()}.{code}"
    command = call("exec_command", cmd=f"sleep {marker} & touch begun; sleep {marker}; echo never > after")
    files = program({"say": "Waiting.", **command}, {"say": "never"}) | {
        "main.worker": worker(toolsets="{filesystem: , coding: }")
    }
    place = desk(files)
    process = place.start("run", "--json", "-a", "approve_all", "go")
    until((place.root / "begun").exists, "the command runs")
    with within(5):
        process.send_signal(number)
        ran = finish(process)
    assert ran.code == code, ran.err
    assert marked(marker, ROOM) == [], "no process is left"
    events = [Event.from_json(line) for line in ran.out.splitlines()]
    last = events[-1].wire
    assert (events[-1].type, last["success"], last["status"]) == ("runResult", True, status)
    assert (last["response"], last["partial"]) == ("[Interrupted]", "Waiting.")
    assert [event.wire["reason"] for event in events if event.type == "sessionEnd"] == ["interrupted"]
    assert [each.status for each in place.calls()] == ["interrupted"]
    assert not (place.root / "after").exists()


# ---- words and workers


def test_a_bare_flag_a_name_and_a_resumed_session(desk: Desks, forge_here: Any) -> None:
    place = desk(
        {
            "forge.yaml": "model: scripted:s.yaml\n",
            "main.worker": worker(),
            "workers/analyzer.worker": worker(name="analyzer"),
            "s.yaml": json.dumps({"workers": {"main": [{"say": "I am main."}], "analyzer": [{"say": "I analyze."}]}}),
            "other.yaml": script({"say": "I am other."}),
            "more.yaml": script({"expect": "and then?", "say": "I remember."}),
        }
    )
    bare = place.forge("--model", "scripted:other.yaml", "--input", "hi")
    assert (bare.code, bare.out) == (0, "I am other.\n"), bare.err
    assert forge_here(place, "analyzer", "look", "here")[:2] == (0, "I analyze.\n")
    again = forge_here(place, "--resume", "last", "-m", "scripted:more.yaml", "and", "then?")
    assert again[:2] == (0, "I remember.\n"), again
    said = [[each["text"] for each in place.history(at) if each["role"] == "assistant"] for at in range(2)]
    assert sorted(said) == [["I am other."], ["I analyze.", "I remember."]], "the resumed one goes on in its journal"


def on_terminal(place: Any, *words: str) -> pexpect.spawn:
    env = place.environ | {"TERM": "xterm-256color"}
    return place.ready.expecting(words, cwd=str(place.root), env=env, encoding="utf-8", timeout=PATIENCE, echo=False)


def ended(child: pexpect.spawn) -> tuple[int, str]:
    """The exit code, and the last that was written."""
    child.expect(pexpect.EOF)
    child.close()
    return int(child.exitstatus), str(child.before)


def test_w20_without_a_key_a_terminal_starts_all_the_same_and_says_so(desk: Desks) -> None:
    child = on_terminal(desk({}))
    child.expect("Esc leaves without a change")
    child.send("\x1b")
    child.expect("No model yet: `forge models setup` chooses one.")
    child.expect("/tools")
    child.expect("default")  # the line below the prompt
    child.send("\x04")
    assert ended(child)[0] == 0


def test_w46_sigterm_at_an_idle_prompt_ends_the_conversation(desk: Desks) -> None:
    child = on_terminal(desk(program({"say": "Good day."}, keys="mode: chat")))
    child.expect("main · scripted")  # the line below the prompt
    child.send("hello\r")
    child.expect("Good day.")
    child.expect("context")
    child.kill(signal.SIGTERM)
    code, said = ended(child)
    assert (code, "Traceback" in said) == (143, False)


def test_leaving_instead_of_giving_a_single_worker_its_input(desk: Desks) -> None:
    child = on_terminal(desk(program({"say": "never"}, keys="mode: single")))
    child.expect("main · scripted")
    child.send("\x04")
    code, said = ended(child)
    assert (code, "Traceback" in said) == (0, False)


@pytest.mark.parametrize(
    ("files", "words", "code", "says"),
    [
        ({"forge.yaml": "modle: x\n"}, [], 2, "did you mean 'model'?"),
        ({}, ["run", "-m", "openai:x", "go"], 5, "OPENAI_API_KEY"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_drawn(
    desk: Desks, files: dict[str, str], words: list[str], code: int, says: str
) -> None:
    ended_with, said = ended(on_terminal(desk(files), *words))
    assert says in said and "\x1b" not in said
    assert ended_with == code


# ---- a dry run (W47)


WATCHED = """
import sys
seen = []
def hook(event, args):
    if event.startswith(("subprocess.", "os.fork", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "socket.")):
        seen.append(event)
    if event in ("os.mkdir", "os.rename", "os.remove"):
        seen.append(f"{event} {args[0]}")
sys.addaudithook(hook)
from golem_forge.cli.main import main
for words in (["go"], ["--json", "go"]):
    code = main(["run", "--dry-run", *words])
    heavy = {"rich", "prompt_toolkit", "pydantic_ai"} & set(sys.modules)
    print(f"{code} {seen} {sorted(heavy)}", file=sys.stderr)
    print(chr(0), flush=True)
"""


def test_w47_a_dry_run_shows_everything_and_does_nothing(desk: Desks, wire: Any) -> None:
    with wire.WireServer() as server:
        place = desk(
            {
                "forge.yaml": f"model: openai:gpt\nmodels: {{openai: {{base_url: {server.base_url('openai')}}}}}\n"
                "sandbox:\n  zones:\n    workspace: {path: src, approval: {write: preApproved}}\n"
                "    refs: {path: docs, mode: ro}\n"
                "approval: {mode: auto_deny, tools: {delete_file: blocked}}\nbudget: {max_tokens: 500}\n",
                "docs/a": "",
                "src/a": "",
                "tools.py": 'open("imported", "w")\ndef count() -> int:\n    return 1\n',
                "main.worker": "---\nname: main\n"
                "sandbox: {zones: [{name: workspace}, {name: refs}]}\n"
                "toolsets:\n  filesystem:\n  coding:\n"
                "  workers: {allow: [analyzer, greedy], approval: {default: ask}}\n"
                "  custom: {module: ./tools.py, tools: [count], approval: {default: preApproved}}\n---\n",
                "workers/analyzer.worker": "---\nname: analyzer\nmodel: anthropic:x\n---\n",
                "workers/greedy.worker": "---\nname: greedy\nsandbox: {zones: [{name: refs, mode: rw}]}\n---\n",
            },
            OPENAI_API_KEY="canary-key-4711",
        )
        place.trust()
        before = {path: path.stat().st_mtime_ns for path in place.home.rglob("*")}
        ran = subprocess.run(
            [sys.executable, "-B", "-c", WATCHED],
            cwd=place.root,
            env=place.environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert ran.stderr == "0 [] []\n" * 2
        assert server.requests == [] and place.journals == [] and not (place.root / "imported").exists()
        assert {path: path.stat().st_mtime_ns for path in place.home.rglob("*")} == before
    text, as_json, _ = ran.stdout.split("\0")
    facts = json.loads(as_json)
    assert "canary-key-4711" not in ran.stdout
    tools = {tool["name"]: tool for tool in facts["tools"]}
    says = {name: (tool["verdict"], tool["then"]) for name, tool in tools.items()}
    assert says["write_file"] == ("by target", "")
    assert tools["write_file"]["zones"] == {"workspace": "preApproved", "refs": "blocked"}
    assert says["delete_file"] == ("blocked", "refused")
    assert says["read_file"][0] == says["exec_command"][0] == "by target"
    assert says["update_plan"] == ("preApproved", "runs") and says["webfetch"] == ("ask", "denied")
    assert says["count"] == ("not loaded in a dry run", "") and "preApproved" in tools["count"]["why"]
    assert facts["zones"][1] == {"name": "refs", "mode": "ro", "directory": str(place.root / "docs"), "default": False}
    assert [(each["name"], each["verdict"], each["then"], each["model"]) for each in facts["workers"]] == [
        ("analyzer", "ask", "denied", "anthropic:x"),
        ("greedy", "ask", "denied", "openai:gpt"),
    ]
    assert facts["workers"][0]["refused"] == "" and "refs" in facts["workers"][1]["refused"]
    assert facts["model"] == {"name": "openai:gpt", "from": "forge.yaml", "key": "OPENAI_API_KEY", "problem": ""}
    assert facts["approval"] == {"mode": "auto_deny", "from": "forge.yaml:7"}, "W48: without -a the file's mode holds"
    assert facts["budget"]["session"] == {"max_tokens": 500} and facts["program"]["trusted"] is True
    for name in (*tools, "analyzer", "greedy", "openai:gpt", "auto_deny", "max_tokens 500", "/refs"):
        assert name in text


def test_w47_a_dry_run_of_a_stranger_says_what_does_not_count(desk: Desks, forge_here: Any) -> None:
    place = desk(
        {
            "forge.yaml": "approval: {mode: approve_all, tools: {count: preApproved}}\n"
            "pricing: {a:b: {input: 1, output: 1}}\n",
            "main.worker": worker(toolsets="{custom: {module: ./tools.py, tools: [count]}}"),
            "tools.py": "",
        }
    )
    facts = json.loads(forge_here(place, "--dry-run", "--json", "--headless")[1])
    assert facts["program"]["trusted"] is False and "exit 3" in facts["program"]["start"]
    assert facts["approval"]["mode"] == "auto_deny"
    (notice,) = facts["notices"]
    assert "forge trust" in notice and "pricing" in notice and "approve_all" in notice
    (count,) = [tool for tool in facts["tools"] if tool["name"] == "count"]
    assert count["why"].startswith("ask unless the tool decides for itself")
    assert facts["model"]["problem"].startswith("no model is configured")


# ---- attachments (W44)


@pytest.mark.parametrize(
    ("policy", "names", "says"),
    [
        ("{}", ["1", "2", "3", "4", "5"], "5 attachments; this worker takes at most 4"),
        ("{allowed_suffixes: [.pdf]}", ["a.PDF"], ""),
    ],
)
def test_w44_attachments_are_held_against_the_workers_policy(
    desk: Desks, forge_here: Any, policy: str, names: list[str], says: str
) -> None:
    place = desk(program({"say": "Read."}, keys=f"attachment_policy: {policy}"))
    place.write(**dict.fromkeys(names, "x"))
    code, out, err = forge_here(place, "go", *(word for name in names for word in ("-A", name)))
    assert (code, out) == ((2, "") if says else (0, "Read.\n")), err
    assert says in err


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from strings(each)


def test_w44_a_binary_arrives_in_the_child_as_it_is(desk: Desks, wire: Any) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 3 + b"\r\n\0"
    hand_over = wire.WireCall(name="analyzer", args={"input": "look", "attachments": ["/workspace/pic.png"]})
    with wire.WireServer(
        [wire.WireTurn(calls=(hand_over,)), wire.WireTurn(say="A picture."), wire.WireTurn(say="It said so.")]
    ) as server:
        place = desk(
            {
                "forge.yaml": f"model: anthropic:claude\nmodels: {{anthropic: {{base_url: {server.url}}}}}\n",
                "main.worker": worker(toolsets="{workers: {allow: [analyzer], approval: {default: preApproved}}}"),
                "workers/analyzer.worker": "---\nname: analyzer\n---\nLook.\n",
            },
            ANTHROPIC_API_KEY="canary-key-4712",
        )
        (place.root / "pic.png").write_bytes(picture)
        place.trust()
        ran = place.forge("run", "go")
        assert (ran.code, ran.out) == (0, "It said so.\n"), ran.err
        sent = [base64.b64encode(picture).decode() in set(strings(request.body)) for request in server.requests]
    assert sent == [False, True, False]


# ---- a worker in a YAML file


def test_a_worker_in_a_yaml_file_that_is_named_runs(desk: Desks, forge_here: Any) -> None:
    files = {"helper.yaml": "helper", "team/agent.yml": "agent"}
    workers = {file: f"name: {name}\ninstructions: You are the {name}.\n" for file, name in files.items()}
    place = desk({"s.yaml": script({"say": "I helped."}), "forge.yaml": "model: scripted:s.yaml\n", **workers})
    for file, name in files.items():
        code, out, err = forge_here(place, "--json", f"./{file}" if "/" in file else file, "do it")
        events = [Event.from_json(line) for line in out.splitlines()]
        assert code == 0 and events[-1].wire["response"] == "I helped.", err
        started = next(event.wire["worker"] for event in events if "worker" in event.wire)
        assert started == name
    code, out, err = forge_here(place, "forge.yaml", "do it")
    assert (code, out) == (2, "") and "forge.yaml: is the config of a program, not a worker" in err
