"""The schema of a manifest: kinds of values, parameters, access (`env`, `network`, `zones`, `calls`), and its problems.

Of a manifest only the first problem is told: ManifestProblems raises ManifestFault, with path, line and code. A value
is what the strict form of `config.yaml_file` gives, or JSON from a model: a `PlainText` may be text, a number or a
boolean, whatever its key wants; a JSON number is never text. Everything has a bound.

Refused for parameters: a key on a type it says nothing about, bounds no value can meet, a pattern that is no regular
expression, a default its own parameter would refuse, two parameters that would arrive under one name. For access: names
of variables that decide what code runs, what is no host, zones no worker can have, and the zone of user tools itself (a
tool that could write there would create tools). A host has one spelling, so that what is shown, asked and allowed is
the same.

Threat: the author chooses what a person and a model read. Text that names or describes is one line without characters
that steer a terminal or hide words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from golem_forge.config.mcp_spec import split_port
from golem_forge.config.sandbox_block import variable_problem
from golem_forge.config.validation import Check, ConfigProblems, MappingSchema, check_keys, dotted_path, flag
from golem_forge.config.yaml_file import (
    LONGEST_STRICT_KEY,
    MAX_DEPTH,
    PLAIN_INTEGER,
    PlainText,
    YamlFault,
    YamlFile,
    YamlPath,
    check_unicode,
    decode_yaml,
    is_no_text,
    plain_value,
    read_document,
)
from golem_forge.core.globs import named_group
from golem_forge.core.regex import regex
from golem_forge.core.text import closest_match, count_control_chars, escape_control_chars
from golem_forge.policy.rules.model import normal_host
from golem_forge.sandbox.zones import USER_TOOLS
from golem_forge.tools.validation import SchemaCheck, ToolDefinitionError
from golem_forge.usertools.diagnostics import DiagnosticCode
from golem_forge.usertools.manifest import (
    LONGEST_TIMEOUT_S,
    ArgumentStyle,
    BooleanFlags,
    EnvVariable,
    Parameter,
    ParameterType,
    PathUse,
    argument_variable,
    parameter_schema,
)

MAX_MANIFEST_BYTES: Final = 64 * 1024
SHORTEST_TIMEOUT_S: Final = 0.1
_MOST_DIGITS: Final = 1000
_ALLOWED_MARKS: Final = dict.fromkeys(map(ord, "\u00ad\u200c\u200d\u200e\u200f"))
"""Soft hyphens, joiners and direction marks: Persian, Arabic and emoji are not written without them."""
_EXPECTED: Final = {"a mapping": "a mapping (`key: value` lines)", "a list": "a list ([] for an empty one)"}

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


class ManifestFault(Exception):
    """The first thing that is wrong, and where; whoever asked turns it into words of its own."""

    def __init__(
        self, path: YamlPath, problem: str, line: int, code: DiagnosticCode = DiagnosticCode.MANIFEST_INVALID
    ) -> None:
        super().__init__(problem)
        self.path = path
        self.problem = problem
        self.line = line
        self.code = code

    @property
    def where(self) -> str:
        """`tests[0].expect.files`. A key may be anybody's text: it is shown harmless and short."""
        return dotted_path(tuple(part if isinstance(part, int) else _shown_key(part) for part in self.path))

    def __str__(self) -> str:
        """Returns the text on one line, because a second line would look like another message."""
        return (f"{self.where}: {self.problem}" if self.where else self.problem).replace("\n", "\\n")


def _shown_key(key: str) -> str:
    return escape_control_chars(key if len(key) <= 80 else key[:77] + "...").replace("\n", "\\n")


class ManifestProblems(ConfigProblems):
    nothing_is_empty = False

    def add(
        self,
        path: YamlPath,
        problem: str,
        *,
        line: int | None = None,
        code: DiagnosticCode = DiagnosticCode.MANIFEST_INVALID,
    ) -> NoReturn:
        """`line`: where the value at `path` begins, unless given."""
        raise ManifestFault(path, problem, self.file.start(path) if line is None else line, code)

    def expected(self, path: YamlPath, value: Any, expected: str) -> NoReturn:
        self.add(path, f"must be {_EXPECTED.get(expected, expected)}")

    def unknown_key(self, path: YamlPath, key: str, known: Iterable[str]) -> NoReturn:
        close = closest_match(key, known)
        hint = f"did you mean '{close}'?" if close else f"known: {', '.join(known)}"
        line = self.file.line((*path, key))
        self.add(path, f"unknown key '{escape_control_chars(key[:80])}' ({hint})", line=line)

    def missing_key(self, path: YamlPath, key: str) -> NoReturn:
        self.add((*path, key), "missing required key", line=self.file.start(path))


