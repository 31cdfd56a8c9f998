"""The YAML of a `tool.yaml` as nodes, and the values a node may hold.

A node keeps the characters and whether they were quoted, because the key decides what a scalar is: `version: 1.10` is
text, `timeout: 1.10` a number. `parse_yaml_nodes` takes a file's bytes; `node_from_json` makes the same nodes of JSON
values, so that what a model passes is held against the same rules. `as_text`, `as_number` … take a node and return its
value. All raise ManifestFault with place and line, and everything has a bound.

`yaml_invalid`: not UTF-8, not YAML 1.2, a repeated key, anchors and aliases, tags and directives, a second document.
`parse_plain_yaml` reads the simple YAML of nearly every manifest ten times faster than the full parser; it returns
None for anything else and never decides that something is wrong. A test compares every answer with the parser's.

Threat: manifests come from strangers, and there may be thousands. Nodes are made from parser events alone, so no tag
constructs anything; without aliases nothing expands; depth is counted. Threat: the author chooses what a person and a
model read. Text that names or describes is one line without characters that steer a terminal or hide words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from enum import Enum, StrEnum
from typing import Any, Final, TypeVar

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import closest_match, count_control_chars, escape_control_chars
from golem_forge.usertools.diagnostics import DiagnosticCode

MAX_DEPTH: Final = 40
LONGEST_KEY: Final = 512

KeyPath = tuple[str | int, ...]
"""Where a node stands: keys and list positions from the top."""


class ScalarStyle(Enum):
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
    style: ScalarStyle
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


class ManifestFault(Exception):
    """The first thing that is wrong, and where; whoever asked turns it into words of its own."""

    def __init__(
        self, place: KeyPath, problem: str, line: int, code: DiagnosticCode = DiagnosticCode.MANIFEST_INVALID
    ) -> None:
        super().__init__(problem)
        self.place = place
        self.problem = problem
        self.line = line
        self.code = code

    def __str__(self) -> str:
        """On one line, whatever it quotes: another line would read as somebody else's."""
        where = dotted_path(self.place)
        return (f"{where}: {self.problem}" if where else self.problem).replace("\n", "\\n")


def dotted_path(place: KeyPath) -> str:
    """`tests[0].expect.files`, the way people read it. A key may be anybody's text: it is shown harmless and short."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = escape_control_chars(part if len(part) <= 80 else part[:77] + "...").replace("\n", "\\n")
            text += f".{name}" if text else name
    return text


def node_from_json(value: Any, place: KeyPath = (), line: int = 1) -> Node:
    """Plain JSON values as nodes. Raises ManifestFault."""
    if len(place) > MAX_DEPTH:
        raise ManifestFault(place[:4], "is too deeply nested", line)
    if isinstance(value, str):
        return Scalar(check_unicode(value, place, line), ScalarStyle.TEXT, line)
    if value is None or isinstance(value, bool):
        return Scalar({None: "null", True: "true", False: "false"}[value], ScalarStyle.VALUE, line)
    if isinstance(value, (int, float)):
        try:
            return Scalar(repr(value), ScalarStyle.VALUE, line)
        except ValueError:  # Python writes no number of more than some thousand digits
            raise ManifestFault(place, "is a number with too many digits", line) from None
    if isinstance(value, (list, tuple)):
        return Items([node_from_json(item, (*place, index), line) for index, item in enumerate(value)], line)
    if isinstance(value, dict):
        nodes = {_check_key(key, place, line): node_from_json(item, (*place, key), line) for key, item in value.items()}
        return Fields(nodes, dict.fromkeys(nodes, line), line)
    raise ManifestFault(place, f"must be a JSON value, not {type(value).__name__}", line)


def check_unicode(text: str, place: KeyPath, line: int) -> str:
    """Threat: half a surrogate pair cannot be written to a file, a pipe or a database, and fails only there."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ManifestFault(place, "contains half a surrogate pair, which is no character", line)
    return text


def _check_key(key: Any, place: KeyPath, line: int) -> str:
    if not isinstance(key, str):
        raise ManifestFault(place, "a key must be plain text", line)
    if len(key) > LONGEST_KEY:
        raise ManifestFault(place, f"a key has at most {LONGEST_KEY} characters", line)
    return check_unicode(key, place, line)


