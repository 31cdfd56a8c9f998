"""`--set key.path=value`: single values of forge.yaml, said on the command line. They are checked like the file.

Takes the parsed file and the words, gives the file with these values in it, each with its origin (`--set key.path`).
Refuses (ConfigError) words that are no `key.path=value`. A name with dots in it goes in double quotes:
`pricing."openai:gpt-4.1".input=2`. The value is read as YAML: `3`, `true`, `ask`, `[a, b]`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from golem_forge.config.yaml_file import YamlFile, parse_yaml
from golem_forge.core.copying import own_copy
from golem_forge.core.errors import ConfigError

_FLAG: Final = "--set"
_PART: Final = re.compile(r'"([^"]*)"|([^".=]+)')


def is_override(origin: str) -> bool:
    """Whether a value with this origin was said on the command line: by the person, whatever the program is."""
    return origin.startswith(_FLAG + " ")


def with_overrides(file: YamlFile, overrides: Sequence[str]) -> YamlFile:
    if not overrides:
        return file
    problems: list[str] = []
    value: dict[str, Any] = own_copy(file.value)
    elsewhere: dict[tuple[str | int, ...], str] = {}
    for words in overrides:
        try:
            path, said = _parsed(words)
            new = _put(value, path, said)
        except ConfigError as error:
            problems.extend(error.problems)
        else:
            elsewhere |= {path[:end]: f"{_FLAG} {'.'.join(path)}" for end in range(new, len(path) + 1)}
    if problems:
        raise ConfigError(*problems)
    return replace(file, value=value, elsewhere=elsewhere)


def _parsed(words: str) -> tuple[tuple[str, ...], Any]:
    shown = words[:100]
    path: list[str] = []
    place = 0
    while match := _PART.match(words, place):
        path.append(match[1] if match[1] is not None else match[2].strip())
        place = match.end()
        if not words.startswith(".", place):
            break
        place += 1
    if not all(path) or not path or not words.startswith("=", place):
        raise ConfigError(f"{_FLAG} {shown}: expected key.path=value, like {_FLAG} approval.mode=strict")
    text = words[place + 1 :]
    try:
        return tuple(path), parse_yaml(f"value: {text}\n", _FLAG).value.get("value")
    except ConfigError:
        raise ConfigError(f"{_FLAG} {shown}: the value is not YAML; put it in quotes") from None


def _put(value: dict[str, Any], path: tuple[str, ...], said: Any) -> int:
    """Gives how much of the path is there by this word alone, as the length of the shortest such part."""
    new = len(path)
    for depth, part in enumerate(path[:-1], 1):
        below = value.get(part)
        if below is None:
            below = value[part] = {}
            new = min(new, depth)
        if not isinstance(below, dict):
            raise ConfigError(f"{_FLAG} {'.'.join(path)}: {part!r} holds no further keys")
        value = below
    value[path[-1]] = said
    return new
