"""Forge in an editor: programs of others start `forge acp` and show what it does (spec/editors.md, cases 1 to 8).

`acpx`, the TypeScript SDK's client and the Python SDK's client are foreign; what none of them does is written by hand.
Only the words of the model are scripted.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema
from tests.acceptance.conftest import marked, until
from tests.acceptance.mcp_bench import PROGRAMS, PYTHON
from tests.deadlines import PATIENCE, ROOM, within
from tests.mcp import foreign
from tests.ui.acp.editor import FILES, Editor

CLIENTS = Path(__file__).parent / "clients"
SDK = foreign.NODE_MODULES / "@agentclientprotocol" / "sdk" / "dist" / "v1" / "stable" / "acp.js"
ACPX = foreign.NODE_MODULES / "acpx" / "dist" / "cli.js"
SERVED = FILES["main.worker"].replace("  plan: {}", '  plan: {}\n  mcp: {servers: ["*"]}')
WRITE = 'turns: [{calls: [{tool: write_file, args: {path: /workspace/new.txt, content: "x\\n"}}]}, {say: Tried.}]\n'


@pytest.fixture
def program(desk: Callable[..., Any]) -> Any:
    made = desk(FILES)
    made.trust()
    made.know_walls()
    return made


def installed(file: Path) -> str:
    foreign.path("node")
    if not file.is_file():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{file.name} is not installed: make foreign")
    return str(file)


def acpx(program: Any, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*foreign.node(), installed(ACPX), "--cwd", str(program.root), "--agent", f"{program.ready.forge} acp"]
    environ = {**program.environ, "PATH": f"{foreign.BIN}:{os.environ['PATH']}", "HOME": str(program.home.parent)}
    return subprocess.run(
        [*command, *words], cwd=program.root, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


# ---- 1: foreign clients


@pytest.mark.long
def test_acpx_shows_a_whole_session(program: Any) -> None:
    ran = acpx(program, "--approve-all", "--format", "json", "exec", "hello")
    assert ran.returncode == 0, ran.stderr
    frames = [json.loads(line) for line in ran.stdout.splitlines()]
    updates = [frame["params"]["update"] for frame in frames if frame.get("method") == "session/update"]
    kinds = {update["sessionUpdate"] for update in updates}
    assert {"agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"} <= kinds
    said = "".join(each["content"]["text"] for each in updates if each["sessionUpdate"] == "agent_message_chunk")
    assert "I look first." in said and "It is done." in said
    assert (program.root / "a.txt").read_text() == "one\nthree\n"
    assert [call.status for call in program.calls() if call.tool == "write_file"] == ["success"]


def test_the_typescript_client_runs_a_whole_session(program: Any) -> None:
    """Text, thought, plan, calls with diffs and locations, permission, cancel, mode, load."""
    steps = [{"prompt": "hello"}, {"prompt": "/tool exec_command --cmd 'echo a; sleep 60'", "cancelAt": "tool_call"}]
    steps += [{"mode": "strict"}, {"load": True}]
    forge = program.ready.forge
    orders = {"command": str(forge), "args": ["acp"], "cwd": str(program.root), "steps": steps}
    ran = subprocess.run(
        [*foreign.node(), str(CLIENTS / "acp_client.mjs"), installed(SDK), json.dumps(orders)],
        env=program.environ, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    got = json.loads(ran.stdout)
    assert got["hello"]["protocolVersion"] == 1 and got["code"] == 0
    assert [each.get("stopReason") for each in got["answers"][:2]] == ["end_turn", "cancelled"]
    file = str(program.root / "a.txt")
    [permission, *_] = got["asked"]
    [diff] = [each for each in permission["toolCall"]["content"] if each["type"] == "diff"]
    assert (diff["path"], diff["oldText"], diff["newText"]) == (file, "one\ntwo\n", "one\nthree\n")
    read = next(each for each in got["updates"] if each.get("kind") == "read")
    assert read["locations"] == [{"path": file, "line": 1}]
    written = [each for each in got["updates"] if each.get("status") == "completed" and each.get("locations")]
    assert {"path": file, "line": 2} in [place for each in written for place in each["locations"]]
    [plan] = [each for each in got["updates"] if each["sessionUpdate"] == "plan"][:1]
    assert [(each["status"], each["priority"]) for each in plan["entries"]] == [
        ("completed", "medium"),
        ("in_progress", "medium"),
    ]
    replayed = [each["sessionUpdate"] for each in got["answers"][3]["replayed"]]
    assert replayed[0] == "user_message_chunk" and "tool_call" in replayed


class _SdkClient(acp.Client):
    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        self.updates.append((session_id, update))

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **more: Any) -> Any:
        self.asked.append(tool_call)
        chosen = next(each for each in options if each.kind == "allow_once")
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        )


async def test_the_python_client_runs_two_sessions_at_once(program: Any) -> None:
    client = _SdkClient()
    async with acp.spawn_agent_process(
        client, str(program.ready.forge), "acp", cwd=program.root, env=program.environ
    ) as (agent, _):
        hello = await agent.initialize(protocol_version=9)
        assert hello.protocol_version == 1, "the answer to a higher version"
        opened = [await agent.new_session(cwd=str(program.root), mcp_servers=[]) for _ in range(2)]
        ids = [each.session_id for each in opened]
        assert len(set(ids)) == 2 and opened[0].modes.current_mode_id == "interactive"
        done = await asyncio.gather(*(agent.prompt(session_id=each, prompt=[acp.text_block("hello")]) for each in ids))
        assert [each.stop_reason for each in done] == ["end_turn", "end_turn"]
        listed = await agent.list_sessions(cwd=str(program.root))
        assert {each.session_id for each in listed.sessions} == set(ids)
        assert {each.title for each in listed.sessions} == {"hello"}
    chunks = [(of, each) for of, each in client.updates if each.session_update == "agent_message_chunk"]
    for session in ids:
        said = "".join(each.content.text for of, each in chunks if of == session)
        assert said.partition("\n")[0] == "I look first.It is done."
    assert len(client.asked) == 2


# ---- 2, 3: a write asks


ANSWERS: dict[str, tuple[Any, str, str]] = {
    "reject_once": ("reject_once", "end_turn", "approval_denied"),
    "cancelled": (lambda _: {"outcome": {"outcome": "cancelled"}}, "cancelled", "approval_denied"),
    "allow_once": ("allow_once", "end_turn", "success"),
}


def test_a_write_asks_and_the_answer_counts(program: Any) -> None:
    file = program.root / "new.txt"
    with Editor(program, name="Zed") as editor:
        for answer, (editor.answers, stop, status) in ANSWERS.items():
            editor.forget()
            session = editor.new()
            editor.use_script(session, write=WRITE)
            assert editor.prompt(session, "write it") == {"stopReason": stop}
            [asked] = editor.asked()
            [card, diff] = asked["toolCall"]["content"]
            assert diff == {"type": "diff", "path": str(file), "oldText": None, "newText": "x\n"}
            assert "Writing in /workspace asks." in card["content"]["text"]
            assert str(program.root) not in card["content"]["text"]
            kinds = [each["kind"] for each in asked["options"]]
            assert kinds[0] == "allow_once" and kinds[-1] == "reject_once" and "allow_always" in kinds
            last = editor.updates("tool_call_update")[-1]
            editor.prompt(session, "/why")
            assert "acp:Zed" in editor.text()
            yes = answer == "allow_once"
            assert last["status"] == ("completed" if yes else "failed")
            assert yes or last["content"][0]["content"]["text"].startswith("approval_denied: ")
            at = [path.stem for path in program.journals].index(session)
            [call] = program.calls(at)
            assert (call.starts, call.status) == (int(yes), status)
            assert file.exists() is yes
            [resolved] = [each["data"] for each in program.records(at) if each.get("event") == "approvalResolved"]
            assert (resolved["approved"], resolved["by"]) == (yes, "acp:Zed")
    assert file.read_text() == "x\n"


def test_an_editor_that_dies_with_a_question_open_denies_it(program: Any, marker: str) -> None:
    program.write(**{"s.yaml": WRITE})
    editor = Editor(program, "-m", "scripted:s.yaml")
    editor.answers = None
    session = editor.new()
    editor.begin_prompt(session, "write it")
    editor.until(lambda frame: frame.get("method") == "session/request_permission", "the question")
    with within(2):
        assert editor.leave(2 + ROOM) == 0
    [call] = program.calls()
    assert (call.starts, call.status) == (0, "approval_denied") and not (program.root / "new.txt").exists()
    assert "the UI is gone" in call.error
    assert program.forge("log", "verify").code == 0


def test_what_is_allowed_always_does_not_ask_again(program: Any) -> None:
    call = "{calls: [{tool: exec_command, args: {cmd: touch b.txt}}]}"
    twice = f"turns: [{call}, {call}, {{say: Done.}}]\n"
    with Editor(program) as editor:

        def lasting(options: list[Any]) -> Any:
            return next(
                each for each in options if each["kind"] == "allow_always" and "remembered.yaml" in each["name"]
            )

        editor.answers = lambda frame: {
            "outcome": {"outcome": "selected", "optionId": lasting(frame["params"]["options"])["optionId"]}
        }
        session = editor.new()
        editor.use_script(session, twice=twice)
        assert editor.prompt(session, "run it twice") == {"stopReason": "end_turn"}
        [asked] = editor.asked()
        assert "touch …" in lasting(asked["options"])["name"]
        editor.prompt(session, "/rules")
        assert "touch" in editor.text()
    assert [call.status for call in program.calls()] == ["success", "success"]
    listed = program.forge("rules", "list").out
    assert "touch" in listed and "remembered" in listed


# ---- 4: cancel

SPEAKS = f"turns: [{{say: {'A long answer. ' * 40}, chunks: 200, until: never}}]\n"
RUNS = "turns: [{calls: [{tool: exec_command, args: {cmd: 'echo started; : MARKER; sleep 60'}}]}]\n"
HELPS = """\
workers:
  main: [{calls: [{tool: helper, args: {input: go}}]}]
  helper: [{calls: [{tool: exec_command, args: {cmd: 'echo started; : MARKER; sleep 60'}}]}]
