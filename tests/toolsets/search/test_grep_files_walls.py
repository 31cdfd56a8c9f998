"""grep_files with ripgrep inside real walls: what it finds, what stays hidden, and who does it where there are none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golem_forge.config.sandbox_block import WallSettings
from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.bubblewrap import ripgrep_path
from golem_forge.sandbox.walls.model import Level, PathRule, ProbeReport
from golem_forge.sandbox.walls.walls import Walls, WallsHost
from golem_forge.tools.context import ToolContext
from golem_forge.toolsets.search import create_grep_files_tool

needs_bwrap = pytest.mark.skipif(
    shutil.which("bwrap") is None or not ripgrep_path(), reason="bubblewrap or rg is missing"
)


@pytest.fixture
def walled(tmp_path: Path, sandbox: Sandbox) -> Callable[..., ToolContext]:
    (tmp_path / "forge_home").mkdir()

    def made(
        level: Level = Level.FULL, rules: tuple[PathRule, ...] = (), bwrap: str = "", **options: Any
    ) -> ToolContext:
        walls = Walls(
            sandbox,
            forge_home=tmp_path / "forge_home",
            host=WallsHost(home=tmp_path / "home", report=ProbeReport(level=level), bwrap=bwrap),
            rules=lambda: rules,
            **options,
        )
        return ToolContext(sandbox=sandbox, walls=walls, path_rules=lambda: rules)

    return made


async def grep(ctx: ToolContext, **args: Any) -> tuple[str, list[str]]:
    result = await create_grep_files_tool().execute({"pattern": "needle", **args}, ctx)
    return result.value["engine"], result.text.split("\n")


def lay(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("needle\n")


@needs_bwrap
@pytest.mark.parametrize("level", [Level.FULL, Level.LANDLOCK])
async def test_s33_ripgrep_finds_files_and_lines(level: Level, walled: Any, workspace: Path, docs: Path) -> None:
    lay(workspace, "a/b.txt", "c.txt", "skip.log", ".git/HEAD", ".env")
    lay(docs, "d.md")
    (workspace / ".gitignore").write_text("*.log\n")
    os.utime(workspace / "c.txt", (1, 1))
    ctx = walled(level)
    assert await grep(ctx) == ("rg", ["/workspace/a/b.txt", "/workspace/c.txt"])
    assert await grep(ctx, path="a", mode="lines") == ("rg", ["/workspace/a/b.txt:1: needle"])
    assert await grep(ctx, path="/", mode="lines") == (
        "rg",
        ["/docs/d.md:1: needle", "/workspace/a/b.txt:1: needle", "/workspace/c.txt:1: needle"],
    )


@needs_bwrap
@pytest.mark.parametrize("level", [Level.FULL, Level.LANDLOCK])
async def test_a_secret_is_searched_only_where_it_was_named(level: Level, walled: Any, workspace: Path) -> None:
    lay(workspace, ".env", "deep/er/than/the/scan/goes/.env", "a.txt")
    ctx = walled(level)
    assert await grep(ctx) == ("rg", ["/workspace/a.txt"])
    assert await grep(ctx, path=".env", mode="lines") == ("rg", ["/workspace/.env:1: needle"])


@needs_bwrap
async def test_a_rule_that_was_answered_lifts_its_mask(walled: Any, workspace: Path) -> None:
    lay(workspace, "private/a.txt", "private/b.txt")
    rule = PathRule(
        matches=lambda path: path.startswith("/workspace/private/"),
        literal="/workspace/private",
        verdict=Verdict.ASK,
        access=frozenset({Verb.READ}),
    )
    ctx = walled(rules=(rule,))
    assert await grep(ctx) == ("rg", ["No matches."])
    assert await grep(ctx, path="private/a.txt", mode="lines") == ("rg", ["/workspace/private/a.txt:1: needle"])


@needs_bwrap
async def test_host_paths_and_secrets_in_matched_lines_are_not_shown(
    walled: Any, workspace: Path, sandbox: Sandbox
) -> None:
    redactor = Redactor()
    redactor.add_secret("TOKEN", "canary-5f1c-canary")
    (workspace / "a.txt").write_text(f"needle {sandbox.zones['workspace'].host}/x canary-5f1c-canary\n")
    _, lines = await grep(walled(redactor=redactor), mode="lines")
    assert lines == ["/workspace/a.txt:1: needle /workspace/x [secret TOKEN]"]


@needs_bwrap
@pytest.mark.parametrize(("before", "length"), [("", 1_000), ("x" * 100, 3_000), ("ü" * 400, 2_000), ("你" * 480, 900)])
async def test_a_secret_longer_than_what_is_shown_of_a_line_is_not_shown(
    walled: Any, workspace: Path, before: str, length: int
) -> None:
    secret = "".join(f"{number:04x}" for number in range(length // 4))
    redactor = Redactor()
    redactor.add_secret("KEY", secret)
    ctx = walled(redactor=redactor)
    ctx.redactor = redactor
    (workspace / "a.txt").write_text(f"needle {before}{secret} and more {'y' * 5_000}\n")
    _, (line,) = await grep(ctx, mode="lines")
    assert secret[:12] not in line
    assert line.startswith(f"/workspace/a.txt:1: needle {before}[sec")


@pytest.mark.parametrize("level", [Level.NONE, Level.OFF])
async def test_without_walls_python_does_it(level: Level, walled: Any, workspace: Path) -> None:
    lay(workspace, "a.txt")
    ctx = walled(level, settings=WallSettings(off=level is Level.OFF))
    assert await grep(ctx) == ("python", ["/workspace/a.txt"])


@needs_bwrap
async def test_walls_that_cannot_be_built_leave_it_to_python(walled: Any, workspace: Path) -> None:
    lay(workspace, "a.txt")
    assert await grep(walled(bwrap="/bin/false")) == ("python", ["/workspace/a.txt"])
