"""read_manifest: the bytes of a `tool.yaml` in, a ToolManifest out; every rule of the format.

Refuses with Unusable: one code, one message that starts with `tool.yaml:` and names the key, one line. The first
problem in the order of the file is reported; how keys fit together is checked after each is valid by itself. Nothing
is read but these bytes: whether the entrypoint exists is checked with the folder. `manifest_from_values` holds values
that came from no file (what a model asks for) against the same rules.

`tests` are read last: their arguments are read by the types of the parameters. An argument that does not fit its
parameter is kept as written; the run refuses it, and a test may be there to show that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final

from golem_forge.config.schema import Check, MappingSchema, flag
from golem_forge.config.yaml_file import YamlFile, YamlPath
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.tools.validation import SchemaCheck, ToolDefinitionError
from golem_forge.usertools.diagnostics import DiagnosticCode, Unusable, is_reserved, name_problem
from golem_forge.usertools.manifest import (
    MANIFEST_FILE,
    ArgumentStyle,
    BooleanFlags,
    Expectation,
    OutputFormat,
    Parameter,
    TestCase,
    ToolManifest,
)
from golem_forge.usertools.manifest.schema import (
    ManifestFault,
    ManifestProblems,
    check_argument_style,
    check_json,
    check_variable,
    choice,
    integer,
    items,
    json_value,
    mapping,
    not_empty,
    one_line,
    parse_manifest,
    prose,
    read_calls,
    read_env,
    read_network,
    read_parameters,
    read_zones,
    seconds,
    string,
    value_of,
)

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
        return _manifest(parse_manifest(data), folder)
    except ManifestFault as fault:
        raise Unusable(fault.code, f"{MANIFEST_FILE}: {fault}", line=fault.line) from None


def manifest_from_values(given: Mapping[str, Any], folder: str) -> ToolManifest:
    """Builds a manifest from plain values. Raises ManifestFault."""
    return _manifest(YamlFile("", check_json(given), {}), folder)


def _manifest(file: YamlFile, folder: str) -> ToolManifest:
    problems = ManifestProblems(file)

    def name(value: Any, path: YamlPath, problems: ManifestProblems) -> str:
        said = not_empty(value, path, problems, 4096)
        _check_name(said, folder, problems)
        return said

    given: dict[str, Any] = MappingSchema({"name": name, **_KEYS, "tests": _as_it_is}, REQUIRED_KEYS)(
        file.value, (), problems
    )
    style = given.get("arguments", ArgumentStyle.FLAGS)
    check_argument_style(given.get("parameters", ()), ("parameters",), style, problems)
    if "output_schema" in given and given.get("output") is not OutputFormat.JSON:
        line = file.line(("output_schema",))
        problems.add(("output_schema",), "is only used with `output: json`", line=line)
    if given.get("only_paths") and all(each.path is None for each in given.get("parameters", ())):
        line = file.line(("only_paths",))
        problems.add(("only_paths",), "needs a parameter with `path: read` or `path: write`", line=line)
    if "tests" in given:
        given["tests"] = _read_tests(given["tests"], ("tests",), problems, given.get("parameters", ()))
    return ToolManifest(**given)


def _as_it_is(value: Any, path: YamlPath, problems: ManifestProblems) -> Any:
    return value


def _check_name(name: str, folder: str, problems: ManifestProblems) -> None:
    if name != folder:
        problem = (
            f"'{escape_control_chars(name[:80])}' is not the folder's name "
            f"'{escape_control_chars(folder[:80])}'; rename one of the two"
        )
        problems.add(("name",), problem, code=DiagnosticCode.NAME_MISMATCH)
    if problem := name_problem(name):
        problems.add(("name",), problem, code=DiagnosticCode.NAME_INVALID)
    if is_reserved(name):
        problems.add(("name",), f"tool name '{name}' is reserved", code=DiagnosticCode.RESERVED_NAME)


def _entrypoint(value: Any, path: YamlPath, problems: ManifestProblems) -> str:
    name = not_empty(value, path, problems, 4096)
    inside = "/" not in name and "\\" not in name and name not in (".", "..")
    if not inside or escape_control_chars(name) != name or not name.isprintable() or len(name.encode()) > 255:
        problem = f"'{escape_control_chars(name[:80])}' must be the name of a file directly in the tool's folder"
        problems.add(path, problem, code=DiagnosticCode.ENTRYPOINT_INVALID)
    return name


_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def _output_schema(value: Any, path: YamlPath, problems: ManifestProblems) -> dict[str, Any]:
    if not isinstance(value, dict):
        problems.expected(path, value, "a JSON Schema (a mapping)")
    schema: dict[str, Any] = json_value(value, path, problems)
    if str(schema.get("$schema", _DIALECT)).removesuffix("#") != _DIALECT:
        problems.add((*path, "$schema"), f"must be {_DIALECT}", line=problems.file.start(path))
    try:
        SchemaCheck(schema)
    except ToolDefinitionError as error:
        problems.add(path, escape_control_chars(str(error)))
    return schema


def _mode(value: Any, path: YamlPath, problems: ManifestProblems) -> str:
    return choice(value, path, problems, _Mode).value


_KEYS: Final[dict[str, Check]] = {
    "description": partial(not_empty, read=one_line, most=LONGEST_DESCRIPTION),
    "version": partial(not_empty, read=one_line, most=LONGEST_VERSION),
    "entrypoint": _entrypoint,
    "usage": partial(prose, most=LONGEST_USAGE),
    "parameters": read_parameters,
    "arguments": partial(choice, words=ArgumentStyle),
    "boolean_flags": partial(choice, words=BooleanFlags),
    "timeout": seconds,
    "env": read_env,
    "network": read_network,
    "zones": read_zones,
    "only_paths": flag,
    "calls": read_calls,
    "output": partial(choice, words=OutputFormat),
    "output_schema": _output_schema,
    "mode": _mode,
    "label": partial(one_line, most=LONGEST_LABEL),
    "category": partial(one_line, most=LONGEST_LABEL),
    "background": flag,
}
MANIFEST_KEYS: Final = ("name", *_KEYS, "tests")
"""In the order of the format. `tests` come last: their arguments are read by the types of the parameters."""


MOST_TESTS: Final = 64
MOST_FILES: Final = 64
MOST_TEXTS: Final = 64
LONGEST_TEXT: Final = 64 * 1024
LONGEST_NAME: Final = 128
LONGEST_PATTERN: Final = 1024

_RECORDING_FILE: Final = regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*\.json")
_TEXT: Final = partial(string, most=LONGEST_TEXT)


def _read_tests(
    value: Any, path: YamlPath, problems: ManifestProblems, parameters: tuple[Parameter, ...]
) -> tuple[TestCase, ...]:
    by_name = {parameter.name: parameter for parameter in parameters}

    def arguments(value: Any, path: YamlPath, problems: ManifestProblems) -> dict[str, Any]:
        given = mapping(value, path, problems)
        return {name: _argument(item, (*path, name), problems, by_name.get(name)) for name, item in given.items()}

    case = MappingSchema({**_TEST_KEYS, "arguments": arguments}, keys_first=True)
    return tuple(TestCase(**case(item, place, problems)) for item, place in items(value, path, problems, MOST_TESTS))


def _argument(value: Any, path: YamlPath, problems: ManifestProblems, parameter: Parameter | None) -> Any:
    if parameter is not None:
        try:
            return value_of(parameter.type, parameter.items)(value, path, problems)
        except ManifestFault:
            pass
    return json_value(value, path, problems)


def _texts(value: Any, path: YamlPath, problems: ManifestProblems) -> tuple[str, ...]:
    """A list of texts; one text alone is a list of one."""
    if not isinstance(value, list):
        return (_TEXT(value, path, problems),)
    return tuple(_TEXT(item, place, problems) for item, place in items(value, path, problems, MOST_TEXTS))


def _test_env(value: Any, path: YamlPath, problems: ManifestProblems) -> Mapping[str, str]:
    found = _text_mapping(value, path, problems, MOST_TEXTS)
    for name, text in found.items():
        check_variable(name, path, problems)
        if "\0" in text:
            problems.add((*path, name), "must not contain a NUL character", line=problems.file.start(path))
    return found


def _text_mapping(value: Any, path: YamlPath, problems: ManifestProblems, most: int) -> dict[str, str]:
    """Name → text, both as written; the names are for the caller to judge."""
    found = mapping(value, path, problems, most)
    return {name: _TEXT(item, (*path, name), problems) for name, item in found.items()}


def _recording_file(value: Any, path: YamlPath, problems: ManifestProblems) -> str:
    name = string(value, path, problems, LONGEST_NAME)
    if not _RECORDING_FILE.fullmatch(name):
        problems.expected(path, value, "the name of a .json file in the tool's folder")
    return name


def _exit_code(value: Any, path: YamlPath, problems: ManifestProblems) -> int:
    code = integer(value, path, problems)
    if not 0 <= code <= 255:
        problems.expected(path, value, "from 0 to 255")
    return code


def _pattern(value: Any, path: YamlPath, problems: ManifestProblems) -> str:
    pattern = string(value, path, problems, LONGEST_PATTERN)
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        reason = escape_control_chars(str(error))[:100] if isinstance(error, re.error) else "too large"
        problems.add(path, f"is not a regular expression: {reason}")
    return pattern


def _files(value: Any, path: YamlPath, problems: ManifestProblems) -> Mapping[str, str]:
    found = _text_mapping(value, path, problems, MOST_FILES)
    folders = {"/".join(name.split("/")[:end]) for name in found for end in range(1, name.count("/") + 1)}
    for name in found:
        if problem := _file_name_problem(name):
            problems.add(path, f"'{escape_control_chars(name[:80])}' {problem}")
        if name in folders:
            problem = "is a file here and a directory of another file"
            problems.add((*path, name), problem, line=problems.file.start(path))
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


_EXPECTATION: Final = MappingSchema(
    {
        "exit_code": _exit_code,
        "stdout": _TEXT,
        "stdout_contains": _texts,
        "stdout_matches": _pattern,
        "stderr_contains": _texts,
        "json": json_value,
        "files": _files,
    },
    keys_first=True,
)


def _expectation(value: Any, path: YamlPath, problems: ManifestProblems) -> Expectation:
    found: dict[str, Any] = _EXPECTATION(value, path, problems)
    return Expectation(**found, has_json="json" in found)


_TEST_KEYS: Final[dict[str, Check]] = {
    "name": partial(one_line, most=LONGEST_NAME),
    "arguments": _as_it_is,
    "env": _test_env,
    "files": _files,
    "timeout": seconds,
    "calls": _recording_file,
    "expect": _expectation,
}
