"""XmlReader: splits a model's streamed text into what may be shown and the calls in it.

`feed` takes a piece of any size and returns the text that can be shown now; `finish` returns everything: the text
around the calls and the calls, in order. Never raises: what cannot be a call is a RequestedCall with a `problem`. A
possible `<tool>` at the end of a piece is held back until it is clear what it is; in a fenced code block and in inline
code it is text. Whether a backtick before it begins inline code is known only where that ends, so it waits until then.
A `<tool_result>` behind a call ends the message: small models go on with a result that they make up, and with what they
would do next. None of it is text, and none of it a call.

`read_arguments` turns the `<arguments>` element into values and raises ArgumentMismatch naming the field. Types come
from the tool's schema; the look of a text decides nothing. Where a string is allowed, text is that string (`007`,
`null` and `true` included); a model that means otherwise has the JSON form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from golem_forge.agent.model.interface import MAX_CALLS, RequestedCall
from golem_forge.agent.model.xml_scanner import (
    ARGUMENTS,
    BLANKS,
    TOOL_NAME,
    CallScanner,
    CodeTracker,
    Element,
    shorten_problem,
)
from golem_forge.core.ids import new_id
from golem_forge.core.json import unique_members
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import clip
from golem_forge.tools.schema import field_path, resolve_schema
from golem_forge.tools.validation import type_name

_TAG: Final = "<tool>"
RESULT_TAG: Final = "<tool_result"
_TAG_OR_PREFIX: Final = regex(
    rf"{_TAG}|{RESULT_TAG}|(?:{'|'.join(RESULT_TAG[:end] for end in range(len(RESULT_TAG) - 1, 0, -1))})\Z"
)
_SPAN_PIECE: Final = regex(r"`+|\n|[^`\n]+")
_LONGEST_SPAN: Final = 8 * 1024
"""Characters that are looked at for the end of inline code; beyond them the backtick before the tag was only one."""
_CALL_PARTS: Final = ("server_name", TOOL_NAME, ARGUMENTS)
LOCAL_SERVER: Final = "local"
SERVER_SEPARATOR: Final = "__"
"""Stands between server and tool in the name of an MCP tool, and in no other name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XmlResponse:
    text: str
    """The text without the calls."""
    calls: tuple[RequestedCall, ...]
    rest: str
    """The part of `text` that no `feed` has given yet."""
    written: str
    """The whole as the model wrote it, without results that it made up; a call over the size limit only by its
    beginning."""
    made_up: bool = False
    """Whether it went on with a result of its own: its calls stand before that, and each of them is whole."""


@dataclass(slots=True)
class _Doubt:
    """A tag behind a backtick: a call, or inline code that is not closed yet."""

    before: CodeTracker
    """The tracker's state to return to if this turns out to be a call."""
    pieces: list[str] = field(default_factory=list)
    size: int = 0


