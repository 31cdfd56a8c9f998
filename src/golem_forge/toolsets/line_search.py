"""Searching lines for a pattern somebody else wrote, within a fixed time.

Threat: Python's `re` backtracks, so a short pattern such as `(a+)+$` can run for years and, holding the interpreter,
would freeze the whole runtime; no check of the pattern finds all of these. Plain text is searched right here;
everything else in a process of its own, which is killed when the time is up or the call is cancelled.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Final

from golem_forge.core.errors import ToolFailed
from golem_forge.core.verdict import Status
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets import line_search_child
from golem_forge.toolsets.line_search_child import Span, matching_lines

SECONDS: Final = 10
LONGEST_PATTERN: Final = 1000
_MEMORY: Final = 1 << 30
_SPECIAL: Final = frozenset(r".^$*+?{}[]\|()")


def pattern_problem(pattern: str) -> str:
    """What is wrong with a pattern, with its position; empty if it can be used."""
    import warnings

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


async def search(pattern: str, lines: list[str], long: int) -> dict[int, list[Span]]:
    """Index from 0 → where in the line (only for lines of more than `long` characters). Raises ToolFailed."""
    if _SPECIAL.isdisjoint(pattern):
        return await run_in_thread(lambda: dict(matching_lines(re.escape(pattern), lines, long)))
    order = {"pattern": pattern, "long": long, "seconds": SECONDS + 1, "memory": _MEMORY}
    rows = (json.dumps(order), *lines, "")
    answer = await _ask_child("\n".join(rows).encode())
    found = (json.loads(line) for line in answer.splitlines())
    return {index: [(start, end) for start, end in spans] for index, *spans in found}


async def _ask_child(question: bytes) -> bytes:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", line_search_child.__file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(SECONDS):
            answer, _ = await child.communicate(question)
    except TimeoutError:
        text = f"The pattern took more than {SECONDS} s on this text and was stopped; use a simpler one."
        raise ToolFailed(text, status=Status.TIMEOUT, code="PATTERN_TIMEOUT") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        raise ToolFailed("The pattern needs too much time or memory on this text; use a simpler one.")
    return answer
