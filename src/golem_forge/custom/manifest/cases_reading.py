"""The `tests` of a manifest as TestCases.

Takes the node and the parameters, since a test's arguments are read by their parameters' types. An argument that does
not fit its parameter is kept as written: it is the run that refuses it, and a test may be there to show that.
Refuses (Fault) unknown keys, names of files that would leave the test's own workspace, a pattern that does not compile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from golem_forge.core.visible import visible
from golem_forge.custom.manifest import LONGEST_TIMEOUT_S, Expectation, Parameter, TestCase
from golem_forge.custom.manifest.node_reading import (
    exact,
    fields,
    integer,
    items,
    mapping,
    one_line,
    plain_value,
    seconds,
    texts,
)
from golem_forge.custom.manifest.nodes import Fault, Items, Node, Place
from golem_forge.custom.manifest.parameter_reading import typed_value
from golem_forge.custom.manifest.reach_reading import check_variable

MOST_TESTS: Final = 64
MOST_FILES: Final = 64
MOST_TEXTS: Final = 64
LONGEST_TEXT: Final = 64 * 1024
LONGEST_NAME: Final = 128
LONGEST_PATTERN: Final = 1024
SHORTEST_TIMEOUT_S: Final = 0.1

_KNOWN: Final = ("name", "arguments", "env", "files", "timeout", "expect")
_EXPECTED: Final = ("exit_code", "stdout", "stdout_contains", "stdout_matches", "stderr_contains", "json", "files")


def read_tests(node: Node, place: Place, parameters: tuple[Parameter, ...]) -> tuple[TestCase, ...]:
    by_name = {parameter.name: parameter for parameter in parameters}
    return tuple(_case(item, (*place, index), by_name) for index, item in enumerate(items(node, place, MOST_TESTS)))


def _case(node: Node, place: Place, parameters: Mapping[str, Parameter]) -> TestCase:
    given: dict[str, Any] = {}
    for key, item in fields(node, place, _KNOWN).items():
        at: Place = (*place, key)
        if key == "name":
            given[key] = one_line(item, at, LONGEST_NAME)
        elif key == "arguments":
            given[key] = {
                name: _argument(value, (*at, name), parameters.get(name))
                for name, value in mapping(item, at).nodes.items()
            }
        elif key == "env":
            given[key] = _env(item, at)
        elif key == "files":
            given[key] = _files(item, at)
        elif key == "timeout":
            given[key] = seconds(item, at, SHORTEST_TIMEOUT_S, LONGEST_TIMEOUT_S)
        else:
            given[key] = _expectation(item, at)
    return TestCase(**given)


def _argument(node: Node, place: Place, parameter: Parameter | None) -> Any:
    if parameter is not None:
        try:
            return typed_value(node, place, parameter.type, parameter.items)
        except Fault:
            pass
    return plain_value(node, place)


def _env(node: Node, place: Place) -> Mapping[str, str]:
    found = texts(node, place, entries=MOST_TEXTS, most=LONGEST_TEXT)
    for name, value in found.items():
        check_variable(name, place, node.line)
        if "\0" in value:
            raise Fault((*place, name), "must not contain a NUL character", node.line)
    return found


def _expectation(node: Node, place: Place) -> Expectation:
    given: dict[str, Any] = {}
    for key, item in fields(node, place, _EXPECTED).items():
        at: Place = (*place, key)
        if key == "exit_code":
            given[key] = integer(item, at)
            if not 0 <= given[key] <= 255:
                raise Fault(at, "must be from 0 to 255", item.line)
        elif key == "stdout":
            given[key] = exact(item, at, LONGEST_TEXT)
        elif key == "stdout_matches":
            given[key] = _pattern(item, at)
        elif key == "json":
            given.update(has_json=True, json=plain_value(item, at))
        elif key == "files":
            given[key] = _files(item, at)
        else:
            given[key] = _parts(item, at)
    return Expectation(**given)


def _parts(node: Node, place: Place) -> tuple[str, ...]:
    """A list of texts; one text alone is a list of one."""
    if not isinstance(node, Items):
        return (exact(node, place, LONGEST_TEXT),)
    found = items(node, place, MOST_TEXTS)
    return tuple(exact(item, (*place, index), LONGEST_TEXT) for index, item in enumerate(found))


def _pattern(node: Node, place: Place) -> str:
    import re

    pattern = exact(node, place, LONGEST_PATTERN)
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        reason = visible(str(error))[:100] if isinstance(error, re.error) else "too large"
        raise Fault(place, f"is not a regular expression: {reason}", node.line) from None
    return pattern


def _files(node: Node, place: Place) -> Mapping[str, str]:
    found = texts(node, place, entries=MOST_FILES, most=LONGEST_TEXT)
    folders = {"/".join(name.split("/")[:end]) for name in found for end in range(1, name.count("/") + 1)}
    for name in found:
        if problem := _file_name_problem(name):
            raise Fault(place, f"'{visible(name[:80])}' {problem}", node.line)
        if name in folders:
            raise Fault((*place, name), "is a file here and a directory of another file", node.line)
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