_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MOST_DIGITS: Final = 1000
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_ALLOWED_MARKS: Final = dict.fromkeys(map(ord, "\u00ad\u200c\u200d\u200e\u200f"))
"""Soft hyphens, joiners and direction marks: Persian, Arabic and emoji are not written without them."""

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


def read_mapping(node: Node, place: KeyPath, known: Collection[str], required: Collection[str] = ()) -> dict[str, Node]:
    """A mapping with these keys and no others."""
    found = as_mapping(node, place)
    for key in found.nodes:
        if key not in known:
            close = closest_match(key, known)
            hint = f"did you mean '{close}'?" if close else f"known: {', '.join(known)}"
            raise ManifestFault(place, f"unknown key '{escape_control_chars(key[:80])}' ({hint})", found.lines[key])
    for key in required:
        if key not in found.nodes:
            raise ManifestFault((*place, key), "missing required key", found.line)
    return found.nodes


def as_mapping(node: Node, place: KeyPath, most: int = 256) -> Fields:
    if not isinstance(node, Fields):
        raise ManifestFault(place, "must be a mapping (`key: value` lines)", node.line)
    if len(node.nodes) > most:
        raise ManifestFault(place, f"must have at most {most} keys", node.line)
    return node


def as_list(node: Node, place: KeyPath, most: int) -> list[Node]:
    if not isinstance(node, Items):
        raise ManifestFault(place, "must be a list ([] for an empty one)", node.line)
    if len(node.nodes) > most:
        raise ManifestFault(place, f"must have at most {most} entries, not {len(node.nodes)}", node.line)
    return node.nodes


def as_text(node: Node, place: KeyPath, most: int) -> str:
    """Any text, character for character: what a program is given or must print."""
    if not isinstance(node, Scalar) or node.style is ScalarStyle.VALUE:
        raise ManifestFault(place, "must be a string", node.line)
    if len(node.text) > most:
        raise ManifestFault(place, f"must have at most {most} characters, not {len(node.text)}", node.line)
    return node.text


def as_prose(node: Node, place: KeyPath, most: int) -> str:
    """Text over several lines that a person and a model read."""
    text = as_text(node, place, most)
    if count_control_chars(text) and count_control_chars(text.translate(_ALLOWED_MARKS)):
        raise ManifestFault(
            place, "must not contain control or hidden characters other than newline and tab", node.line
        )
    return text


def as_line(node: Node, place: KeyPath, most: int) -> str:
    text = as_text(node, place, most).rstrip("\n")  # a block of one line ends in a newline nobody meant
    if "\n" in text:
        raise ManifestFault(place, "must be one line", node.line)
    if "\t" in text or count_control_chars(text):
        raise ManifestFault(place, "must not contain control, bidi or zero-width characters", node.line)
    return text


def require_text(text: str, place: KeyPath, line: int) -> str:
    if not text.strip():
        raise ManifestFault(place, "must not be empty", line)
    return text


def as_boolean(node: Node, place: KeyPath) -> bool:
    if isinstance(node, Scalar) and node.style is not ScalarStyle.TEXT and node.text in _BOOLEANS:
        return _BOOLEANS[node.text]
    raise ManifestFault(place, "must be true or false", node.line)


def as_number(node: Node, place: KeyPath) -> float | int:
    found = as_json_value(node, place) if isinstance(node, Scalar) else None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise ManifestFault(place, "must be a number", node.line)
    return found


def as_integer(node: Node, place: KeyPath) -> int:
    found = as_json_value(node, place) if isinstance(node, Scalar) else None
    if isinstance(found, bool) or not isinstance(found, int):
        raise ManifestFault(place, "must be an integer", node.line)
    return found


def as_seconds(node: Node, place: KeyPath, least: float, most: float) -> float:
    found = as_number(node, place)
    if not least <= found <= most:
        raise ManifestFault(place, f"must be a number of seconds from {least:g} to {most:g}", node.line)
    return float(found)


def as_choice(node: Node, place: KeyPath, words: type[ChoiceT]) -> ChoiceT:
    if isinstance(node, Scalar) and node.style is not ScalarStyle.VALUE:
        for word in words:
            if word.value == node.text:
                return word
    raise ManifestFault(place, f"must be one of {', '.join(words)}", node.line)


