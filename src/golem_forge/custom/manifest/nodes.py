"""Nodes: a manifest as it is written, before anything decides what a scalar means.

`version: 1.10` is the text `1.10` because the key wants text, and `timeout: 1.10` a number because that key wants one;
so a node keeps the characters and whether they were quoted. `node_of` makes the same nodes of plain JSON values, so
that what a model hands over is held against the same rules as a file.

Refuses, with Fault, what no manifest can hold: broken Unicode, keys that are not text, nesting without end.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from golem_forge.custom.diagnostic import Code

MAX_DEPTH: Final = 40
LONGEST_KEY: Final = 512

Place = tuple[str | int, ...]
"""Where a node stands: keys and list positions from the top."""


class Said(Enum):
    """What the way a scalar is written says about it."""

    PLAIN = "plain"
    """Nothing: what its key wants decides."""
    TEXT = "text"
    """In quotes, a block, or a JSON string: text and nothing else."""
    VALUE = "value"
    """A JSON number, true, false or null: no text."""


@dataclass(slots=True)
class Scalar:
    text: str
    said: Said
    line: int


@dataclass(slots=True)
class Items:
    nodes: list[Node]
    line: int


@dataclass(slots=True)
class Fields:
    nodes: dict[str, Node]
    lines: dict[str, int]
    """Of the keys themselves."""
    line: int


Node = Scalar | Items | Fields


class Fault(Exception):
    """The first thing that is wrong, and where; whoever asked turns it into words of its own."""

    def __init__(self, place: Place, problem: str, line: int, code: Code = Code.MANIFEST_INVALID) -> None:
        super().__init__(problem)
        self.place = place
        self.problem = problem
        self.line = line
        self.code = code

    def __str__(self) -> str:
        """On one line, whatever it quotes: another line would read as somebody else's."""
        where = dotted(self.place)
        return (f"{where}: {self.problem}" if where else self.problem).replace("\n", "\\n")


def dotted(place: Place) -> str:
    """`tests[0].expect.files`, the way people read it. A key may be anybody's text: it is shown harmless and short."""
    from golem_forge.core.visible import visible

    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = visible(part if len(part) <= 80 else part[:77] + "...").replace("\n", "\\n")
            text += f".{name}" if text else name
    return text


def node_of(value: Any, place: Place = (), line: int = 1) -> Node:
    """Plain JSON values as nodes. Raises Fault."""
    if len(place) > MAX_DEPTH:
        raise Fault(place[:4], "is too deeply nested", line)
    if isinstance(value, str):
        return Scalar(whole(value, place, line), Said.TEXT, line)
    if value is None or isinstance(value, bool):
        return Scalar({None: "null", True: "true", False: "false"}[value], Said.VALUE, line)
    if isinstance(value, (int, float)):
        return Scalar(_digits(value, place, line), Said.VALUE, line)
    if isinstance(value, (list, tuple)):
        return Items([node_of(item, (*place, index), line) for index, item in enumerate(value)], line)
    if isinstance(value, dict):
        nodes = {_key(key, place, line): node_of(item, (*place, key), line) for key, item in value.items()}
        return Fields(nodes, dict.fromkeys(nodes, line), line)
    raise Fault(place, f"must be a JSON value, not {type(value).__name__}", line)


def whole(text: str, place: Place, line: int) -> str:
    """Threat: half a surrogate pair cannot be written to a file, a pipe or a database, and fails only there."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise Fault(place, "contains half a surrogate pair, which is no character", line)
    return text


def _key(key: Any, place: Place, line: int) -> str:
    if not isinstance(key, str):
        raise Fault(place, "a key must be plain text", line)
    if len(key) > LONGEST_KEY:
        raise Fault(place, f"a key has at most {LONGEST_KEY} characters", line)
    return whole(key, place, line)


def _digits(value: float, place: Place, line: int) -> str:
    try:
        return repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        raise Fault(place, "is a number with too many digits", line) from None
