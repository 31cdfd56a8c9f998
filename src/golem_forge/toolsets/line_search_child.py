"""Which lines does a pattern match? Runs as a program of its own, so that it can be killed; knows nothing of Forge.

Reads from standard input one line of JSON `{pattern, long, seconds, memory}`, then the text, each line ended by LF.
Writes a JSON list `[index, [start, end], …]` per matching line; spans only for lines of more than `long` characters.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Iterator

Span = tuple[int, int]
_CLOSE = 1024
"""Matches nearer to each other than this are told as one span: a line of a million matches needs no million spans."""


def matching_lines(pattern: str, lines: Iterable[str], long: int) -> Iterator[tuple[int, list[Span]]]:
    """(index from 0, spans). A pattern that is not plain text may take for ever: see `line_search.py`."""
    compiled = re.compile(pattern)
    for index, line in enumerate(lines):
        if len(line) > long:
            if spans := _spans(compiled, line):
                yield index, spans
        elif compiled.search(line):
            yield index, []


def _spans(pattern: re.Pattern[str], line: str) -> list[Span]:
    spans: list[Span] = []
    for match in pattern.finditer(line):
        start, end = match.span()
        if spans and start - spans[-1][1] < _CLOSE:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans


def main() -> None:
    import resource

    order = json.loads(sys.stdin.buffer.readline())
    # Ends this process even if the one that started it was killed and cannot do so any more.
    resource.setrlimit(resource.RLIMIT_CPU, (order["seconds"], order["seconds"]))
    resource.setrlimit(resource.RLIMIT_AS, (order["memory"], order["memory"]))
    text = io.TextIOWrapper(sys.stdin.buffer, "utf-8", newline="\n")
    lines = (line.removesuffix("\n") for line in text)
    for index, spans in matching_lines(order["pattern"], lines, order["long"]):
        sys.stdout.write(f"{json.dumps([index, *spans])}\n")


if __name__ == "__main__":
    main()
