"""Strict YAML: a file's plain values with the line of each, `--set` overrides, and edits that keep comments.

`read_yaml` and `parse_yaml` give a `YamlFile`. They raise ConfigError, `file:line: problem`, for a file that cannot be
read, is not UTF-8, is larger than 1 MiB, is not one mapping, repeats a key, uses a custom tag, or expands (by aliases
or nesting) to more than a configuration can be. Threat: a program's files come from strangers. Values are built from
the parser's events alone (strings, numbers, booleans, null, lists, mappings of strings), so no tag can construct
anything, and size and depth are counted as they grow, aliases in full.

`with_overrides` puts `--set key.path=value` words into a parsed file, each with its origin (`--set key.path`); the
values are read as YAML and checked like the file. A name with dots goes in double quotes:
`pricing."openai:gpt-4.1".input=2`.

`with_entry` and `without_entry` edit a user's text by lines: an entry is put into a block mapping or removed, and every
other byte stays. They give None where lines cannot be put in (`{…}`, an alias, nothing at all); `rewrite_document` then
writes the whole document again, with its comments, without its blank lines. The caller parses the result before it
counts.
"""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from golem_forge.core.errors import ConfigError
from golem_forge.core.json import copy_json
from golem_forge.core.lazy_dataclass import dataclass, field, replace

MAX_BYTES: Final = 1 << 20
MAX_VALUES: Final = 50_000
MAX_DEPTH: Final = 40

YamlPath = tuple[str | int, ...]
"""Where a value stands: keys and list positions from the top."""