class XmlReader:
    def __init__(
        self,
        schemas: Mapping[str, Mapping[str, Any]],
        elsewhere: Callable[[str], Mapping[str, Any]] | None = None,
    ) -> None:
        """`schemas`: input schema by tool name; `elsewhere`: of a name that is not among them, {} for none."""
        self._schemas = schemas
        self._elsewhere = elsewhere or (lambda name: {})
        self._code = CodeTracker()
        self._doubt: _Doubt | None = None
        self._call: CallScanner | None = None
        self._held = ""
        self._text: list[str] = []
        self._written: list[str] = []
        self._calls: list[RequestedCall] = []
        self._made_up = False

    def feed(self, chunk: str) -> str:
        shown = len(self._text)
        self._read(self._held + chunk)
        return "".join(self._text[shown:])

    def finish(self) -> XmlResponse:
        shown = len(self._text)
        while self._doubt is not None:
            self._code.settle()
            if self._code.verdict:
                self._resolve_as_text(self._doubt)
            else:
                self._read(self._resolve_as_call(self._doubt))
        if self._call is not None:
            self._call.close(self._held)
            self._end_call(self._call)
        else:
            self._show(self._held)
        self._held = ""
        rest = "".join(self._text[shown:])
        return XmlResponse(
            text="".join(self._text),
            calls=tuple(self._calls),
            rest=rest,
            written="".join(self._written),
            made_up=self._made_up,
        )

    def _read(self, data: str) -> None:
        at = 0
        while at < len(data) and not self._made_up:
            if self._doubt is not None:
                data, at = self._look_ahead(self._doubt, data, at)
                continue
            call = self._call
            after = self._call_from(call, data, at) if call else self._text_from(data, at)
            if after == at and self._doubt is None and self._call is call:
                break
            at = after
        self._held = "" if self._made_up else data[at:]

    def _text_from(self, data: str, at: int) -> int:
        candidate = _TAG_OR_PREFIX.search(data, at)
        start = candidate.start() if candidate else len(data)
        if start > at:
            self._show(data[at:start])
        elif self._code.quoted:
            self._show("<")
            start += 1
        elif data.startswith(RESULT_TAG, at):
            self._made_up = bool(self._calls)
            if not self._made_up:
                self._show("<")
            start += 1
        elif data.startswith(_TAG, at):
            self._code.settle()
            if self._code.in_doubt and len(self._calls) <= MAX_CALLS:  # with more of them none will run
                self._doubt = _Doubt(self._code.without_openers())
                self._code.watch()
                return start
            self._code = self._code.without_openers()
            self._call = CallScanner()
            start += len(_TAG)
        return start

    def _look_ahead(self, doubt: _Doubt, data: str, at: int) -> tuple[str, int]:
        """Reads on until it is clear whether the tag is inline code. Returns what to read next, and from where."""
        for piece in _SPAN_PIECE.finditer(data, at):
            text = piece.group()
            if text[0] != "`":
                self._code.settle()
            if self._code.verdict:
                self._resolve_as_text(doubt)
                return data, piece.start()
            doubt.pieces.append(text)
            doubt.size += len(text)
            if doubt.size <= _LONGEST_SPAN:
                self._code.advance(text)
            if doubt.size > _LONGEST_SPAN or self._code.verdict is False:
                return self._resolve_as_call(doubt) + data[piece.end() :], 0
        return data, len(data)

    def _resolve_as_text(self, doubt: _Doubt) -> None:
        """Treats the held text as text; the tracker has already read it."""
        self._doubt = None
        self._code.watch_nothing()
        self._text += doubt.pieces
        self._written += doubt.pieces

    def _resolve_as_call(self, doubt: _Doubt) -> str:
        """Treats the held text as a call and returns it, to be read again from the tag on."""
        self._doubt = None
        self._code = doubt.before
        return "".join(doubt.pieces)

    def _show(self, text: str) -> None:
        self._code.advance(text)
        self._text.append(text)
        self._written.append(text)

    def _call_from(self, call: CallScanner, data: str, at: int) -> int:
        after = call.feed(data, at)
        if call.done:
            self._end_call(call)
        return after

    def _end_call(self, call: CallScanner) -> None:
        self._call = None
        self._code.interrupt_line()
        self._written.append(call.written())
        self._calls.append(self._requested(call))

    def _requested(self, call: CallScanner) -> RequestedCall:
        parts = {child.name: child for child in reversed(call.root.children)}
        server = parts["server_name"].text() if "server_name" in parts else LOCAL_SERVER
        name = parts[TOOL_NAME].text() if TOOL_NAME in parts else ""
        problem = call.problem or _shape_problem(call.root, name)
        if problem:
            return RequestedCall(id=new_id(), name=shorten_problem(name), args={}, problem=problem)
        if server != LOCAL_SERVER and not name.startswith(f"{server}{SERVER_SEPARATOR}"):
            name = (
                f"{server}{SERVER_SEPARATOR}{name}"  # a server's tool is never taken for a local one of the same name
            )
        args: dict[str, Any] = {}
        try:
            args = read_arguments(
                parts.get("arguments"), self._schemas[name] if name in self._schemas else self._elsewhere(name)
            )
        except ArgumentMismatch as mismatch:
            problem = shorten_problem(f"{name}: {mismatch}")
            args = _untyped_arguments(parts["arguments"])
        return RequestedCall(
            id=new_id(), name=name, args=args, problem=problem, server="" if server == LOCAL_SERVER else server
        )


def _untyped_arguments(arguments: Element) -> dict[str, Any]:
    """Returns the arguments of a call that will not run, without types, for the log."""
    try:
        return read_arguments(arguments, {})
    except ArgumentMismatch:
        return {}


