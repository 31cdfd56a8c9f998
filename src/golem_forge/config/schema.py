"""Schemas of configuration files: which keys a mapping may have, and every way in which a file differs.

A `MappingSchema` names the known keys and a check for each. `check` collects all problems, each as `file:line: path:
problem`, with the closest known key for an unknown one, and gives back only the values that passed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

from golem_forge.config.yaml_file import YamlFile, YamlPath
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import closest_match

_INVALID: Final = object()
"""Stands for a value that did not pass; it is left out of the result."""


class ConfigProblems:
    """Collects problems of one file."""

    def __init__(self, file: YamlFile) -> None:
        self.file = file
        self.found: list[str] = []

    def add(self, path: YamlPath, problem: str) -> None:
        at, where = self.file.at(path), dotted_path(path)
        named = not where or at.endswith(f" {where}")  # `--set approval.mod` names the place itself
        self.found.append(f"{at}: {problem}" if named else f"{at}: {where}: {problem}")

    def raise_if_any(self) -> None:
        if self.found:
            raise ConfigError(*self.found)


Check = Callable[[Any, YamlPath, ConfigProblems], Any]
"""(value, where, problems) → the value to use, or the marker of an invalid one after adding a problem."""


@dataclass(frozen=True, slots=True)
class MappingSchema:
    keys: dict[str, Check]
    required: tuple[str, ...] = field(default=())

    def __call__(self, value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
        if value is None:  # `sandbox:` with nothing after it
            value = {}
        if not isinstance(value, dict):
            return refuse(problems, path, value, "a mapping")
        result: dict[str, Any] = {}
        for key, item in value.items():
            check = self.keys.get(key)
            if check is None:
                problems.add((*path, key), unknown_key_message(key, self.keys))
                continue
            checked = check(item, (*path, key), problems)
            if checked is not _INVALID:
                result[key] = checked
        for key in self.required:
            if key not in value:
                problems.add(path, f"{key!r} is missing")
        return result


def check(shape: Check, file: YamlFile, problems: ConfigProblems) -> dict[str, Any]:
    result: dict[str, Any] = shape(file.value, (), problems)
    return result


def dotted_path(path: YamlPath) -> str:
    """`rules[0].scope.until`, the way people read it."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def unknown_key_message(key: str, known: Iterable[str]) -> str:
    known = tuple(known)
    close = closest_match(key, known)
    hint = f"did you mean {close!r}?" if close else f"known: {', '.join(sorted(known))}"
    return f"unknown key {key!r}; {hint}"


def refuse(problems: ConfigProblems, path: YamlPath, value: Any, expected: str) -> Any:
    """Adds the problem; returns the marker that leaves the value out."""
    problems.add(path, f"expected {expected}, got {_shown(value)}")
    return _INVALID


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def text(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    return value if isinstance(value, str) and value else refuse(problems, path, value, "a text")


def flag(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    return value if isinstance(value, bool) else refuse(problems, path, value, "true or false")


def positive(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
    return float(value) if usable else refuse(problems, path, value, "a number above 0")


def one_of(*allowed: str) -> Check:
    def check_word(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
        if value in allowed and isinstance(value, str):
            return value
        close = closest_match(value, allowed) if isinstance(value, str) else None
        return refuse(problems, path, value, f"one of {', '.join(allowed)}" + (f" ({close!r}?)" if close else ""))

    return check_word


def list_of(item: Check) -> Check:
    def check_list(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
        if not isinstance(value, list):
            return refuse(problems, path, value, "a list")
        checked = [item(entry, (*path, index), problems) for index, entry in enumerate(value)]
        return [entry for entry in checked if entry is not _INVALID]

    return check_list


def map_of(item: Check) -> Check:
    """A mapping whose keys are names the person chose."""

    def check_map(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
        if not isinstance(value, dict):
            return refuse(problems, path, value, "a mapping")
        checked = {name: item(entry, (*path, name), problems) for name, entry in value.items()}
        return {name: entry for name, entry in checked.items() if entry is not _INVALID}

    return check_map
