"""UserTools: a worker's catalog follows the folders and the book, also where another worker noticed a change first."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from golem_forge import open_session
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.catalog import Catalog
from golem_forge.usertools import trust
from golem_forge.usertools.catalog_sync import ToolSelection, UserTools
from golem_forge.usertools.folder import ToolEntry
from golem_forge.usertools.store import ToolStore
from golem_forge.usertools.workshop import Workshop, open_workshop

MANY = 60
"""More than the book looks up one by one."""


def write(home: ForgeHome, name: str, says: str = "hi") -> None:
    folder = home.path / "tools" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tool.yaml").write_text(f"name: {name}\ndescription: Does {name}\nversion: 1.0.0\nentrypoint: run.sh\n")
    (folder / "run.sh").write_text(f"echo {says}\n")


@pytest.fixture
def shop(home: ForgeHome) -> Iterator[Workshop]:
    opened = open_workshop(home, native={"read_file": "Reads"}, environ={})
    yield opened
    opened.store.close()


def agree(shop: Workshop, *names: str) -> None:
    """As a promotion ends."""
    shop.registry.refresh()
    for name in names:
        entry = shop.registry.entries[name]
        shop.trust(entry, who="person")
        shop.store.mark_tested(entry.name, entry.digest)


def worker(shop: Workshop, **offer: Any) -> tuple[UserTools, Catalog]:
    catalog = Catalog()
    return UserTools(shop, ToolSelection(**offer), catalog), catalog


def offered(catalog: Catalog) -> list[str]:
    return [tool.name for tool in catalog.list(source="custom")]


def test_every_worker_hears_of_a_change_whoever_noticed_it_first(shop: Workshop, home: ForgeHome) -> None:
    write(home, "a")
    agree(shop, "a")
    (first, one), (second, other) = worker(shop), worker(shop)
    assert first.refresh() is not None and second.refresh() is not None
    assert offered(one) == offered(other) == ["a"]
    write(home, "a", "other")
    write(home, "b")
    changed = first.refresh()
    assert changed is not None and changed.removed == ("a",)
    same = second.refresh()
    assert same is not None and (same.removed, same.announcements) == (changed.removed, changed.announcements)
    assert offered(one) == offered(other) == []
    assert first.refresh() is None and second.refresh() is None
    shutil.rmtree(home.path / "tools" / "a")
    assert shop.registry.lookup("a") is None  # a call in between takes the change from nobody
    for tools, catalog in ((second, other), (first, one)):
        tools.refresh()
        assert [each.name for each in catalog.quarantined()] == ["b"] == list(tools.names())


def test_a_decision_of_another_process_is_seen_at_the_next_refresh(shop: Workshop, home: ForgeHome) -> None:
    for name in ("a", "b"):
        write(home, name)
    agree(shop, "a", "b")
    tools, catalog = worker(shop)
    tools.refresh()
    elsewhere = ToolStore(home)
    elsewhere.retire("b")
    news = tools.refresh()
    assert news is not None and news.removed == ("b",) and offered(catalog) == ["a"] and tools.names() == ("a",)
    elsewhere.restore("b")
    news = tools.refresh()
    assert news is not None and news.added == ("b",)
    elsewhere.close()
    (home.path / "state" / "custom.db").unlink()  # a lost book trusts nothing
    news = tools.refresh()
    assert news is not None and news.removed == ("a", "b") and offered(catalog) == []


def test_one_change_among_many_looks_up_that_one(
    shop: Workshop, home: ForgeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{number:03}" for number in range(MANY)]
    for name in names:
        write(home, name)
    agree(shop, *names)
    asked: list[list[str]] = []

    def counted(shop: Workshop, entries: list[ToolEntry]) -> dict[str, trust.ToolStatus]:
        asked.append([entry.name for entry in entries])
        return trust.tool_statuses(shop, entries)

    monkeypatch.setattr("golem_forge.usertools.catalog_sync.tool_statuses", counted)
    tools, catalog = worker(shop)
    tools.refresh()
    assert asked.pop() == names == offered(catalog)
    write(home, "t007", "other")
    news = tools.refresh()
    assert asked.pop() == ["t007"] and news is not None and news.removed == ("t007",)
    shop.store.retire("t011")
    news = tools.refresh()
    assert asked.pop() == names and news is not None and news.removed == ("t011",)
    assert tools.refresh() is None and not asked


def test_globs_say_which_tools_a_worker_sees(shop: Workshop, home: ForgeHome) -> None:
    for name in ("git-log", "git-sum", "other"):
        write(home, name)
    agree(shop, "git-log", "git-sum", "other")
    tools, catalog = worker(shop, tools=("git-*",))
    tools.refresh()
    assert offered(catalog) == ["git-log", "git-sum"] == list(tools.names())
    assert tools.find("other") is None


@pytest.mark.parametrize("many", [1, MANY])
def test_standing_is_the_same_for_one_and_for_all(shop: Workshop, home: ForgeHome, many: int) -> None:
    from golem_forge.usertools.diagnostics import DiagnosticCode

    special = ("active", "built", "changed", "failed", "read_file", "retired", "trusted", "untested")
    names = (*special, *(f"t{number:03}" for number in range(many)))
    for name in names:
        write(home, name)
    agree(shop, "active", "changed", "retired")
    write(home, "changed", "other")
    shop.registry.refresh()
    digests = {name: shop.registry.entries[name].digest for name in names}
    book = shop.store
    book.mark_built("built", digests["built"])
    book.mark_failed("failed", digests["failed"], DiagnosticCode.TESTS_FAILED, "1 of 3")
    book.trust("read_file", digests["read_file"], who="person")  # before there was a built-in tool of that name
    book.mark_tested("read_file", digests["read_file"])
    book.retire("retired")
    book.trust("trusted", digests["trusted"], who="person")
    book.mark_tested("untested", digests["untested"])
    all_ = trust.tool_statuses(shop, shop.registry.entries.values())
    assert all_ == {name: trust.tool_status(shop, entry) for name, entry in shop.registry.entries.items()}
    found = {name: (str(all_[name].state), str(all_[name].why.code) if all_[name].why else "") for name in special}
    assert found == {
        "active": ("active", ""),
        "built": ("built", "untrusted"),
        "changed": ("draft", "changed"),
        "failed": ("draft", "tests_failed"),
        "read_file": ("tested", "shadow_pending"),
        "retired": ("retired", "retired"),
        "trusted": ("draft", "untrusted"),
        "untested": ("tested", "untrusted"),
    }


@pytest.mark.skipif(find_bwrap() is None, reason="full walls need bubblewrap")
async def test_retired_or_untrusted_since_the_refresh_it_does_not_run(tmp_path: Path, home: ForgeHome) -> None:
    """Both are asked of the book for every call, not only when the catalog is brought in step."""
    (tmp_path / "ws").mkdir()
    write(home, "x")
    cards: list[Any] = []

    def answer(card: Any) -> dict[str, Any]:
        cards.append(card)
        return {"approved": len(cards) == 1}

    (home.path / "rules.yaml").write_text("rules:\n  - {tool: x, verdict: preApproved}\n")
    async with open_session(tmp_path / "ws", home=home, approval_callback=answer) as session:
        assert (await session.call("run_custom_tool", {"tool_name": "x"})).text == "hi\n"
        session.refresh()
        session.user_tools.refresh = lambda: None  # type: ignore[method-assign,union-attr]
        assert (await session.call("x", {})).text == "hi\n"
        assert len(cards) == 1
        elsewhere = ToolStore(home)
        elsewhere.retire("x")
        outcome = await session.call("x", {})
        assert (str(outcome.status), outcome.executed) == ("tool_not_found", False)
        assert outcome.text.startswith("custom tool 'x' is not available: retired: ")
        elsewhere.restore("x")
        assert (await session.call("x", {})).text == "hi\n"
        elsewhere.close()
        (home.path / "state" / "custom.db").unlink()
        outcome = await session.call("x", {})
        assert str(outcome.status) == "approval_denied" and not outcome.executed and len(cards) == 2