def _shape_problem(root: Element, name: str) -> str:
    """Returns why well-formed XML is no valid call."""
    names = [child.name for child in root.children]
    if not name:
        return "tool call without tool_name"
    for part in names:
        if part not in _CALL_PARTS:
            return shorten_problem(f"<{part}> in a tool call; arguments go inside <arguments>")
        if names.count(part) > 1:
            return f"tool call with more than one {part}"
    if not root.is_blank():
        return "text between the elements of a tool call"
    nested = next((child for child in root.children[:3] if child.name != "arguments" and child.children), None)
    return f"elements inside {nested.name}" if nested else ""


_INTEGER: Final = regex(r"[+-]?[0-9]{1,1000}")
_NUMBER: Final = regex(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_BOOLEANS: Final = {"true": True, "false": False}
_ANY: Final = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_COMBINED: Final = ("anyOf", "oneOf", "allOf")
_MAX_COMBINED: Final = 8
"""Maximum depth of combined schemas; deeper ones count as any type."""
_MAX_SHOWN: Final = 60
_ABSENT: Final = object()

ValuePath = tuple[str | int, ...]


class ArgumentMismatch(ValueError):
    """The elements do not fit the schema, or are no arguments at all."""

    def __init__(self, path: ValuePath, problem: str) -> None:
        super().__init__(shorten_problem(f"{field_path(path)}: {problem}" if path else problem))


def read_arguments(element: Element | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Elements by name, or one JSON object as text."""
    if element is None:
        return {}
    if element.children or not element.text():
        return _TypedReader(dict(schema)).members(element, dict(schema), ())
    try:
        value = json.loads(element.text(), object_pairs_hook=unique_members)
    except json.JSONDecodeError as error:
        raise ArgumentMismatch((), f"arguments are neither elements nor JSON: {error}") from None
    except (ValueError, RecursionError):
        raise ArgumentMismatch(
            (), "arguments are JSON that cannot be read: a key twice, nested too deep, or a number too long"
        ) from None
    if not isinstance(value, dict):
        raise ArgumentMismatch((), f"arguments must be a JSON object, got {type_name(value)}")
    return value


class _TypedReader:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root

    def members(self, element: Element, schema: dict[str, Any], path: ValuePath) -> dict[str, Any]:
        if not element.is_blank():
            raise ArgumentMismatch(path, "text between elements; write text that holds < in CDATA")
        groups: dict[str, list[Element]] = {}
        for child in element.children:
            groups.setdefault(child.name, []).append(child)
        return {
            name: self._value(group, self._member_schema(schema, name), (*path, name)) for name, group in groups.items()
        }

    def _value(self, group: Sequence[Element], schema: Any, path: ValuePath) -> Any:
        """The elements of one name beside each other: one value, or the items of an array."""
        kinds = self._kinds(schema)
        only = group[0] if len(group) == 1 else None
        if "array" in kinds and (only is None or kinds.isdisjoint({"string", "object"})):
            if only is not None and "null" in kinds and not only.has_cdata and only.text() == "null":
                return None
            return self._array(group, schema, path)
        if only is None:
            raise ArgumentMismatch(path, f"given {len(group)} times")
        if only.children:
            if "object" in kinds:
                return self.members(only, self._read(schema), path)
            if "array" in kinds:
                return self._array([only], schema, path)
            expected = " or ".join(sorted(kinds))
            raise ArgumentMismatch(path, f"expected {expected}, got elements; write text that holds < in CDATA")
        text = only.text()
        return text if "string" in kinds and not self._choices(schema) else self._scalar(text, schema, kinds, path)

    def _array(self, group: Sequence[Element], schema: Any, path: ValuePath) -> list[Any]:
        """Repeated elements, a wrapper that holds them, or the array as JSON."""
        items = list(group)
        if len(group) == 1:
            only = group[0]
            if only.children:
                items = self._wrapped(only, self._item_schema(schema, 0), path)
            elif not only.text() and not only.has_cdata:
                return []
            elif (whole := self._json_array(only, schema)) is not None:
                return whole
        return [
            self._value([item], self._item_schema(schema, index), (*path, index)) for index, item in enumerate(items)
        ]

    def _wrapped(self, element: Element, item: Any, path: ValuePath) -> list[Element]:
        names = {child.name for child in element.children}
        known = self._read(item).get("properties")
        if isinstance(known, dict) and names <= known.keys():
            return [element]  # the only item of the array, not a wrapper
        if not element.is_blank():
            raise ArgumentMismatch(path, "text between the items of an array")
        if len(names) > 1:
            raise ArgumentMismatch(
                path, f"the items of an array must have one name, got {', '.join(sorted(names)[:5])}"
            )
        return element.children

    def _json_array(self, element: Element, schema: Any) -> list[Any] | None:
        """CDATA is exact: where items are strings it is an item, whatever it looks like."""
        if element.has_cdata and "string" in self._kinds(self._item_schema(schema, 0)):
            return None
        value = _parse_json(element.text())
        return value if isinstance(value, list) else None

    def _scalar(self, text: str, schema: Any, kinds: frozenset[str], path: ValuePath) -> Any:
        for choice in self._choices(schema):
            if text == choice or (not isinstance(choice, str) and text.strip(BLANKS) == json.dumps(choice)):
                return choice
        if "string" in kinds:
            return text  # validation says which choices there are
        bare = text.strip(BLANKS)
        if "null" in kinds and bare in ("null", ""):
            return None
        if "boolean" in kinds and bare.lower() in _BOOLEANS:
            return _BOOLEANS[bare.lower()]
        if kinds & {"integer", "number"} and _INTEGER.fullmatch(bare):
            return int(bare)
        if "number" in kinds and _NUMBER.fullmatch(bare) and abs(float(bare)) != float("inf"):
            return float(bare)
        value = _parse_json(bare or "{}")
        if ("object" in kinds and isinstance(value, dict)) or ("array" in kinds and isinstance(value, list)):
            return value
        shown = json.dumps(clip(text, _MAX_SHOWN), ensure_ascii=False)
        raise ArgumentMismatch(path, f"expected {' or '.join(sorted(kinds))}, got {shown}")

    def _read(self, schema: Any) -> dict[str, Any]:
        return resolve_schema(schema, self._root).schema

    def _choices(self, schema: Any) -> list[Any]:
        reading = self._read(schema)
        options = [reading["const"]] if "const" in reading else reading.get("enum")
        return options if isinstance(options, list) else []

    def _kinds(self, schema: Any, level: int = 0) -> frozenset[str]:
        """Returns the JSON types that a value may have."""
        reading = resolve_schema(schema, self._root)
        own = reading.schema
        kinds: frozenset[str] = _ANY
        if isinstance(declared := own.get("type"), str):
            kinds = frozenset({declared})
        elif isinstance(declared, list):
            kinds = frozenset(str(each) for each in declared)
        elif options := self._choices(own):
            kinds = frozenset(type_name(option) for option in options)
        elif isinstance(own.get("properties"), dict):
            kinds = frozenset({"object"})
        else:
            for keyword in _COMBINED:
                members = own.get(keyword)
                if isinstance(members, list) and members and level < _MAX_COMBINED:
                    each = [self._kinds(member, level + 1) for member in members]
                    kinds &= frozenset.intersection(*each) if keyword == "allOf" else frozenset.union(*each)
        kinds = kinds & _ANY or _ANY
        return kinds | {"null"} if reading.nullable else kinds

    def _member_schema(self, schema: Any, name: str, level: int = 0) -> Any:
        """The schema of one member; of several alternatives that know it, any."""
        own = self._read(schema)
        if isinstance(known := own.get("properties"), dict) and name in known:
            return known[name]
        found = [
            member
            for keyword in _COMBINED
            if isinstance(alternatives := own.get(keyword), list) and level < _MAX_COMBINED
            for alternative in alternatives
            if (member := self._member_schema(alternative, name, level + 1)) not in ({}, None)
        ]
        if found:
            return found[0] if len(found) == 1 else {"anyOf": found}
        patterns = own.get("patternProperties")
        if isinstance(patterns, dict) and len(patterns) == 1:
            return next(iter(patterns.values()))
        extra = own.get("additionalProperties")
        return extra if isinstance(extra, dict) else {}

    def _item_schema(self, schema: Any, index: int, level: int = 0) -> Any:
        own = self._read(schema)
        first = own.get("prefixItems")
        if isinstance(first, list) and index < len(first):
            return first[index]
        if "items" in own:
            return own["items"]
        for keyword in _COMBINED:
            for alternative in own.get(keyword) or () if level < _MAX_COMBINED else ():
                if "array" in self._kinds(alternative):
                    return self._item_schema(alternative, index, level + 1)
        return {}


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=unique_members)
    except (ValueError, RecursionError):
        return _ABSENT