_CORE_INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_CORE_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_A_NUMBER: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONSTANTS: Final[dict[str, bool | None]] = {
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
    lines: dict[YamlPath, int]
    elsewhere: dict[YamlPath, str] = field(default_factory=dict)
    """Values that are not in the file, and what said them (`--set approval.mode`); `()` where there is no file."""

    def line(self, path: YamlPath) -> int:
        """The line of a value, or of the nearest value around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def at(self, path: YamlPath) -> str:
        """`forge.yaml:7`, to start an error with or to say where a value comes from."""
        for end in range(len(path), -1, -1) if self.elsewhere else ():
            if said := self.elsewhere.get(path[:end]):
                return said
        return f"{self.name}:{self.line(path)}"


def read_bytes(path: str | os.PathLike[str], name: str) -> bytes:
    """The whole file, never more than the limit; a fifo or a directory is refused, not waited for."""
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
    text = data if isinstance(data, str) else _decode_text(data, name)
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{name}: is larger than {MAX_BYTES} bytes")
    if text.startswith("%") or "\n%" in text:
        line = text.count("\n", 0, 0 if text.startswith("%") else text.index("\n%") + 1) + 1
        raise ConfigError(f"{name}:{line}: YAML directives (`%`) are not supported")
    reader = _YamlReader(name, text)
    value = reader.document()
    if reader.problems:
        raise ConfigError(*reader.problems)
    if value is None:
        return YamlFile(name, {}, {})
    if not isinstance(value, dict):
        raise ConfigError(f"{name}:{reader.lines[()]}: expected a mapping (`key: value` lines)")
    return YamlFile(name, value, reader.lines)


def _decode_text(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}:{line}: is not UTF-8") from None


def _parser_events(text: str, name: str) -> Iterator[Any]:
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


class _YamlReader:
    """Builds values from events, counting every value it makes: an alias costs as much as what it stands for."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.lines: dict[YamlPath, int] = {}
        self.problems: list[str] = []
        self._events = _parser_events(text, name)
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

    def _value(self, event: Any, path: YamlPath, depth: int) -> Any:
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

    def _mapping(self, event: Any, path: YamlPath, depth: int) -> dict[str, Any]:
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

    def _sequence(self, event: Any, path: YamlPath, depth: int) -> list[Any]:
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
        if text in _CONSTANTS:
            return _CONSTANTS[text]
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


_SET_FLAG: Final = "--set"
_KEY_PART: Final = re.compile(r'"([^"]*)"|([^".=]+)')


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
            raise ConfigError(f"{_SET_FLAG} {'.'.join(path)}: {part!r} holds no further keys")
        value = below
    value[path[-1]] = said
    return new


_LINE_WIDTH: Final = 10_000
"""Columns at which the writer would fold a person's long line."""
_INDENT: Final = 2


def with_entry(text: str, path: tuple[str, ...], name: str, block: Mapping[str, Any]) -> str | None:
    """The entry below all others of the mapping at `path`; with what is missing of the path, at the end."""
    root = _compose_node(text)
    if root is None or path[0] not in tuple(key.value for key, _ in root.value):
        nested: Mapping[str, Any] = {name: block}
        for key in reversed(path):
            nested = {key: nested}
        if root is not None and (root.flow_style or root.start_mark.column):
            return None
        gap = "\n" if text.strip() else ""
        return _with_final_newline(text) + _with_line_ends(text, gap + render_yaml(nested))
    node = _mapping_at(root, path)
    if node is None or node.flow_style or not node.value:
        return None
    column = node.value[0][0].start_mark.column
    lines = render_yaml({name: block}).splitlines(keepends=True)
    return _splice_lines(text, _last_line(node) + 1, 0, [" " * column + line for line in lines])


def without_entry(text: str, path: tuple[str, ...], name: str) -> str | None:
    node = _mapping_at(_compose_node(text), path)
    if node is None or node.flow_style or len(node.value) < 2:
        return None
    for key, value in node.value:
        if key.value == name:
            return _splice_lines(text, key.start_mark.line, _last_line(value) - key.start_mark.line + 1, [])
    return None


def rewrite_document(text: str, change: Callable[[Any], None]) -> str:
    """The document after `change`, written anew. Raises ConfigError for one that cannot be."""
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.error import YAMLError

    yaml = _writer()
    yaml.preserve_quotes = True
    out = io.StringIO()
    try:
        document = yaml.load(text.replace("\r\n", "\n"))
        document = CommentedMap() if document is None else document
        change(document)
        yaml.dump(document, out)
    except YAMLError:
        raise ConfigError("cannot be edited as it is written; change it by hand") from None
    return _with_line_ends(text, out.getvalue())


def render_yaml(value: Mapping[str, Any]) -> str:
    """Mappings in lines, lists within one line."""
    out = io.StringIO()
    _writer().dump(to_ruamel(value), out)
    return out.getvalue()


def _writer() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.width = _LINE_WIDTH
    yaml.indent(mapping=_INDENT)
    return yaml


def to_ruamel(value: Any) -> Any:
    """The value for the writer: lists within one line, and texts that it would not write so that they can be read back
    (U+0085 is folded away, `?0` in a list becomes a key) in double quotes."""
    from ruamel.yaml.comments import CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, Mapping):
        return {key: to_ruamel(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = CommentedSeq(to_ruamel(item) for item in value)
        items.fa.set_flow_style()
        return items
    if isinstance(value, str) and (not value.isprintable() or value.startswith(("?", ":"))):
        return DoubleQuotedScalarString(value)
    return value


def _compose_node(text: str) -> Any:
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).compose(text)


def _mapping_at(node: Any, path: tuple[str, ...]) -> Any:
    from ruamel.yaml.nodes import MappingNode

    for part in path:
        if not isinstance(node, MappingNode):
            return None
        node = next((value for key, value in node.value if key.value == part), None)
    return node if isinstance(node, MappingNode) else None


def _last_line(node: Any) -> int:
    """The line on which the value ends; a block mapping's own mark is past the comments after it."""
    if isinstance(node.value, list) and node.value and not node.flow_style:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    line: int = node.end_mark.line
    return line - 1 if node.end_mark.column == 0 and line > node.start_mark.line else line


def _splice_lines(text: str, line: int, removed: int, lines: list[str]) -> str:
    there = _with_final_newline(text).splitlines(keepends=True)
    there[line : line + removed] = [_with_line_ends(text, each) for each in lines]
    return "".join(there)


def _with_final_newline(text: str) -> str:
    return text if not text or text.endswith("\n") else text + _with_line_ends(text, "\n")


def _with_line_ends(text: str, new: str) -> str:
    return new.replace("\n", "\r\n") if "\r\n" in text else new
