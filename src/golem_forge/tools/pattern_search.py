"""Regular expressions that somebody else wrote, within a fixed time.

Threat: Python's `re` backtracks, so a short pattern such as `(a+)+$` can run for years and, holding the interpreter,
would freeze the whole runtime; no check of the pattern finds all of these. So every foreign pattern runs in
`pattern_child.py`, a process that is killed when its time is up, when the call is cancelled and when Forge ends. It
needs no walls: it is our own program, gets nothing but the descriptors of what is searched, opens no path of more than
one component and follows no link.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from golem_forge.sandbox.host import isolated
from golem_forge.tools import pattern_child

MAX_PATTERN: Final = 1000
_MAX_ROW_BYTES: Final = 16 << 20


class PatternTooCostly(Exception):
    """The child ran into its limit of memory or CPU time, or could not start."""


class PatternLimits(NamedTuple):
    seconds: float
    memory: int
    """Memory limit in bytes."""


def pattern_problem(pattern: str) -> str:
    """Returns the problem of a pattern, with its position; empty if the pattern is valid."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of syntax that may change its meaning some day
            re.compile(pattern)
    except re.error as error:
        where = "" if error.pos is None else f" at position {error.pos}"
        return f"not a valid pattern: {error.msg}{where}"
    except (RecursionError, OverflowError):
        return "not a valid pattern: too deeply nested or too large a count"
    return ""


async def search_in_child(
    order: Mapping[str, Any], limits: PatternLimits, take: Callable[[list[Any]], object], files: Sequence[int] = ()
) -> None:
    """Gives every row of the answer to `take`, as it comes, until that returns False. `order`: see `pattern_child.py`;
    `files`: the descriptors that it names. Raises TimeoutError and PatternTooCostly."""
    import asyncio

    child = await asyncio.create_subprocess_exec(
        *isolated(pattern_child.__file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
        limit=_MAX_ROW_BYTES,
        pass_fds=files,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        async with asyncio.timeout(limits.seconds):
            # CPU time ends it even if Forge was killed and cannot do so any more.
            bounds = {"seconds": max(int(limits.seconds), 0) + 2, "memory": limits.memory}
            child.stdin.write(json.dumps({**order, **bounds}).encode() + b"\n")  # stays open: its end ends the child
            async for row in child.stdout:
                if take(json.loads(row)) is False:
                    return
            await child.wait()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        child.stdin.close()
    if child.returncode:
        raise PatternTooCostly
