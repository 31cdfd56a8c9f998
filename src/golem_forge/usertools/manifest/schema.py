"""How a manifest is checked: the words of its problems, and the kinds of values that it has.

Of a manifest only the first problem is told: ManifestProblems raises ManifestFault, with path, line and code. A value
is what the strict form of `config.yaml_file` gives, or JSON from a model: a `PlainText` may be text, a number or a
boolean, whatever its key wants; a JSON number is never text. Everything has a bound.

Threat: the author chooses what a person and a model read. Text that names or describes is one line without characters
that steer a terminal or hide words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any, Final, NoReturn, TypeVar

from golem_forge.config.schema import ConfigProblems, dotted_path
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
from golem_forge.core.text import closest_match, count_control_chars, escape_control_chars
from golem_forge.usertools.diagnostics import DiagnosticCode
from golem_forge.usertools.manifest import LONGEST_TIMEOUT_S

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
        """On one line, whatever it quotes: another line would read as somebody else's."""
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
    """Any text, character for character: what a program is given or must print."""
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
    """Each item of a list with its path."""
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
