"""read_manifest: the bytes of a `tool.yaml` in, a ToolManifest out; every rule of the format.

Refuses with Unusable: one code, one message that starts with `tool.yaml:` and names the key, one line. The first
problem in the order of the file is reported; how keys fit together is checked after each is valid by itself. Nothing
is read but these bytes: whether the entrypoint exists is checked with the folder. `manifest_from_nodes` holds nodes
that came from no file (what a model asks for) against the same rules.

`tests` are read last: their arguments are read by the types of the parameters. An argument that does not fit its
parameter is kept as written; the run refuses it, and a test may be there to show that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from golem_forge.core.text import escape_control_chars
from golem_forge.usertools.diagnostics import DiagnosticCode, Unusable, is_reserved, name_problem
from golem_forge.usertools.manifest import (
    LONGEST_TIMEOUT_S,
    MANIFEST_FILE,
    ArgumentStyle,
    BooleanFlags,
    Expectation,
    OutputFormat,
    Parameter,
    TestCase,
    ToolManifest,
)
from golem_forge.usertools.manifest.keys import (
    check_argument_style,
    check_variable_name,
    read_calls,
    read_env,
    read_network,
    read_parameters,
    read_zones,
    typed_value,
)
from golem_forge.usertools.manifest.nodes import (
    Fields,
    Items,
    KeyPath,
    ManifestFault,
    Node,
    as_boolean,
    as_choice,
    as_integer,
    as_json_value,
    as_line,
    as_list,
    as_mapping,
    as_prose,
    as_seconds,
    as_text,
    as_text_mapping,
    parse_yaml_nodes,
    read_mapping,
    require_text,
)

SHORTEST_TIMEOUT_S: Final = 0.1
LONGEST_DESCRIPTION: Final = 1024
LONGEST_VERSION: Final = 64
LONGEST_USAGE: Final = 8192
LONGEST_LABEL: Final = 128

REQUIRED_KEYS: Final = ("name", "description", "version", "entrypoint")


class _Mode(StrEnum):
    LLM = "llm"
    MANUAL = "manual"
    BOTH = "both"


def read_manifest(data: bytes, *, folder: str) -> ToolManifest:
    """`folder`: the name of the folder it stands in, which must be the tool's."""
    try:
        return manifest_from_nodes(parse_yaml_nodes(data), folder)
    except ManifestFault as fault:
        raise Unusable(fault.code, f"{MANIFEST_FILE}: {fault}", line=fault.line) from None


def manifest_from_nodes(top: Fields, folder: str) -> ToolManifest:
    """Raises ManifestFault."""
    given: dict[str, Any] = {}
    for key, node in top.nodes.items():
        read = _KEY_READERS.get(key)
        if read is not None:
            given[key] = read(node, (key,))
            if key == "name":
                _check_name(given[key], folder, node.line)
        elif key != "tests":
            read_mapping(top, (), (*_KEY_READERS, "tests"))
    read_mapping(top, (), top.nodes, REQUIRED_KEYS)
    if "parameters" in given:
        style = given.get("arguments", ArgumentStyle.FLAGS)
        check_argument_style(top.nodes["parameters"], ("parameters",), given["parameters"], style)
    if "output_schema" in given and given.get("output") is not OutputFormat.JSON:
        raise ManifestFault(("output_schema",), "is only used with `output: json`", top.lines["output_schema"])
    if tests := top.nodes.get("tests"):
        given["tests"] = read_tests(tests, ("tests",), given.get("parameters", ()))
    return ToolManifest(**given)


def _check_name(name: str, folder: str, line: int) -> None:
    if name != folder:
        problem = (
            f"'{escape_control_chars(name[:80])}' is not the folder's name "
            f"'{escape_control_chars(folder[:80])}'; rename one of the two"
        )
        raise ManifestFault(("name",), problem, line, DiagnosticCode.NAME_MISMATCH)
    if problem := name_problem(name):
        raise ManifestFault(("name",), problem, line, DiagnosticCode.NAME_INVALID)
    if is_reserved(name):
        raise ManifestFault(("name",), f"tool name '{name}' is reserved", line, DiagnosticCode.RESERVED_NAME)


