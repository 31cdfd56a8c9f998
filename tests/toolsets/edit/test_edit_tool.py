"""apply_patch as a tool: its result, its effects and diff, what it refuses, and that it is all or nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.effects import Mark, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.results import ToolResult
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import PathRule
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import ToolsetContext
from golem_forge.tools.results import to_result
from golem_forge.tools.validation import Err, Ok
from golem_forge.toolsets.edit import EditToolset, create_apply_patch_tool
from golem_forge.toolsets.edit.patch import PatchFailed

NOTHING = "Patch not applied; nothing was changed."
Patch = Callable[[str], Awaitable[ToolResult]]


def wrapped(body: str) -> str:
    return f"*** Begin Patch\n{body}*** End Patch\n"


def plan(body: str, ctx: ToolContext) -> Plan:
    planner = create_apply_patch_tool().planner
    assert planner is not None
    made = planner({"input": wrapped(body)}, ctx)
    assert isinstance(made, Plan)
    return made


def tree(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


def fill(workspace: Path, **texts: str) -> None:
    for name, content in texts.items():
        (workspace / name).write_text(content)


@pytest.fixture
def patch(ctx: ToolContext) -> Patch:
    async def made(body: str) -> ToolResult:
        return await create_apply_patch_tool().execute({"input": wrapped(body)}, ctx)

    return made


# Arguments


def test_the_patch_is_called_input_or_patch() -> None:
    tool = create_apply_patch_tool()
    assert isinstance(tool.validate_input({"input": "x"}), Ok)
    assert tool.validate_input({"patch": "x"}) == Ok({"input": "x"})
    both = tool.validate_input({"input": "x", "patch": "x"})
    assert both == Err("apply_patch: unknown argument 'patch'; did you mean 'input'?")
    assert tool.input_schema["required"] == ["input"]


def test_a_patch_over_one_mebibyte_is_refused_by_its_bytes() -> None:
    tool = create_apply_patch_tool()
    assert isinstance(tool.validate_input({"input": "é" * (512 * 1024)}), Ok)
    over = tool.validate_input({"input": "é" * (512 * 1024) + "x"})
    assert over == Err("apply_patch: input: is 1048577 bytes; the limit is 1048576")
    assert tool.max_argument_bytes > 1024 * 1024


async def test_at_most_200_operations(patch: Patch, workspace: Path) -> None:
    body = "".join(f"*** Add File: f{number}\n+x\n" for number in range(200))
    with pytest.raises(ForgeError) as failed:
        await patch(body + "*** Add File: one_more\n")
    assert failed.value.message == f"{NOTHING}\nthe patch has 201 operations; the limit is 200"
    assert failed.value.status is Status.INPUT_INVALID
    assert (await patch(body)).text.startswith("Patched 200 files:\nA /workspace/f0\n")
    assert len(tree(workspace)) == 200


def test_the_toolset() -> None:
    toolset = EditToolset()
    assert (toolset.name, toolset.config) == ("edit", None)
    (tool,) = toolset.get_tools(ToolsetContext())
    assert (tool.name, tool.label, tool.read_only) == ("apply_patch", "Apply patch", False)


# Results


async def test_t29_the_lines_are_in_patch_order(patch: Patch, workspace: Path) -> None:
    fill(workspace, a="a\n", b="b\n", c="c\n")
    result = await patch(
        "*** Add File: new\n+x\n*** Update File: a\n@@\n-a\n+A\n*** Delete File: b\n"
        "*** Update File: c\n*** Move to: d/e\n@@\n-c \n+C\n"
    )
    assert result.text == (
        "Patched 4 files:\nA /workspace/new\nM /workspace/a\nD /workspace/b\nR /workspace/c -> /workspace/d/e\n"
        "/workspace/c chunk 1: matched ignoring trailing blanks"
    )
    assert result.kind == "patch.result"
    assert result.value["files"] == [
        {"path": "/workspace/new", "change": "A", "bytesWritten": 2},
        {"path": "/workspace/a", "change": "M", "bytesWritten": 2},
        {"path": "/workspace/b", "change": "D", "bytesWritten": 0},
        {"path": "/workspace/d/e", "change": "R", "movedFrom": "/workspace/c", "bytesWritten": 2},
    ]
    assert result.value["notes"] == ["/workspace/c chunk 1: matched ignoring trailing blanks"]
    assert to_result(result) is result
    assert tree(workspace) == {"new": "x\n", "a": "A\n", "d/e": "C\n"}


async def test_one_file_is_a_diff(patch: Patch, workspace: Path) -> None:
    fill(workspace, a="a\nb\n")
    result = await patch("*** Update File: a\n@@\n-a\n+A\n")
    assert result.text == "Patched 1 file:\nM /workspace/a"
    assert result.value == {
        "kind": "diff",
        "path": "/workspace/a",
        "original": "a\nb\n",
        "modified": "A\nb\n",
        "isNew": False,
        "bytesWritten": 4,
        "summary": "Patched 1 file",
    }
    moved = await patch("*** Update File: a\n*** Move to: b\n")
    assert (moved.text, moved.value["movedFrom"]) == (
        "Patched 1 file:\nR /workspace/a -> /workspace/b",
        "/workspace/a",
    )
    gone = await patch("*** Delete File: b\n")
    assert (gone.text, gone.value["deleted"], gone.value["modified"]) == ("Patched 1 file:\nD /workspace/b", True, "")
    new = await patch("*** Add File: c\n+x\n")
    assert (new.kind, new.value["isNew"]) == ("diff", True)


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("*** Add File: a\n+x\n", ["M a"]),
        ("*** Add File: n\n+x\n*** Update File: n\n@@\n-x\n+y\n", ["A n"]),
        ("*** Update File: a\n@@\n-a\n+b\n*** Update File: a\n@@\n-b\n+c\n", ["M a"]),
        ("*** Delete File: a\n*** Add File: a\n+x\n", ["M a"]),
        ("*** Update File: a\n*** Move to: n\n*** Add File: a\n+x\n", ["M a", "A n"]),
        ("*** Update File: a\n*** Move to: m\n*** Update File: m\n*** Move to: n\n", ["R a -> n"]),
        ("*** Update File: a\n*** Move to: b\n", ["R a -> b"]),
        ("*** Add File: m\n+x\n*** Update File: m\n*** Move to: n\n", ["A n"]),
        ("*** Update File: a\n*** Move to: a\n@@\n-a\n+b\n", ["M a"]),
    ],
)
async def test_composed_operations_tell_their_sum(patch: Patch, workspace: Path, body: str, lines: list[str]) -> None:
    fill(workspace, a="a\n", b="b\n")
    shown = [line.replace(" ", " /workspace/").replace("/workspace/->", "->") for line in lines]
    assert (await patch(body)).text.split("\n")[1:] == shown


async def test_mode_bits_stay_also_with_a_move(patch: Patch, workspace: Path) -> None:
    fill(workspace, a="a\n", b="b\n", c="c\n")
    for name, mode in (("a", 0o755), ("b", 0o640), ("c", 0o600)):
        (workspace / name).chmod(mode)
    await patch(
        "*** Update File: a\n*** Move to: sub/a\n@@\n-a\n+A\n*** Update File: b\n@@\n-b\n+B\n*** Add File: c\n+C\n"
    )
    modes = {name: (workspace / name).stat().st_mode & 0o777 for name in ("sub/a", "b", "c")}
    assert modes == {"sub/a": 0o755, "b": 0o640, "c": 0o600}


async def test_a_context_line_that_reads_like_a_move_is_context(patch: Patch, workspace: Path) -> None:
    fill(workspace, a="*** Move to: b.txt\nx\n", c="x\n")
    text = (await patch("*** Update File: a\n *** Move to: b.txt\n-x\n+y\n")).text
    assert text == "Patched 1 file:\nM /workspace/a"
    text = (await patch("*** Update File: c\n *** Move to: d\n-x\n+y\n")).text
    assert text == "Patched 1 file:\nR /workspace/c -> /workspace/d"
    assert tree(workspace) == {"a": "*** Move to: b.txt\ny\n", "d": "y\n"}


# Plan


def test_effects_write_and_delete(ctx: ToolContext, workspace: Path) -> None:
    fill(workspace, a="a\n", b="b\n", c="c\n")
    (workspace / "forge.yaml").write_text("x\n")
    made = plan(
        "*** Update File: a\n*** Move to: n\n*** Delete File: b\n*** Delete File: c\n*** Add File: c\n"
        "*** Update File: forge.yaml\n@@\n-x\n+y\n",
        ctx,
    )
    assert made.effects is not None
    assert {(effect.verb, effect.target) for effect in made.effects} == {
        (Verb.WRITE, "/workspace/n"),
        (Verb.READ, "/workspace/a"),
        (Verb.DELETE, "/workspace/a"),
        (Verb.DELETE, "/workspace/b"),
        (Verb.DELETE, "/workspace/c"),
        (Verb.WRITE, "/workspace/c"),
        (Verb.WRITE, "/workspace/forge.yaml"),
    }
    assert [e.marks for e in made.effects if e.target.endswith("yaml")] == [(Mark.PROTECTED_PATH,)]
    assert {e.zone_verdict for e in made.effects if e.verb is not Verb.READ} == {Verdict.ASK}
    made.release()


def test_a_move_is_a_read_of_what_it_hands_on(ctx: ToolContext, workspace: Path) -> None:
    (workspace / ".env").write_text("TOKEN=canary\n")
    for chunk in ("", "@@\n-TOKEN=canary\n+TOKEN=other\n"):
        made = plan(f"*** Update File: .env\n*** Move to: plain.txt\n{chunk}", ctx)
        assert made.effects is not None
        (read,) = (effect for effect in made.effects if effect.verb is Verb.READ)
        assert (read.target, read.marks) == ("/workspace/.env", (Mark.SECRET_PATH,))
        made.release()
    for body in (
        "*** Update File: .env\n@@\n-TOKEN=canary\n+x\n",
        "*** Add File: .env\n+x\n",
        "*** Delete File: .env\n",
        "*** Add File: new\n+x\n*** Update File: new\n*** Move to: newer\n",
    ):
        made = plan(body, ctx)
        assert made.effects is not None
        assert Verb.READ not in {effect.verb for effect in made.effects}
        made.release()


def test_zone_approval_replaces_the_zones_ask(sandbox: Sandbox, workspace: Path) -> None:
    (tool,) = EditToolset(sandbox, zone_approval={"workspace": {"write": "preApproved"}}).get_tools()
    assert tool.planner is not None
    made = tool.planner({"input": wrapped("*** Add File: a\n+x\n")}, ToolContext())
    assert isinstance(made, Plan) and made.effects
    assert made.effects[0].zone_verdict is Verdict.PRE_APPROVED


def test_the_diff_is_that_of_the_bytes(ctx: ToolContext, workspace: Path) -> None:
    fill(workspace, a="1\n2\n3\n4\n5\n6\n7\n8\n9\nlast", b="b\n", c="c\n")
    made = plan(
        "*** Update File: a\n@@\n-2\n+two\n*** Add File: n\n+x\n*** Delete File: b\n"
        "*** Update File: c\n*** Move to: d\n@@\n-c\n+C\n",
        ctx,
    )
    assert made.diff == (
        "--- a/workspace/a\n+++ b/workspace/a\n@@ -1,5 +1,5 @@\n 1\n-2\n+two\n 3\n 4\n 5\n"
        "@@ -7,4 +7,4 @@\n 7\n 8\n 9\n-last\n\\ No newline at end of file\n+last\n"
        "--- /dev/null\n+++ b/workspace/n\n@@ -0,0 +1 @@\n+x\n"
        "--- a/workspace/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"
        "rename from /workspace/c\nrename to /workspace/d\n"
        "--- a/workspace/c\n+++ b/workspace/d\n@@ -1 +1 @@\n-c\n+C\n"
    )
    assert tree(workspace)["a"].startswith("1\n2\n")


def test_what_a_move_replaces_is_in_the_diff(ctx: ToolContext, workspace: Path) -> None:
    fill(workspace, a="a\n", b="lost\n")
    made = plan("*** Update File: a\n*** Move to: b\n", ctx)
    assert made.diff == (
        "--- a/workspace/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-lost\nrename from /workspace/a\nrename to /workspace/b\n"
    )


@pytest.mark.parametrize("hidden_by", ["name", "rule"])
async def test_the_lines_of_a_secret_are_in_no_diff_result_or_failure(
    ctx: ToolContext, workspace: Path, hidden_by: str
) -> None:
    name = ".env" if hidden_by == "name" else "plain.txt"
    (workspace / name).write_text("A=1\nTOKEN=canary-value\nB=2\n")
    if hidden_by == "rule":
        rule = PathRule(
            matches=lambda path: path == "/workspace/plain.txt",
            literal="/workspace/plain.txt",
            verdict=Verdict.ASK,
            access=frozenset({Verb.READ}),
        )
        ctx.path_rules = lambda: (rule,)
    made = plan(f"*** Update File: {name}\n@@\n-B=2\n+B=3\n", ctx)
    assert made.diff == (
        f"--- a/workspace/{name}\n+++ b/workspace/{name}\n"
        "# The old content (27 bytes) is a secret and not shown; the lines of the patch:\n-B=2\n+B=3\n"
    )
    result = await made.run()
    assert result.text == f"Patched 1 file:\nM /workspace/{name}"
    assert "canary" not in str(result.value)
    assert "canary" not in plan(f"*** Update File: {name}\n*** Move to: other\n", ctx).diff
    assert "canary" not in plan(f"*** Delete File: {name}\n", ctx).diff
    with pytest.raises(PatchFailed) as failed:
        plan(f"*** Update File: {name}\n@@\n A=1\n-TOKEN=x\n", ctx)
    assert failed.value.message.endswith("A=1\nTOKEN=x")


# Refusals


@pytest.fixture
def odd_files(workspace: Path, tmp_path: Path) -> None:
    fill(workspace, a="a\n", other="b\n")
    (tmp_path / "secret").write_text("x\n")
    (workspace / "out").symlink_to(tmp_path / "secret")
    (workspace / "link").symlink_to("a")
    (workspace / "d").mkdir()
    os.mkfifo(workspace / "pipe")


@pytest.mark.usefixtures("odd_files")
@table(
    ("body", "code", "status"),
    [
        ("*** Add File: ../x\n+x\n", "ZONE_ACCESS_DENIED", Status.SANDBOX_DENIED),
        ("*** Add File: ../../x\n+x\n", "INVALID_PATH", Status.INPUT_INVALID),
        ("*** Add File: /etc/x\n+x\n", "ZONE_ACCESS_DENIED", Status.SANDBOX_DENIED),
        ("*** Delete File: /etc/hostname\n", "ZONE_ACCESS_DENIED", Status.SANDBOX_DENIED),
        ("*** Update File: out\n@@\n-x\n+y\n", "SYMLINK_ESCAPE", Status.SANDBOX_DENIED),
        ("*** Delete File: out\n", "SYMLINK_ESCAPE", Status.SANDBOX_DENIED),
        ("*** Update File: a\n*** Move to: /docs/a\n", "READ_ONLY_ZONE", Status.SANDBOX_DENIED),
        ("*** Update File: a\n*** Move to: out\n", "SYMLINK_ESCAPE", Status.SANDBOX_DENIED),
        ("*** Delete File: link\n", "NOT_A_FILE", Status.EXECUTION_FAILED),
        ("*** Update File: link\n*** Move to: n\n", "NOT_A_FILE", Status.EXECUTION_FAILED),
        ("*** Delete File: d\n", "IS_A_DIRECTORY", Status.EXECUTION_FAILED),
        ("*** Add File: a/b\n+x\n", "NOT_A_DIRECTORY", Status.EXECUTION_FAILED),
        ("*** Delete File: pipe\n", "NOT_A_FILE", Status.EXECUTION_FAILED),
        ("*** Update File: unseen\n@@\n-x\n", "NOT_FOUND", Status.EXECUTION_FAILED),
    ],
)
async def test_t40_what_the_sandbox_refuses_keeps_its_code(
    patch: Patch, workspace: Path, tmp_path: Path, body: str, code: str, status: Status
) -> None:
    with pytest.raises(SandboxError) as failed:
        await patch("*** Update File: other\n@@\n-b\n+B\n" + body)
    assert (failed.value.code, failed.value.status) == (code, status)
    assert failed.value.message.startswith(f"{NOTHING}\n") and str(tmp_path) not in failed.value.message
    assert (workspace / "other").read_text() == "b\n"
    assert (tmp_path / "secret").read_text() == "x\n"


async def test_an_update_through_a_link_inside_the_zone_changes_what_it_leads_to(patch: Patch, workspace: Path) -> None:
    fill(workspace, a="a\n")
    (workspace / "link").symlink_to("a")
    result = await patch("*** Update File: link\n@@\n-a\n+b\n*** Update File: a\n@@\n-b\n+c\n")
    assert result.text == "Patched 1 file:\nM /workspace/a"
    assert (workspace / "link").is_symlink() and (workspace / "a").read_text() == "c\n"


def test_a_result_over_the_write_limit_is_refused_while_planning(
    ctx: ToolContext, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WRITE_LIMIT", 1024)
    (workspace / "big").write_bytes(b"a\n" * 512)
    with pytest.raises(SandboxError) as failed:
        plan("*** Update File: big\n@@\n a\n+b\n", ctx)
    assert failed.value.code == "TOO_LARGE"


async def test_a_file_too_large_to_read_can_be_deleted(patch: Patch, workspace: Path) -> None:
    with (workspace / "huge").open("wb") as file:
        file.truncate(65 * 1024 * 1024)
    with pytest.raises(SandboxError) as failed:
        await patch("*** Update File: huge\n@@\n-a\n")
    assert failed.value.code == "TOO_LARGE"
    assert (await patch("*** Delete File: huge\n")).text == "Patched 1 file:\nD /workspace/huge"
    assert os.listdir(workspace) == []


# All or nothing

THREE = (
    "*** Update File: a\n@@\n-a\n+A\n*** Update File: b\n*** Move to: new/dir/b\n@@\n-b\n+B\n"
    "*** Add File: new/c\n+c\n*** Delete File: d\n*** Add File: e\n+E\n"
)
OLD = {"a": "a\n", "b": "b\n", "d": "d\n", "e": "e\n"}


def snapshot(workspace: Path) -> dict[str, tuple[int, int, int, bytes]]:
    found = {}
    for file in sorted(workspace.rglob("*")):
        stat = file.stat()
        content = file.read_bytes() if file.is_file() else b""
        found[str(file.relative_to(workspace))] = (
            stat.st_ino,
            stat.st_mode,
            stat.st_mtime_ns * file.is_file(),
            content,
        )
    return found


@pytest.mark.parametrize("call", ["rename", "fsync", "link"])
@pytest.mark.parametrize("nth", range(1, 9))
async def test_t41_a_failing_system_call_leaves_every_file_as_it_was(
    patch: Patch, workspace: Path, monkeypatch: pytest.MonkeyPatch, call: str, nth: int
) -> None:
    """The very same files: inode, mode, times and content; and no directory more."""
    fill(workspace, **OLD)
    before = snapshot(workspace)
    real = getattr(os, call)
    calls = 0

    def failing(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise OSError(5, "Input/output error")
        return real(*args, **kwargs)

    monkeypatch.setattr(os, call, failing)
    failed: ForgeError | None = None
    try:
        await patch(THREE)
    except ForgeError as error:
        failed = error
    if failed is not None:
        assert failed.message.startswith(f"{NOTHING}\n") and failed.code == "IO_ERROR"
        assert snapshot(workspace) == before
    else:
        assert calls < nth or call == "link"
        assert tree(workspace) == {"a": "A\n", "new/dir/b": "B\n", "new/c": "c\n", "e": "E\n"}


async def test_t41_the_second_of_three_renames(patch: Patch, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(workspace, a="a\n", b="b\n", c="c\n")
    before = snapshot(workspace)
    rename = os.rename
    seen: list[str] = []

    def failing(source: str, name: str, **kwargs: Any) -> None:
        seen.append(name)
        if name == "b":
            raise OSError(28, "No space left on device")
        rename(source, name, **kwargs)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(SandboxError) as failed:
        await patch("".join(f"*** Update File: {name}\n@@\n-{name}\n+x\n" for name in "abc"))
    assert failed.value.message == f"{NOTHING}\nNo space left for '/workspace/b'; the old content is intact."
    assert seen == ["a", "b", "a"]
    assert snapshot(workspace) == before


@pytest.mark.parametrize("what", ["content", "same size", "replaced", "gone", "appeared", "deleted one"])
def test_t42_a_target_that_changed_after_planning(ctx: ToolContext, workspace: Path, what: str) -> None:
    fill(workspace, a="a\n", b="b\n", d="d\n")
    made = plan(
        "*** Update File: a\n@@\n-a\n+A\n*** Update File: b\n@@\n-b\n+B\n*** Add File: n\n+n\n*** Delete File: d\n", ctx
    )
    file = workspace / "b"
    if what == "content":
        file.write_text("bb\n")
    elif what == "same size":
        stat = file.stat()
        file.write_text("x\n")
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif what == "replaced":
        (workspace / "t").write_text("b\n")
        (workspace / "t").rename(file)
    elif what == "gone":
        file.unlink()
    elif what == "appeared":
        (workspace / "n").write_text("mine\n")
    else:
        (workspace / "d").write_text("D\n")
    before = tree(workspace)
    if what not in ("same size", "deleted one"):
        assert made.recheck is not None
        with pytest.raises(SandboxError, match="changed while it was being used") as noticed:
            made.recheck()
        assert noticed.value.code == "PATH_CHANGED"
    with pytest.raises(SandboxError) as failed:
        asyncio.run(made.run())
    assert failed.value.code == "PATH_CHANGED" and failed.value.message.startswith(NOTHING)
    assert tree(workspace) == before


@pytest.mark.parametrize("after", range(6))
async def test_cancelling_in_the_middle_puts_everything_back(
    ctx: ToolContext, workspace: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    fill(workspace, **OLD)
    before = snapshot(workspace)
    rename = os.rename
    loop = asyncio.get_running_loop()
    renames = 0

    def counted(*args: Any, **kwargs: Any) -> None:
        nonlocal renames
        if renames == after:
            asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        renames += 1
        rename(*args, **kwargs)

    async def stop() -> None:
        task.cancel()

    monkeypatch.setattr(os, "rename", counted)
    task = asyncio.ensure_future(plan(THREE, ctx).run())
    try:
        await task
    except asyncio.CancelledError:
        assert snapshot(workspace) == before
    else:
        assert renames <= after


async def test_an_interrupt_is_seen_between_files(ctx: ToolContext, workspace: Path) -> None:
    fill(workspace, **OLD)
    before = snapshot(workspace)
    made = plan(THREE, ctx)
    ctx.cancel.interrupt()
    with pytest.raises(ForgeError) as failed:
        await made.run()
    assert failed.value.status is Status.INTERRUPTED
    assert failed.value.message == f"{NOTHING}\nInterrupted while it ran."
    assert snapshot(workspace) == before


async def test_what_someone_else_changed_meanwhile_is_left_and_told(
    patch: Patch, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(workspace, a="a\n", b="b\n")
    rename = os.rename

    def meddling(source: str, name: str, **kwargs: Any) -> None:
        if name == "b":
            (workspace / "mine").write_text("mine\n")
            rename(workspace / "mine", workspace / "a")
            raise OSError(5, "Input/output error")
        rename(source, name, **kwargs)

    monkeypatch.setattr(os, "rename", meddling)
    with pytest.raises(ForgeError) as failed:
        await patch("*** Update File: a\n@@\n-a\n+A\n*** Update File: b\n@@\n-b\n+B\n")
    first, line = failed.value.message.split("\n")
    assert (failed.value.code, first) == (
        "NOT_RESTORED",
        "Patch not applied, but not everything could be put back:",
    )
    assert line.startswith("'/workspace/a' could not be restored (PATH_CHANGED); its old content is in '.forge-")
    kept = line.split("'")[3]
    assert (workspace / kept).read_text() == "a\n"
    assert ((workspace / "a").read_text(), (workspace / "b").read_text()) == ("mine\n", "b\n")


async def test_without_hard_links_copies_are_kept(
    patch: Patch, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(workspace, **OLD)
    (workspace / "a").chmod(0o751)
    content = tree(workspace)
    rename = os.rename

    def no_links(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    def failing(source: str, name: str, **kwargs: Any) -> None:
        if source == "d":
            raise OSError(5, "Input/output error")
        rename(source, name, **kwargs)

    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(SandboxError):
        await patch(THREE)
    assert tree(workspace) == content
    assert (workspace / "a").stat().st_mode & 0o777 == 0o751
    assert not (workspace / "new").exists()