def parse_manifest(data: bytes) -> YamlFile:
    """The values of a `tool.yaml`; an empty file is an empty mapping. Raises ManifestFault, with the code
    `yaml_invalid` for what is not UTF-8, not YAML 1.2, repeats a key or uses anchors, tags or directives."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise ManifestFault((), f"is larger than {MAX_MANIFEST_BYTES // 1024} KiB", 1)
    try:
        document = read_document(decode_yaml(data), strict=True)
    except YamlFault as fault:
        code = DiagnosticCode.MANIFEST_INVALID if fault.valid else DiagnosticCode.YAML_INVALID
        raise ManifestFault(fault.path, fault.problem, fault.line, code) from None
    value = {} if document.value is None else document.value
    file = YamlFile("", value, document.lines, starts=document.starts)
    if not isinstance(value, dict):
        ManifestProblems(file).expected((), value, "a mapping")
    return file


def check_json(value: Any, path: YamlPath = ()) -> Any:
    """Plain JSON values, as a manifest may hold them. Raises ManifestFault."""
    if len(path) > MAX_DEPTH:
        raise ManifestFault(path[:4], "is too deeply nested", 1)
    try:
        if isinstance(value, (list, tuple)):
            return [check_json(item, (*path, index)) for index, item in enumerate(value)]
        if isinstance(value, dict):
            return {_check_key(key, path): check_json(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, str):
            return check_unicode(value, path, 1)
    except YamlFault as fault:
        raise ManifestFault(fault.path, fault.problem, 1) from None
    if isinstance(value, int) and value.bit_length() > _MOST_DIGITS * math.log2(10):
        raise ManifestFault(path, "is a number with too many digits", 1)
    if value is None or isinstance(value, (int, float)):
        return value
    raise ManifestFault(path, f"must be a JSON value, not {type(value).__name__}", 1)


def _check_key(key: Any, path: YamlPath) -> str:
    if not isinstance(key, str):
        raise ManifestFault(path, "a key must be plain text", 1)
    if len(key) > LONGEST_STRICT_KEY:
        raise ManifestFault(path, f"a key has at most {LONGEST_STRICT_KEY} characters", 1)
    return check_unicode(key, path, 1)


def json_value(value: Any, path: YamlPath, problems: ManifestProblems) -> Any:
    """The JSON value where no key says what it should be."""
    if isinstance(value, dict):
        return {key: json_value(item, (*path, key), problems) for key, item in value.items()}
    if isinstance(value, list):
        return [json_value(item, (*path, index), problems) for index, item in enumerate(value)]
    if isinstance(value, PlainText) and is_no_text(value):
        if len(value) > _MOST_DIGITS and PLAIN_INTEGER.fullmatch(value):
            problems.add(path, "is a number with too many digits")
        made = plain_value(value)
        if isinstance(made, str):  # `.inf`
            problems.add(path, "is not a finite number")
        value = made
    if isinstance(value, float) and not math.isfinite(value):
        problems.add(path, "is not a finite number")
    return str(value) if isinstance(value, PlainText) else value


def string(value: Any, path: YamlPath, problems: ManifestProblems, most: int = 1000) -> str:
    """Checks a text that is kept unchanged: what a program is given or must print."""
    if not isinstance(value, str):
        problems.expected(path, value, "a string")
    if len(value) > most:
        problems.add(path, f"must have at most {most} characters, not {len(value)}")
    return str(value)


def prose(value: Any, path: YamlPath, problems: ManifestProblems, most: int) -> str:
    """Text over several lines that a person and a model read."""
    text = string(value, path, problems, most)
    if count_control_chars(text) and count_control_chars(text.translate(_ALLOWED_MARKS)):
        problems.add(path, "must not contain control or hidden characters other than newline and tab")
    return text


def one_line(value: Any, path: YamlPath, problems: ManifestProblems, most: int) -> str:
    text = string(value, path, problems, most).rstrip("\n")  # a block of one line ends in a newline nobody meant
    if "\n" in text:
        problems.add(path, "must be one line")
    if "\t" in text or count_control_chars(text):
        problems.add(path, "must not contain control, bidi or zero-width characters")
    return text


def not_empty(
    value: Any, path: YamlPath, problems: ManifestProblems, most: int, read: Callable[..., str] = string
) -> str:
    text = read(value, path, problems, most)
    if not text.strip():
        problems.add(path, "must not be empty")
    return text


def number(value: Any, path: YamlPath, problems: ManifestProblems) -> float | int:
    found = None if isinstance(value, (dict, list)) else json_value(value, path, problems)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        problems.expected(path, value, "a number")
    return found


def integer(value: Any, path: YamlPath, problems: ManifestProblems) -> int:
    found = None if isinstance(value, (dict, list)) else json_value(value, path, problems)
    if isinstance(found, bool) or not isinstance(found, int):
        problems.expected(path, value, "an integer")
    return found


def seconds(value: Any, path: YamlPath, problems: ManifestProblems) -> float:
    found = number(value, path, problems)
    if not SHORTEST_TIMEOUT_S <= found <= LONGEST_TIMEOUT_S:
        allowed = f"from {SHORTEST_TIMEOUT_S:g} to {LONGEST_TIMEOUT_S:g}"
        problems.expected(path, value, f"a number of seconds {allowed}")
    return float(found)


def choice(value: Any, path: YamlPath, problems: ManifestProblems, words: type[ChoiceT]) -> ChoiceT:
    if not isinstance(value, str) or value not in tuple(words):
        problems.expected(path, value, f"one of {', '.join(words)}")
    return words(str(value))


def items(value: Any, path: YamlPath, problems: ManifestProblems, most: int) -> Iterator[tuple[Any, YamlPath]]:
    if not isinstance(value, list):
        problems.expected(path, value, "a list")
    if len(value) > most:
        problems.add(path, f"must have at most {most} entries, not {len(value)}")
    return ((item, (*path, index)) for index, item in enumerate(value))


def mapping(value: Any, path: YamlPath, problems: ManifestProblems, most: int = 256) -> dict[str, Any]:
    if not isinstance(value, dict):
        problems.expected(path, value, "a mapping")
    if len(value) > most:
        problems.add(path, f"must have at most {most} keys")
    return value


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
    """Checks what depends on how arguments are passed to the process."""
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
    """Checks the name of a variable that a child may get."""
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
