"""An adversary writes the program: can it make a call that nobody judged, speak as somebody else, outlive its end, read
what was taken out, or reach further than its worker? programs.md §1 and §5."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.acceptance.test_programs import program, recorded
from tests.acceptance.user_tools import Bench, card_text
from tests.deadlines import LONG, PATIENCE

from golem_forge import tool
from golem_forge.core.decisions import Risk
from golem_forge.events.journal_files import journal_path

CODE = "run_code"
SPEAK = """
import json, os, socket

def say(**request):
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(os.environ["FORGE_SOCKET"])
        wire.sendall(json.dumps({"token": os.environ["FORGE_CALL_TOKEN"], **request}).encode() + b"\\n")
        with wire.makefile("rb") as file:
            return json.loads(file.read() or b"null")
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_who_calls_and_for_whom_is_not_said_by_the_program(bench: Bench) -> None:
    """Whatever a request claims besides, it is a tool's call inside this program, judged like any other."""

    @tool(mode="manual", needs_approval=False)
    def by_hand() -> str:
        """Only for people."""
        raise AssertionError

    bench.cards.yes = False
    claims = (
        "caller='human', parent_id='x', parentId='x', worker='other', approved=True, refuse='', whole=True, id='c1'"
    )
    async with bench.session(tools=[by_hand]) as session:
        done = await program(
            session,
            SPEAK
            + f"""
print(say(name="by_hand", args={{}}, {claims})["status"])
print(say(name="write_file", args={{"path": "x", "content": "1"}}, {claims})["status"])
""",
        )
        calls = recorded(bench, session)
    assert done.text.splitlines()[:2] == ["tool_not_found", "approval_denied"], done.text
    (outer,) = [each for each in calls if each.tool == CODE]
    assert {(each.caller, each.parent, each.worker) for each in calls if each is not outer} == {
        ("tool", outer.id, "default")
    }
    assert len(bench.cards) == 1 and not (bench.workspace / "x").exists()


async def test_a_call_in_words_is_the_call_that_was_written(bench: Bench) -> None:
    """`forge call` stands on a program's PATH too: its options are the arguments, or the call is refused."""
    (bench.workspace / "sub").mkdir()
    (bench.workspace / "sub/inner.txt").write_text("1")
    code = """
import subprocess
for words in (["--path", "/workspace/sub"], ["--nowhere", "x"]):
    ran = subprocess.run(["forge", "call", "list_files", *words], capture_output=True, text=True)
    print(ran.returncode, ran.stdout.split(), ran.stderr.strip())
"""
    async with bench.session() as session:
        done = await program(session, code)
        calls = [each for each in recorded(bench, session) if each.tool == "list_files"]
    listed, refused = done.text.splitlines()[:2]
    assert listed.startswith("0 ['inner.txt',") and "input_invalid: list_files" in refused, done.text
    assert [each.args for each in calls] == [{"path": "/workspace/sub"}]


async def test_a_token_is_of_one_run_and_not_shown(bench: Bench) -> None:
    async with bench.session() as session:
        first = await program(
            session,
            "import os\nt = os.environ['FORGE_CALL_TOKEN']\nprint(t)\nprint(' '.join(t))\nprint(t.partition('-')[2])",
        )
        shown, spaced, rest = first.text.splitlines()[:3]
        assert "FORGE_CALL_TOKEN" in shown and spaced.replace(" ", "") not in shown
        used = await program(
            session,
            SPEAK
            + f"""
for token in ({spaced.replace(" ", "")!r}, "", {rest!r}, os.environ["FORGE_CALL_TOKEN"][:-1]):
    print(say(name="file_exists", args={{"path": "a"}}, token=token)["stderr"].strip())
""",
        )
        calls = recorded(bench, session)
    assert used.text.splitlines() == ["forge: policy_denied: this request does not come from a running tool"] * 4
    assert [each.tool for each in calls] == [CODE] * 2


