"""The YAML of a `tool.yaml` as nodes.

Takes the file's bytes. Refuses, with Fault `yaml_invalid` and the line: what is not UTF-8 or not YAML 1.2, a repeated
key, anchors and aliases, tags and directives, a second document. More than 64 KiB is a broken rule, not broken YAML.

Threat: manifests come from strangers, and there may be thousands. Nodes are made from the parser's events alone, so no
tag constructs anything; without aliases nothing unfolds; depth is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from golem_forge.custom.diagnostic import Code
from golem_forge.custom.manifest.nodes import (
    LONGEST_KEY,
    MAX_DEPTH,
    Fault,
    Fields,
    Items,
    Node,
    Place,
    Said,
    Scalar,
    whole,
)
from golem_forge.custom.manifest.plain_yaml import plain_nodes

MAX_BYTES: Final = 64 * 1024
MAX_VALUES: Final = 10_000

_STR_TAG: Final = "tag:yaml.org,2002:str"


def yaml_nodes(data: bytes) -> Fields:
    """The top level. An empty file is an empty mapping."""
    if len(data) > MAX_BYTES:
        raise Fault((), f"is larger than {MAX_BYTES // 1024} KiB", 1)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _broken((), "is not UTF-8", data.count(b"\n", 0, error.start) + 1) from None
    node = plain_nodes(text) or _whole_yaml(text)
    if not isinstance(node, Fields):
        raise Fault((), "must be a mapping (`key: value` lines)", node.line)
    return node


def _whole_yaml(text: str) -> Node:
    if text.startswith("%") or "\n%" in text:
        line = text.count("\n", 0, 0 if text.startswith("%") else text.index("\n%") + 1) + 1
        raise _broken((), "YAML directives (`%`) are not supported", line)
    return _Reader(text).document()


def _broken(place: Place, problem: str, line: int) -> Fault:
    return Fault(place, problem, line, Code.YAML_INVALID)


def _events(text: str) -> Iterator[Any]:
    """The parser's events; its errors as Fault. It works step by step, so a reader that stops early is cheap."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _broken((), f"not valid YAML: {error.problem or error.context}", mark.line + 1 if mark else 1) from None
    except ReaderError as error:
        raise _broken((), "not valid YAML: control character", text.count("\n", 0, error.position) + 1) from None
    except (YAMLError, ValueError, OverflowError, RecursionError):  # an escape beyond Unicode is no YAMLError
        raise _broken((), "not valid YAML", 1) from None


class _Reader:
    def __init__(self, text: str) -> None:
        self._events = _events(text)
        self._made = 0

    def document(self) -> Node:
        from ruamel.yaml.events import DocumentStartEvent, StreamEndEvent

        next(self._events)  # the stream starts
        if isinstance(next(self._events), StreamEndEvent):
            return Fields({}, {}, 1)
        node = self._node(next(self._events), ())
        next(self._events)  # the document ends
        if isinstance(after := next(self._events), DocumentStartEvent):
            raise _broken((), "a second document (`---`) is not supported", after.start_mark.line + 1)
        return node

    def _node(self, event: Any, place: Place) -> Node:
        from ruamel.yaml.events import AliasEvent, MappingStartEvent, SequenceStartEvent

        line = event.start_mark.line + 1
        if isinstance(event, AliasEvent) or event.anchor:
            raise _broken(place, "anchors (`&`) and aliases (`*`) are not supported; write the value out", line)
        self._made += 1
        if self._made > MAX_VALUES:
            raise Fault((), f"has more than {MAX_VALUES:,} values", line)
        if len(place) > MAX_DEPTH:
            raise Fault(place[:4], "is too deeply nested", line)
        if isinstance(event, MappingStartEvent):
            self._refuse_tag(event, place, line)
            return self._fields(place, line)
        if isinstance(event, SequenceStartEvent):
            self._refuse_tag(event, place, line)
            return self._items(place, line)
        return self._scalar(event, place, line)

    def _fields(self, place: Place, line: int) -> Fields:
        from ruamel.yaml.events import MappingEndEvent, ScalarEvent

        made = Fields({}, {}, line)
        while not isinstance(event := next(self._events), MappingEndEvent):
            at = event.start_mark.line + 1
            if not isinstance(event, ScalarEvent) or event.anchor or event.tag not in (None, "!", _STR_TAG):
                raise _broken(place, "a key must be plain text", at)
            key = whole(event.value, place, at)
            if len(key) > LONGEST_KEY:
                raise _broken(place, f"a key has at most {LONGEST_KEY} characters", at)
            if key in made.nodes:
                raise _broken((*place, key), f"is already on line {made.lines[key]}", at)
            made.lines[key] = at
            node = made.nodes[key] = self._node(next(self._events), (*place, key))
            if isinstance(node, Scalar) and not node.text:
                node.line = at  # the parser finds out that nothing is there on the line after
        return made

    def _items(self, place: Place, line: int) -> Items:
        from ruamel.yaml.events import SequenceEndEvent

        made = Items([], line)
        while not isinstance(event := next(self._events), SequenceEndEvent):
            made.nodes.append(self._node(event, (*place, len(made.nodes))))
        return made

    def _scalar(self, event: Any, place: Place, line: int) -> Scalar:
        if event.tag not in (None, "!", _STR_TAG):
            self._refuse_tag(event, place, line)
        plain = event.implicit[0] and event.tag is None
        return Scalar(whole(event.value, place, line), Said.PLAIN if plain else Said.TEXT, line)

    def _refuse_tag(self, event: Any, place: Place, line: int) -> None:
        if event.tag is not None:
            raise _broken(place, f"tag {str(event.tag)[:80]!r} is not supported", line)
