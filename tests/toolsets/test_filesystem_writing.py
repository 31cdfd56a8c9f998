"""write_file and delete_file: T7, T9 and the rules behind them; between plan and run nothing may change unnoticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import descriptors
from tests.tables import table

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Mark, Verb
from golem_forge.core.errors import ConfigError
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.toolsets import TOOLKIT, FilesystemToolset, create_write_file_tool


def plan(name: str, ctx: ToolContext, **args: Any) -> Plan:
    planner = TOOLKIT[name].planner
    assert planner is not None
    made = planner(args, ctx)
    assert isinstance(made, Plan)
    return made


async def test_t7_a_new_file(call: Any, workspace: Path) -> None:
    result = await call("write_file", path="sub/dir/a.txt", content="hé")
    assert result.text == "Created /workspace/sub/dir/a.txt (3 bytes)"
    assert result.value == {
        "kind": "diff",
        "path": "/workspace/sub/dir/a.txt",
        "modified": "hé",
        "isNew": True,
        "bytesWritten": 3,
        "summary": result.text,
    }
    assert (workspace / "sub/dir/a.txt").read_bytes() == "hé".encode()


async def test_t7_replacing_keeps_the_mode_and_tells_the_original(call: Any, workspace: Path) -> None:
    file = workspace / "a.sh"
    file.write_bytes(b"0123\r\n789")
    file.chmod(0o755)
    result = await call("write_file", path="a.sh", content="new")
    assert result.text == "Modified /workspace/a.sh (3 bytes, was 9)"
    assert (result.value["original"], result.value["isNew"]) == ("0123\r\n789", False)
    assert file.read_bytes() == b"new"
    assert file.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("old", "told"), [(b"a" * 102_400, True), (b"a" * 102_401, False), (b"a" * 204_800, False), (b"a\0b", False)]
)
async def test_t7_a_large_or_binary_original_is_left_out(call: Any, workspace: Path, old: bytes, told: bool) -> None:
    (workspace / "a.txt").write_bytes(old)
    result = await call("write_file", path="a.txt", content="x")
    assert ("original" in result.value) is told


async def test_t7_the_same_content_is_not_written(call: Any, workspace: Path) -> None:
    file = workspace / "a.txt"
    file.write_text("same")
    os.utime(file, (1, 1))
    before = file.stat()
    result = await call("write_file", path="a.txt", content="same")
    assert result.text == "Unchanged /workspace/a.txt"
    assert (result.value["bytesWritten"], result.value["isNew"]) == (0, False)
    after = file.stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


@table("content", ["", "\ufeffwith mark", "no newline", "a\r\nb\rc\n", "\0\x1b"])
async def test_content_is_written_as_given(call: Any, workspace: Path, content: str) -> None:
    await call("write_file", path="a.txt", content=content)
    assert (workspace / "a.txt").read_bytes() == content.encode()


async def test_content_over_10_mib_is_refused_and_nothing_made(call: Any, workspace: Path) -> None:
    limit = 10 * 1024 * 1024
    with pytest.raises(SandboxError) as failed:
        await call("write_file", path="new/a.txt", content="é" * (limit // 2 + 1))
    text = f"'/workspace/new/a.txt' is {limit + 2} bytes; the limit is {limit}. Write it as several files."
    assert (failed.value.code, failed.value.message) == ("TOO_LARGE", text)
    assert os.listdir(workspace) == []
    assert TOOLKIT["write_file"].max_argument_bytes > limit


@pytest.mark.parametrize(
    ("path", "code"),
    [("/docs/a", "READ_ONLY_ZONE"), ("d", "IS_A_DIRECTORY"), ("pipe", "NOT_A_FILE"), ("f/x", "NOT_A_DIRECTORY")],
)
@pytest.mark.parametrize("tool", ["write_file", "delete_file"])
def test_what_cannot_work_is_refused_while_planning(
    ctx: ToolContext, workspace: Path, tool: str, path: str, code: str
) -> None:
    (workspace / "d").mkdir()
    (workspace / "f").touch()
    os.mkfifo(workspace / "pipe")
    with pytest.raises(SandboxError) as failed:
        plan(tool, ctx, path=path, content="x")
    assert failed.value.code == code


async def test_t9_delete(call: Any, workspace: Path) -> None:
    (workspace / "a.txt").write_text("12 bytes long"[:12])
    (workspace / "link").symlink_to("a.txt")
    (workspace / "d").mkdir()
    assert (await call("delete_file", path="link")).text == "Deleted /workspace/link (link)"
    assert (await call("delete_file", path="a.txt")).text == "Deleted /workspace/a.txt (12 bytes)"
    assert os.listdir(workspace) == ["d"]
    with pytest.raises(SandboxError, match=r"'/workspace/d' is a directory\."):
        await call("delete_file", path="d")
    with pytest.raises(SandboxError, match=r"File not found: /workspace/a\.txt"):
        await call("delete_file", path="a.txt")


def _replaced(file: Path) -> None:
    file.unlink()
    file.write_text("old")


def _linked(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def _same_size_and_time(file: Path) -> None:
    before = file.stat()
    file.write_text("OLD")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "change", [_replaced, _linked, _same_size_and_time, Path.unlink, lambda f: f.write_text("more")]
)
@pytest.mark.parametrize("content", ["new", "old"], ids=["writes", "unchanged"])
def test_a_target_that_changed_after_planning_is_not_written(
    ctx: ToolContext, workspace: Path, change: Callable[[Path], object], content: str
) -> None:
    file = workspace / "a.txt"
    file.write_text("old")
    planned = plan("write_file", ctx, path="a.txt", content=content)
    change(file)
    left = {name: (workspace / name).read_bytes() for name in os.listdir(workspace)}
    with pytest.raises(SandboxError) as failed:
        planned.run()
    text = "'/workspace/a.txt' changed while it was being used; nothing was done."
    assert (failed.value.code, failed.value.message) == ("PATH_CHANGED", text)
    assert {name: (workspace / name).read_bytes() for name in os.listdir(workspace)} == left


@pytest.mark.parametrize("change", [_replaced, _linked, Path.unlink])
@pytest.mark.parametrize("tool", ["write_file", "delete_file", "read_file"])
def test_recheck_after_a_wait_notices(
    ctx: ToolContext, workspace: Path, tool: str, change: Callable[[Path], object]
) -> None:
    file = workspace / "a.txt"
    file.write_text("old")
    planned = plan(tool, ctx, path="a.txt", content="new")
    assert planned.recheck is not None
    planned.recheck()
    change(file)
    with pytest.raises(SandboxError) as failed:
        planned.recheck()
    assert failed.value.code == "PATH_CHANGED"


def test_a_file_that_appeared_is_not_overwritten(ctx: ToolContext, workspace: Path) -> None:
    planned = plan("write_file", ctx, path="a.txt", content="new")
    (workspace / "a.txt").write_text("theirs")
    with pytest.raises(SandboxError, match="changed while it was being used"):
        planned.run()
    assert (workspace / "a.txt").read_text() == "theirs"


def test_planning_changes_nothing_and_closing_lets_go(ctx: ToolContext, workspace: Path) -> None:
    (workspace / "a.txt").write_text("a")
    held = descriptors.held()
    planned = [
        plan(tool, ctx, path="a.txt", content="new")
        for tool in ("read_file", "file_exists", "file_info", "write_file", "delete_file")
    ]
    planned.append(plan("list_files", ctx, path="."))
    assert (workspace / "a.txt").read_text() == "a"
    for each in planned:
        assert each.close is not None
        each.close()
    assert descriptors.no_more_than(held)


@table(
    ("tool", "path", "verb", "verdict", "marks", "read_only"),
    [
        ("read_file", "a.txt", Verb.READ, Verdict.PRE_APPROVED, (), True),
        ("read_file", ".env", Verb.READ, Verdict.PRE_APPROVED, (Mark.SECRET_PATH,), True),
        ("file_info", ".env", Verb.READ, Verdict.PRE_APPROVED, (Mark.SECRET_PATH,), True),
        ("file_exists", "none", Verb.READ, Verdict.PRE_APPROVED, (), True),
        ("list_files", "/", Verb.READ, Verdict.PRE_APPROVED, (), True),
        ("write_file", "a.txt", Verb.WRITE, Verdict.ASK, (), None),
        ("write_file", "forge.yaml", Verb.WRITE, Verdict.ASK, (Mark.PROTECTED_PATH,), None),
        ("write_file", ".claude/settings.json", Verb.WRITE, Verdict.ASK, (Mark.PROTECTED_PATH,), None),
        ("write_file", ".pylintrc", Verb.WRITE, Verdict.ASK, (Mark.OBEYED_PATH,), None),
        ("write_file", "CLAUDE.md", Verb.WRITE, Verdict.ASK, (), None),
        ("write_file", "/scratch/a.txt", Verb.WRITE, Verdict.PRE_APPROVED, (), None),
        ("delete_file", "a.txt", Verb.DELETE, Verdict.ASK, (), None),
        ("delete_file", "/scratch/b", Verb.DELETE, Verdict.BLOCKED, (), None),
    ],
)
def test_effects(
    ctx: ToolContext, tmp_path: Path, tool: str, path: str, verb: Verb, verdict: Verdict, marks: Any, read_only: Any
) -> None:
    for name in ("host-workspace/a.txt", "host-workspace/.env", "host-scratch/b"):
        (tmp_path / name).touch()
    planned = plan(tool, ctx, path=path, content="x")
    assert planned.effects is not None
    (effect,) = planned.effects
    assert (effect.verb, effect.zone_verdict, effect.marks) == (verb, verdict, marks)
    assert planned.read_only is read_only
    assert TOOLKIT[tool].read_only is bool(read_only)
    assert str(tmp_path) not in effect.describe()


def test_the_effect_of_a_link_is_on_what_it_leads_to(ctx: ToolContext, workspace: Path) -> None:
    (workspace / "a.txt").touch()
    (workspace / "link").symlink_to("a.txt")
    effects = [plan(tool, ctx, path="link", content="x").effects for tool in ("write_file", "read_file", "delete_file")]
    targets = [each[0].target for each in effects if each]
    assert targets == ["/workspace/a.txt", "/workspace/a.txt", "/workspace/link"]


@table(
    ("zone_approval", "tool", "path", "verdict"),
    [
        ({"workspace": {"write": "preApproved"}}, "write_file", "a.txt", Verdict.PRE_APPROVED),
        ({"workspace": {"write": "preApproved"}}, "delete_file", "a.txt", Verdict.ASK),
        ({"workspace": {"delete": Verdict.PRE_APPROVED}}, "delete_file", "a.txt", Verdict.PRE_APPROVED),
        ({"workspace": {"write": "blocked"}}, "write_file", "a.txt", Verdict.BLOCKED),
        ({"scratch": {"write": "ask"}}, "write_file", "/scratch/a.txt", Verdict.ASK),
        ({"scratch": {"delete": "preApproved"}}, "delete_file", "/scratch/b", Verdict.BLOCKED),
        ({"workspace": {"write": "preApproved"}}, "write_file", "forge.yaml", Verdict.PRE_APPROVED),
    ],
)
def test_zone_approval_replaces_ask_but_not_blocked_or_a_mark(
    sandbox: Sandbox, tmp_path: Path, zone_approval: Any, tool: str, path: str, verdict: Verdict
) -> None:
    (tmp_path / "host-workspace/a.txt").touch()
    (tmp_path / "host-scratch/b").touch()
    tools = {tool.name: tool for tool in FilesystemToolset(sandbox, zone_approval=zone_approval).get_tools()}
    planner = tools[tool].planner
    assert planner is not None
    planned = planner({"path": path, "content": "x"}, ToolContext())
    assert isinstance(planned, Plan) and planned.effects
    assert planned.effects[0].zone_verdict is verdict
    assert planned.effects[0].marks == ((Mark.PROTECTED_PATH,) if path == "forge.yaml" else ())


@table(
    ("zone_approval", "text"),
    [
        ({"workspce": {"write": "ask"}}, "zone_approval: no zone 'workspce'; did you mean 'workspace'?"),
        ({"docs": {"read": "ask"}}, "zone_approval.docs: no 'read' there; only write and delete ask for consent"),
        (
            {"docs": {"write": "allow"}},
            "zone_approval.docs.write: 'allow' is not a verdict. There are: ask, blocked, preApproved",
        ),
    ],
)
def test_zone_approval_is_checked(sandbox: Sandbox, zone_approval: Any, text: str) -> None:
    with pytest.raises(ConfigError) as failed:
        FilesystemToolset(sandbox, zone_approval=zone_approval)
    assert failed.value.problems == (text,)


async def test_an_embedders_tool_uses_its_own_sandbox(sandbox: Sandbox, workspace: Path) -> None:
    tool = create_write_file_tool(sandbox, needs_approval=False)
    assert tool.needs_approval is False
    await tool.execute({"path": "a.txt", "content": "x"}, ToolContext(sandbox=Sandbox(has_block=False)))
    assert (workspace / "a.txt").read_text() == "x"


def test_the_diff_is_of_the_bytes_over_virtual_paths(ctx: ToolContext, workspace: Path) -> None:
    (workspace / "a.txt").write_text("a\nb\n")
    changed = plan("write_file", ctx, path="a.txt", content="a\nc")
    assert changed.diff == (
        "--- a/workspace/a.txt\n+++ b/workspace/a.txt\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n"
    )
    created = plan("write_file", ctx, path="n.txt", content="x\n")
    assert created.diff == "--- /dev/null\n+++ b/workspace/n.txt\n@@ -0,0 +1 @@\n+x\n"
    assert plan("write_file", ctx, path="a.txt", content="a\nb\n").diff == ""


async def test_a_file_too_large_to_read_can_be_replaced_and_the_diff_says_so(
    call: Any, ctx: ToolContext, workspace: Path
) -> None:
    size = 65 * 1024 * 1024
    os.truncate(os.open(workspace / "big", os.O_CREAT | os.O_RDWR), size)
    planned = plan("write_file", ctx, path="big", content="x\n")
    assert f"# The old content ({size} bytes) is too large to show; it is replaced whole.\n" in planned.diff
    assert planned.diff.endswith("\n@@ -0,0 +1 @@\n+x\n")
    result = planned.run()
    assert result.text == f"Modified /workspace/big (2 bytes, was {size})"
    assert (workspace / "big").read_text() == "x\n"