"""


def printed(frame: Any) -> bool:
    """What the command says, not the text of the command."""
    return "started" in json.dumps(frame.get("params", {}).get("update", {}).get("content"))


def test_cancel_settles_within_a_second(program: Any, marker: str) -> None:
    """Whatever goes on: text, an open question, a command, a command of a sub-worker."""
    with Editor(program) as editor:
        session = editor.new()
        for what, script in {"text": SPEAKS, "question": WRITE, "command": RUNS, "helper": HELPS}.items():
            editor.forget()
            editor.use_script(session, slow=script.replace("MARKER", marker))
            editor.answers = None if what == "question" else "allow_once"
            number = editor.begin_prompt(session, "go")
            if what == "text":
                editor.until_update("agent_message_chunk")
            elif what == "question":
                editor.until(lambda frame: frame.get("method") == "session/request_permission", "the question")
            else:
                editor.until(printed, "output")
            with within(1):
                editor.notify("session/cancel", sessionId=session)
                assert editor.result(number) == {"stopReason": "cancelled"}
            assert marked(marker, ROOM) == []
            editor.use_script(session, next="turns: [{say: I am here again.}]\n")
            assert editor.prompt(session, "and now?") == {"stopReason": "end_turn"}
            assert "I am here again." in editor.text()
    assert not (program.root / "new.txt").exists()


def test_an_editor_that_dies_leaves_nothing_running(program: Any, marker: str) -> None:
    """Two sessions at work, one of them with a command of its sub-worker."""
    editor = Editor(program)
    for script in (RUNS, HELPS):
        session = editor.new()
        editor.use_script(session, slow=script.replace("MARKER", marker))
        editor.begin_prompt(session, "go")
        editor.until(printed, "output")
        editor.forget()
    with within(2):
        assert editor.leave(2 + ROOM) == 0
    assert marked(marker, ROOM) == []
    assert program.forge("log", "verify").code == 0


# ---- 5: load


def test_a_killed_session_is_loaded_with_its_history(program: Any, marker: str) -> None:
    command = f"echo x >> ran; : {marker}; sleep 60"
    call = f"{{tool: exec_command, args: {{cmd: '{command}'}}}}"
    runs = f"turns: [{{say: I begin.}}, {{say: Now I run it., calls: [{call}]}}]"
    editor = Editor(program)
    session = editor.new()
    editor.use_script(session, runs=runs)
    editor.prompt(session, "first")
    editor.begin_prompt(session, "second")
    editor.until_update("tool_call_update", status="in_progress")
    until((program.root / "ran").exists, "the command runs")
    editor.process.kill()
    editor.process.wait(PATIENCE)
    assert marked(marker, ROOM) == []
    with Editor(program) as again:
        answer = again.request("session/load", sessionId=session, cwd=str(program.root), mcpServers=[])
        assert answer["modes"]["currentModeId"] == "interactive", answer
        replayed = again.updates(session=session)
        texts = [
            (each["sessionUpdate"], each["content"]["text"])
            for each in replayed
            if each["sessionUpdate"].endswith("message_chunk")
        ]
        assert [text for text in texts if not text[1].startswith("Note:")] == [
            ("user_message_chunk", "first"),
            ("agent_message_chunk", "I begin."),
            ("user_message_chunk", "second"),
            ("agent_message_chunk", "Now I run it."),
        ]
        [told] = [each for each in replayed if each.get("status") == "failed"]
        assert "may have run" in told["content"][0]["content"]["text"]
        again.use_script(session, next="turns: [{say: I went on.}]\n")
        assert again.prompt(session, "go on") == {"stopReason": "end_turn"}
        unknown = again.request("session/load", sessionId="0" * 32, cwd=str(program.root), mcpServers=[])
        assert unknown["error"]["code"] == -32002
    assert len(program.journals) == 1
    assert (program.root / "ran").read_text() == "x\n", "nothing ran again"


# ---- 6: nothing that the editor names is started or trusted


def test_servers_of_the_editor_and_trust_are_never_granted_by_an_answer(program: Any) -> None:
    secret = "sekret-9d1f3c"
    pwned = program.root / "pwned"
    server = {"name": "evil", "command": "touch", "args": [str(pwned)], "env": [{"name": "TOKEN", "value": secret}]}
    remote = {"type": "http", "name": "far", "url": "http://127.0.0.1:9/", "headers": [{"name": "K", "value": secret}]}
    program.write(
        **{"forge.yaml": "model: scripted:script.yaml\napproval: {mode: approve_all}\n", "main.worker": SERVED}
    )
    with Editor(program) as editor:  # the edit took the trust away, and the editor says yes to everything
        opened = editor.request("session/new", cwd=str(program.root), mcpServers=[server, remote])
        assert "approve_all" not in [each["id"] for each in opened["modes"]["availableModes"]]
        session = opened["sessionId"]
        editor.prompt(session, "hello")
        first = editor.text()
        assert first.startswith("Note: This program is not trusted.")
        assert "forge trust" in first and "forge mcp approve" in first and "'evil'" in first
        refused = editor.request("session/set_mode", sessionId=session, modeId="approve_all")
        assert refused["error"]["code"] == -32602
        wrong = {**server, "args": secret}
        editor.request("session/new", cwd=str(program.root), mcpServers=[wrong], additionalDirectories=secret)
        assert all(asked["toolCall"]["kind"] != "other" for asked in editor.asked())
        assert secret not in json.dumps(editor.frames)
    assert not pwned.exists()
    assert secret.encode() not in program.kept_bytes()


def test_a_server_of_the_program_waits_for_a_person_too(program: Any) -> None:
    """The client says yes to everything, the model calls the server's tool: it is not started."""
    server = "mcp: {servers: {evil: {command: touch, args: [pwned], zones: {workspace: rw}}}}\n"
    worker = FILES["main.worker"].replace("  plan: {}", "  plan: {}\n  mcp: {servers: [evil]}")
    program.write(**{"forge.yaml": FILES["forge.yaml"] + server, "main.worker": worker})
    program.trust()
    with Editor(program) as editor:
        session = editor.new()
        editor.use_script(session, s="turns: [{calls: [{tool: evil__run, args: {}}]}, {say: Tried.}]\n")
        assert editor.prompt(session, "use it") == {"stopReason": "end_turn"}
        assert "forge mcp approve evil" in editor.text() and editor.asked() == []
    assert not (program.root / "pwned").exists()


