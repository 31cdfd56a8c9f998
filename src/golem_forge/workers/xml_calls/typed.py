"""The arguments of an XML call as values. Types come from the tool's schema; the look of a text decides nothing.

Takes the `<arguments>` element and the schema, gives a mapping, raises Mismatch naming the field. Where a string is
allowed, text is that string (`007`, `null` and `true` included); a model that means otherwise has the JSON form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from golem_forge.tools.schema_messages import type_name
from golem_forge.tools.schema_paths import field_path
from golem_forge.tools.schema_refs import read_schema
from golem_forge.workers.xml_calls.elements import BLANKS, Element, shortened

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,1000}")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_BOOLEANS: Final = {"true": True, "false": False}
_ANY: Final = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_COMBINED: Final = ("anyOf", "oneOf", "allOf")
_MAX_COMBINED: Final = 8
"""How deep combinations are looked into; deeper ones count as anything."""
_MAX_SHOWN: Final = 60
_ABSENT: Final = object()

Path = tuple[str | int, ...]


class Mismatch(ValueError):
    """The elements do not fit the schema, or are no arguments at all."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(shortened(f"{field_path(path)}: {problem}" if path else problem))


def arguments_of(element: Element | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Elements by name, or one JSON object as text."""
    if element is None:
        return {}
    if element.children or not element.text():
        return _Typing(dict(schema)).members(element, dict(schema), ())
    try:
        value = json.loads(element.text())
    except json.JSONDecodeError as error:
        raise Mismatch((), f"arguments are neither elements nor JSON: {error}") from None
    except (ValueError, RecursionError):
        raise Mismatch((), "arguments are JSON that cannot be read: nested too deep, or a number too long") from None
    if not isinstance(value, dict):
        raise Mismatch((), f"arguments must be a JSON object, got {type_name(value)}")
    return value


class _Typing:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root

    def members(self, element: Element, schema: dict[str, Any], path: Path) -> dict[str, Any]:
        if not element.is_blank():
            raise Mismatch(path, "text between elements; write text that holds < in CDATA")
        groups: dict[str, list[Element]] = {}
        for child in element.children:
            groups.setdefault(child.name, []).append(child)
        return {
            name: self._value(group, self._member_schema(schema, name), (*path, name)) for name, group in groups.items()
        }

    def _value(self, group: Sequence[Element], schema: Any, path: Path) -> Any:
        """The elements of one name beside each other: one value, or the items of an array."""
        kinds = self._kinds(schema)
        only = group[0] if len(group) == 1 else None
        if "array" in kinds and (only is None or kinds.isdisjoint({"string", "object"})):
            if only is not None and "null" in kinds and not only.has_cdata and only.text() == "null":
                return None
            return self._array(group, schema, path)
        if only is None:
            raise Mismatch(path, f"given {len(group)} times")
        if only.children:
            return self._nested(only, schema, kinds, path)
        text = only.text()
        return text if "string" in kinds and not self._choices(schema) else self._scalar(text, schema, kinds, path)

    def _nested(self, element: Element, schema: Any, kinds: frozenset[str], path: Path) -> Any:
        if "object" in kinds:
            return self.members(element, self._read(schema), path)
        if "array" in kinds:
            return self._array([element], schema, path)
        expected = " or ".join(sorted(kinds))
        raise Mismatch(path, f"expected {expected}, got elements; write text that holds < in CDATA")

    def _array(self, group: Sequence[Element], schema: Any, path: Path) -> list[Any]:
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

    def _wrapped(self, element: Element, item: Any, path: Path) -> list[Element]:
        names = {child.name for child in element.children}
        known = self._read(item).get("properties")
        if isinstance(known, dict) and names <= known.keys():
            return [element]  # the only item of the array, not a wrapper
        if not element.is_blank():
            raise Mismatch(path, "text between the items of an array")
        if len(names) > 1:
            raise Mismatch(path, f"the items of an array must have one name, got {', '.join(sorted(names)[:5])}")
        return element.children

    def _json_array(self, element: Element, schema: Any) -> list[Any] | None:
        """CDATA is exact: where items are strings it is an item, whatever it looks like."""
        if element.has_cdata and "string" in self._kinds(self._item_schema(schema, 0)):
            return None
        value = _json(element.text())
        return value if isinstance(value, list) else None

    def _scalar(self, text: str, schema: Any, kinds: frozenset[str], path: Path) -> Any:
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
        value = _json(bare or "{}")
        if ("object" in kinds and isinstance(value, dict)) or ("array" in kinds and isinstance(value, list)):
            return value
        shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
        raise Mismatch(path, f"expected {' or '.join(sorted(kinds))}, got {json.dumps(shown, ensure_ascii=False)}")

    def _read(self, schema: Any) -> dict[str, Any]:
        return read_schema(schema, self._root).schema

    def _choices(self, schema: Any) -> list[Any]:
        reading = self._read(schema)
        options = [reading["const"]] if "const" in reading else reading.get("enum")
        return options if isinstance(options, list) else []

    def _kinds(self, schema: Any, level: int = 0) -> frozenset[str]:
        """The JSON types a value may have."""
        reading = read_schema(schema, self._root)
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


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _ABSENT