def _not_empty(read: Callable[[Node, KeyPath, int], str], most: int) -> Callable[[Node, KeyPath], str]:
    return lambda node, place: require_text(read(node, place, most), place, node.line)


def _read_entrypoint(node: Node, place: KeyPath) -> str:
    name = require_text(as_text(node, place, 4096), place, node.line)
    inside = "/" not in name and "\\" not in name and name not in (".", "..")
    if not inside or escape_control_chars(name) != name or not name.isprintable() or len(name.encode()) > 255:
        problem = f"'{escape_control_chars(name[:80])}' must be the name of a file directly in the tool's folder"
        raise ManifestFault(place, problem, node.line, DiagnosticCode.ENTRYPOINT_INVALID)
    return name


def _read_output_schema(node: Node, place: KeyPath) -> dict[str, Any]:
    from golem_forge.tools.validation import SchemaCheck, ToolDefinitionError

    if not isinstance(node, Fields):
        raise ManifestFault(place, "must be a JSON Schema (a mapping)", node.line)
    schema: dict[str, Any] = as_json_value(node, place)
    declared = schema.get("$schema", "https://json-schema.org/draft/2020-12/schema")
    if str(declared).removesuffix("#") != "https://json-schema.org/draft/2020-12/schema":
        raise ManifestFault((*place, "$schema"), "must be https://json-schema.org/draft/2020-12/schema", node.line)
    try:
        SchemaCheck(schema)
    except ToolDefinitionError as error:
        raise ManifestFault(place, escape_control_chars(str(error)), node.line) from None
    return schema


_KEY_READERS: Final[dict[str, Callable[[Node, KeyPath], Any]]] = {
    "name": _not_empty(as_text, 4096),
    "description": _not_empty(as_line, LONGEST_DESCRIPTION),
    "version": _not_empty(as_line, LONGEST_VERSION),
    "entrypoint": _read_entrypoint,
    "usage": lambda node, place: as_prose(node, place, LONGEST_USAGE),
    "parameters": read_parameters,
    "arguments": lambda node, place: as_choice(node, place, ArgumentStyle),
    "boolean_flags": lambda node, place: as_choice(node, place, BooleanFlags),
    "timeout": lambda node, place: as_seconds(node, place, SHORTEST_TIMEOUT_S, LONGEST_TIMEOUT_S),
    "env": read_env,
    "network": read_network,
    "zones": read_zones,
    "calls": read_calls,
    "output": lambda node, place: as_choice(node, place, OutputFormat),
    "output_schema": _read_output_schema,
    "mode": lambda node, place: as_choice(node, place, _Mode).value,
    "label": lambda node, place: as_line(node, place, LONGEST_LABEL),
    "category": lambda node, place: as_line(node, place, LONGEST_LABEL),
    "background": as_boolean,
}
"""In the order of the format. `tests` come last: their arguments are read by the types of the parameters."""


MOST_TESTS: Final = 64
MOST_FILES: Final = 64
MOST_TEXTS: Final = 64
LONGEST_TEXT: Final = 64 * 1024
LONGEST_NAME: Final = 128
LONGEST_PATTERN: Final = 1024

_TEST_KEYS: Final = ("name", "arguments", "env", "files", "timeout", "expect")
_EXPECTATION_KEYS: Final = (
    *("exit_code", "stdout", "stdout_contains", "stdout_matches", "stderr_contains", "json", "files"),
)


def read_tests(node: Node, place: KeyPath, parameters: tuple[Parameter, ...]) -> tuple[TestCase, ...]:
    by_name = {parameter.name: parameter for parameter in parameters}
    return tuple(
        _read_case(item, (*place, index), by_name) for index, item in enumerate(as_list(node, place, MOST_TESTS))
    )


