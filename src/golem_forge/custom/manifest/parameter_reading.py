"""The `parameters` of a manifest: each key's own rule, then how the keys of one parameter fit together.

Gives Parameters in declared order. Refuses (Fault) a key on a type it says nothing about, bounds no value can meet, a
pattern that is no regular expression, a default its own parameter would refuse, and two parameters that would arrive
under one name.
"""

from __future__ import annotations

import re
from typing import Any, Final

from golem_forge.custom.manifest import ArgumentStyle, BooleanFlags, Parameter, ParameterType, PathUse
from golem_forge.custom.manifest.node_reading import (
    choice,
    exact,
    fields,
    filled,
    flag,
    integer,
    items,
    number,
    plain_value,
    prose,
)
from golem_forge.custom.manifest.nodes import Fault, Fields, Items, Node, Place
from golem_forge.custom.manifest.schema import parameter_schema

MOST_PARAMETERS: Final = 64
MOST_VALUES: Final = 256
LONGEST_DESCRIPTION: Final = 4096
LONGEST_PATTERN: Final = 1024
LONGEST_VALUE: Final = 32 * 1024
LONGEST_COUNT: Final = 2**53
"""Lengths beyond what a double holds exactly are somebody's mistake."""

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

_REQUIRED: Final = ("name", "type", "description")
_KNOWN: Final = (*_REQUIRED, "required", "default", "enum", "min", "max", "pattern", "items", "flag", "path")
_NUMERIC: Final = frozenset({ParameterType.NUMBER, ParameterType.INTEGER})
_COUNTED: Final = frozenset({ParameterType.STRING, ParameterType.ARRAY})
_NOT_IN_ARRAYS: Final = frozenset({ParameterType.ARRAY, ParameterType.OBJECT})


def read_parameters(node: Node, place: Place) -> tuple[Parameter, ...]:
    made: list[Parameter] = []
    seen: dict[str, str] = {}
    for index, item in enumerate(items(node, place, MOST_PARAMETERS)):
        parameter = _parameter(item, (*place, index))
        if other := seen.get(parameter.name.lower()):
            problem = f"'{parameter.name}' and '{other}' are one name; names differ by more than upper and lower case"
            raise Fault((*place, index, "name"), problem, item.line)
        seen[parameter.name.lower()] = parameter.name
        made.append(parameter)
    return tuple(made)


def check_style(node: Node, place: Place, parameters: tuple[Parameter, ...], style: ArgumentStyle) -> None:
    """What depends on how values reach the process."""
    lines = [item.line for item in node.nodes] if isinstance(node, Items) else []
    seen: dict[str, str] = {}
    for index, parameter in enumerate(parameters):
        if parameter.type is ParameterType.OBJECT and style is not ArgumentStyle.STDIN_JSON:
            raise Fault((*place, index, "type"), "object needs `arguments: stdin-json`", lines[index])
        if style is ArgumentStyle.ENV:
            name = variable_name(parameter.name)
            if name in seen:
                problem = f"'{parameter.name}' and '{seen[name]}' would both be the variable {name}"
                raise Fault((*place, index, "name"), problem, lines[index])
            seen[name] = parameter.name


def variable_name(parameter: str) -> str:
    """What a parameter is called under `arguments: env`."""
    return f"FORGE_ARG_{parameter.upper().replace('-', '_')}"


def _parameter(node: Node, place: Place) -> Parameter:
    found = fields(node, place, _KNOWN, _REQUIRED)
    name = exact(found["name"], (*place, "name"), 1000)
    if not NAME.fullmatch(name):
        problem = "must be a letter, then up to 63 letters, digits, '-' and '_'"
        raise Fault((*place, "name"), problem, found["name"].line)
    kind = choice(found["type"], (*place, "type"), ParameterType)
    description = prose(found["description"], (*place, "description"), LONGEST_DESCRIPTION)
    filled(description, (*place, "description"), found["description"].line)
    made = Parameter(name=name, type=kind, description=description)
    return made if len(found) == len(_REQUIRED) else _Rest(found, place, name, kind, description).parameter()


