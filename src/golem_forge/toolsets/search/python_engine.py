"""The Python engine: `re`, in a process of its own that is killed when the time is up.

It needs no walls: it is our own program (`scan_child.py`), gets nothing but the descriptors of what is searched, opens
no path and follows no link. What may be shown of its matches is decided here.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from golem_forge.core.errors import ToolFailed
from golem_forge.events.redaction import redact_truncated
from golem_forge.sandbox.host import isolated
from golem_forge.toolsets.search.query import (
    MAX_LINE_TEXT,
    MatchLine,
    SearchMatches,
    SearchMode,
    SearchQuery,
    bad_pattern,
)

if TYPE_CHECKING:
    from asyncio.subprocess import Process

_MEMORY: Final = 2 << 30
_MAX_MATCH_BYTES: Final = 1 << 20
_PROGRAM: Final = "import sys; sys.path.append(sys.argv[1]); from scan_child import main; main()"


async def search(query: SearchQuery, matches: SearchMatches) -> None:
    """Adds matches in path order. Raises InputInvalid for a pattern that `re` does not understand."""
    import asyncio

    from golem_forge.toolsets.line_search import pattern_problem

    if problem := pattern_problem(query.pattern):
        raise bad_pattern(problem)
    seconds = query.until - asyncio.get_running_loop().time()
    child = await _start_child(query, max(int(seconds) + 2, 1))
    try:
        async with asyncio.timeout_at(query.until):
            await _read_matches(child, query, matches)
    except TimeoutError:
        matches.stopped = True
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        assert child.stdin is not None
        child.stdin.close()
    if child.returncode and not matches.stopped and not matches.more:
        raise ToolFailed("The pattern needs too much time or memory on these files; use a simpler one.")


async def _read_matches(child: Process, query: SearchQuery, matches: SearchMatches) -> None:
    assert child.stdout is not None
    async for row in child.stdout:
        index, path, *line = json.loads(row)  # line: number and text, cut
        place = query.places[index]
        if query.mode is SearchMode.FILES:
            matches.found.append((place, path))
        elif place.may_show(tuple(path.split("/"))):
            number, text = line
            if query.redactor is not None and len(text) == MAX_LINE_TEXT:
                text = redact_truncated(text, query.redactor)
            if not matches.add_line(MatchLine(place.virtual(path), number, text)):
                return
    await child.wait()


async def _start_child(query: SearchQuery, cpu_seconds: int) -> Process:
    from asyncio import create_subprocess_exec
    from asyncio.subprocess import DEVNULL, PIPE

    order = {
        "pattern": query.pattern,
        "ignore_case": query.ignore_case,
        "lines": query.mode is SearchMode.LINES,
        "longest": MAX_LINE_TEXT,
        "include": query.include,
        "places": [
            {"zone": place.zone.root.fd, "parts": place.parts, "entry": place.entry.fd, "levels": place.levels}
            for place in query.places
        ],
        "seconds": cpu_seconds,
        "memory": _MEMORY,
    }
    child = await create_subprocess_exec(
        *isolated("-c", _PROGRAM, os.path.dirname(__file__)),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
        limit=_MAX_MATCH_BYTES,
        pass_fds=[fd for place in query.places for fd in (place.zone.root.fd, place.entry.fd)],
    )
    assert child.stdin is not None
    child.stdin.write(json.dumps(order).encode() + b"\n")  # and stays open: its end ends the program
    return child
