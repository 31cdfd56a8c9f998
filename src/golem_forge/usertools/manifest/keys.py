"""The keys `parameters`, `env`, `network`, `zones` and `calls` of a manifest, from nodes to values.

Raises ManifestFault. Parameters: a key on a type it says nothing about, bounds no value can meet, a pattern that is no
regular expression, a default its own parameter would refuse, two parameters that would arrive under one name. Access:
names of variables that decide what code runs, what is no host, zones no worker can have, and the zone of user tools
itself (a tool that could write there would create tools). A host has one spelling, so that what is shown, asked and
allowed is the same.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Final

from golem_forge.core.text import escape_control_chars
from golem_forge.usertools.manifest import (
    ArgumentStyle,
    BooleanFlags,
    EnvVariable,
    Parameter,
    ParameterType,
    PathUse,
    argument_variable,
    parameter_schema,
)
from golem_forge.usertools.manifest.nodes import (
    Fields,
    Items,
    KeyPath,
    ManifestFault,
    Node,
    Scalar,
    ScalarStyle,
    as_boolean,
    as_choice,
    as_integer,
    as_json_value,
    as_list,
    as_mapping,
    as_number,
    as_prose,
    as_text,
    read_mapping,
    require_text,
)

MOST_PARAMETERS: Final = 64
MOST_VALUES: Final = 256
LONGEST_PARAMETER_DESCRIPTION: Final = 4096
LONGEST_PATTERN: Final = 1024
LONGEST_VALUE: Final = 32 * 1024
LONGEST_COUNT: Final = 2**53
"""Lengths beyond what a double holds exactly are somebody's mistake."""

PARAMETER_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

_REQUIRED_PARAMETER_KEYS: Final = ("name", "type", "description")
_OPTIONAL_PARAMETER_KEYS: Final = ("required", "default", "enum", "min", "max", "pattern", "items", "flag", "path")
_PARAMETER_KEYS: Final = (*_REQUIRED_PARAMETER_KEYS, *_OPTIONAL_PARAMETER_KEYS)
_NUMERIC: Final = frozenset({ParameterType.NUMBER, ParameterType.INTEGER})
_COUNTED: Final = frozenset({ParameterType.STRING, ParameterType.ARRAY})
_NOT_IN_ARRAYS: Final = frozenset({ParameterType.ARRAY, ParameterType.OBJECT})


def read_parameters(node: Node, place: KeyPath) -> tuple[Parameter, ...]:
    made: dict[str, Parameter] = {}
    for index, item in enumerate(as_list(node, place, MOST_PARAMETERS)):
        parameter = _read_parameter(item, (*place, index))
        other = made.setdefault(parameter.name.lower(), parameter)
        if other is not parameter:
            both = f"'{parameter.name}' and '{other.name}'"
            problem = f"{both} are one name; names differ by more than upper and lower case"
            raise ManifestFault((*place, index, "name"), problem, item.line)
    return tuple(made.values())


def check_argument_style(node: Node, place: KeyPath, parameters: tuple[Parameter, ...], style: ArgumentStyle) -> None:
    """What depends on how values reach the process."""
    lines = [item.line for item in node.nodes] if isinstance(node, Items) else []
    used: dict[str, str] = {}
    for index, parameter in enumerate(parameters):
        if parameter.type is ParameterType.OBJECT and style is not ArgumentStyle.STDIN_JSON:
            raise ManifestFault((*place, index, "type"), "object needs `arguments: stdin-json`", lines[index])
        if style is ArgumentStyle.ENV:
            name = argument_variable(parameter.name)
            if name in used:
                problem = f"'{parameter.name}' and '{used[name]}' would both be the variable {name}"
                raise ManifestFault((*place, index, "name"), problem, lines[index])
            used[name] = parameter.name


def _read_parameter(node: Node, place: KeyPath) -> Parameter:
    found = read_mapping(node, place, _PARAMETER_KEYS, _REQUIRED_PARAMETER_KEYS)
    name = as_text(found["name"], (*place, "name"), 1000)
    if not PARAMETER_NAME.fullmatch(name):
        problem = "must be a letter, then up to 63 letters, digits, '-' and '_'"
        raise ManifestFault((*place, "name"), problem, found["name"].line)
    kind = as_choice(found["type"], (*place, "type"), ParameterType)
    description = as_prose(found["description"], (*place, "description"), LONGEST_PARAMETER_DESCRIPTION)
    require_text(description, (*place, "description"), found["description"].line)
    given = {"name": name, "type": kind, "description": description}
    return _OptionalKeys(found, place, kind, given).parameter()


