"""list_dir on real directories: order, levels, pages, what is not entered and what cannot be read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ForgeError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import PathRule
from golem_forge.tools.context import ToolContext
from golem_forge.toolsets import search
from golem_forge.toolsets.search import create_list_dir_tool


def lay(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")


async def lines(call: Any, **args: Any) -> list[str]:
    result = await call("list_dir", **args)
    assert result.value == {"kind": "text", "content": result.text}
    return list(result.text.split("\n"))


async def test_t43_children_follow_their_parents_sorted_by_code_point(call: Any, workspace: Path) -> None:
    lay(workspace, "b/c/deep.txt", "b/a.txt", "B.txt", ".hidden", "a.txt", "b.txt", "é")
    (workspace / "link").symlink_to("b")
    os.mkfifo(workspace / "pipe")
    assert await lines(call, path="/workspace") == [
        *("/workspace", ".hidden", "B.txt", "a.txt", "b/", "  a.txt", "  c/"),
        *("b.txt", "link@", "pipe?", "é"),
    ]


async def test_t43_depth_one_hides_what_is_nested(call: Any, workspace: Path) -> None:
    lay(workspace, "src/a/b.txt", "src/x.txt")
    assert await lines(call, path="src", depth=1) == ["/workspace/src", "a/", "x.txt"]
    assert await lines(call, path="src", depth=2) == ["/workspace/src", "a/", "  b.txt", "x.txt"]
    assert await lines(call, path="src/a", depth=10) == ["/workspace/src/a", "b.txt"]


async def test_t43_pages(call: Any, workspace: Path) -> None:
    lay(workspace, *(f"d/{number:02}.txt" for number in range(11)))
    assert await lines(call, limit=5) == [
        *("/workspace", "d/", *(f"  {number:02}.txt" for number in range(4))),
        "[more than 5 entries; continue with offset=6]",
    ]
    assert await lines(call, offset=11, limit=2) == ["/workspace", "  09.txt", "  10.txt"]
    assert await lines(call, limit=12) == ["/workspace", "d/", *(f"  {number:02}.txt" for number in range(11))]
    with pytest.raises(ForgeError, match=r"^offset 999 is past the end \(12 entries\)$") as raised:
        await call("list_dir", offset=999)
    assert raised.value.status is Status.EXECUTION_FAILED


async def test_an_empty_directory(call: Any) -> None:
    assert await lines(call) == ["/workspace", "(empty)"]
    with pytest.raises(ForgeError, match=r"^offset 2 is past the end \(0 entries\)$"):
        await call("list_dir", offset=2)


async def test_the_inside_of_git_is_shown_only_to_who_asks_for_it(call: Any, workspace: Path) -> None:
    lay(workspace, ".git/HEAD", "sub/.git/HEAD", "a.txt")
    assert await lines(call, depth=5) == ["/workspace", ".git/", "a.txt", "sub/", "  .git/"]
    assert await lines(call, path=".git") == ["/workspace/.git", "HEAD"]


async def test_t43_an_unreadable_directory_does_not_fail_the_rest(
    call: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(workspace, "a/x", "locked/x", "z/x")
    if os.geteuid() == 0:  # root may read everything: the refusal has to be made
        really = os.open

        def refusing(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if path == "locked":
                raise PermissionError(13, "Permission denied")
            return really(path, flags, *args, **kwargs)

        monkeypatch.setattr(search.os, "open", refusing)
    else:
        (workspace / "locked").chmod(0)
    expected = ["/workspace", "a/", "  x", "locked/ [unreadable]", "z/", "  x"]
    assert await lines(call) == expected
    assert "locked/ [unreadable]" in await lines(call, depth=1)
    (workspace / "locked").chmod(0o700)


async def test_the_zones(call: Any, workspace: Path, docs: Path) -> None:
    lay(workspace, "a.txt")
    lay(docs, "guide/one.md")
    assert await lines(call, path="/", depth=2) == [
        *("/", "docs/ (ro)", "  guide/", "workspace/ (rw)", "  a.txt"),
    ]
    assert await lines(call, path="/", depth=1) == ["/", "docs/ (ro)", "workspace/ (rw)"]


async def test_without_any_zone_there_is_nothing(ctx: ToolContext) -> None:
    ctx.sandbox = Sandbox(has_block=False)
    result = await create_list_dir_tool().execute({"path": "/"}, ctx)
    assert result.text == "/\n(empty)"


async def test_names_that_are_no_text(call: Any, workspace: Path) -> None:
    with open(os.fsencode(workspace) + b"/bad\xff\n", "w"):
        pass
    os.mkdir(os.fsencode(workspace) + b"/dir\x1b")
    lay(workspace, "dir\x1b/inside")
    assert await lines(call) == ["/workspace", "bad\\xff\\x0a", "dir\\x1b/"]


async def test_a_link_is_not_followed_wherever_it_leads(call: Any, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret-name").touch()
    (workspace / "out").symlink_to(tmp_path / "outside")
    assert await lines(call, depth=5) == ["/workspace", "out@"]
    with pytest.raises(ForgeError) as raised:
        await call("list_dir", path="out")
    assert raised.value.code == "SYMLINK_ESCAPE"


async def test_a_directory_swapped_for_a_link_is_not_entered(
    call: Any, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "stolen").touch()
    lay(workspace, "dir/x")
    entries = search._entries

    def swapping(zone: Any, directory: Any) -> Any:
        found = entries(zone, directory)
        if (workspace / "dir").is_dir() and not (workspace / "dir").is_symlink():
            os.rename(workspace / "dir", workspace / "moved")
            (workspace / "dir").symlink_to(tmp_path / "outside")
        return found

    monkeypatch.setattr(search, "_entries", swapping)
    assert await lines(call) == ["/workspace", "dir/ [unreadable]"]


async def test_what_asks_before_it_is_read_is_named_and_not_entered(
    call: Any, ctx: ToolContext, workspace: Path
) -> None:
    lay(workspace, ".ssh/id_rsa", "private/plan.txt", "open/x")
    rule = PathRule(
        matches=lambda path: path.startswith("/workspace/private"),
        literal="/workspace/private",
        verdict=Verdict.ASK,
        access=frozenset({Verb.READ}),
    )
    ctx.path_rules = lambda: (rule,)
    assert await lines(call) == ["/workspace", ".ssh/ [unreadable]", "open/", "  x", "private/ [unreadable]"]
    # named itself it was judged, and asked for, by the path every call takes
    assert await lines(call, path="private") == ["/workspace/private", "plan.txt"]
    assert await lines(call, path=".ssh") == ["/workspace/.ssh", "id_rsa"]


async def test_limits_of_a_walk(call: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LISTING_LIMIT", 4)
    lay(workspace, "a", "big/1", "big/2", "big/3", "big/4", "big/5", "z")
    assert await lines(call) == ["/workspace", "a", "big/ [more than 4 entries]", "z"]
    with pytest.raises(ForgeError) as raised:
        await call("list_dir", path="big")
    assert raised.value.code == "TOO_LARGE"
    lay(workspace, "y/1", "y/2")
    assert (await lines(call, limit=3))[-1] == "[more than 3 entries; continue with offset=4]"
    with pytest.raises(ForgeError, match="Name a directory below it") as raised:
        await call("list_dir", offset=4)
    assert raised.value.code == "TOO_LARGE"


async def test_what_is_no_directory(call: Any, workspace: Path) -> None:
    lay(workspace, "a.txt")
    for path, code in (("a.txt", "NOT_A_DIRECTORY"), ("missing", "NOT_FOUND"), ("/etc", "ZONE_ACCESS_DENIED")):
        with pytest.raises(ForgeError) as raised:
            await call("list_dir", path=path)
        assert raised.value.code == code


def test_the_alias_and_the_ranges() -> None:
    tool = create_list_dir_tool()
    assert tool.validate({"dir_path": "src"}).values["path"] == "src"
    for args in ({"dir_path": "a", "path": "b"}, {"depth": 0}, {"depth": 11}, {"offset": 0}, {"limit": 2001}):
        with pytest.raises(ForgeError) as raised:
            tool.validate(args)
        assert raised.value.status is Status.INPUT_INVALID


async def test_directories_that_only_walls_need_are_not_shown(call: Any, workspace: Path, sandbox: Sandbox) -> None:
    lay(workspace, "a.txt", "mine/.git/", "hooks/")
    zone = sandbox.zones["workspace"]
    assert zone.placeholders is not None
    zone.placeholders.make(zone.host, (".git",), zone.root.fd)
    assert (workspace / ".git").is_dir()
    expected = ["/workspace", "a.txt", "hooks/", "mine/", "  .git/"]
    assert await lines(call, path="/workspace") == expected
    assert await lines(call, path="/", depth=3) == [
        "/",
        "docs/ (ro)",
        "workspace/ (rw)",
        *(f"  {x}" for x in expected[1:]),
    ]
