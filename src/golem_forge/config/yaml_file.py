"""Strict YAML: a file's plain values, and the line each of them stands on.

Takes a file, or bytes with the name a person knows the file by. Gives a `YamlFile`. Refuses, with ConfigError
`file:line: problem`: what cannot be read, is not UTF-8, is larger than 1 MiB, is not one mapping, repeats a key, uses
a custom tag, or unfolds (by aliases or nesting) into more than a configuration can be.

Threat: a program's files come from strangers. Values are built from the node tree alone (strings, numbers, booleans,
null, lists, mappings of strings), so no tag can construct anything, and the unfolded size is counted, not trusted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.core.errors import ConfigError

MAX_BYTES: Final = 1 << 20
MAX_VALUES: Final = 200_000
MAX_DEPTH: Final = 40

Path = tuple[str | int, ...]
"""Where a value stands: keys and list positions from the top."""

_INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_TAG: Final = "tag:yaml.org,2002:"
_TEXT_TAGS: Final = frozenset({"str", "timestamp", "merge", "value"})


@dataclass(frozen=True, slots=True)
class YamlFile:
    name: str
    """As the person knows it: `forge.yaml`, `~/.forge/rules.yaml`."""
    value: dict[str, Any]
    lines: dict[Path, int]

    def line(self, path: Path) -> int:
        """The line of a value, or of the nearest value around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def at(self, path: Path) -> str:
        """`forge.yaml:7`, to start an error with or to say where a value comes from."""
        return f"{self.name}:{self.line(path)}"


def read_bytes(path: str | os.PathLike[str], name: str) -> bytes:
    """The whole file, never more than the limit; a fifo or a directory is refused, not waited for."""
    import stat

    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ConfigError(f"{name}: file not found") from None
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read ({error.strerror})") from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ConfigError(f"{name}: is not a regular file")
        try:
            data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"{name}: cannot be read ({error.strerror})") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{name}: is larger than {MAX_BYTES} bytes")
    return data


def read_yaml(path: str | os.PathLike[str], name: str) -> YamlFile:
    return parse_yaml(read_bytes(path, name), name)


def parse_yaml(data: bytes | str, name: str) -> YamlFile:
    """An empty file is an empty mapping."""
    text = data if isinstance(data, str) else _decoded(data, name)
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{name}: is larger than {MAX_BYTES} bytes")
    node = _composed(text, name)
    if node is None:
        return YamlFile(name, {}, {})
    reader = _Reader(name)
    value = reader.read(node, (), 0)
    if reader.problems:
        raise ConfigError(*reader.problems)
    if value is None:
        return YamlFile(name, {}, {})
    if not isinstance(value, dict):
        raise ConfigError(f"{name}:{node.start_mark.line + 1}: expected a mapping (`key: value` lines)")
    return YamlFile(name, value, reader.lines)


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}:{line}: is not UTF-8") from None


def _composed(text: str, name: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    if text.startswith("%") or "\n%" in text:
        line = text.count("\n", 0, 0 if text.startswith("%") else text.index("\n%") + 1) + 1
        raise ConfigError(f"{name}:{line}: YAML directives (`%`) are not supported")
    try:
        return YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{name}:{line}: not valid YAML: {error.problem or error.context}") from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{name}:{line}: not valid YAML: control character") from None
    except YAMLError:
        raise ConfigError(f"{name}:1: not valid YAML") from None
    except RecursionError:
        raise ConfigError(f"{name}:1: nested too deeply") from None


class _Reader:
    """Turns nodes into values, counting every value it makes: an alias costs as much as what it stands for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[Path, int] = {}
        self.problems: list[str] = []
        self.made = 0

    def read(self, node: Any, path: Path, depth: int) -> Any:
        from ruamel.yaml.nodes import MappingNode, SequenceNode

        line = node.start_mark.line + 1
        self.made += 1
        if self.made > MAX_VALUES or depth > MAX_DEPTH:
            raise ConfigError(f"{self.name}:{line}: too many values or too deeply nested (aliases count in full)")
        self.lines.setdefault(path, line)
        if isinstance(node, MappingNode):
            self._expect_tag(node, "map", line)
            return dict(self._pairs(node, path, depth))
        if isinstance(node, SequenceNode):
            self._expect_tag(node, "seq", line)
            return [self.read(item, (*path, index), depth + 1) for index, item in enumerate(node.value)]
        return self._scalar(node, line)

    def _pairs(self, node: Any, path: Path, depth: int) -> Iterator[tuple[str, Any]]:
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value
            if not isinstance(key, str):
                self.problems.append(f"{self.name}:{line}: a key must be plain text")
                continue
            if key in seen:
                self.problems.append(f"{self.name}:{line}: key {key!r} is already on line {seen[key]}")
                continue
            seen[key] = line
            self.lines[*path, key] = line
            yield key, self.read(value_node, (*path, key), depth + 1)

    def _expect_tag(self, node: Any, kind: str, line: int) -> None:
        if node.tag != _TAG + kind:
            self.problems.append(f"{self.name}:{line}: tag {node.tag!r} is not supported")

    def _scalar(self, node: Any, line: int) -> Any:
        text: str = node.value
        tag = node.tag.removeprefix(_TAG)
        if tag in _TEXT_TAGS:
            return text
        if tag == "null":
            return None
        if tag == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if tag == "int" and len(text) <= 40:
            if not _INT.fullmatch(text):
                return text
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if tag == "float" and len(text) <= 40:
            if _FLOAT.fullmatch(text):
                return float(text)
            self.problems.append(f"{self.name}:{line}: {text} is not a usable number")
            return None
        self.problems.append(f"{self.name}:{line}: tag {node.tag!r} or its value is not supported")
        return None