class _Rest:
    """The optional keys, most of which mean something for certain types only."""

    def __init__(self, found: dict[str, Node], place: Place, name: str, kind: ParameterType, description: str) -> None:
        self._found = found
        self._place = place
        self._kind = kind
        self._given: dict[str, Any] = {"name": name, "type": kind, "description": description}

    def parameter(self) -> Parameter:
        given, found = self._given, self._found
        if node := found.get("items"):
            self._only("items", node, frozenset({ParameterType.ARRAY}))
            given["items"] = choice(node, self._at("items"), ParameterType)
            if given["items"] in _NOT_IN_ARRAYS:
                raise Fault(self._at("items"), "must be one of string, number, integer, boolean", node.line)
        for key, node in found.items():
            if key == "required":
                given["required"] = flag(node, self._at(key))
            elif key in ("min", "max"):
                given[key] = self._bound(key, node)
            elif key == "pattern":
                given["pattern"] = self._pattern(node)
            elif key == "flag":
                self._only(key, node, frozenset({ParameterType.BOOLEAN}))
                given["flag"] = choice(node, self._at(key), BooleanFlags)
            elif key == "path":
                self._only(key, node, frozenset({ParameterType.STRING}))
                given["path"] = choice(node, self._at(key), PathUse)
            elif key == "enum":
                given["enum"] = self._enum(node)
        self._check_bounds()
        if (node := found.get("default")) is not None:
            self._default(node)
        return Parameter(**given)

    def _at(self, key: str | int, *more: int) -> Place:
        return (*self._place, key, *more)

    def _only(self, key: str, node: Node, kinds: frozenset[ParameterType]) -> None:
        if self._kind not in kinds:
            meant = ", ".join(kind.value for kind in ParameterType if kind in kinds)
            raise Fault(self._at(key), f"is only for parameters of type {meant}, not {self._kind.value}", node.line)

    def _bound(self, key: str, node: Node) -> float | int:
        self._only(key, node, _NUMERIC | _COUNTED)
        if self._kind in _NUMERIC:
            return number(node, self._at(key))
        count = integer(node, self._at(key))
        if not 0 <= count <= LONGEST_COUNT:
            raise Fault(self._at(key), "must be a count: 0 or more", node.line)
        return count

    def _check_bounds(self) -> None:
        low, high = self._given.get("min"), self._given.get("max")
        if low is not None and high is not None and low > high:
            raise Fault(self._at("max"), "must not be below min", self._found["max"].line)

    def _pattern(self, node: Node) -> str:
        from golem_forge.tools.jsonschema import SchemaCheck
        from golem_forge.tools.validation import ToolDefinitionError

        self._only("pattern", node, frozenset({ParameterType.STRING}))
        pattern = filled(exact(node, self._at("pattern"), LONGEST_PATTERN), self._at("pattern"), node.line)
        try:
            SchemaCheck({"type": "string", "pattern": pattern})
        except ToolDefinitionError:
            raise Fault(self._at("pattern"), "is not a regular expression of JSON Schema", node.line) from None
        return pattern

    def _enum(self, node: Node) -> tuple[Any, ...]:
        values: list[Any] = []
        for index, item in enumerate(items(node, self._at("enum"), MOST_VALUES)):
            value = typed_value(item, self._at("enum", index), self._kind, self._item_kind)
            if any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values):
                raise Fault(self._at("enum", index), "is there twice", item.line)
            values.append(value)
        if not values:
            raise Fault(self._at("enum"), "must not be empty", node.line)
        return tuple(values)

    def _default(self, node: Node) -> None:
        from golem_forge.tools.jsonschema import SchemaCheck

        given = self._given
        if given.get("required"):
            raise Fault(self._at("default"), "excludes `required: true`; keep one of the two", node.line)
        given["default"] = typed_value(node, self._at("default"), self._kind, self._item_kind)
        given["has_default"] = True
        if not given.keys() & {"enum", "min", "max", "pattern"}:
            return
        problems = SchemaCheck(parameter_schema(Parameter(**given))).errors(given["default"], limit=1)
        if problems:
            raise Fault(self._at("default"), problems[0][1], node.line)

    @property
    def _item_kind(self) -> ParameterType:
        kind: ParameterType = self._given.get("items", ParameterType.STRING)
        return kind


def typed_value(node: Node, place: Place, kind: ParameterType, of: ParameterType = ParameterType.STRING) -> Any:
    """A value of a parameter's type. Raises Fault."""
    if kind is ParameterType.STRING:
        return exact(node, place, LONGEST_VALUE)
    if kind is ParameterType.NUMBER:
        return number(node, place)
    if kind is ParameterType.INTEGER:
        return integer(node, place)
    if kind is ParameterType.BOOLEAN:
        return flag(node, place)
    if kind is ParameterType.ARRAY:
        return [typed_value(item, (*place, index), of) for index, item in enumerate(items(node, place, MOST_VALUES))]
    if not isinstance(node, Fields):
        raise Fault(place, "must be an object (`key: value` lines)", node.line)
    return plain_value(node, place)