class _OptionalKeys:
    """The optional keys, most of which mean something for certain types only."""

    def __init__(self, found: dict[str, Node], place: KeyPath, kind: ParameterType, given: dict[str, Any]) -> None:
        self._found = found
        self._place = place
        self._kind = kind
        self._given = given

    def parameter(self) -> Parameter:
        given, found = self._given, self._found
        if node := found.get("items"):
            self._only("items", node, frozenset({ParameterType.ARRAY}))
            given["items"] = as_choice(node, self._at("items"), ParameterType)
            if given["items"] in _NOT_IN_ARRAYS:
                raise ManifestFault(self._at("items"), "must be one of string, number, integer, boolean", node.line)
        for key, node in found.items():
            if key == "required":
                given["required"] = as_boolean(node, self._at(key))
            elif key in ("min", "max"):
                given[key] = self._bound(key, node)
            elif key == "pattern":
                given["pattern"] = self._pattern(node)
            elif key == "flag":
                self._only(key, node, frozenset({ParameterType.BOOLEAN}))
                given["flag"] = as_choice(node, self._at(key), BooleanFlags)
            elif key == "path":
                self._only(key, node, frozenset({ParameterType.STRING}))
                given["path"] = as_choice(node, self._at(key), PathUse)
            elif key == "enum":
                given["enum"] = self._enum(node)
        low, high = given.get("min"), given.get("max")
        if low is not None and high is not None and low > high:
            raise ManifestFault(self._at("max"), "must not be below min", found["max"].line)
        if (node := found.get("default")) is not None:
            self._default(node)
        return Parameter(**given)

    def _at(self, key: str | int, *more: int) -> KeyPath:
        return (*self._place, key, *more)

    def _only(self, key: str, node: Node, kinds: frozenset[ParameterType]) -> None:
        if self._kind not in kinds:
            meant = ", ".join(kind.value for kind in ParameterType if kind in kinds)
            raise ManifestFault(
                self._at(key), f"is only for parameters of type {meant}, not {self._kind.value}", node.line
            )

    def _bound(self, key: str, node: Node) -> float | int:
        self._only(key, node, _NUMERIC | _COUNTED)
        if self._kind in _NUMERIC:
            return as_number(node, self._at(key))
        count = as_integer(node, self._at(key))
        if not 0 <= count <= LONGEST_COUNT:
            raise ManifestFault(self._at(key), "must be a count: 0 or more", node.line)
        return count

    def _pattern(self, node: Node) -> str:
        from golem_forge.tools.validation import SchemaCheck, ToolDefinitionError

        self._only("pattern", node, frozenset({ParameterType.STRING}))
        pattern = require_text(as_text(node, self._at("pattern"), LONGEST_PATTERN), self._at("pattern"), node.line)
        try:
            SchemaCheck({"type": "string", "pattern": pattern})
        except ToolDefinitionError:
            raise ManifestFault(self._at("pattern"), "is not a regular expression of JSON Schema", node.line) from None
        return pattern

    def _enum(self, node: Node) -> tuple[Any, ...]:
        values: list[Any] = []
        for index, item in enumerate(as_list(node, self._at("enum"), MOST_VALUES)):
            value = typed_value(item, self._at("enum", index), self._kind, self._item_kind)
            if any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values):
                raise ManifestFault(self._at("enum", index), "is there twice", item.line)
            values.append(value)
        if not values:
            raise ManifestFault(self._at("enum"), "must not be empty", node.line)
        return tuple(values)

    def _default(self, node: Node) -> None:
        from golem_forge.tools.validation import SchemaCheck

        given = self._given
        if given.get("required"):
            raise ManifestFault(self._at("default"), "excludes `required: true`; keep one of the two", node.line)
        given["default"] = typed_value(node, self._at("default"), self._kind, self._item_kind)
        given["has_default"] = True
        if not given.keys() & {"enum", "min", "max", "pattern"}:
            return
        problems = SchemaCheck(parameter_schema(Parameter(**given))).errors(given["default"], limit=1)
        if problems:
            raise ManifestFault(self._at("default"), problems[0][1], node.line)

    @property
    def _item_kind(self) -> ParameterType:
        kind: ParameterType = self._given.get("items", ParameterType.STRING)
        return kind


def typed_value(node: Node, place: KeyPath, kind: ParameterType, of: ParameterType = ParameterType.STRING) -> Any:
    """A value of a parameter's type. Raises ManifestFault."""
    if kind is ParameterType.STRING:
        return as_text(node, place, LONGEST_VALUE)
    if kind is ParameterType.NUMBER:
        return as_number(node, place)
    if kind is ParameterType.INTEGER:
        return as_integer(node, place)
    if kind is ParameterType.BOOLEAN:
        return as_boolean(node, place)
    if kind is ParameterType.ARRAY:
        return [typed_value(item, (*place, index), of) for index, item in enumerate(as_list(node, place, MOST_VALUES))]
    if not isinstance(node, Fields):
        raise ManifestFault(place, "must be an object (`key: value` lines)", node.line)
    return as_json_value(node, place)


