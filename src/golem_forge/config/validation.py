"""Schemas of YAML files: which keys a mapping may have, what each value is, and every way in which a file differs.

A schema is a `Check`: a function of (value, path, problems) that returns the value to use. `MappingSchema` names the
known keys, `list_of` and `map_of` take the check of an item, `one_of` words, `value_that` any condition. `check`
collects all problems, each as `file:line: path: problem`, with the closest known key for an unknown one, and gives back
only the values that passed.

`ConfigProblems` has the words of every problem that a schema itself finds. A file with other words, or one of which
only the first problem is told, has a subclass (`usertools/manifest/schema.py`).

`ConfigLayer` is what one file of the program says, forge.yaml or the user's own config.yaml. A setting that counts is
found by looking into the user's layer, then into the program's. A block of an untrusted
program is replaced by a stricter one first; what is left keeps its place in the file, so `at` still says where it was
written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from golem_forge.config.yaml_file import PLAIN_CONSTANTS, PlainText, YamlFile, YamlPath
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import closest_match, nearest_hint

if TYPE_CHECKING:
    from golem_forge.config.mcp_blocks import McpFile
    from golem_forge.config.sandbox_block import ZoneEntry


_DURATION: Final = regex(r"([0-9]{1,12})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_SECONDS: Final = 36_500 * 86_400
"""A hundred years. A date this far away can still be written."""
INVALID: Final = object()
"""Stands for a value that did not pass; it is left out of the result."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """A configured value and where it was written (`forge.yaml:7`)."""

    value: T
    origin: str


class ConfigProblems:
    """Collects the problems of one file."""

    nothing_is_empty = True
    """`sandbox:` with nothing after it is an empty mapping."""

    def __init__(self, file: YamlFile) -> None:
        self.file = file
        self.found: list[str] = []

    def add(self, path: YamlPath, problem: str) -> None:
        self.found.append(problem_message(self.file.at(path), dotted_path(path), problem))

    def expected(self, path: YamlPath, value: Any, expected: str) -> None:
        self.add(path, f"expected {expected}, got {_shown(value)}")

    def unknown_key(self, path: YamlPath, key: str, known: Iterable[str]) -> None:
        """Adds a problem for an unknown key. `path`: of the mapping."""
        self.add((*path, key), unknown_key_message(key, known))

    def missing_key(self, path: YamlPath, key: str) -> None:
        self.add(path, f"{key!r} is missing")

    def raise_if_any(self) -> None:
        if self.found:
            raise ConfigError(*self.found)


Check = Callable[[Any, YamlPath, Any], Any]
"""(value, where, problems) → the value to use, or the marker of an invalid one after adding a problem."""


@dataclass(frozen=True, slots=True)
class MappingSchema:
    keys: dict[str, Check]
    required: tuple[str, ...] = field(default=())
    keys_first: bool = False
    """Unknown and missing keys are told before any value is looked at, not each in its turn."""

    def __call__(self, value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
        if value is None and problems.nothing_is_empty:
            value = {}
        if not isinstance(value, dict):
            return refuse(problems, path, value, "a mapping")
        if self.keys_first:
            check_keys(value, path, problems, self.keys, self.required)
        result: dict[str, Any] = {}
        for key, item in value.items():
            if (check := self.keys.get(key)) is not None:
                checked = check(item, (*path, key), problems)
                if checked is not INVALID:
                    result[key] = checked
            elif not self.keys_first:
                problems.unknown_key(path, key, self.keys)
        if not self.keys_first:
            check_keys(value, path, problems, value, self.required)
        return result


def check_keys(
    value: dict[str, Any],
    path: YamlPath,
    problems: ConfigProblems,
    known: Collection[str],
    required: Iterable[str] = (),
) -> None:
    for key in value:
        if key not in known:
            problems.unknown_key(path, key, known)
    for key in required:
        if key not in value:
            problems.missing_key(path, key)


def check(shape: Check, file: YamlFile, problems: ConfigProblems) -> dict[str, Any]:
    result: dict[str, Any] = shape(file.value, (), problems)
    return result


def dotted_path(path: YamlPath) -> str:
    """`rules[0].scope.until`, the way people read it."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def problem_message(at: str, where: str, problem: str) -> str:
    """`forge.yaml:7: approval.mode: problem`; an origin like `--set approval.mode` names the place itself."""
    named = not where or at.endswith(f" {where}")
    return f"{at}: {problem}" if named else f"{at}: {where}: {problem}"


def unknown_key_message(key: str, known: Iterable[str]) -> str:
    names = sorted(known)
    return f"unknown key {key!r}" + nearest_hint(key, names, f"; known: {', '.join(names)}")


