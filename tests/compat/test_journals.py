"""What is written into FORGE_HOME, byte by byte: journals of scripted sessions, approval fingerprints, trust digests,
and the file of "always" answers.

The expected texts are in `journals/`. After a change that is meant, and only then, rewrite them and read the diff:

    FORGE_UPDATE_PINNED=1 pytest tests/compat/test_journals.py

Every session runs at one fixed path (see `make_home.at_place`), since fingerprints hold the resolved host paths. They
hold definition digests too, which contain the version of Forge: another version is another set of fingerprints. There
is no switch for time and random ids, so `portable` puts names in their place, in the order in which they first appear.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import known_walls
from tests.compat.make_home import SYSTEM_PATH, Answering, at_place, environment, write
from tests.ready import run_in_process

from golem_forge import ToolContext, WorkerRuntime, create_interrupt_signal, create_ui_event_bus, open_session, tool

PINNED = Path(__file__).parent / "journals"
UPDATE = os.environ.get("FORGE_UPDATE_PINNED") == "1"

_USAGE = "usage: {input: 100, output: 10}"
PROGRAM = {
    "forge.yaml": "sandbox: {zones: {workspace: {path: ., mode: rw, approval: {write: ask, delete: ask}}}}\n",
    "main.worker": """\
---
name: main
toolsets:
  filesystem:
  workers: {allow: [helper], approval: {default: preApproved}}
sandbox: {zones: [{name: workspace, mode: rw}]}
---
You keep the shop.
""",
    "workers/helper.worker": """\
---
name: helper
toolsets: {filesystem: }
sandbox: {zones: [{name: workspace, mode: ro}]}
---
You look things up.
""",
    "plain.worker": "---\nname: plain\nmax_iterations: 20\n---\nYou use what you are given.\n",
    "runner.worker": """\
