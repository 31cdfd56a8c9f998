"""Masks that are too many for bubblewrap: taken out of a layout, and put up by a program before the command starts.

bubblewrap reads the whole mount table again for each mount: 100 masks take 25 ms, 900 take a second, and about 4,000
are refused. `split_masks` takes them out where there are more than FEW; `put_up` starts `mask_child.py`, which enters
the walls while their inner stage waits and needs 20 µs for each. Raises WALLS_UNAVAILABLE if the system refuses: the
command must not start then.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.host import isolated
from golem_forge.sandbox.walls.layout import MaskedDirectory, MaskedFile, Mount, mounted_at

FEW: Final = 100
"""So many cost bubblewrap what the program takes to start (25 ms)."""
MOST_MASKS: Final = 20_000
"""In one layout: half a second. A kernel takes 100,000 mounts (`fs.mount-max`)."""
_PATIENCE_S: Final = 30.0
_PROGRAM: Final = Path(__file__).with_name("mask_child.py")

Mask = MaskedFile | MaskedDirectory


def split_masks(mounts: Iterable[Mount]) -> tuple[tuple[Mount, ...], tuple[Mask, ...]]:
    """The layout without its masks, and the masks, where there are more than FEW. What a later mount covers needs no
    mask: put up last, it would stand on what covers it."""
    every = tuple(mounts)
    if sum(isinstance(one, Mask) for one in every) <= FEW:
        return every, ()
    last = {place: index for index, one in enumerate(every) for place in mounted_at(one)}
    masks = tuple(
        one for index, one in enumerate(every) if isinstance(one, Mask) and not _is_covered(one.place, index, last)
    )
    return tuple(one for one in every if not isinstance(one, Mask)), masks


def _is_covered(place: str, index: int, last: dict[str, int]) -> bool:
    while place != "/":
        place = os.path.dirname(place)
        if last.get(place, -1) > index:
            return True
    return False


async def put_up(pid: int, masks: Sequence[Mask]) -> None:
    """In the walls of this process, whose command has not started."""
    await asyncio.to_thread(_put_up, pid, masks)


def _put_up(pid: int, masks: Sequence[Mask]) -> None:
    import subprocess

    places = (f"{'d' if isinstance(one, MaskedDirectory) else 'f'}{one.place}\0" for one in masks)
    try:
        done = subprocess.run(
            isolated(str(_PROGRAM), str(pid)),
            input="".join(places).encode("utf-8", "surrogateescape"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={},
            cwd="/",
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _unavailable(len(masks), "it took too long") from None
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise _unavailable(len(masks), lines[-1][:200] if lines else "no reason given")


def _unavailable(count: int, why: str) -> SandboxError:
    return walls_unavailable(
        f"{count:,} paths could not be hidden ({why})",
        "Try again if files of the zone changed meanwhile. Otherwise move secret files, sockets and FIFOs out of it.",
    )