def as_json_value(node: Node, place: KeyPath) -> Any:
    """The JSON value a node stands for where no key says what it should be."""
    if isinstance(node, Fields):
        return {key: as_json_value(item, (*place, key)) for key, item in node.nodes.items()}
    if isinstance(node, Items):
        return [as_json_value(item, (*place, index)) for index, item in enumerate(node.nodes)]
    if node.style is ScalarStyle.TEXT:
        return node.text
    text = node.text
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        if len(text) > _MOST_DIGITS:
            raise ManifestFault(place, "is a number with too many digits", node.line)
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _NUMBER.fullmatch(text) and math.isfinite(found := float(text)):
        return found
    if _NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text) or node.style is ScalarStyle.VALUE:
        raise ManifestFault(place, "is not a finite number", node.line)
    return text


def needs_quotes(text: str) -> bool:
    """Whether a plain scalar with these characters would be no text where no key says so."""
    return bool(
        text in _NULLS
        or text in _BOOLEANS
        or _INTEGER.fullmatch(text)
        or _NUMBER.fullmatch(text)
        or _NOT_FINITE.fullmatch(text)
    )


def as_text_mapping(node: Node, place: KeyPath, *, entries: int, most: int) -> Mapping[str, str]:
    """Name → text, both as written; the names are for the caller to judge."""
    found = as_mapping(node, place, entries)
    return {name: as_text(item, (*place, name), most) for name, item in found.nodes.items()}


MAX_MANIFEST_BYTES: Final = 64 * 1024
MAX_VALUES: Final = 10_000

_STR_TAG: Final = "tag:yaml.org,2002:str"


def parse_yaml_nodes(data: bytes) -> Fields:
    """The top level. An empty file is an empty mapping."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise ManifestFault((), f"is larger than {MAX_MANIFEST_BYTES // 1024} KiB", 1)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _yaml_fault((), "is not UTF-8", data.count(b"\n", 0, error.start) + 1) from None
    node = parse_plain_yaml(text) or _parse_full_yaml(text)
    if not isinstance(node, Fields):
        raise ManifestFault((), "must be a mapping (`key: value` lines)", node.line)
    return node


def _parse_full_yaml(text: str) -> Node:
    if text.startswith("%") or "\n%" in text:
        line = text.count("\n", 0, 0 if text.startswith("%") else text.index("\n%") + 1) + 1
        raise _yaml_fault((), "YAML directives (`%`) are not supported", line)
    return _EventReader(text).document()


def _yaml_fault(place: KeyPath, problem: str, line: int) -> ManifestFault:
    return ManifestFault(place, problem, line, DiagnosticCode.YAML_INVALID)


def _yaml_events(text: str) -> Iterator[Any]:
    """The parser's events, one at a time, so a reader that stops early is cheap; its errors as ManifestFault."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _yaml_fault(
            (), f"not valid YAML: {error.problem or error.context}", mark.line + 1 if mark else 1
        ) from None
    except ReaderError as error:
        raise _yaml_fault((), "not valid YAML: control character", text.count("\n", 0, error.position) + 1) from None
    except (YAMLError, ValueError, OverflowError, RecursionError):  # an escape beyond Unicode is no YAMLError
        raise _yaml_fault((), "not valid YAML", 1) from None