---
name: runner
toolsets: {exec: }
sandbox: {zones: [{name: workspace, mode: rw}]}
---
You run commands.
""",
    "shop.txt": "7 mugs\n12 plates\n",
}


def script(turns: list[str] | dict[str, list[str]]) -> str:
    """Each turn is flow YAML; the tokens are given, or they would be an estimate."""

    def listed(each: list[str], indent: str) -> str:
        return "".join(f"{indent}- {{{turn}, {_USAGE}}}\n" for turn in each)

    if isinstance(turns, list):
        return "turns:\n" + listed(turns, "  ")
    return "workers:\n" + "".join(f"  {name}:\n{listed(each, '    ')}" for name, each in turns.items())


def call(name: str, **args: Any) -> str:
    return f"calls: [{json.dumps({'tool': name, 'args': args})}]"


# ---- from a journal to a text that is the same every time

_TIME = re.compile(r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"')
_NAMED = (
    ("id", re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")),
    ("mark", re.compile(r"(?<=--- )[0-9a-f]{16}(?= tool output ---)")),
    ("handle", re.compile(r"(?<=out_)[0-9a-f]{12}(?![0-9a-f])")),
)
_MEASURED = (
    (re.compile(r'"logHash":"[0-9a-f]{64}"'), '"logHash":"<hash of the change log>"'),
    (re.compile(r'"ms":\d+\.\d{3}(?=[,}])'), '"ms":<ms>'),
    (re.compile(r'"wall_s":\d+(\.\d+)?(?=[,}])'), '"wall_s":<s>'),
    (re.compile(r"Wall time: \d+\.\d{3} s"), "Wall time: <s> s"),
    (
        re.compile(r'"event":"wallsReport",("workerId":"[^"]*",)"data":\{[^{}]*\}'),
        r'"event":"wallsReport",\1"data":<walls>',
    ),
)
_SEAL = re.compile(r'^(\{"n":(\d+),.*),"hash":"([0-9a-f]{64})"\}$')


def portable(journal: bytes) -> str:
    """The lines of a journal without what differs from run to run; everything else stays as it is, to the byte.

    Hashes are checked and taken out: `hash = sha256(the hash before + every byte of the line before ,"hash":)`, with 64
    zeros before the first. Then: ids (32 hex digits), marks around tool output and handles of stored output → `<id 1>`,
    … in the order in which they appear; times → `<time>`; durations → `<ms>`, `<s>`; what the walls hold → `<walls>`;
    the hash of a line of the change log, which has a time in it.
    """
    assert journal.endswith(b"\n")
    previous, lines = "0" * 64, []
    for number, line in enumerate(journal.decode().splitlines(), 1):
        sealed = _SEAL.match(line)
        assert sealed is not None, f"line {number} has no hash: {line[:80]}"
        body, counted, kept = sealed.groups()
        assert int(counted) == number
        previous = hashlib.sha256(f"{previous}{body}".encode()).hexdigest()
        assert kept == previous, f"line {number} does not follow the one before it"
        lines.append(body + "}")
    text = _TIME.sub('"<time>"', "\n".join(lines) + "\n")
    for pattern, shown in _MEASURED:
        text = pattern.sub(shown, text)
    for kind, pattern in _NAMED:
        names: dict[str, str] = {}
        text = pattern.sub(
            lambda found, kind=kind, names=names: names.setdefault(found[0], f"<{kind} {len(names) + 1}>"), text
        )
    return text


def assert_same(name: str, text: str) -> None:
    """As the file of that name in `journals/`."""
    file = PINNED / name
    if UPDATE:
        PINNED.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), f"{file.name} is other; see the top of this file"


# ---- sessions


class Bench:
    def __init__(self, place: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.place, self.home, self.root = place, place / ".forge", place / "shop"
        self._capture = capture
        self.env = environment(place) | {"PATH": SYSTEM_PATH}

    def forge(self, *words: str, code: int = 0, cwd: Path | None = None) -> str:
        ran = run_in_process(self._capture, *words, cwd=cwd or self.root, env=self.env)
        assert ran.returncode == code, (words, ran.returncode, ran.stdout, ran.stderr)
        return str(ran.stdout)

    @property
    def journal(self) -> bytes:
        [file] = (self.home / "sessions").glob("*.jsonl")
        head = json.loads(file.with_suffix(".head").read_bytes())
        content = file.read_bytes()
        last = json.loads(content.splitlines()[-1])
        assert head == {"lines": last["n"], "hash": last["hash"]}
        return content

    async def run(self, turns: Any, worker: str, *inputs: str, answer: Any = None, **options: Any) -> list[Any]:
        """Each input is a turn of one session; the results."""
        write(self.root, {"script.yaml": script(turns)})
        if answer is not None:
            options["ui_adapter"] = Answering(create_ui_event_bus(), answer)
        results = []
        signal = options.get("interrupt_signal")
        async with WorkerRuntime(
            worker, directory=self.root, home=self.home, model="scripted:script.yaml", **options
        ) as runtime:
            for each in inputs:
                results.append(await runtime.turn(each))
                if signal is not None:
                    signal.reset()
            runtime.end()
        return results


@pytest.fixture
def bench(capfd: pytest.CaptureFixture[str], tried_walls: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with at_place("journals") as place:
        made = Bench(place, capfd)
        for name, value in made.env.items():
            monkeypatch.setenv(name, value)
        write(made.root, PROGRAM)
        known_walls.put(tried_walls, made.home)
        made.forge("trust", "--yes")
        yield made


async def test_a_session_with_calls_and_answers(bench: Bench) -> None:
    """A read, a write that is agreed to for the session, the same without a card, one that is edited, one denied."""

    def answer(card: Any) -> dict[str, Any]:
        if card.args["path"] == "price.txt":
            return {"approved": True, "choice": next(one["id"] for one in card.choices if one["scope"] == "session")}
        if card.args["path"] == "edited.txt":
            return {"approved": True, "args": {"path": "edited.txt", "content": "by a person"}}
        return {"approved": False, "reason": "not that file"}

    turns = [
        f"say: I will look., {call('read_file', path='shop.txt')}",
        call("write_file", path="price.txt", content="3\n"),
        call("write_file", path="price.txt", content="3\n"),
        call("write_file", path="edited.txt", content="by a model"),
        call("delete_file", path="shop.txt"),
        "think: That is all., say: Done.",
    ]
    [result] = await bench.run(turns, "main", "Write the price", answer=answer)
    assert result.response == "Done." and (bench.root / "edited.txt").read_text() == "by a person"
    assert_same("answers.jsonl", portable(bench.journal))


async def test_a_session_that_delegates(bench: Bench) -> None:
    turns = {
        "main": [call("helper", input="What is there?"), "say: Mugs."],
        "helper": [
            call("read_file", path="shop.txt"),
            call("write_file", path="no.txt", content="x"),
            "say: Mugs and plates.",
        ],
    }
    [result] = await bench.run(turns, "main", "What is there?")
    assert result.response == "Mugs."
    assert_same("delegation.jsonl", portable(bench.journal))


async def test_a_session_in_which_calls_fail(bench: Bench) -> None:
    """Each status that is no success, a batch that ends early, and a model that fails at last."""

    @tool(needs_approval=False)
    def broken(number: int) -> int:
        """Fail."""
        raise ValueError(f"no luck with {number}")

    @tool(needs_approval=False, timeout=0.2)
    async def slow() -> str:
        """Never end."""
        await asyncio.sleep(60)
        return "late"

    @tool(needs_approval="blocked")
    def closed() -> str:
        """Nobody may."""
        return "never"

    turns = [
        call("broken", number=1),
        call("broken", number="one"),
        call("brokn", number=1),
        call("closed"),
        call("slow"),
        "say: Half an ans, fail: {status: 400}",
    ]
    [result] = await bench.run(turns, "plain", "Try", tools=[broken, slow, closed])
    assert result.status == "model_unavailable"
    by_process = re.compile(r'(?<="fingerprint":")[0-9a-f]{64}(?=")')  # a function's definition differs by process
    assert_same("failures.jsonl", by_process.sub("<fingerprint>", portable(bench.journal)))


async def test_a_session_that_is_interrupted(bench: Bench) -> None:
    signal = create_interrupt_signal()

    @tool(needs_approval=False)
    async def wait(*, ctx: ToolContext) -> str:
        """Wait for ever."""
        signal.interrupt()
        await asyncio.sleep(60)
        return "never"

    turns = [f"say: I wait., {call('wait')}", "say: You stopped me."]
    first, second = await bench.run(turns, "plain", "Wait", "What happened?", tools=[wait], interrupt_signal=signal)
    assert (first.status, second.response) == ("interrupted", "You stopped me.")
    assert_same("interrupted.jsonl", portable(bench.journal))


async def test_a_session_with_a_long_output(bench: Bench) -> None:
    """Kept whole under a handle, in a file of its own."""

    @tool(needs_approval=False, effects=())
    def shelf() -> str:
        """Everything there is."""
        return "".join(f"item {number}\n" for number in range(6000))

    turns = [call("shelf"), "say: Much."]
    await bench.run(turns, "plain", "List it", tools=[shelf])
    journal = bench.journal
    [handle] = set(re.findall(r"out_[0-9a-f]{12}", journal.decode()))
    folder = bench.home / "output" / json.loads(journal.splitlines()[0])["sessionId"]
    stored = {path.name: path.read_text() for path in folder.iterdir()}
    assert stored == {handle: shelf(), "index.jsonl": f'{{"handle": "{handle}", "worker": "plain"}}\n'}
    rows = re.compile(r"item (\d+)\\n(?:item \d+\\n)*item (\d+)\\n")
    assert_same("long_output.jsonl", rows.sub(r"<items \1 to \2>", portable(journal)))


async def test_a_session_that_runs_a_command(bench: Bench) -> None:
    turns = [call("exec_command", cmd="cat shop.txt"), call("exec_command", cmd="exit 3"), "say: Done."]
    await bench.run(turns, "runner", "Look", approval_mode="approve_all")
    assert_same("command.jsonl", portable(bench.journal))


def test_a_single_call(bench: Bench) -> None:
    bench.forge("call", "read_file", "--path", "shop.txt")
    assert_same("call.jsonl", portable(bench.journal))


# ---- fingerprints

_FILES = ("a.txt", "/workspace/a.txt", "docs/../a.txt", "docs/ä ö.txt", ".git/hooks/pre-commit", ".env")
_COMMANDS = (
    "ls",
    "ls -la docs",
    "cat a.txt | sort",
    "cat 'a b.txt' && rm -rf build",
    "echo $HOME > out.txt",
    "git status",
    "git push --force",
    "sudo rm -rf /tmp/x",
    "for f in *; do wc -l $f; done",
    "no-such-program --flag",
)
CALLS: list[tuple[str, dict[str, Any]]] = [
    *(("read_file", {"path": path}) for path in _FILES),
    ("read_file", {"path": "a.txt", "offset": 1, "limit": 2000}),
    ("read_file", {"path": "a.txt", "offset": -1}),
    *(("write_file", {"path": path, "content": "x"}) for path in _FILES),
    ("write_file", {"path": "a.txt", "content": ""}),
    ("write_file", {"content": "é\n\u2028\U0001f600", "path": "a.txt"}),
    ("delete_file", {"path": "a.txt"}),
    ("list_files", {}),
    ("list_files", {"path": "docs"}),
    ("file_exists", {"path": "nothing.txt"}),
    ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch\n"}),
    ("grep_files", {"pattern": "one", "mode": "lines"}),
    *(("exec_command", {"cmd": command}) for command in _COMMANDS),
    ("exec_command", {"cmd": "ls", "workdir": "docs"}),
    ("exec_command", {"cmd": "ls", "network": ["example.com"]}),
    ("save_memory", {"memory_id": "mugs", "content": "blue"}),
    ("save_memory", {"memory_id": "mugs", "content": "blue", "scope": "user"}),
    ("webfetch", {"url": "https://example.com/a?b=1"}),
    ("update_plan", {"plan": [{"step": "look", "status": "pending"}]}),
    ("sum_up", {"numbers": [1, 2.0, 2.5, 10**20], "options": {"b": None, "a": True}}),
    ("sum_up", {"options": {"a": True, "b": None}, "numbers": [1, 2, 2.5, 10**20]}),
]


async def test_fingerprints(bench: Bench) -> None:
    """What an approval is bound to: the same call has the same, in whatever order its arguments come."""
    write(bench.root, {"a.txt": "one\n", "a b.txt": "b\n", "docs/ä ö.txt": "one\n", ".env": "KEY=1\n"})

    @tool
    def sum_up(numbers: list[float], options: dict[str, Any]) -> float:
        """Add numbers."""
        return sum(numbers)

    seen: list[Any] = []

    def deny(request: Any) -> dict[str, Any]:
        seen.append(request)
        return {"approved": False}

    lines: list[str] = []
    own: list[str] = []
    async with open_session(
        bench.root, home=bench.home, approval="strict", approval_callback=deny, tools=[sum_up]
    ) as session:
        for name, args in CALLS:
            seen.clear()
            outcome = await session.call(name, args)
            written = json.dumps(args, ensure_ascii=False)
            if name == "sum_up":  # a function: its definition is another one in each process
                own.append(seen[0].fingerprint)
                lines.append(f"(of this process) {seen[0].args_key} {seen[0].risk} {name} {written}\n")
            elif seen:
                lines.append(f"{seen[0].fingerprint} {seen[0].args_key} {seen[0].risk} {name} {written}\n")
            else:
                lines.append(f"not asked: {outcome.status.value} {name} {written}\n")
    assert len(set(own)) == 1
    assert_same("fingerprints.txt", "".join(lines))


def test_explain_names_the_same_fingerprints(bench: Bench) -> None:
    """`forge rules explain` and the card of the call; in another worker the same call has another fingerprint."""
    (bench.root / "a.txt").write_text("one\n")
    asked = ["write_file", '{"content": "x", "path": "a.txt"}', "--json"]
    decision = json.loads(bench.forge("rules", "explain", *asked, code=3))["decision"]
    bench.forge("call", "write_file", "--path", "a.txt", "--content", "x", code=3)
    [called] = json.loads(bench.forge("log", "--json"))
    assert called["decision"]["fingerprint"] == decision["fingerprint"]
    other = json.loads(bench.forge("rules", "explain", "--worker", "main/helper", *asked, code=4))
    assert_same(
        "explained.txt", f"{decision['fingerprint']} {decision['argsKey']} main write_file\n{other['verdict']}\n"
    )


# ---- "always"


async def test_the_file_of_always_answers(bench: Bench) -> None:
    """Every choice that is kept for good, one after the other, and the file they leave."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": "lists/a b.txt", "content": "a\n"}),
        ("exec_command", {"cmd": "pytest --version"}),
        ("exec_command", {"cmd": "sort --version | head -1 > 'first line'"}),
        ("exec_command", {"cmd": "touch made.txt"}),
        ("sum_up", {"numbers": [1, 2]}),
        ("save_memory", {"memory_id": "mugs", "content": "blue"}),
    ]

    @tool
    def sum_up(numbers: list[float]) -> float:
        """Add numbers."""
        return sum(numbers)

    offered: list[str] = []

    def always(request: Any) -> dict[str, Any]:
        offered.extend(f"{request.tool}: {one.scope}: {one.label}\n" for one in request.choices)
        kept = [one.id for one in request.choices if one.scope == "always"]
        return {"approved": True, **({"choice": kept[0]} if kept else {})}

    async with open_session(bench.root, home=bench.home, approval_callback=always, tools=[sum_up]) as session:
        for name, args in calls:
            await session.call(name, args)
    file = bench.home / "remembered.yaml"
    assert file.stat().st_mode & 0o777 == 0o600
    assert_same("remembered.yaml", file.read_text())
    assert_same("offered.txt", "".join(offered))


