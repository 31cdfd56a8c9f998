"""Strict YAML: a file's plain values, and the line each of them stands on.

Takes a file, or bytes with the name a person knows the file by. Gives a `YamlFile`. Refuses, with ConfigError
`file:line: problem`: what cannot be read, is not UTF-8, is larger than 1 MiB, is not one mapping, repeats a key, uses
a custom tag, or unfolds (by aliases or nesting) into more than a configuration can be.

Threat: a program's files come from strangers. Values are built from the parser's events alone (strings, numbers,
booleans, null, lists, mappings of strings), so no tag can construct anything, and size and depth are counted as they
grow, aliases in full.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from golem_forge.core.errors import ConfigError

MAX_BYTES: Final = 1 << 20
MAX_VALUES: Final = 50_000
MAX_DEPTH: Final = 40

Path = tuple[str | int, ...]
"""Where a value stands: keys and list positions from the top."""

_CORE_INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_CORE_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_A_NUMBER: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_STR_TAG: Final = "tag:yaml.org,2002:str"
_MAX_DIGITS: Final = 40


@dataclass(frozen=True, slots=True)
class YamlFile:
    name: str
    """As the person knows it: `forge.yaml`, `~/.forge/rules.yaml`."""
    value: dict[str, Any]
    lines: dict[Path, int]
    elsewhere: dict[Path, str] = field(default_factory=dict)
    """Values that are not in the file, and what said them (`--set approval.mode`); `()` where there is no file."""

    def line(self, path: Path) -> int:
        """The line of a value, or of the nearest value around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def at(self, path: Path) -> str:
        """`forge.yaml:7`, to start an error with or to say where a value comes from."""
        for end in range(len(path), -1, -1) if self.elsewhere else ():
            if said := self.elsewhere.get(path[:end]):
                return said
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
    try:
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
    """An empty file is an empty mapping."""
    text = data if isinstance(data, str) else _decoded(data, name)
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{name}: is larger than {MAX_BYTES} bytes")
    if text.startswith("%") or "\n%" in text:
        line = text.count("\n", 0, 0 if text.startswith("%") else text.index("\n%") + 1) + 1
        raise ConfigError(f"{name}:{line}: YAML directives (`%`) are not supported")
    reader = _Reader(name, text)
    value = reader.document()
    if reader.problems:
        raise ConfigError(*reader.problems)
    if value is None:
        return YamlFile(name, {}, {})
    if not isinstance(value, dict):
        raise ConfigError(f"{name}:{reader.lines[()]}: expected a mapping (`key: value` lines)")
    return YamlFile(name, value, reader.lines)


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}:{line}: is not UTF-8") from None


def _events(text: str, name: str) -> Iterator[Any]:
    """The parser's events; its errors as ConfigError. It works step by step, so a reader that stops early is cheap."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{name}:{line}: not valid YAML: {error.problem or error.context}") from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{name}:{line}: not valid YAML: control character") from None
    except YAMLError:
        raise ConfigError(f"{name}:1: not valid YAML") from None


class _Reader:
    """Builds values from events, counting every value it makes: an alias costs as much as what it stands for."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.lines: dict[Path, int] = {}
        self.problems: list[str] = []
        self._events = _events(text, name)
        self._made = 0
        self._anchors: dict[str, tuple[Any, int]] = {}
        """Anchor → (value, how many values it holds); known once its value is complete."""

    def document(self) -> Any:
        from ruamel.yaml.events import DocumentStartEvent, StreamEndEvent

        next(self._events)  # the stream starts
        if isinstance(next(self._events), StreamEndEvent):
            return None
        value = self._value(next(self._events), (), 0)
        next(self._events)  # the document ends
        after = next(self._events)
        if isinstance(after, DocumentStartEvent):
            self._problem(after, "a second document (`---`) is not supported")
        return value

    def _value(self, event: Any, path: Path, depth: int) -> Any:
        from ruamel.yaml.events import AliasEvent, MappingStartEvent, SequenceStartEvent

        self.lines.setdefault(path, event.start_mark.line + 1)
        if isinstance(event, AliasEvent):
            return self._alias(event)
        before = self._made
        self._count(event, 1, depth)
        if isinstance(event, MappingStartEvent):
            value: Any = self._mapping(event, path, depth)
        elif isinstance(event, SequenceStartEvent):
            value = self._sequence(event, path, depth)
        else:
            value = self._scalar(event)
        if event.anchor:
            self._anchors[event.anchor] = (value, self._made - before)
        return value

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise ConfigError(f"{self.name}:{event.start_mark.line + 1}: alias *{event.anchor} stands for nothing yet")
        value, size = self._anchors[event.anchor]
        self._count(event, size, 0)
        return value

    def _count(self, event: Any, values: int, depth: int) -> None:
        self._made += values
        if self._made > MAX_VALUES or depth > MAX_DEPTH:
            line = event.start_mark.line + 1
            raise ConfigError(f"{self.name}:{line}: too many values or too deeply nested (aliases count in full)")

    def _mapping(self, event: Any, path: Path, depth: int) -> dict[str, Any]:
        from ruamel.yaml.events import MappingEndEvent, ScalarEvent

        self._refuse_tag(event)
        seen: dict[str, int] = {}
        result: dict[str, Any] = {}
        while not isinstance(key_event := next(self._events), MappingEndEvent):
            line = key_event.start_mark.line + 1
            if not isinstance(key_event, ScalarEvent):
                self._value(key_event, (*path, "?"), depth + 1)
                self._value(next(self._events), (*path, "?"), depth + 1)
                self._problem(key_event, "a key must be plain text")
                continue
            key: str = key_event.value
            if key in seen:
                self._problem(key_event, f"key {key!r} is already on line {seen[key]}")
            else:
                seen[key] = self.lines[*path, key] = line
            result[key] = self._value(next(self._events), (*path, key), depth + 1)
        return result

    def _sequence(self, event: Any, path: Path, depth: int) -> list[Any]:
        from ruamel.yaml.events import SequenceEndEvent

        self._refuse_tag(event)
        result: list[Any] = []
        while not isinstance(item := next(self._events), SequenceEndEvent):
            result.append(self._value(item, (*path, len(result)), depth + 1))
        return result

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        plain, quoted = event.implicit
        if event.tag is not None and event.tag not in ("!", _STR_TAG):
            self._refuse_tag(event)
            return None
        if quoted or not plain:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if len(text) <= _MAX_DIGITS and _CORE_INT.fullmatch(text):
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if len(text) <= _MAX_DIGITS and _CORE_FLOAT.fullmatch(text):
            return float(text)
        if _NOT_A_NUMBER.fullmatch(text):
            self._problem(event, f"{text} is not a usable number")
        return text

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None:
            self._problem(event, f"tag {str(event.tag)!r} is not supported")

    def _problem(self, event: Any, problem: str) -> None:
        self.problems.append(f"{self.name}:{event.start_mark.line + 1}: {problem}")