async def test_nothing_of_a_program_outlives_it(bench: Bench) -> None:
    """A child in a session of its own goes on calling: it ends with its program, by itself or by an interrupt."""
    made: list[int] = []
    several = asyncio.Event()

    @tool(needs_approval=False)
    async def step() -> int:
        """Counts."""
        made.append(1)
        if len(made) % 5 == 0:
            several.set()
        return len(made)

    escape = (
        SPEAK
        + "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: say(name='step', args={})\n"
    )
    async with bench.session(tools=[step]) as session:
        done = await program(
            session, escape + "import time\nwhile say(name='step', args={}) and time.sleep(0.05): pass"
        )
        assert done.ok, done.text
        before = len(made)
        running = asyncio.ensure_future(program(session, escape + "import time\ntime.sleep(600)"))
        several.clear()
        await asyncio.wait_for(several.wait(), PATIENCE)
        session.interrupt()
        assert (await running).status == "interrupted"
        session.state.signal.reset()
        after = len(made)
        assert (await program(session, "print('the next one')")).ok
        assert len(made) == after > before
        calls = [each for each in recorded(bench, session) if each.tool == "step"]
    assert {each.status for each in calls} <= {"success", "interrupted"}


async def test_what_was_taken_out_stays_out(bench: Bench) -> None:
    (bench.workspace / ".env").write_text("KEY=canary-env-1\n")

    @tool(needs_approval=False)
    def leak() -> dict[str, str]:
        """Says what it should not."""
        return {"key": "canary-key-23", "text": "x" * 40_000 + "canary-key-23"}

    bench.cards.yes = False
    async with bench.session(tools=[leak]) as session:
        session.state.redactor.add_secret("KEY", "canary-key-23")
        done = await program(
            session,
            """
from forge_tools import leak, read_file, exec_command, ToolError
value = leak()
print(value["key"], value["text"][-12:], "canary" in str(value))
for call in (lambda: read_file(path=".env"), lambda: exec_command(cmd="cat .env")):
    try:
        print(call())
    except ToolError as error:
        print(error.status)
""",
        )
    assert done.text.splitlines()[:3] == ["[secret KEY] [secret KEY] False", "approval_denied", "approval_denied"]
    assert {card.risk for card in bench.cards} == {Risk.CRITICAL}


@pytest.mark.parametrize("by", ["program", "tool"])
async def test_a_secret_file_that_a_program_was_allowed_to_read_is_not_recorded_with_its_result(
    bench: Bench, by: str
) -> None:
    (bench.workspace / ".env").write_text("KEY=canary-env-2\n")
    code = "from forge_tools import read_file\nprint(read_file(path='.env'))"
    bench.python("shows", code, calls=["read_file"])
    async with bench.session() as session:
        if by == "tool":
            code = "from forge_tools import call\nprint(call('run_custom_tool', tool_name='shows'))"
        done = await program(session, code)
        assert "canary-env-2" in done.text, "whom it was approved for reads it"
    assert [card for card in bench.cards if card.risk == Risk.CRITICAL]
    (outer,) = [each for each in recorded(bench, session) if each.tool == CODE]
    assert outer.value["content"] == "[the content of a secret file is not recorded]"
    assert "canary-env-2" not in journal_path(bench.home, session.id).read_text()


async def test_a_flood_of_odd_requests_is_answered_or_dropped(bench: Bench) -> None:
    async with bench.session() as session:
        done = await program(
            session,
            SPEAK
            + """
import collections
said = collections.Counter()
def tried(**request):
    try:
        answer = say(**request)
        said[answer["status"] if answer else "closed"] += 1
    except (OSError, ValueError):
        said["closed"] += 1
for op in ("tools", "describe", "search", "read", "answer", "nothing", ""):
    for _ in range(20):
        tried(op=op, name="x" * 300, query="q" * 3000, limit=10**9, handle="../x", start=-1, answer="a" * 300_000)
for name in ("", "x" * 201, "\\x1b[2J", "a/b", "client:ask", None, 7):
    tried(name=name, args={})
tried(name="file_exists", args=[1]); tried(name="file_exists", args={"path": "a" * 2_000_000})
print(dict(said))
""",
        )
        again = await program(session, "from forge_tools import file_exists\nprint(bool(file_exists(path='a')))")
    assert done.ok and "success" in done.text and "policy_denied" in done.text, done.text
    assert again.ok
    assert len(recorded(bench, session)) < 12