def _read_case(node: Node, place: KeyPath, parameters: Mapping[str, Parameter]) -> TestCase:
    given: dict[str, Any] = {}
    for key, item in read_mapping(node, place, _TEST_KEYS).items():
        at: KeyPath = (*place, key)
        if key == "name":
            given[key] = as_line(item, at, LONGEST_NAME)
        elif key == "arguments":
            given[key] = {
                name: _read_argument(value, (*at, name), parameters.get(name))
                for name, value in as_mapping(item, at).nodes.items()
            }
        elif key == "env":
            given[key] = _read_test_env(item, at)
        elif key == "files":
            given[key] = _read_files(item, at)
        elif key == "timeout":
            given[key] = as_seconds(item, at, SHORTEST_TIMEOUT_S, LONGEST_TIMEOUT_S)
        else:
            given[key] = _read_expectation(item, at)
    return TestCase(**given)


def _read_argument(node: Node, place: KeyPath, parameter: Parameter | None) -> Any:
    if parameter is not None:
        try:
            return typed_value(node, place, parameter.type, parameter.items)
        except ManifestFault:
            pass
    return as_json_value(node, place)


def _read_test_env(node: Node, place: KeyPath) -> Mapping[str, str]:
    found = as_text_mapping(node, place, entries=MOST_TEXTS, most=LONGEST_TEXT)
    for name, value in found.items():
        check_variable_name(name, place, node.line)
        if "\0" in value:
            raise ManifestFault((*place, name), "must not contain a NUL character", node.line)
    return found


def _read_expectation(node: Node, place: KeyPath) -> Expectation:
    given: dict[str, Any] = {}
    for key, item in read_mapping(node, place, _EXPECTATION_KEYS).items():
        at: KeyPath = (*place, key)
        if key == "exit_code":
            given[key] = as_integer(item, at)
            if not 0 <= given[key] <= 255:
                raise ManifestFault(at, "must be from 0 to 255", item.line)
        elif key == "stdout":
            given[key] = as_text(item, at, LONGEST_TEXT)
        elif key == "stdout_matches":
            given[key] = _read_pattern(item, at)
        elif key == "json":
            given.update(has_json=True, json=as_json_value(item, at))
        elif key == "files":
            given[key] = _read_files(item, at)
        else:
            given[key] = _read_parts(item, at)
    return Expectation(**given)


def _read_parts(node: Node, place: KeyPath) -> tuple[str, ...]:
    """A list of texts; one text alone is a list of one."""
    if not isinstance(node, Items):
        return (as_text(node, place, LONGEST_TEXT),)
    found = as_list(node, place, MOST_TEXTS)
    return tuple(as_text(item, (*place, index), LONGEST_TEXT) for index, item in enumerate(found))


def _read_pattern(node: Node, place: KeyPath) -> str:
    pattern = as_text(node, place, LONGEST_PATTERN)
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        reason = escape_control_chars(str(error))[:100] if isinstance(error, re.error) else "too large"
        raise ManifestFault(place, f"is not a regular expression: {reason}", node.line) from None
    return pattern


def _read_files(node: Node, place: KeyPath) -> Mapping[str, str]:
    found = as_text_mapping(node, place, entries=MOST_FILES, most=LONGEST_TEXT)
    folders = {"/".join(name.split("/")[:end]) for name in found for end in range(1, name.count("/") + 1)}
    for name in found:
        if problem := _file_name_problem(name):
            raise ManifestFault(place, f"'{escape_control_chars(name[:80])}' {problem}", node.line)
        if name in folders:
            raise ManifestFault((*place, name), "is a file here and a directory of another file", node.line)
    return found


def _file_name_problem(name: str) -> str:
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "must be a path inside the test's workspace: relative, without '.' and '..'"
    if len(name.encode()) > 1024 or any(len(part.encode()) > 255 for part in parts):
        return "is too long for a file's name"
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return "must not contain control characters"
    return ""
