"""Stands in for Forge during a probe: starts the walls of one level around `probe_child` and waits to be killed.

A process of its own, because one guarantee is about Forge being killed, and because it carries what must not get in: a
canary in its environment, an open descriptor, a terminal. Takes one JSON argument, prints one JSON line: `said` (the
child's own line), `limits` (of a whole tree: held, did not hold, or null: not seen in time), or `refused` (why walls
did not start).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import sys
import termios
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from golem_forge.config.sandbox_block import MIB, ResourceLimits, WallSettings
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import replace
from golem_forge.sandbox.process.child import Child
from golem_forge.sandbox.sandbox import open_sandbox
from golem_forge.sandbox.walls import probe_child
from golem_forge.sandbox.walls.model import Job, Level, ProbeReport
from golem_forge.sandbox.walls.probe import PROBE_LIMITS
from golem_forge.sandbox.walls.probe_child import LONGER_THAN_A_PROBE_S
from golem_forge.sandbox.zones import AccessMode, ZoneSpec

Start = Callable[[Job], Awaitable[Child]]
_LEAST_PATIENCE_S: Final = 5.0
_CROWD: Final = ("sh", "-c", f"for i in 1 2 3 4 5 6; do sleep {LONGER_THAN_A_PROBE_S} & done; wait")
_HUNGRY: Final = f"import time; held = bytearray(b'x' * (48 << 20)); time.sleep({LONGER_THAN_A_PROBE_S})"


def main() -> None:
    source = Path(probe_child.__file__).read_text(encoding="utf-8")
    given = {**json.loads(sys.argv[1]), "source": source}
    with contextlib.suppress(OSError):  # without one there is nothing to write into, and the attempt will say so
        fcntl.ioctl(given["terminal"], termios.TIOCSCTTY, 0)
    asyncio.run(_host(given))


async def _host(given: dict[str, Any]) -> None:
    patience = max(given["patience"], _LEAST_PATIENCE_S)
    try:
        answer = await _tried(given, patience)
    except ForgeError as error:
        answer = {"refused": error.message}
    print(json.dumps(answer), flush=True)
    await asyncio.sleep(patience)


async def _tried(given: dict[str, Any], patience: float) -> dict[str, Any]:
    level = Level(given["level"])
    asked = {**given["asked"], "parent": os.getpid(), "session": os.getsid(0)}
    bare = (given["python"], "-I", "-S", "-c")
    job = Job(argv=(*bare, given["source"], json.dumps(asked)), limits=PROBE_LIMITS, reads_only=level is Level.LANDLOCK)
    start = _walls(given, level, Path(given["root"]))
    said, *held = await asyncio.gather(
        _said(start, job, patience),
        _ended(start, replace(job, argv=_CROWD, limits=ResourceLimits(processes=3)), "PROCESS_LIMIT", patience),
        _ended(
            start, replace(job, argv=(*bare, _HUNGRY), limits=ResourceLimits(memory=24 * MIB)), "MEMORY_LIMIT", patience
        ),
    )
    return {"said": said, "limits": held}


def _walls(given: dict[str, Any], level: Level, root: Path) -> Start:
    """The very walls that calls get, of this level."""
    from golem_forge.sandbox.walls.walls import Walls, WallsHost  # which itself asks for a probe

    zones = [
        ZoneSpec(name="zone", path=root / "zone"),
        ZoneSpec(name="closed", path=root / "closed", mode=AccessMode.RO),
    ]
    sandbox = open_sandbox(zones, forge_home=root / "home", home=root / "person")
    settings = WallSettings(read=tuple(given["read"]), toolchains=False)
    report = ProbeReport(level=level)
    walls = Walls(
        sandbox,
        settings,
        forge_home=root / "home",
        host=WallsHost(report=report, home=root / "person", bwrap=given["bwrap"]),
    )

    async def start(job: Job) -> Child:
        return (await walls.start(job)).child

    return start


async def _said(start: Start, job: Job, patience: float) -> str | None:
    """The child's line; it goes on living. None: it did not come in time."""
    child = await start(job)
    while b"\n" not in child.output.read():
        if child.output.complete:
            break
        if not await child.output.more(child.output.size, patience) and not child.output.complete:
            return None
    return child.output.read().decode("utf-8", "replace")


async def _ended(start: Start, job: Job, code: str, patience: float) -> bool | None:
    """Whether the limit ended the job with this code; None if that was not seen in time."""
    child = await start(job)
    ending = await child.wait(patience)
    if ending is None:
        await child.end()
        return None
    return ending.code == code
