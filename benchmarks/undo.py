"""What undo costs: keeping before-images, finding what a command changed, and bringing it back, beside the program
that people would use by hand.

A capture is the first one of a process, with nothing kept before; the zone is scanned already, as walls do that
anyway. `git add -A` works in a private repository of the same tree, which is how snapshots are made elsewhere. The disk
row is a sum of file sizes, not a time. The last rows count what the mode `contained`, which rests on undo, still asks.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.harness import Block, Pace, race_blocks
from benchmarks.ours import session_in
from benchmarks.questions import contained_rows
from benchmarks.rows import Row, at_most, below, row
from golem_forge.core.changes import ChangeSelection, ChangeSet, UndoSettings
from golem_forge.sandbox.sandbox import open_sandbox
from golem_forge.sandbox.undo.log import SessionChangeLog
from golem_forge.sandbox.undo.restore import preview, restore_all
from golem_forge.sandbox.undo.zone_history import ZoneHistory, zone_history
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.zones import ZoneSpec

FILES = 50_000
CHANGED = 100
UNTRACKED = 5_000
UNTRACKED_BYTES = 20_000
RESTORED = 1_000
TURNS = 200
MIB = 1 << 20
REPEATS = 5
_FACTS: dict[str, Any] = {"session": "s", "call": "c", "tool": "exec_command"}


async def rows(pace: Pace) -> list[Row]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-undo-")))
        homes = itertools.count()

        def fresh(root: Path) -> ZoneHistory:
            history = ZoneHistory(str(root), "workspace", folder / f"home{next(homes)}", UndoSettings())
            history._scan.refresh()
            return history

        clone = folder / "clone"
        _make_clone(clone, pace.amount(FILES))
        session = await stack.enter_async_context(session_in(clone))
        walls = session.path.walls
        assert walls is not None
        kept = fresh(clone)
        ended(kept, kept.begin("s", "c", "c", _FACTS))

        async def alone(_: Any) -> None:
            for _number in range(REPEATS):
                await (await walls.start(Job(argv=("sh", "-c", ":")))).child.wait()

        async def recorded(_: Any) -> None:
            for _number in range(REPEATS):
                span = kept.begin("s", "c", "c", _FACTS)
                await (await walls.start(Job(argv=("sh", "-c", ":")))).child.wait()
                ended(kept, span)

        data = folder / "data"
        _make_untracked(data, pace.amount(UNTRACKED))
        hidden = folder / "hidden.git"
        git = ("git", f"--git-dir={hidden}", f"--work-tree={clone}")
        _run("git", "init", "-q", "--bare", str(hidden))
        _run(*git, "add", "-A")
        changes = itertools.count()

        def change(_: Any = None) -> Any:
            """Untimed: 100 files rewritten, renamed or deleted, and those of the last time put back."""
            number = next(changes)
            _run("git", "-C", str(clone), "checkout", "-q", ".")
            _run("git", "-C", str(clone), "clean", "-qfd")
            _run(*git, "add", "-A")
            span = kept.begin("s", "c", "c", _FACTS)
            for index in range(CHANGED):
                file = clone / f"d{index % 10}" / f"f{(index % 10) * 100 + index // 10}"
                if index % 3 == 0:
                    file.write_text(f"changed {number}\n")
                elif index % 3 == 1:
                    file.rename(file.with_name(f"{file.name}.moved"))
                else:
                    file.unlink()
            return span

        target = folder / "copies"
        blocks = {
            "recorded": Block(run=recorded),
            "alone": Block(run=alone),
            "capture": Block(
                run=lambda history: ended(history, history.begin("s", "c", "c", _FACTS)), prepare=lambda: fresh(clone)
            ),
            "status": Block(run=lambda _: _run("git", "-C", str(clone), "status")),
            "untracked": Block(
                run=lambda history: ended(history, history.begin("s", "c", "c", _FACTS)), prepare=lambda: fresh(data)
            ),
            "cp": Block(
                run=lambda _: _run("cp", "-r", str(data), str(target)),
                prepare=lambda: shutil.rmtree(target, ignore_errors=True),
            ),
        }
        seconds = await race_blocks(blocks, rounds=pace.rounds)
        seconds |= await race_blocks(
            {
                "changes": Block(run=lambda span: ended(kept, span), prepare=change),
                "add": Block(run=lambda span: _run(*git, "add", "-A"), prepare=change),
            },
            rounds=pace.rounds,
        )
        seconds |= await race_blocks(_undo_blocks(folder / "many", folder), rounds=pace.rounds)
        disk = _disk_of_turns(folder / "turns", folder / "home-of-turns", pace.amount(TURNS))
    ms = {name: value * 1e3 for name, value in seconds.items()}
    return [
        row(
            "a walled `:` in 50,000 kept files (ms)",
            ms["recorded"] / REPEATS,
            peer=ms["alone"] / REPEATS,
            peer_name="not recorded",
            goal=at_most(1.15),
        ),
        row(
            "first capture, clean clone of 50,000 (ms)",
            ms["capture"],
            peer=ms["status"],
            peer_name="git status",
            goal=at_most(2),
        ),
        row(
            "first capture, 5,000 untracked files (ms)",
            ms["untracked"],
            peer=ms["cp"],
            peer_name="cp -r",
            goal=at_most(1.5),
        ),
        row(
            "change set, 100 of 50,000 files (ms)",
            ms["changes"],
            peer=ms["add"],
            peer_name="git add -A",
            goal=at_most(0.5),
        ),
        row(
            "undo of 1,000 files (ms)",
            ms["undo"],
            peer=ms["copy"],
            peer_name="cp --remove-destination",
            goal=at_most(2),
        ),
        row("disk after 200 turns that rewrite 1 MiB (MiB)", disk / pace.scale, goal=below(210)),
        *await contained_rows(),
    ]


def ended(history: ZoneHistory, span: Any) -> None:
    assert span is not None, history.problem
    history.end(span)


def _undo_blocks(root: Path, folder: Path) -> dict[str, Block]:
    home = folder / "home-of-undo"
    root.mkdir()
    for number in range(RESTORED):
        (root / f"f{number}").write_bytes(os.urandom(2_000))
    shutil.copytree(root, folder / "saved")
    sandbox = open_sandbox([ZoneSpec(name="workspace", path=root)])
    history = zone_history(sandbox.zones["workspace"], home, UndoSettings())
    log = SessionChangeLog(home, "s")
    calls = itertools.count()

    def change() -> Any:
        call = f"c{next(calls)}"
        span = history.begin("s", call, call, {})
        for number in range(RESTORED):
            (root / f"f{number}").write_text(call)
        assert span is not None
        log.append(ChangeSet(session="s", call=call, tool="exec_command", changes=tuple(history.end(span))))
        return preview(home, sandbox, "s", ChangeSelection(call=call)).selected

    return {
        "undo": Block(run=lambda steps: restore_all(home, sandbox, steps), prepare=change),
        "copy": Block(
            run=lambda _: _run("cp", "-r", "--remove-destination", f"{folder / 'saved'}/.", str(root)), prepare=change
        ),
    }


def _disk_of_turns(root: Path, home: Path, turns: int) -> float:
    root.mkdir()
    history = ZoneHistory(str(root), "workspace", home, UndoSettings())
    for _number in range(turns):
        span = history.begin("s", "c", "c", {})
        (root / "file.bin").write_bytes(os.urandom(MIB))
        ended(history, span)
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file()) / MIB


def _make_clone(root: Path, count: int) -> None:
    for number in range(count):
        directory = root / f"d{number // 100}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"f{number}").write_text(f"{number}\n" * 10)
    identity = ("-c", "user.name=n", "-c", "user.email=e", "-c", "gc.auto=0")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "all"), ("gc", "-q"), ("status",)):
        _run("git", "-C", str(root), *words)


def _make_untracked(root: Path, count: int) -> None:
    for number in range(count):
        directory = root / f"d{number // 100}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"f{number}").write_bytes(os.urandom(UNTRACKED_BYTES))


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