MOST_VARIABLES: Final = 64
MOST_HOSTS: Final = 64
MOST_ZONES: Final = 32
MOST_CALLS: Final = 64

_ZONE: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_CALLABLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}|(?=.{1,128}\Z)[A-Za-z0-9_-]+?__[A-Za-z0-9_-]+")
"""Any tool of a catalog; an MCP server's are `server__tool`."""
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_HIGHEST_PORT: Final = 65535


class ZoneMode(StrEnum):
    RO = "ro"
    RW = "rw"


def read_env(node: Node, place: KeyPath) -> tuple[EnvVariable, ...]:
    made: dict[str, EnvVariable] = {}
    for index, item in enumerate(as_list(node, place, MOST_VARIABLES)):
        at: KeyPath = (*place, index)
        if isinstance(item, Fields):
            found = read_mapping(item, at, ("name", "required"), ("name",))
            name = read_variable_name(found["name"], (*at, "name"))
            required = as_boolean(found["required"], (*at, "required")) if "required" in found else False
        else:
            name, required = read_variable_name(item, at), False
        if name in made:
            raise ManifestFault(at, f"{name} is there twice", item.line)
        made[name] = EnvVariable(name=name, required=required)
    return tuple(made.values())


def read_variable_name(node: Node, place: KeyPath) -> str:
    """The name of a variable a child may be given."""
    name = as_text(node, place, 1000)
    check_variable_name(name, place, node.line)
    return name


def check_variable_name(name: str, place: KeyPath, line: int) -> None:
    from golem_forge.config.sandbox_block import variable_problem

    if why := variable_problem(name):
        raise ManifestFault(place, f"'{escape_control_chars(name[:80])}' {why}", line)


def read_network(node: Node, place: KeyPath) -> bool | tuple[str, ...]:
    if isinstance(node, Scalar):
        if node.style is not ScalarStyle.TEXT and node.text in ("true", "false"):
            return node.text == "true"
        raise ManifestFault(place, "must be true, false or a list of hosts", node.line)
    hosts = (_read_host(item, (*place, index)) for index, item in enumerate(as_list(node, place, MOST_HOSTS)))
    return tuple(dict.fromkeys(hosts)) or False


def _read_host(node: Node, place: KeyPath) -> str:
    declared = as_text(node, place, 300)
    try:
        return _normal_host_and_port(declared)
    except ValueError as error:
        raise ManifestFault(place, f"'{escape_control_chars(declared[:80])}': {error}", node.line) from None


def _normal_host_and_port(declared: str) -> str:
    """A declared `host` or `host:port` as `net` effects write it: an IPv6 address stands in brackets. ValueError with
    the reason for anything else."""
    from golem_forge.policy.rules.globs import normal_host

    if "*" in declared:
        raise ValueError("names one host; patterns belong in rules")
    if "://" in declared:
        raise ValueError("write the host alone, without a scheme")
    host, colon, port = declared, "", ""
    if declared.startswith("["):
        host, bracket, rest = declared.partition("]")
        host += bracket
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("is not a usable address; write IPv6 as [2001:db8::1]:443")
        colon, port = rest[:1], rest[1:]
    elif declared.count(":") == 1:
        host, colon, port = declared.partition(":")
    if colon and not port:
        raise ValueError("has no port after its `:`")
    if port and not (_PORT.fullmatch(port) and int(port) <= _HIGHEST_PORT):
        raise ValueError(f"a port is a number from 1 to {_HIGHEST_PORT}")
    name = normal_host(host)
    return (f"[{name}]" if ":" in name else name) + colon + port


def read_zones(node: Node, place: KeyPath) -> dict[str, str]:
    from golem_forge.sandbox.zones import USER_TOOLS

    found = as_mapping(node, place, MOST_ZONES)
    for name in found.nodes:
        if name == USER_TOOLS:
            raise ManifestFault((*place, name), "no tool reaches the zone of user tools", found.lines[name])
        if not _ZONE.fullmatch(name):
            problem = (
                f"'{escape_control_chars(name[:80])}' is no name of a zone (a small letter, then up to 31 of "
                "a-z, 0-9, _ and -)"
            )
            raise ManifestFault(place, problem, found.lines[name])
    return {name: as_choice(item, (*place, name), ZoneMode).value for name, item in found.nodes.items()}


def read_calls(node: Node, place: KeyPath) -> tuple[str, ...]:
    made: dict[str, None] = {}
    for index, item in enumerate(as_list(node, place, MOST_CALLS)):
        name = as_text(item, (*place, index), 1000)
        if not _CALLABLE.fullmatch(name):
            raise ManifestFault((*place, index), f"'{escape_control_chars(name[:80])}' is no name of a tool", item.line)
        if name in made:
            raise ManifestFault((*place, index), f"'{name}' is there twice", item.line)
        made[name] = None
    return tuple(made)
