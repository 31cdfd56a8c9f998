"""How long something may take, with room for a machine that is busy with other things.

`with within(1): …` is for a deadline that a spec names: an interrupt ends a call within a second. A test cannot know
how much of that second the machine gave to somebody else, so it allows `BUILD_ROOM` more. It can fail only if the wrong
way takes longer than both together: whoever is interrupted would have slept for a minute, the limit that must not be
waited for is a minute too.

Nothing here measures speed; `benchmarks` do, as ratios in one run. What must not be done twice, or once for each of
many, is counted instead."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

ROOM = 20.0
LONG = 60.0
"""What the wrong way takes: the sleep that is cut short, the limit that must not be reached."""
PATIENCE = 90.0
"""How long a test waits for what must come. Costs nothing where it comes: the wait ends with it."""
WHOLE = 3 * PATIENCE
"""How long it waits for a whole command to end, which does many things one after the other: a little less than a test
may take (`timeout` in pyproject.toml), so that what the command said so far is told."""


def ever_longer(seconds: float) -> Iterator[float]:
    """A limit that is waited for, then longer ones: for a test in which something must have been said before the limit
    ends it. Stop at the first that was long enough; a quiet machine waits for no other."""
    yield from (seconds, 4 * seconds, 16 * seconds)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds + ROOM, f"within {seconds} s, and took {took:.1f}"
