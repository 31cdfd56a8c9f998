"""Whether something let go of its descriptors, counted in a process where others open and close some too.

What earlier tests left to the collector is counted in one look and gone in the next, and a thread of somebody else may
hold one for a moment: so nothing here is equal to a number. A descriptor that leaks stays for good.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from pathlib import Path

from tests.deadlines import PATIENCE

_HERE = "/proc/self/fd"


def held() -> int:
    """How many this process has, without those that only wait for the collector."""
    gc.collect()
    gc.freeze()  # what earlier tests left is looked at once
    return now()


def now() -> int:
    """The same, those included: for a second look, as the collector takes long in a process of many tests."""
    return len(os.listdir(_HERE))


def no_more_than(before: int, within: float = PATIENCE) -> bool:
    """Whether there are `before` again, or fewer, without any help of the collector."""
    end = time.monotonic() + within
    while now() > before:
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def below(place: Path) -> list[str]:
    """The paths of what this process holds in a directory, for those who count exactly."""
    found = []
    for name in os.listdir(_HERE):
        with contextlib.suppress(OSError):  # the one that lists is closed by now
            found.append(os.readlink(f"{_HERE}/{name}"))
    return sorted(path for path in found if Path(path).is_relative_to(place))
