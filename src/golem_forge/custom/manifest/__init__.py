"""Manifest: what a `tool.yaml` says, as plain data. Read and checked by `manifest_reading`, written by `manifest_text`.

Nothing in it can loosen policy: it declares what a run needs, and whoever is asked sees that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

MANIFEST: Final = "tool.yaml"
DEFAULT_TIMEOUT_S: Final = 30.0
LONGEST_TIMEOUT_S: Final = 3600.0
DEFAULT_TEST_TIMEOUT_S: Final = 10.0

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class ParameterType(StrEnum):
    STRING = "string"
    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    ARRAY = "array"
    OBJECT = "object"


class ArgumentStyle(StrEnum):
    """How values reach the process."""

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


class OutputForm(StrEnum):
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
    """Of an array."""
    flag: BooleanFlags | None = None
    """None: as the manifest's `boolean_flags` says."""
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
    files: Mapping[str, str] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCase:
    __test__ = False  # not one of ours for pytest

    name: str = ""
    """Empty: it is known by its place, `test 1`."""
    arguments: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    env: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    files: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    timeout: float = DEFAULT_TEST_TIMEOUT_S
    expect: Expectation = field(default_factory=Expectation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
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
    calls: tuple[str, ...] = ()
    output: OutputForm = OutputForm.TEXT
    output_schema: Mapping[str, Any] | None = None
    mode: str = "both"
    label: str = ""
    category: str = ""
    background: bool = False
    tests: tuple[TestCase, ...] = ()