class _EventReader:
    def __init__(self, text: str) -> None:
        self._events = _yaml_events(text)
        self._made = 0

    def document(self) -> Node:
        from ruamel.yaml.events import DocumentStartEvent, StreamEndEvent

        next(self._events)  # the stream starts
        if isinstance(next(self._events), StreamEndEvent):
            return Fields({}, {}, 1)
        node = self._node(next(self._events), ())
        next(self._events)  # the document ends
        if isinstance(after := next(self._events), DocumentStartEvent):
            raise _yaml_fault((), "a second document (`---`) is not supported", after.start_mark.line + 1)
        return node

    def _node(self, event: Any, place: KeyPath) -> Node:
        from ruamel.yaml.events import AliasEvent, MappingStartEvent, SequenceStartEvent

        line = event.start_mark.line + 1
        if isinstance(event, AliasEvent) or event.anchor:
            raise _yaml_fault(place, "anchors (`&`) and aliases (`*`) are not supported; write the value out", line)
        self._made += 1
        if self._made > MAX_VALUES:
            raise ManifestFault((), f"has more than {MAX_VALUES:,} values", line)
        if len(place) > MAX_DEPTH:
            raise ManifestFault(place[:4], "is too deeply nested", line)
        is_collection = isinstance(event, (MappingStartEvent, SequenceStartEvent))
        if event.tag is not None and (is_collection or event.tag not in ("!", _STR_TAG)):
            raise _yaml_fault(place, f"tag {str(event.tag)[:80]!r} is not supported", line)
        if is_collection:
            return self._fields(place, line) if isinstance(event, MappingStartEvent) else self._items(place, line)
        style = ScalarStyle.PLAIN if event.implicit[0] and event.tag is None else ScalarStyle.TEXT
        return Scalar(check_unicode(event.value, place, line), style, line)

    def _fields(self, place: KeyPath, line: int) -> Fields:
        from ruamel.yaml.events import MappingEndEvent, ScalarEvent

        made = Fields({}, {}, line)
        while not isinstance(event := next(self._events), MappingEndEvent):
            at = event.start_mark.line + 1
            if not isinstance(event, ScalarEvent) or event.anchor or event.tag not in (None, "!", _STR_TAG):
                raise _yaml_fault(place, "a key must be plain text", at)
            key = check_unicode(event.value, place, at)
            if len(key) > LONGEST_KEY:
                raise _yaml_fault(place, f"a key has at most {LONGEST_KEY} characters", at)
            if key in made.nodes:
                raise _yaml_fault((*place, key), f"is already on line {made.lines[key]}", at)
            made.lines[key] = at
            node = made.nodes[key] = self._node(next(self._events), (*place, key))
            if isinstance(node, Scalar) and not node.text:
                node.line = at  # the parser finds out that nothing is there on the line after
        return made

    def _items(self, place: KeyPath, line: int) -> Items:
        from ruamel.yaml.events import SequenceEndEvent

        made = Items([], line)
        while not isinstance(event := next(self._events), SequenceEndEvent):
            made.nodes.append(self._node(event, (*place, len(made.nodes))))
        return made


_DEEPEST_PLAIN: Final = 20

_FIELD: Final = re.compile(r"( *)([A-Za-z_][A-Za-z0-9_-]{0,63}):(?: +(.*))?")
_ITEM: Final = re.compile(r"( *)-( +)([^ -].*)")
_QUOTED: Final = re.compile(r"""(?:"([^"\\]*)"|'([^']*)') *(?: #.*)?""")
_PLAIN_SCALAR: Final = re.compile(r"(?:[^\s\-?:,\[\]{}#&*!|>'\"%@`=]|-[0-9.])(?:(?! #|: |:$).)*")
_WORD: Final = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
_LIST: Final = re.compile(rf"\[ *((?:{_WORD}(?: *, *{_WORD})*)?) *\] *(?: #.*)?")
_LITERAL_BLOCK: Final = re.compile(r"\|(-?)")


def parse_plain_yaml(text: str) -> Fields | None:
    if not text.endswith("\n") or not text.replace("\n", "").isprintable():
        return None
    lines = text.split("\n")[:-1]
    reader = _PlainParser(lines)
    try:
        made = reader.fields(0, 0) if reader.next_indent() == 0 else None
    except _NotPlain:
        return None
    return made if reader.at == len(lines) else None


class _NotPlain(Exception):
    """For the whole parser to decide."""


class _PlainParser:
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
        if depth > _DEEPEST_PLAIN:
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
            if literal := _LITERAL_BLOCK.fullmatch(text):
                return self._literal(indent, literal[1], line)
            return self._on_one_line(text, line)
        below = self.next_indent()
        if below >= indent and self._lines[self.at][below] == "-":
            return self._items(below, depth + 1)
        if below > indent:
            return self.fields(below, depth + 1)
        return Scalar("", ScalarStyle.PLAIN, line)

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
        if (match := _PLAIN_SCALAR.match(text)) and (match.end() == len(text) or text.startswith(" #", match.end())):
            return Scalar(match[0].rstrip(" "), ScalarStyle.PLAIN, line)
        if match := _QUOTED.fullmatch(text):
            return Scalar(match[1] if match[1] is not None else match[2], ScalarStyle.TEXT, line)
        if match := _LIST.fullmatch(text):
            words = match[1].replace(" ", "")
            return Items([Scalar(word, ScalarStyle.PLAIN, line) for word in words.split(",")] if words else [], line)
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
        return Scalar(text if chomp else text + "\n", ScalarStyle.TEXT, line)