ECHO = "turns: [{calls: [{tool: say__echo, args: {text: hello}}]}, {say: Tried.}]\n"


def echo_server(program: Any, *more: str, token: str = "sekret-51aa07") -> dict[str, Any]:
    shutil.copy(PROGRAMS / "echo.py", program.root)
    args = ["-S", str(program.root / "echo.py"), *more]
    return {"name": "say", "command": PYTHON, "args": args, "env": [{"name": "TOKEN", "value": token}]}


def test_a_server_of_the_editor_is_approved_by_one_command(program: Any) -> None:
    """Pending and listed; one command shows it and lets it start, in the open session too; bytes are pinned."""
    program.write(**{"main.worker": SERVED})
    program.trust()
    server = echo_server(program)
    with Editor(program, name="zed") as editor:
        session = editor.new(mcpServers=[server])
        editor.use_script(session, s=ECHO)
        editor.prompt(session, "say it")
        assert "`forge mcp approve say`" in editor.text() and "approval_denied" in json.dumps(editor.updates())

        listed = program.forge("mcp", "list")
        assert "say   pending" in listed.out and "the editor zed" in listed.out, listed.out
        unread = program.forge("mcp", "approve", "say")
        assert unread.code == 3 and "runs: " in unread.err and "echo.py" in unread.err and "TOKEN" in unread.err
        assert program.forge("mcp", "approve", "say", "--yes").code == 0
        assert "say   known" in program.forge("mcp", "list").out

        editor.forget()
        editor.use_script(session, again=ECHO)
        assert editor.prompt(session, "say it again") == {"stopReason": "end_turn"}
        assert "hello" in json.dumps(editor.updates("tool_call_update"))

        for other in (echo_server(program, "--other"), echo_server(program, token="sekret-77bb10")):
            editor.forget()
            assert "It is pending" in said_about(editor, editor.new(mcpServers=[other]))
        editor.forget()
        assert "It is pending" not in said_about(editor, editor.new(mcpServers=[server]))
    with Editor(program, name="another") as editor:
        assert "It is pending" in said_about(editor, editor.new(mcpServers=[server]))
    assert "sekret" not in program.kept_bytes().decode(errors="replace")
    assert program.forge("mcp", "remove", "say").code == 0
    assert "say" not in program.forge("mcp", "list").out