# ---- digests of trust


def _bare(root: Path) -> None:
    write(root, {"forge.yaml": "approval: {mode: strict}\n"})


def _rich(root: Path) -> None:
    write(
        root,
        PROGRAM
        | {".forge/rules.yaml": "version: 1\nrules: []\n", ".forge/deep/er/note.txt": "ü\r\n", ".forge/empty": ""},
    )
    (root / ".forge/data.bin").write_bytes(bytes(range(256)))
    (root / ".forge/link").symlink_to("../shop.txt")
    (root / ".forge/dangling").symlink_to("nowhere/at all")
    os.mkfifo(root / ".forge/pipe")


def _code(root: Path) -> None:
    worker = "---\nname: main\ntoolsets: {custom: {module: ./tools.py, tools: [f]}}\n---\nDo it.\n"
    write(
        root,
        {
            "main.worker": worker,
            "tools.py": "import more\n\n\ndef f() -> int:\n    return more.N\n",
            "more.py": "N = 1\n",
        },
    )


@pytest.mark.parametrize("made", [_bare, _rich, _code])
def test_digests_of_trust(bench: Bench, tmp_path: Path, made: Callable[[Path], None]) -> None:
    """The record of a fixed folder, whole; its name is the beginning of the SHA-256 of the folder's path."""
    root = tmp_path / "program"
    root.mkdir()
    made(root)
    bench.forge("trust", "--yes", cwd=root)
    file = bench.home / "trust" / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert_same(f"trust{made.__name__}.json", file.read_text().replace(json.dumps(str(root)), '"<root>"') + "\n")


def test_digests_of_tools(bench: Bench) -> None:
    """Of a folder: its files by name, content and whether they can be executed."""
    folder = bench.home / "tools/greet"
    manifest = "name: greet\ndescription: Greet\nversion: 1.0.0\nentrypoint: greet.sh\nparameters: []\n"
    digests = []
    for files, executable in (
        ({"tool.yaml": manifest, "greet.sh": "echo hello\n"}, False),
        ({"lib/more.txt": "ü\n"}, False),
        ({}, True),
    ):
        write(folder, files)
        (folder / "greet.sh").chmod(0o755 if executable else 0o644)
        bench.forge("tools", "activate", "greet", "--yes")
        digests.append(json.loads(bench.forge("tools", "log", "greet", "--json"))["versions"][0]["digest"])
    assert_same("tools.txt", "".join(f"{digest}\n" for digest in digests))
