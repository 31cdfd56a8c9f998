"""The YAML nearly every manifest is written in, read line by line: ten times faster than a whole YAML parser.

Takes a text; gives the nodes the whole parser would give, lines included, or None as soon as anything in it is not of
the simplest kind: it never decides that something is wrong, it only leaves it to the parser. Known here are block
mappings and lists, one-line scalars (plain, or quoted without escapes), literal blocks, flat lists in brackets and
comments. Reading the first time is what a thousand tools pay for; a test holds every answer against the parser's.
"""

from __future__ import annotations

import re
from typing import Final

from golem_forge.custom.manifest.nodes import Fields, Items, Node, Said, Scalar

_DEEPEST: Final = 20

_FIELD: Final = re.compile(r"( *)([A-Za-z_][A-Za-z0-9_-]{0,63}):(?: +(.*))?")
_ITEM: Final = re.compile(r"( *)-( +)([^ -].*)")
_QUOTED: Final = re.compile(r"""(?:"([^"\\]*)"|'([^']*)') *(?: #.*)?""")
_PLAIN: Final = re.compile(r"(?:[^\s\-?:,\[\]{}#&*!|>'\"%@`=]|-[0-9.])(?:(?! #|: |:$).)*")
_WORD: Final = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
_LIST: Final = re.compile(rf"\[ *((?:{_WORD}(?: *, *{_WORD})*)?) *\] *(?: #.*)?")
_LITERAL: Final = re.compile(r"\|(-?)")


def plain_nodes(text: str) -> Fields | None:
    if not text.endswith("\n") or not text.replace("\n", "").isprintable():
        return None
    lines = text.split("\n")
    lines.pop()
    reader = _Lines(lines)
    try:
        made = reader.fields(0, 0) if reader.next_indent() == 0 else None
    except _NotPlain:
        return None
    return made if reader.at == len(lines) else None


class _NotPlain(Exception):
    """For the whole parser to decide."""


class _Lines:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self.at = 0

    def next_indent(self) -> int:
        """How far the next line with something on it is set in; -1 at the end."""
        lines = self._lines
        while self.at < len(lines):
            line = lines[self.at]
            rest = line.lstrip(" ")
            if rest and rest[0] != "#":
                return len(line) - len(rest)
            self.at += 1
        return -1

    def fields(self, indent: int, depth: int) -> Fields:
        if depth > _DEEPEST:
            raise _NotPlain
        made = Fields({}, {}, self.at + 1)
        while self.next_indent() == indent:
            match = _FIELD.fullmatch(self._lines[self.at])
            if match is None or match[2] in made.nodes:
                raise _NotPlain
            line = self.at + 1
            self.at += 1
            made.lines[match[2]] = line
            made.nodes[match[2]] = self._value(match[3] or "", indent, line, depth)
        if self.next_indent() > indent:
            raise _NotPlain
        return made

    def _value(self, text: str, indent: int, line: int, depth: int) -> Node:
        if text and text[0] != "#":
            if literal := _LITERAL.fullmatch(text):
                return self._literal(indent, literal[1], line)
            return self._on_one_line(text, line)
        below = self.next_indent()
        if below >= indent and self._lines[self.at][below] == "-":
            return self._items(below, depth + 1)
        if below > indent:
            return self.fields(below, depth + 1)
        return Scalar("", Said.PLAIN, line)

    def _items(self, indent: int, depth: int) -> Items:
        made = Items([], self.at + 1)
        while self.next_indent() == indent and (match := _ITEM.fullmatch(self._lines[self.at])):
            line, rest = self.at + 1, match[3]
            if _FIELD.fullmatch(rest):
                inner = indent + 1 + len(match[2])
                self._lines[self.at] = " " * inner + rest
                made.nodes.append(self.fields(inner, depth + 1))
            else:
                self.at += 1
                made.nodes.append(self._on_one_line(rest, line))
        if not made.nodes or self.next_indent() > indent:
            raise _NotPlain
        return made

    def _on_one_line(self, text: str, line: int) -> Node:
        if (match := _PLAIN.match(text)) and (match.end() == len(text) or text.startswith(" #", match.end())):
            return Scalar(match[0].rstrip(" "), Said.PLAIN, line)
        if match := _QUOTED.fullmatch(text):
            return Scalar(match[1] if match[1] is not None else match[2], Said.TEXT, line)
        if match := _LIST.fullmatch(text):
            words = match[1].replace(" ", "")
            return Items([Scalar(word, Said.PLAIN, line) for word in words.split(",")] if words else [], line)
        raise _NotPlain

    def _literal(self, indent: int, chomp: str, line: int) -> Scalar:
        start, lines = self.at, self._lines
        first = lines[start] if start < len(lines) else ""
        inner = len(first) - len(first.lstrip(" "))
        if inner <= indent or inner == len(first):
            raise _NotPlain
        margin = " " * inner
        while self.at < len(lines) and (lines[self.at].startswith(margin) or not lines[self.at]):
            if lines[self.at].isspace():
                raise _NotPlain
            self.at += 1
        if self.at < len(lines) and not lines[self.at].strip(" "):
            raise _NotPlain
        text = "\n".join(each[inner:] for each in lines[start : self.at]).rstrip("\n")
        return Scalar(text if chomp else text + "\n", Said.TEXT, line)