def said_about(editor: Editor, session: str) -> str:
    """The first words of a session."""
    editor.prompt(session, "/status")
    return editor.text(session=session)


def test_a_server_of_the_editor_takes_no_name_of_the_program(program: Any) -> None:
    own = "mcp: {servers: {say: {command: /bin/false}}}\n"
    program.write(**{"main.worker": SERVED, "forge.yaml": FILES["forge.yaml"] + own})
    program.trust()
    with Editor(program) as editor:
        said = said_about(editor, editor.new(mcpServers=[echo_server(program)]))
    assert "'say' is not used: the program has one of that name" in said
    assert "/bin/false" in program.forge("mcp", "show", "say").out


# ---- 7: a hostile client


def malformed(count: int) -> list[bytes]:
    rng = random.Random(7)
    fixed = [b"[]", b"5", b"null", b'"x"', b"{", b"}", b"{}", b'{"jsonrpc": "2.0"}', b"\xff\xfe", b"[" * 5000, b"NaN"]
    fixed += [b'{"jsonrpc":"2.0","id":{},"method":"session/prompt"}', b'{"jsonrpc":"2.0","id":[1],"result":{}}']
    fixed += [b'{"jsonrpc":"2.0","id":1.5,"method":"session/new"}', b'{"jsonrpc":"2.0","id":true,"method":"x"}']
    fixed += [b'{"jsonrpc":"2.0","id":9,"method":5}', b'{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":[]}']
    fixed += [b'{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":{"sessionId":5,"prompt":"x"}}']
    fixed += [b'{"jsonrpc":"1.0","id":9,"method":"initialize"}', b'{"jsonrpc":"2.0","id":"n","method":"no/such"}']
    fixed += [b'{"jsonrpc":"2.0","id":9,"method":"session/new","params":{"cwd":"/","mcpServers":{"a":1}}}']
    fixed += [b'{"jsonrpc":"2.0","id":77,"result":{"outcome":{"outcome":"selected","optionId":"allow_once"}}}']
    fixed += [b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":{}}}']
    whole = b'{"jsonrpc":"2.0","id":9,"method":"session/list","params":{}}'
    halves = [whole[: rng.randrange(1, len(whole))] for _ in range(100)]
    noise = [bytes(rng.randrange(1, 255) for _ in range(rng.randrange(1, 60))).replace(b"\n", b" ") for _ in range(100)]
    pool = fixed + halves + noise
    return [pool[at % len(pool)] for at in range(count)]


def test_a_thousand_malformed_frames_leave_the_session_usable(program: Any) -> None:
    with Editor(program) as editor:
        session = editor.new()
        editor.forget()
        for frame in malformed(999):
            editor.process.stdin.write(frame + b"\n")
        editor.process.stdin.write(b'{"jsonrpc":"2.0","id":9,"method":"' + b"x" * (17 << 20) + b'"}\n')
        editor.process.stdin.flush()
        assert editor.request("session/list", cwd=str(program.root)) == {"sessions": []}
        errors = [frame for frame in editor.frames if "error" in frame]
        codes = {frame["error"]["code"] for frame in errors}
        assert {-32700, -32600, -32601, -32602} == codes
        assert all(frame.get("jsonrpc") == "2.0" for frame in editor.frames)
        assert len(errors) > 800 and max(len(json.dumps(frame)) for frame in errors) < 2000
        assert editor.prompt(session, "hello") == {"stopReason": "end_turn"}
    assert b"Traceback" not in editor.process.stderr.read()


# ---- 8: where the editor is


def test_a_session_that_cannot_start_says_why(program: Any) -> None:
    program.write(
        **{"forge.yaml": "model: scripted:script.yaml\nsandbox: {zones: {workspace: {path: ./data, mode: rw}}}\n"}
    )
    (program.root / "data").mkdir()
    program.trust()
    said = {
        str(program.root): "outside of every zone",
        str(program.root / "nowhere"): "does not exist",
        "data": "absolute",
    }
    with Editor(program) as editor:
        for cwd, why in said.items():
            refused = editor.request("session/new", cwd=cwd, mcpServers=[])
            assert why in refused["error"]["message"], refused
            assert str(program.root) not in refused["error"]["message"]
        editor.new(cwd=str(program.root / "data"))
