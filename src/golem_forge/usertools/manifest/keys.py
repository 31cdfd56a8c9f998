"""The keys `parameters`, `env`, `network`, `zones` and `calls` of a manifest.

Refused for parameters: a key on a type it says nothing about, bounds no value can meet, a pattern that is no regular
expression, a default its own parameter would refuse, two parameters that would arrive under one name. For access: names
of variables that decide what code runs, what is no host, zones no worker can have, and the zone of user tools itself (a
tool that could write there would create tools). A host has one spelling, so that what is shown, asked and allowed is
the same.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Any, Final

from golem_forge.config.mcp_spec import split_port
from golem_forge.config.sandbox_block import variable_problem
from golem_forge.config.schema import Check, MappingSchema, check_keys, flag
from golem_forge.config.yaml_file import PlainText, YamlPath
from golem_forge.core.globs import named_group
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.policy.rules.globs import normal_host
from golem_forge.sandbox.zones import USER_TOOLS
from golem_forge.tools.validation import SchemaCheck, ToolDefinitionError
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
from golem_forge.usertools.manifest.schema import (
    ManifestProblems,
    choice,
    integer,
    items,
    json_value,
    mapping,
    not_empty,
    number,
    prose,
    string,
)

MOST_PARAMETERS: Final = 64
MOST_VALUES: Final = 256
LONGEST_PARAMETER_DESCRIPTION: Final = 4096
LONGEST_PATTERN: Final = 1024
LONGEST_VALUE: Final = 32 * 1024
LONGEST_COUNT: Final = 2**53
"""Lengths beyond what a double holds exactly are somebody's mistake."""