async def test_no_tool_starts_a_program_for_another(bench: Bench) -> None:
    """Neither a user tool that lists it, nor a program through that tool."""
    bench.tool("sly", "forge call run_code --code='print(1)'; echo \"[$?]\"\n", calls=[CODE])
    async with bench.session() as session:
        direct = await session.call("run_custom_tool", {"tool_name": "sly"})
        assert "policy_denied" in direct.text and "[3]" in direct.text
        inside = await program(session, "from forge_tools import call\nprint(call('sly'))")
        assert "[3]" in inside.text, inside.text


async def test_in_strict_mode_the_program_itself_is_asked_about(bench: Bench) -> None:
    async with bench.session(approval="strict") as session:
        assert (await program(session, "print('a program of mine')")).ok
    (card,) = bench.cards
    assert card.tool == CODE and "print('a program of mine')" in card_text(card) and card.risk == Risk.LOW


async def test_where_nobody_can_be_asked_reads_run_and_writes_do_not(bench: Bench) -> None:
    code = """
from forge_tools import call, file_exists, ToolDenied
print(bool(file_exists(path="a")))
try:
    call("write_file", path="a", content="1")
except ToolDenied as error:
    print(error.status)
"""
    async with bench.session(approval="auto_deny", approval_callback=None) as session:
        done = await program(session, code)
    assert done.ok and "approval_denied" in done.text and not (bench.workspace / "a").exists()


async def test_many_writers_at_once_run_one_after_another(bench: Bench) -> None:
    """The gate is each call's own: a program cannot bring two writers together."""
    inside: list[int] = []
    most: list[int] = []

    @tool(needs_approval=False)
    async def writer() -> None:
        """Says nothing about its effects, so it may write."""
        inside.append(1)
        most.append(len(inside))
        await asyncio.sleep(0)
        inside.pop()

    async with bench.session(tools=[writer]) as session:
        done = await program(
            session, "from forge_tools import map, writer\nmap(lambda _: writer(), range(20), at_once=16)"
        )
    assert done.ok and len(most) == 20 and set(most) == {1}


async def test_a_file_beside_it_shadows_nothing(bench: Bench) -> None:
    for name in ("forge_tools.py", "tools.py", "json.py"):
        (bench.workspace / name).write_text("raise SystemExit('shadowed')")
    async with bench.session() as session:
        done = await program(session, "import tools, forge_tools, json\nprint(tools is forge_tools)")
    assert done.text.startswith("True"), done.text


async def test_a_blocked_program_never_starts(bench: Bench) -> None:
    bench.rules("{tool: run_code, verdict: blocked, reason: not here}")
    async with bench.session(approval="approve_all", approval_callback=None) as session:
        done = await program(session, "print(1)")
    assert done.status == "policy_denied" and "not here" in done.text and not done.executed


async def test_an_answer_that_is_no_json_is_made_one(bench: Bench) -> None:
    """What comes after, a journal, a provider, a client, takes nothing else."""
    answers = {"'a\\ud800'": r"a\ud800", "float('nan')": "NaN"}
    async with bench.session() as session:
        for value, said in answers.items():
            done = await program(session, f"from forge_tools import answer\nanswer({value})")
            assert done.ok and done.text == f"Answer: {json.dumps(said)}"
    calls = recorded(bench, session)
    assert [(call.status, call.value["answer"]) for call in calls] == [("success", said) for said in answers.values()]


async def test_its_limits_are_those_of_any_command(bench: Bench) -> None:
    (bench.home / "config.yaml").write_text("sandbox: {limits: {memory: 200MiB}}\n")
    async with bench.session() as session:
        done = await program(session, "x = []\nwhile True: x.append('y' * 10_000_000)", timeout_ms=int(LONG * 1000))
    assert done.status == "execution_failed" and ("MemoryError" in done.text or "limits.memory" in done.text)
