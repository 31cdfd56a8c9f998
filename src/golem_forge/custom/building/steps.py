"""One step of a build: a program in the walls of a building room, with a time limit, and what it said.

`step` gives a Said; the program's whole tree is gone by then, also when its caller was cancelled. `failure_text` makes
what a compiler printed fit for a person: first 4 KiB, the tool's files by their own names, no credentials, nothing that
could steer a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.visible import visible
from golem_forge.custom.building.sources import without_credentials
from golem_forge.custom.entry import BUILD_DIR, TOOL_DIR
from golem_forge.sandbox.errors import walls_unavailable
from golem_forge.sandbox.network.proxy import PRIVATE
from golem_forge.sandbox.processes.ending import MEMORY_LIMIT, TIMEOUT
from golem_forge.sandbox.walls.levels import Level

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.job import Job
    from golem_forge.sandbox.walls.walls import Walls

ROOM: Final = "/build"
"""Where the working directory stands in the walls."""
LONGEST_OUTPUT: Final = 4096
_READ: Final = 64 << 10
_OUTPUT: Final = 8 << 20
_PLACES: Final = re.compile(rf"(?:{TOOL_DIR}|{BUILD_DIR}|{ROOM}/\.module|{ROOM})/|(?<![\w./])\./")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    ok: bool
    text: str
    """The first 64 KiB."""
    how: str = ""
    """In words, if it did not end by itself."""
    blocked: str = ""
    """What the walls refused it of the network, and what would allow that."""


async def needs_full_walls(walls: Walls) -> None:
    """Raises WALLS_UNAVAILABLE unless everything that a compiler reads and writes can be held."""
    report = await walls.report()
    if report.level is not Level.FULL:
        raise walls_unavailable(
            "building a tool needs full walls", report.fix or "Run 'forge doctor' to see how to get them."
        )


async def step(walls: Walls, job: Job, *, seconds: float, memory: int | None = None) -> Said:
    """Raises SandboxError where walls cannot be had; nothing was run then."""
    limits = replace(walls.limits, timeout_s=seconds, output=_OUTPUT)
    if memory is not None:
        limits = replace(limits, memory=min(limits.memory, memory), cpu_s=int(seconds) + 1)
    walled = await walls.start(replace(job, limits=limits))
    try:
        ending = await walled.child.wait()
    finally:
        await walled.child.end()
    assert ending is not None
    blocked = "" if ending.exit_code == 0 else _blocked_hosts(walled.aftermath().denials)
    text = walled.child.output.read(0, _READ).decode("utf-8", "replace")
    if ending.code:
        known = {TIMEOUT: f"took longer than {seconds:g} s", MEMORY_LIMIT: "used too much memory"}
        how = f"{known.get(ending.code, ending.code)} and was ended"
        return Said(ok=False, text=text, how=how, blocked=blocked)
    if ending.signal is not None:
        return Said(ok=False, text=text, how=f"was ended by signal {ending.signal}", blocked=blocked)
    return Said(ok=ending.exit_code == 0, text=text, blocked=blocked)


def _blocked_hosts(denials: Iterable[Mapping[str, Any]]) -> str:
    """The program itself only says that a tunnel failed."""
    hosts = [one for one in denials if one["kind"] == "host"]
    lines = [f"Blocked by the sandbox: {one['target']} ({one['why']})." for one in hosts]
    lines += [f"To allow it, add to {one['widen']}" for one in hosts if one["why"] == PRIVATE]
    if any(one["why"] != PRIVATE for one in hosts):
        lines.append(
            "Only hosts that your settings (UV_INDEX_URL, PIP_INDEX_URL, GOPROXY and the like), the tool or its lock "
            "name are asked for: name this one there, too."
        )
    return "\n".join(lines)


def failure_text(said: Said, what: str) -> str:
    """`what`: the step in words, for a program that ended without a word of its own."""
    text = _PLACES.sub("", without_credentials(said.text)).strip()
    lines = [visible(text)] if text else []
    if said.how or not text:
        lines.insert(0, f"{what} {said.how or 'failed and said nothing'}")
    if said.blocked:
        lines.insert(0, said.blocked)
    return first_bytes("\n".join(lines))


def first_bytes(text: str) -> str:
    data = text.encode("utf-8", "replace")
    return text if len(data) <= LONGEST_OUTPUT else data[:LONGEST_OUTPUT].decode("utf-8", "ignore")
