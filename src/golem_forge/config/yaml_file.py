"""Strict YAML files: their values with the line of each, and `--set` overrides. `yaml_edit` edits a text.

`read_yaml` and `parse_yaml` give a `YamlFile`. They raise ConfigError, `file:line: problem`, for a file that cannot be
read, is not UTF-8, is larger than 1 MiB, is not one mapping, repeats a key, uses a custom tag, or expands (by aliases
or nesting) to more than a configuration can be.

`with_overrides` puts `--set key.path=value` words into a parsed file, each with its origin (`--set key.path`); the
values are read as YAML and checked like the file. A name with dots goes in double quotes:
`pricing."openai:gpt-4.1".input=2`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from golem_forge.config.yaml_reader import YamlDocument, YamlFault, decode_yaml, read_document
from golem_forge.config.yaml_reader import YamlPath as YamlPath
from golem_forge.core.errors import ConfigError
from golem_forge.core.json import copy_json
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex

MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class YamlFile:
    name: str
    """As the person knows it: `forge.yaml`, `~/.forge/rules.yaml`."""
    value: dict[str, Any]
    lines: dict[YamlPath, int]
    """Of a mapping's value: the line of its key."""
    elsewhere: dict[YamlPath, str] = field(default_factory=dict)
    """Values that are not in the file, and what said them (`--set approval.mode`); `()` where there is no file."""
    starts: dict[YamlPath, int] = field(default_factory=dict)
    """The line on which a value itself begins, where that is not the one of its key."""

    def line(self, path: YamlPath) -> int:
        """The line of a value, or of the nearest value around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def start(self, path: YamlPath) -> int:
        """The line on which a value itself begins."""
        return self.starts.get(path) or self.line(path)

    def at(self, path: YamlPath) -> str:
        """`forge.yaml:7`, to start an error with or to say where a value comes from."""
        for end in range(len(path), -1, -1) if self.elsewhere else ():
            if said := self.elsewhere.get(path[:end]):
                return said
        return f"{self.name}:{self.line(path)}"


def read_bytes(path: str | os.PathLike[str], name: str, *, inside: Path | None = None) -> bytes:
    """The whole file, never more than the limit; a fifo or a directory is refused, not waited for.

    `inside`: a real directory; a file that lies elsewhere is refused. Its place is asked of the open handle, so what is
    checked is what is read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ConfigError(f"{name}: file not found") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: cannot be read ({getattr(error, 'strerror', '') or 'bad name'})") from None
    try:
        if inside is not None and not Path(os.readlink(f"/proc/self/fd/{handle}")).is_relative_to(inside):
            raise ConfigError(
                f"{name}: is reached through a link that leads outside the program; put the file itself there"
            )
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ConfigError(f"{name}: is not a regular file")
        with open(handle, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read ({error.strerror})") from None
    finally:
        os.close(handle)
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{name}: is larger than {MAX_BYTES} bytes")
    return data


def read_yaml(path: str | os.PathLike[str], name: str) -> YamlFile:
    return parse_yaml(read_bytes(path, name), name)


def parse_yaml(data: bytes | str, name: str) -> YamlFile:
    """A file that is one mapping. An empty file is an empty one."""
    document = parse_document(data, name)
    if document.value is None:
        return YamlFile(name, {}, {})
    if not isinstance(document.value, dict):
        raise ConfigError(f"{name}:{document.lines[()]}: expected a mapping (`key: value` lines)")
    return YamlFile(name, document.value, document.lines)


def parse_document(data: bytes | str, name: str) -> YamlDocument:
    """A file that may hold any one value; None for an empty one."""
    try:
        text = data if isinstance(data, str) else decode_yaml(data)
        if len(text) > MAX_BYTES:
            raise ConfigError(f"{name}: is larger than {MAX_BYTES} bytes")
        document = read_document(text)
    except YamlFault as fault:
        raise ConfigError(f"{name}:{fault.line}: {fault.problem}") from None
    if document.problems:
        raise ConfigError(*(f"{name}:{line}: {problem}" for line, problem in document.problems))
    return document


_SET_FLAG: Final = "--set"
_KEY_PART: Final = regex(r'"([^"]*)"|([^".=]+)')


def is_override(origin: str) -> bool:
    """Whether a value with this origin was said on the command line: by the person, whatever the program is."""
    return origin.startswith(_SET_FLAG + " ")


def with_overrides(file: YamlFile, overrides: Sequence[str]) -> YamlFile:
    if not overrides:
        return file
    problems: list[str] = []
    value: dict[str, Any] = copy_json(file.value)
    elsewhere: dict[tuple[str | int, ...], str] = {}
    for words in overrides:
        try:
            path, said = _parse_override(words)
            new = _set_value(value, path, said)
        except ConfigError as error:
            problems.extend(error.problems)
        else:
            elsewhere |= {path[:end]: f"{_SET_FLAG} {'.'.join(path)}" for end in range(new, len(path) + 1)}
    if problems:
        raise ConfigError(*problems)
    return replace(file, value=value, elsewhere=elsewhere)


def _parse_override(words: str) -> tuple[tuple[str, ...], Any]:
    shown = words[:100]
    path: list[str] = []
    place = 0
    while match := _KEY_PART.match(words, place):
        path.append(match[1] if match[1] is not None else match[2].strip())
        place = match.end()
        if not words.startswith(".", place):
            break
        place += 1
    if not all(path) or not path or not words.startswith("=", place):
        raise ConfigError(f"{_SET_FLAG} {shown}: expected key.path=value, like {_SET_FLAG} approval.mode=strict")
    text = words[place + 1 :]
    try:
        return tuple(path), parse_yaml(f"value: {text}\n", _SET_FLAG).value.get("value")
    except ConfigError:
        raise ConfigError(f"{_SET_FLAG} {shown}: the value is not YAML; put it in quotes") from None


def _set_value(value: dict[str, Any], path: tuple[str, ...], said: Any) -> int:
    """Gives how much of the path is there by this word alone, as the length of the shortest such part."""
    new = len(path)
    for depth, part in enumerate(path[:-1], 1):
        below = value.get(part)
        if below is None:
            below = value[part] = {}
            new = min(new, depth)
        if not isinstance(below, dict):
            raise ConfigError(f"{_SET_FLAG} {'.'.join(path)}: {part!r} has no keys below it")
        value = below
    value[path[-1]] = said
    return new