def refuse(problems: ConfigProblems, path: YamlPath, value: Any, expected: str) -> Any:
    """Adds the problem; returns the marker that leaves the value out."""
    problems.expected(path, value, expected)
    return INVALID


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def value_that(usable: Callable[[Any], bool], expected: str) -> Check:
    """Returns a check that accepts values for which `usable` holds."""

    def check_value(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
        return value if usable(value) else refuse(problems, path, value, expected)

    return check_value


def whole_between(least: int, most: float, expected: str) -> Check:
    return value_that(lambda value: is_whole(value) and least <= value <= most, expected)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


text: Final = value_that(lambda value: isinstance(value, str) and bool(value), "a text")


def flag(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    said = PLAIN_CONSTANTS.get(value) if isinstance(value, PlainText) else value
    return said if isinstance(said, bool) else refuse(problems, path, value, "true or false")


def positive(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
        return refuse(problems, path, value, "a number above 0")
    return float(value) if value <= _MOST_SECONDS else refuse(problems, path, value, f"at most {_MOST_SECONDS}")


def duration(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    """Converts a time like `30m` to seconds (1800.0)."""
    seconds = time_span(value) if isinstance(value, str) else None
    return refuse(problems, path, value, "a time like 30s, 30m, 12h or 90d") if seconds is None else seconds


def time_span(text: str) -> float | None:
    """Returns the seconds of a time like `30m`; None for another text, and for more than a hundred years."""
    found = _DURATION.fullmatch(text)
    seconds = int(found[1]) * _SECONDS[found[2]] if found is not None else 0
    return float(seconds) if 0 < seconds <= _MOST_SECONDS else None


def one_of(*allowed: str) -> Check:
    def check_word(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
        if value in allowed and isinstance(value, str):
            return value
        close = closest_match(value, allowed) if isinstance(value, str) else None
        return refuse(problems, path, value, f"one of {', '.join(allowed)}" + (f" ({close!r}?)" if close else ""))

    return check_word


VERDICT_CHECK: Final = one_of(*(verdict.value for verdict in Verdict))


def list_of(item: Check) -> Check:
    def check_list(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
        if not isinstance(value, list):
            return refuse(problems, path, value, "a list")
        checked = [item(entry, (*path, index), problems) for index, entry in enumerate(value)]
        return [entry for entry in checked if entry is not INVALID]

    return check_list


def map_of(item: Check) -> Check:
    """A mapping whose keys are names the person chose."""

    def check_map(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
        if not isinstance(value, dict):
            return refuse(problems, path, value, "a mapping")
        checked = {name: item(entry, (*path, name), problems) for name, entry in value.items()}
        return {name: entry for name, entry in checked.items() if entry is not INVALID}

    return check_map


def changed_fields(record: Any, *, without: Collection[str] = (), stated: Collection[str] = ()) -> dict[str, Any]:
    """Returns the fields of a record, in order, that differ from their defaults, as a file would state them. Those in
    `without` are left out, those in `stated` always included.
    """
    changed = {}
    for member in fields(record):
        default = member.default if member.default_factory is MISSING else member.default_factory()
        value = getattr(record, member.name)
        same = value == default and (type(value) is type(default) or isinstance(default, Mapping))  # True is not 1
        if (not same or member.name in stated) and member.name not in without:
            changed[member.name] = value
    return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLayer:
    """The settings of one file; empty without a file."""

    mcp: McpFile
    file: YamlFile = field(default_factory=lambda: YamlFile("", {}, {}))
    data: bytes = b""
    """The bytes that were parsed."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The checked top level; what did not pass the check is not there."""
    folder: Path = Path()
    """The directory that relative paths start from."""
    zones: tuple[ZoneEntry, ...] | None = None
    """None if it names no zones."""

    def block(self, *keys: str) -> dict[str, Any]:
        """A mapping below the top; empty where it says nothing."""
        found: Any = self.values
        for key in keys:
            found = found.get(key) or {}
        return dict(found)

    def at(self, *path: str | int) -> str:
        """Returns where a setting is written, e.g. `forge.yaml:7`."""
        return self.file.at(path)

    def setting(self, *path: str) -> Setting[Any] | None:
        *above, key = path
        block = self.block(*above)
        return Setting(block[key], self.at(*path)) if key in block else None

    def with_blocks(self, blocks: Mapping[str, Any]) -> ConfigLayer:
        """The layer with these blocks instead of its own; of those that it has."""
        return replace(self, values={key: blocks.get(key, said) for key, said in self.values.items()})
