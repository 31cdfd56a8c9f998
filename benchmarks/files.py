"""Native tools on real files: reading, searching, patching, and what it costs to resolve a path inside its zone.

Every contestant does the work of its tool on the same tree; ours go through the whole path of a session, journal off.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.harness import Block, Pace, race_blocks, race_calls
from benchmarks.ours import session_in
from benchmarks.rows import Row, at_most, row
from golem_forge.agent.session import Session
from golem_forge.core.effects import Verb
from golem_forge.sandbox.walls.bubblewrap import ripgrep_path

FILES = 5_000
LINES = 10_000
PLAIN_OPEN = "open()"
RIPGREP = "rg"


async def rows(pace: Pace) -> list[Row]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-files-")))
        workspace = folder / "workspace"
        make_tree(workspace, pace.amount(FILES))
        session = await stack.enter_async_context(session_in(workspace))
        return [
            *await _resolving(session, workspace, pace),
            *await _reading(session, workspace, pace),
            *await _searching(session, workspace, pace),
            *await _patching(session, workspace, pace),
        ]


def make_tree(root: Path, count: int) -> None:
    """Source-like files of about 300 lines, 16 KiB each, as in a large project; one in two hundred says the word that
    is searched for."""
    chance = random.Random(3)
    words = [f"word{number}" for number in range(400)]
    for number in range(count):
        folder = root / f"package{number % 40}" / f"part{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [" ".join(chance.choices(words, k=8)) for _ in range(300)]
        if number % 200 == 0:
            lines[150] = "here is the needle that is searched for"
        (folder / f"module{number}.py").write_text("\n".join(lines) + "\n")
    deep = root / "a" / "b" / "c" / "d"
    deep.mkdir(parents=True)
    (deep / "e.txt").write_text("five levels deep\n")
    (root / "long.txt").write_text("".join(f"line {number} of a long file\n" for number in range(LINES)))


async def _resolving(session: Session, workspace: Path, pace: Pace) -> list[Row]:
    host = str(workspace / "a/b/c/d/e.txt")

    async def plain() -> None:
        open(host).close()  # noqa: ASYNC230 - opening and closing is what is measured

    async def ours() -> None:
        session.sandbox.target("/workspace/a/b/c/d/e.txt", Verb.READ).close()

    seconds = await race_calls({PLAIN_OPEN: plain, "ours": ours}, pace)
    return [
        row(
            "resolve and open a path five levels deep (µs)",
            seconds["ours"] * 1e6,
            peer=seconds[PLAIN_OPEN] * 1e6,
            peer_name=PLAIN_OPEN,
            goal=at_most(4),
        )
    ]


async def _reading(session: Session, workspace: Path, pace: Pace) -> list[Row]:
    host = workspace / "package0" / "part0" / "module0.py"

    async def ours() -> None:
        assert (await session.call("read_file", {"path": "/workspace/package0/part0/module0.py"})).ok

    async def plain() -> None:
        host.read_text()

    seconds = await race_calls({"ours": ours, "Path.read_text": plain}, pace)
    return [
        row(
            "read_file, 300 lines (µs)",
            seconds["ours"] * 1e6,
            peer=seconds["Path.read_text"] * 1e6,
            peer_name="Path.read_text",
        )
    ]


async def _searching(session: Session, workspace: Path, pace: Pace) -> list[Row]:
    async def ours(_: Any) -> None:
        outcome = await session.call("grep_files", {"pattern": "the needle", "limit": 2000})
        assert outcome.ok, outcome.text
        assert outcome.result is not None
        assert outcome.result.value["engine"] == "rg"

    def plain(_: Any) -> None:
        command = [ripgrep_path(), "--no-config", "--hidden", "--no-require-git", "-l", "the needle", str(workspace)]
        assert subprocess.run(command, capture_output=True, check=True).stdout

    seconds = await race_blocks({"ours": Block(run=ours), RIPGREP: Block(run=plain)}, rounds=pace.rounds)
    files = pace.amount(FILES)
    return [
        row(
            f"grep_files over {files:,} files (ms)",
            seconds["ours"] * 1e3,
            peer=seconds[RIPGREP] * 1e3,
            peer_name=RIPGREP,
            goal=at_most(1.3),
        )
    ]


async def _patching(session: Session, workspace: Path, pace: Pace) -> list[Row]:
    """One chunk in the middle of a long file; the peer is `patch` with the same change as a unified diff."""
    middle = LINES // 2
    file = workspace / "long.txt"
    before = file.read_text()

    def patch(_: Any) -> str:
        return (
            "*** Begin Patch\n*** Update File: /workspace/long.txt\n@@\n"
            f" line {middle - 1} of a long file\n-line {middle} of a long file\n+line {middle} was changed\n"
            f" line {middle + 1} of a long file\n*** End Patch\n"
        )

    async def ours(text: str) -> None:
        outcome = await session.call("apply_patch", {"input": text})
        assert outcome.ok, outcome.text

    def restored() -> str:
        file.write_text(before)
        return patch(None)

    seconds = await race_blocks({"ours": Block(run=ours, prepare=restored)}, rounds=pace.rounds)
    return [row(f"apply_patch on a file of {LINES:,} lines (ms)", seconds["ours"] * 1e3)]
