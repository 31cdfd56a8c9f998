"""get_memory and save_memory: what outlives a session, where it lies, who is asked, and what is never kept."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from golem_forge.core.calls import ToolCall
from golem_forge.core.decisions import Risk, Status, Verdict
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.zones import ZoneSpec
from golem_forge.storage.home import ForgeHome
from golem_forge.toolsets import memory as shelves
from golem_forge.toolsets.memory import MemoryToolset, create_get_memory_tool, create_save_memory_tool

CANARY = "canary-71c2-canary"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "forge-home"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def sandbox(tmp_path: Path, home: Path) -> Sandbox:
    return zone_on(tmp_path / "project", home)


def zone_on(directory: Path, home: Path) -> Sandbox:
    directory.mkdir()
    return open_sandbox([ZoneSpec(name="workspace", path=directory)], forge_home=home, home=directory.parent / "person")


class Remembering:
    """A session with the two tools; every question is kept and approved."""

    def __init__(self, make_path: Any, asked: Any, **options: Any) -> None:
        self.asked = asked()
        self.path = make_path(*MemoryToolset().get_tools(), ask=self.asked, **options)

    async def call(self, tool: str, **args: Any) -> Any:
        return await self.path.call(ToolCall(tool, args))

    async def save(self, memory_id: str, content: str, **args: Any) -> Any:
        return await self.call("save_memory", memory_id=memory_id, content=content, **args)

    async def text(self, memory_id: str, **args: Any) -> str:
        outcome = await self.call("get_memory", memory_id=memory_id, **args)
        assert outcome.status is Status.SUCCESS, outcome.error
        return str(outcome.result.text)


@pytest.fixture
def session(make_path: Any, asked: Any, sandbox: Sandbox, home: Path) -> Remembering:
    redactor = Redactor()
    redactor.add_secret("TOKEN", CANARY)
    return Remembering(make_path, asked, sandbox=sandbox, home=ForgeHome(home), redactor=redactor)


def files(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in (home / "memory").rglob("*") if path.is_file())


async def test_t47_save_get_append_list(session: Remembering, home: Path) -> None:
    saved = await session.save("style", "Two blanks.\n")
    assert saved.status is Status.SUCCESS
    assert saved.result.text == "Saved memory 'style' (12 bytes)."
    assert saved.result.value["kind"] == "memory.entry"
    assert (await session.save("style", "Né tabs.\n", mode="append")).result.text == "Saved memory 'style' (22 bytes)."
    assert await session.text("style") == "Two blanks.\nNé tabs.\n"
    await session.save("a-b_1", "x")
    listed = await session.call("get_memory")
    assert re.fullmatch(r"a-b_1 \(1 bytes, \S+Z\)\nstyle \(22 bytes, \S+Z\)", listed.result.text)
    assert [entry["id"] for entry in listed.result.value["entries"]] == ["a-b_1", "style"]
    await session.save("style", "new")
    assert await session.text("style") == "new"


async def test_t47_missing(session: Remembering) -> None:
    outcome = await session.call("get_memory", memory_id="x")
    assert (outcome.status, outcome.error) == (Status.EXECUTION_FAILED, "No memory 'x'. Known: none")
    assert (await session.call("get_memory")).result.text == "No memories in scope 'project'."
    await session.save("b", "1")
    await session.save("a", "1")
    assert (await session.call("get_memory", memory_id="x")).error == "No memory 'x'. Known: a, b"


async def test_where_it_lies(session: Remembering, home: Path) -> None:
    await session.save("style", "p")
    await session.save("style", "u", scope="user")
    project, user = files(home)
    assert re.fullmatch(r"memory/project-[0-9a-f]{32}/style\.md", project)
    assert user == "memory/user/style.md"
    assert [(home / name).read_text() for name in (project, user)] == ["p", "u"]
    for path in (home / "memory").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert await session.text("style", scope="user") == "u"


async def test_projects_do_not_share(
    session: Remembering, make_path: Any, asked: Any, tmp_path: Path, home: Path
) -> None:
    other = Remembering(make_path, asked, sandbox=zone_on(tmp_path / "other", home), home=ForgeHome(home))
    await session.save("style", "one")
    await session.save("everywhere", "two", scope="user")
    assert (await other.call("get_memory", memory_id="style")).status is Status.EXECUTION_FAILED
    assert await other.text("everywhere", scope="user") == "two"


async def test_saving_asks_with_a_diff_and_reading_does_not(session: Remembering) -> None:
    first = await session.save("style", "a\n")
    await session.save("style", "b\n", mode="append")
    one, two = session.asked
    assert "+a" in one.diff and "--- /dev/null" in one.diff
    assert "+++ b/memory/project/style" in two.diff and " a\n+b" in two.diff
    assert (one.risk, list(one.effects)) == (Risk.MEDIUM, ["write memory:project/style"])
    assert (first.decision.verdict, first.decision.risk) == (Verdict.ASK, Risk.MEDIUM)
    read = await session.call("get_memory", memory_id="style")
    assert (read.decision.verdict, read.decision.risk) == (Verdict.PRE_APPROVED, Risk.LOW)
    assert len(session.asked) == 2


async def test_a_denied_save_keeps_nothing(make_path: Any, asked: Any, sandbox: Sandbox, home: Path) -> None:
    path = make_path(create_save_memory_tool(), ask=asked({"approved": False}), sandbox=sandbox, home=ForgeHome(home))
    outcome = await path.call(ToolCall("save_memory", {"memory_id": "a", "content": "x"}))
    assert outcome.status is Status.APPROVAL_DENIED
    assert not (home / "memory").exists()


async def test_t47_a_known_secret_is_never_kept(session: Remembering, home: Path) -> None:
    for content in (f"token: {CANARY}", f"a\n{CANARY}\nb"):
        outcome = await session.save("style", content)
        assert outcome.status is Status.POLICY_DENIED
        assert CANARY not in outcome.error and "secret" in outcome.error
    await session.save("style", CANARY[:9])
    assert (await session.save("style", CANARY[9:], mode="append")).status is Status.POLICY_DENIED
    assert await session.text("style") == CANARY[:9]
    assert len(session.asked) == 1


async def test_a_path_rule_is_not_about_memory(
    make_path: Any, asked: Any, sandbox: Sandbox, home: Path, own_home: Path
) -> None:
    (own_home / ".forge").mkdir()
    rules = "version: 1\nrules:\n  - {path: '/memory/**', verdict: preApproved}\n"
    (own_home / ".forge" / "rules.yaml").write_text(rules)
    session = Remembering(make_path, asked, sandbox=sandbox, home=ForgeHome(home))
    await session.save("style", "x")
    assert len(session.asked) == 1


async def test_limits(session: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await session.save("big", "é" * 32768)).result.text == "Saved memory 'big' (65536 bytes)."
    over = await session.save("big", "é" * 32768 + "x")
    assert over.status is Status.INPUT_INVALID
    assert over.error == "save_memory: content: 65537 bytes; the limit is 65536"
    more = await session.save("big", "x", mode="append")
    assert more.status is Status.EXECUTION_FAILED and "would be 65537 bytes" in more.error
    monkeypatch.setattr(shelves, "MAX_MEMORIES", 2)
    await session.save("two", "x")
    full = await session.save("three", "x")
    assert full.status is Status.EXECUTION_FAILED and "2 memories already" in full.error
    assert (await session.save("two", "y")).status is Status.SUCCESS
    assert (await session.save("three", "x", scope="user")).status is Status.SUCCESS
    assert len(session.asked) == 4


@table("memory_id", ["", "A", "-a", "a/b", "../a", "a.md", "a" * 65, "a\n", "é"])
async def test_ids(session: Remembering, home: Path, memory_id: str) -> None:
    outcome = await session.save(memory_id, "x")
    assert outcome.status is Status.INPUT_INVALID
    assert not (home / "memory").exists()
    if memory_id:
        assert (await session.call("get_memory", memory_id=memory_id)).status is Status.INPUT_INVALID


async def test_what_changed_while_someone_was_asked_is_not_overwritten(
    make_path: Any, sandbox: Sandbox, home: Path
) -> None:
    def meanwhile(request: Any) -> dict[str, bool]:
        for file in (home / "memory").rglob("*.md"):
            file.write_text("theirs")
        return {"approved": True}

    path = make_path(*MemoryToolset().get_tools(), ask=meanwhile, sandbox=sandbox, home=ForgeHome(home))
    await path.call(ToolCall("save_memory", {"memory_id": "a", "content": "mine"}))
    outcome = await path.call(ToolCall("save_memory", {"memory_id": "a", "content": "mine again"}))
    assert outcome.status is Status.EXECUTION_FAILED and "changed while" in outcome.error
    assert (home / files(home)[0]).read_text() == "theirs"
    assert len(files(home)) == 1


async def test_a_link_on_the_shelf_leads_nowhere(session: Remembering, home: Path, tmp_path: Path) -> None:
    await session.save("a", "x")
    (tmp_path / "outside").write_text("outside")
    shelf = (home / files(home)[0]).parent
    (shelf / "linked.md").symlink_to(tmp_path / "outside")
    assert (await session.call("get_memory", memory_id="linked")).status is Status.EXECUTION_FAILED
    assert (await session.save("linked", "new")).status is Status.SUCCESS
    assert (tmp_path / "outside").read_text() == "outside"


async def test_without_a_zone_only_the_user_has_memory(make_path: Any, asked: Any, home: Path) -> None:
    session = Remembering(make_path, asked, sandbox=Sandbox(has_block=False), home=ForgeHome(home))
    for outcome in (await session.save("a", "x"), await session.call("get_memory")):
        assert outcome.status is Status.EXECUTION_FAILED
        assert "use scope 'user'" in outcome.error
    assert (await session.save("a", "x", scope="user")).status is Status.SUCCESS


async def test_without_a_home_nothing_is_kept(make_path: Any, asked: Any, sandbox: Sandbox) -> None:
    outcome = await Remembering(make_path, asked, sandbox=sandbox).save("a", "x")
    assert outcome.status is Status.EXECUTION_FAILED and "FORGE_HOME" in outcome.error


async def test_an_embedders_word_replaces_the_question(make_path: Any, sandbox: Sandbox, home: Path) -> None:
    tools = (create_save_memory_tool(sandbox, needs_approval=False), create_get_memory_tool(sandbox))
    path = make_path(*tools, home=ForgeHome(home))
    outcome = await path.call(ToolCall("save_memory", {"memory_id": "a", "content": "x"}))
    assert outcome.status is Status.SUCCESS
