"""Manifest: what a `tool.yaml` says, as plain data. `manifest.tool_yaml` reads and writes it.

A manifest cannot loosen policy: it declares what a run needs, and the person who is asked sees that.

`input_schema` is the JSON Schema of the parameters: what a model and a form see and every call is validated against.
Strict, in declared order; the same manifest always gives the same bytes. `manifest_to_json` and `manifest_from_json`
serve the registry's cache; the second checks no rule, so its caller compares the result with the YAML first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from golem_forge.core.lazy_dataclass import dataclass, field

MANIFEST_FILE: Final = "tool.yaml"
DEFAULT_TIMEOUT_S: Final = 30.0
LONGEST_TIMEOUT_S: Final = 3600.0
DEFAULT_TEST_TIMEOUT_S: Final = 10.0

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


class ParameterType(StrEnum):
    STRING = "string"
    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    ARRAY = "array"
    OBJECT = "object"


class ArgumentStyle(StrEnum):
    """How arguments are passed to the process."""

    FLAGS = "flags"
    STDIN_JSON = "stdin-json"
    ENV = "env"


class BooleanFlags(StrEnum):
    EQUALS = "equals"
    """`--v=true`, `--v=false`"""
    SWITCH = "switch"
    """`--v`, nothing"""
    PAIR = "pair"
    """`--v`, `--no-v`"""


class PathUse(StrEnum):
    READ = "read"
    WRITE = "write"


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    name: str
    type: ParameterType
    description: str
    required: bool = False
    has_default: bool = False
    default: Any = None
    enum: tuple[Any, ...] = ()
    min: float | int | None = None
    max: float | int | None = None
    pattern: str = ""
    items: ParameterType = ParameterType.STRING
    """The item type of an array."""
    flag: BooleanFlags | None = None
    """None means the manifest's `boolean_flags`."""
    path: PathUse | None = None
    """Its value is a zone address that the tool reads or writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvVariable:
    name: str
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    exit_code: int = 0
    stdout: str | None = None
    stdout_contains: tuple[str, ...] = ()
    stdout_matches: str | None = None
    stderr_contains: tuple[str, ...] = ()
    has_json: bool = False
    json: Any = None
    files: Mapping[str, str] = field(default_factory=lambda: _EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCase:
    __test__ = False  # not one of ours for pytest

    name: str = ""
    """If empty, the case is named by its number, `test 1`."""
    arguments: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    env: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    files: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    timeout: float = DEFAULT_TEST_TIMEOUT_S
    calls: str = ""
    """A file of the tool's folder with recorded calls, which are answered as they were."""
    expect: Expectation = field(default_factory=Expectation)


def is_real_test(case: TestCase) -> bool:
    """Whether it says what must come out; that a program ends well says little."""
    return bool(case.calls) or case.expect != Expectation()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolManifest:
    name: str
    description: str
    version: str
    entrypoint: str
    usage: str = ""
    parameters: tuple[Parameter, ...] = ()
    arguments: ArgumentStyle = ArgumentStyle.FLAGS
    boolean_flags: BooleanFlags = BooleanFlags.EQUALS
    timeout: float = DEFAULT_TIMEOUT_S
    env: tuple[EnvVariable, ...] = ()
    network: bool | tuple[str, ...] = False
    """True: the host's own network; a tuple: these `host` or `host:port` and no others."""
    zones: Mapping[str, str] | None = None
    """Zone → `ro` or `rw`; None: every zone of the worker, read-only."""
    only_paths: bool = False
    """Whether it sees only the files in the zones that its `path` arguments name."""
    calls: tuple[str, ...] = ()
    output: OutputFormat = OutputFormat.TEXT
    output_schema: Mapping[str, Any] | None = None
    mode: str = "both"
    label: str = ""
    category: str = ""
    background: bool = False
    tests: tuple[TestCase, ...] = ()


_Types = Mapping[str, Callable[[Any], Any]]
_BOUNDS: Final = {
    ParameterType.NUMBER: ("minimum", "maximum"),
    ParameterType.INTEGER: ("minimum", "maximum"),
    ParameterType.STRING: ("minLength", "maxLength"),
    ParameterType.ARRAY: ("minItems", "maxItems"),
}


def input_schema(manifest: ToolManifest) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {parameter.name: parameter_schema(parameter) for parameter in manifest.parameters},
    }
    if required := [parameter.name for parameter in manifest.parameters if parameter.required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def parameter_schema(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.type.value, "description": parameter.description}
    if parameter.type is ParameterType.ARRAY:
        schema["items"] = {"type": parameter.items.value}
    if parameter.enum:
        schema["enum"] = list(parameter.enum)
    least, most = _BOUNDS.get(parameter.type, ("", ""))
    if parameter.min is not None:
        schema[least] = parameter.min
    if parameter.max is not None:
        schema[most] = parameter.max
    if parameter.pattern:
        schema["pattern"] = parameter.pattern
    if parameter.has_default:
        schema["default"] = parameter.default
    return schema


def manifest_to_json(manifest: ToolManifest) -> dict[str, Any]:
    plain: dict[str, Any] = _to_plain(manifest)
    return plain


def manifest_from_json(data: Mapping[str, Any]) -> ToolManifest:
    return ToolManifest(**_convert(data, _MANIFEST_TYPES))


def argument_variable(name: str) -> str:
    """The variable that carries a parameter with `arguments: env`."""
    return f"FORGE_ARG_{name.upper().replace('-', '_')}"


def _convert(data: Mapping[str, Any], types: _Types) -> dict[str, Any]:
    return {key: types[key](value) if key in types else value for key, value in data.items()}


_EXPECTATION_TYPES: Final[_Types] = {"stdout_contains": tuple, "stderr_contains": tuple}
_TEST_TYPES: Final[_Types] = {"expect": lambda data: Expectation(**_convert(data, _EXPECTATION_TYPES))}
_PARAMETER_TYPES: Final[_Types] = {
    "type": ParameterType,
    "enum": tuple,
    "items": ParameterType,
    "flag": BooleanFlags,
    "path": PathUse,
}
_MANIFEST_TYPES: Final[_Types] = {
    "parameters": lambda found: tuple(Parameter(**_convert(each, _PARAMETER_TYPES)) for each in found),
    "arguments": ArgumentStyle,
    "boolean_flags": BooleanFlags,
    "env": lambda found: tuple(EnvVariable(**each) for each in found),
    "network": lambda found: found if isinstance(found, bool) else tuple(found),
    "calls": tuple,
    "output": OutputFormat,
    "tests": lambda found: tuple(TestCase(**_convert(each, _TEST_TYPES)) for each in found),
}


def _to_plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        held = ((each, getattr(value, each.name)) for each in fields(value))
        return {
            each.name: _to_plain(item)
            for each, item in held
            # True is not 1 here, nor 30 the same as 30.0.
            if type(item) is not type(each.default) or item != each.default
        }
    if isinstance(value, Mapping):
        return {key: _to_plain(item) for key, item in value.items()}
    return [_to_plain(item) for item in value] if isinstance(value, list | tuple) else value