PARAMETER_NAME: Final = regex(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def read_parameters(value: Any, path: YamlPath, problems: ManifestProblems) -> tuple[Parameter, ...]:
    made: dict[str, Parameter] = {}
    for item, place in items(value, path, problems, MOST_PARAMETERS):
        parameter = _read_parameter(item, place, problems)
        other = made.setdefault(parameter.name.lower(), parameter)
        if other is not parameter:
            both = f"'{parameter.name}' and '{other.name}'"
            problem = f"{both} count as one name; names must differ by more than upper and lower case"
            problems.add((*place, "name"), problem, line=problems.file.start(place))
    return tuple(made.values())


def check_argument_style(
    parameters: tuple[Parameter, ...], path: YamlPath, style: ArgumentStyle, problems: ManifestProblems
) -> None:
    """What depends on how values reach the process."""
    used: dict[str, str] = {}
    for index, parameter in enumerate(parameters):
        place: YamlPath = (*path, index)
        line = problems.file.start(place)
        if parameter.type is ParameterType.OBJECT and style is not ArgumentStyle.STDIN_JSON:
            problems.add((*place, "type"), "object needs `arguments: stdin-json`", line=line)
        if style is ArgumentStyle.ENV:
            name = argument_variable(parameter.name)
            if name in used:
                problem = f"'{parameter.name}' and '{used[name]}' would both be the variable {name}"
                problems.add((*place, "name"), problem, line=line)
            used[name] = parameter.name


def _parameter_name(value: Any, path: YamlPath, problems: ManifestProblems) -> str:
    name = string(value, path, problems)
    if not PARAMETER_NAME.fullmatch(name):
        problems.expected(path, value, "a letter, then up to 63 letters, digits, '-' and '_'")
    return name


_REQUIRED_KEYS: Final[dict[str, Check]] = {
    "name": _parameter_name,
    "type": partial(choice, words=ParameterType),
    "description": partial(not_empty, read=prose, most=LONGEST_PARAMETER_DESCRIPTION),
}
PARAMETER_KEYS: Final = (
    *(*_REQUIRED_KEYS, "required", "default", "enum", "min", "max", "pattern", "items", "flag", "path"),
)
_NUMERIC: Final = frozenset({ParameterType.NUMBER, ParameterType.INTEGER})
_TEXTUAL: Final = frozenset({ParameterType.STRING})
_BOUNDED: Final = _NUMERIC | _TEXTUAL | {ParameterType.ARRAY}
_ONLY_FOR: Final = {
    "items": frozenset({ParameterType.ARRAY}),
    "min": _BOUNDED,
    "max": _BOUNDED,
    "pattern": _TEXTUAL,
    "flag": frozenset({ParameterType.BOOLEAN}),
    "path": _TEXTUAL,
}
"""Keys that mean something for certain types only."""


def _read_parameter(value: Any, path: YamlPath, problems: ManifestProblems) -> Parameter:
    found = mapping(value, path, problems)
    check_keys(found, path, problems, PARAMETER_KEYS, _REQUIRED_KEYS)
    given = {key: check(found[key], (*path, key), problems) for key, check in _REQUIRED_KEYS.items()}
    kind: ParameterType = given["type"]

    def read(key: str, check: Check) -> None:
        kinds = _ONLY_FOR.get(key)
        if kinds is not None and kind not in kinds:
            meant = ", ".join(each.value for each in ParameterType if each in kinds)
            problems.add((*path, key), f"is only for parameters of type {meant}, not {kind.value}")
        given[key] = check(found[key], (*path, key), problems)

    if "items" in found:
        read("items", _item_type)
    typed = value_of(kind, given.get("items", ParameterType.STRING))
    bound = number if kind in _NUMERIC else _count
    checks: dict[str, Check] = {"required": flag, "min": bound, "max": bound, "pattern": _pattern}
    checks |= {"flag": partial(choice, words=BooleanFlags), "path": partial(choice, words=PathUse)}
    checks["enum"] = partial(_enum, typed=typed)
    for key in found:
        if key in checks:
            read(key, checks[key])
    if "min" in given and "max" in given and given["min"] > given["max"]:
        problems.add((*path, "max"), "must not be below min")
    if "default" in found:
        place: YamlPath = (*path, "default")
        if given.get("required"):
            problems.add(place, "cannot be used together with `required: true`; keep one of the two")
        given |= {"default": typed(found["default"], place, problems), "has_default": True}
        if given.keys() & {"enum", "min", "max", "pattern"}:
            wrong = SchemaCheck(parameter_schema(Parameter(**given))).errors(given["default"], limit=1)
            if wrong:
                problems.add(place, wrong[0][1])
    return Parameter(**given)


def _item_type(value: Any, path: YamlPath, problems: ManifestProblems) -> ParameterType:
    kind = choice(value, path, problems, ParameterType)
    if kind in (ParameterType.ARRAY, ParameterType.OBJECT):
        problems.expected(path, value, "one of string, number, integer, boolean")
    return kind


def _count(value: Any, path: YamlPath, problems: ManifestProblems) -> int:
    count = integer(value, path, problems)
    if not 0 <= count <= LONGEST_COUNT:
        problems.expected(path, value, "a count: 0 or more")
    return count


def _pattern(value: Any, path: YamlPath, problems: ManifestProblems) -> str:
    pattern = not_empty(value, path, problems, LONGEST_PATTERN)
    try:
        SchemaCheck({"type": "string", "pattern": pattern})
    except ToolDefinitionError:
        problems.add(path, "is not a regular expression of JSON Schema")
    return pattern


def _enum(value: Any, path: YamlPath, problems: ManifestProblems, typed: Check) -> tuple[Any, ...]:
    values: list[Any] = []
    for item, place in items(value, path, problems, MOST_VALUES):
        made = typed(item, place, problems)
        if any(made == other and isinstance(made, bool) == isinstance(other, bool) for other in values):
            problems.add(place, "appears twice")
        values.append(made)
    if not values:
        problems.add(path, "must not be empty")
    return tuple(values)


def _object(value: Any, path: YamlPath, problems: ManifestProblems) -> Any:
    if not isinstance(value, dict):
        problems.expected(path, value, "an object (`key: value` lines)")
    return json_value(value, path, problems)


_VALUES: Final[dict[ParameterType, Check]] = {
    ParameterType.STRING: partial(string, most=LONGEST_VALUE),
    ParameterType.NUMBER: number,
    ParameterType.INTEGER: integer,
    ParameterType.BOOLEAN: flag,
    ParameterType.OBJECT: _object,
}


def value_of(kind: ParameterType, of: ParameterType = ParameterType.STRING) -> Check:
    """The check of a value of a parameter."""
    return partial(_array, item=_VALUES[of]) if kind is ParameterType.ARRAY else _VALUES[kind]


def _array(value: Any, path: YamlPath, problems: ManifestProblems, item: Check) -> list[Any]:
    return [item(each, place, problems) for each, place in items(value, path, problems, MOST_VALUES)]


MOST_VARIABLES: Final = 64
MOST_HOSTS: Final = 64
MOST_ZONES: Final = 32
MOST_CALLS: Final = 64

_ZONE: Final = regex(r"[a-z][a-z0-9_-]{0,31}")
_CALLABLE: Final = regex(r"[A-Za-z][A-Za-z0-9_-]{0,63}|(?=.{1,128}\Z)[A-Za-z0-9_-]+?__[A-Za-z0-9_-]+")
"""Any tool of a catalog; an MCP server's are `server__tool`."""


class ZoneMode(StrEnum):
    RO = "ro"
    RW = "rw"


def check_variable(name: str, path: YamlPath, problems: ManifestProblems) -> None:
    """The name of a variable a child may be given."""
    if why := variable_problem(name):
        problems.add(path, f"'{escape_control_chars(name[:80])}' {why}")


def _variable(value: Any, path: YamlPath, problems: ManifestProblems) -> str:
    name = string(value, path, problems)
    check_variable(name, path, problems)
    return name


_ENV_ENTRY: Final = MappingSchema({"name": _variable, "required": flag}, required=("name",), keys_first=True)


def read_env(value: Any, path: YamlPath, problems: ManifestProblems) -> tuple[EnvVariable, ...]:
    made: dict[str, EnvVariable] = {}
    for item, place in items(value, path, problems, MOST_VARIABLES):
        entry = _ENV_ENTRY(item, place, problems) if isinstance(item, dict) else {}
        name = entry["name"] if entry else _variable(item, place, problems)
        if name in made:
            problems.add(place, f"{name} appears twice")
        made[name] = EnvVariable(name=name, required=entry.get("required", False))
    return tuple(made.values())


def read_network(value: Any, path: YamlPath, problems: ManifestProblems) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if isinstance(value, PlainText) and value in ("true", "false"):
        return value == "true"
    if not isinstance(value, (list, dict)):
        problems.expected(path, value, "true, false or a list of hosts")
    hosts = (_host(item, place, problems) for item, place in items(value, path, problems, MOST_HOSTS))
    return tuple(dict.fromkeys(hosts)) or False


def _host(value: Any, path: YamlPath, problems: ManifestProblems) -> str:
    declared = string(value, path, problems, 300)
    try:
        return _normal_host_and_port(declared)
    except ValueError as error:
        problems.add(path, f"'{escape_control_chars(declared[:80])}': {error}")


def _normal_host_and_port(declared: str) -> str:
    """A declared `host` or `host:port` as `net` effects write it: an IPv6 address stands in brackets. A group of hosts
    stays its name. ValueError with the reason for anything else."""
    if named_group(declared) is not None:
        return declared
    if "*" in declared:
        raise ValueError("names one host; patterns belong in rules")
    if "://" in declared:
        raise ValueError("write the host alone, without a scheme")
    host, port = split_port(declared)
    name = normal_host(host)
    return (f"[{name}]" if ":" in name else name) + port


def read_zones(value: Any, path: YamlPath, problems: ManifestProblems) -> dict[str, str]:
    found = mapping(value, path, problems, MOST_ZONES)
    for name in found:
        line = problems.file.line((*path, name))
        if name == USER_TOOLS:
            problems.add((*path, name), "no tool reaches the zone of user tools", line=line)
        if not _ZONE.fullmatch(name):
            rule = "a small letter, then up to 31 of a-z, 0-9, _ and -"
            problems.add(path, f"'{escape_control_chars(name[:80])}' is not the name of a zone ({rule})", line=line)
    return {name: choice(item, (*path, name), problems, ZoneMode).value for name, item in found.items()}


def read_calls(value: Any, path: YamlPath, problems: ManifestProblems) -> tuple[str, ...]:
    made: dict[str, None] = {}
    for item, place in items(value, path, problems, MOST_CALLS):
        name = string(item, place, problems)
        if not _CALLABLE.fullmatch(name):
            problems.add(place, f"'{escape_control_chars(name[:80])}' is not the name of a tool")
        if name in made:
            problems.add(place, f"'{name}' appears twice")
        made[name] = None
    return tuple(made)
