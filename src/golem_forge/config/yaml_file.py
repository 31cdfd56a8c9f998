"""Strict YAML files: read as plain values with the line of each, and `--set` overrides. `yaml_edit` edits a text.

`read_yaml` and `parse_yaml` give a `YamlFile`. They raise ConfigError, `file:line: problem`, for a file that cannot be
read, is not UTF-8, is larger than 1 MiB, is not one mapping, repeats a key, uses a custom tag, or expands (by aliases
or nesting) to more than a configuration can be. `with_overrides` puts `--set key.path=value` words into a parsed file.

`read_document` is the reader below them; it gives a `YamlDocument` or raises YamlFault. Threat: files come from
strangers. Values are strings, numbers, booleans, null, lists and mappings of strings, so no tag can construct anything,
and size and depth are counted as they grow, aliases in full.

Its strict form is for manifests: a scalar without quotes stays a `PlainText`, because its key decides what it is
(`version: 1.10` is text, `timeout: 1.10` a number); there are no anchors, and the first problem ends the reading.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.errors import ConfigError
from golem_forge.core.json import copy_json
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.lazy_module import LazyModule
from golem_forge.core.regex import regex

if TYPE_CHECKING:
    from ruamel import yaml as ruamel
else:
    ruamel = LazyModule("ruamel.yaml")

MAX_VALUES: Final = 50_000
MAX_DEPTH: Final = 40
MAX_STRICT_VALUES: Final = 10_000
LONGEST_STRICT_KEY: Final = 512

YamlPath = tuple[str | int, ...]
"""The place of a value: keys and list positions from the top."""

PLAIN_INTEGER: Final = regex(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER: Final = regex(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = regex(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
PLAIN_CONSTANTS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TEXT_TAGS: Final = ("!", "tag:yaml.org,2002:str")
_MAX_DIGITS: Final = 40


class PlainText(str):
    """A scalar without quotes, as written: what its key wants decides what it is."""

    __slots__ = ()


def is_no_text(plain: str) -> bool:
    """Whether a scalar without quotes and with these characters is a number, a boolean or null."""
    return plain in PLAIN_CONSTANTS or any(kind.fullmatch(plain) for kind in (PLAIN_INTEGER, _NUMBER, _NOT_FINITE))


def plain_value(plain: str) -> Any:
    """Returns the value of a scalar without quotes. An infinite number stays text."""
    if plain in PLAIN_CONSTANTS:
        return PLAIN_CONSTANTS[plain]
    if PLAIN_INTEGER.fullmatch(plain):
        return int(plain, 0) if plain[:2] in ("0o", "0x") else int(plain)
    return float(plain) if _NUMBER.fullmatch(plain) else plain


class YamlFault(Exception):
    """Why a text cannot be read any further, and where."""

    def __init__(self, path: YamlPath, problem: str, line: int, *, valid: bool = False) -> None:
        super().__init__(problem)
        self.path = path
        self.problem = problem
        self.line = line
        self.valid = valid
        """It is YAML, only not such as is read here."""


class YamlDocument:
    """The values of one text, while it is read and afterwards."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.value: Any = None
        self.lines: dict[YamlPath, int] = {}
        self.starts: dict[YamlPath, int] = {}
        self.problems: list[tuple[int, str]] = []
        """(line, problem). In the strict form the first one is raised instead."""

    def problem(self, path: YamlPath, problem: str, line: int) -> None:
        if self.strict:
            raise YamlFault(path, problem, line)
        self.problems.append((line, problem))

    def plain(self, text: str, line: int) -> Any:
        """Returns the value of a scalar without quotes."""
        if self.strict:
            return PlainText(text)
        if len(text) > _MAX_DIGITS:
            return text
        if _NOT_FINITE.fullmatch(text):
            self.problem((), f"{text} is not a usable number", line)
        return plain_value(text)


def decode_yaml(data: bytes) -> str:
    """Decodes UTF-8. Raises YamlFault."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise YamlFault((), "is not UTF-8", data.count(b"\n", 0, error.start) + 1) from None


def read_document(text: str, *, strict: bool = False) -> YamlDocument:
    """Parses YAML, with the quick reader if it is simple. Raises YamlFault."""
    return read_simple_document(text, strict=strict) or read_full_document(text, strict=strict)


def read_full_document(text: str, *, strict: bool = False) -> YamlDocument:
    """Parses any YAML with the library. Raises YamlFault."""
    if text.startswith("%") or "\n%" in text:
        line = text.count("\n", 0, 0 if text.startswith("%") else text.index("\n%") + 1) + 1
        raise YamlFault((), "YAML directives (`%`) are not supported", line)
    reader = _EventReader(text, YamlDocument(strict=strict))
    reader.read()
    return reader.document


def _parser_events(text: str) -> Iterator[Any]:
    """The parser's events; its errors as YamlFault. It works step by step, so a reader that stops early is cheap."""
    try:
        yield from ruamel.YAML(typ="safe", pure=True).parse(text)
    except ruamel.error.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise YamlFault((), f"not valid YAML: {error.problem or error.context}", line) from None
    except ruamel.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlFault((), "not valid YAML: control character", line) from None
    except (
        ruamel.error.YAMLError,
        ValueError,
        OverflowError,
        RecursionError,
    ):  # an escape beyond Unicode is no YAMLError
        raise YamlFault((), "not valid YAML", 1) from None


class _EventReader:
    """Builds values from events, counting every value it makes: an alias costs as much as what it stands for."""

    def __init__(self, text: str, document: YamlDocument) -> None:
        self.document = document
        self._events = _parser_events(text)
        self._made = 0
        self._anchors: dict[str, tuple[Any, int]] = {}
        """Anchor → (value, how many values it holds); known once its value is complete."""

    def read(self) -> None:
        next(self._events)  # the stream starts
        if isinstance(next(self._events), ruamel.events.StreamEndEvent):
            return
        self.document.value = self._value(next(self._events), ())
        next(self._events)  # the document ends
        after = next(self._events)
        if isinstance(after, ruamel.events.DocumentStartEvent):
            self.document.problem((), "a second document (`---`) is not supported", after.start_mark.line + 1)

    def _value(self, event: Any, path: YamlPath) -> Any:
        line = event.start_mark.line + 1
        if self.document.lines.setdefault(path, line) != line and getattr(event, "value", "?"):
            # The parser finds out that nothing is there on the line after.
            self.document.starts.setdefault(path, line)
        if self.document.strict and (isinstance(event, ruamel.events.AliasEvent) or event.anchor):
            raise YamlFault(path, "anchors (`&`) and aliases (`*`) are not supported; write the value out", line)
        if isinstance(event, ruamel.events.AliasEvent):
            return self._alias(event, line)
        before = self._made
        self._count(1, path, line)
        is_collection = isinstance(event, (ruamel.events.MappingStartEvent, ruamel.events.SequenceStartEvent))
        unknown = event.tag is not None and (is_collection or event.tag not in _TEXT_TAGS)
        if unknown:
            self.document.problem(path, f"tag {str(event.tag)[:80]!r} is not supported", line)
        if isinstance(event, ruamel.events.MappingStartEvent):
            value: Any = self._mapping(path)
        elif is_collection:
            value = self._sequence(path)
        else:
            value = None if unknown else self._scalar(event, path, line)
        if event.anchor:
            self._anchors[event.anchor] = (value, self._made - before)
        return value

    def _alias(self, event: Any, line: int) -> Any:
        if event.anchor not in self._anchors:
            raise YamlFault((), f"alias *{event.anchor} has no anchor before it", line)
        value, size = self._anchors[event.anchor]
        self._count(size, (), line)
        return value

    def _count(self, values: int, path: YamlPath, line: int) -> None:
        self._made += values
        if not self.document.strict:
            if self._made > MAX_VALUES or len(path) > MAX_DEPTH:
                problem = "too many values or too deeply nested (aliases count in full)"
                raise YamlFault(path, problem, line, valid=True)
        elif self._made > MAX_STRICT_VALUES:
            raise YamlFault((), f"has more than {MAX_STRICT_VALUES:,} values", line, valid=True)
        elif len(path) > MAX_DEPTH:
            raise YamlFault(path[:4], "is too deeply nested", line, valid=True)

    def _mapping(self, path: YamlPath) -> dict[str, Any]:
        seen: dict[str, int] = {}
        result: dict[str, Any] = {}
        while not isinstance(event := next(self._events), ruamel.events.MappingEndEvent):
            line = event.start_mark.line + 1
            key = self._key(event, path, line)
            if key is None:
                continue
            if key in seen:
                problem = f"is already on line {seen[key]}"
                self.document.problem((*path, key), problem if self.document.strict else f"key {key!r} {problem}", line)
            else:
                seen[key] = self.document.lines[*path, key] = line
            result[key] = self._value(next(self._events), (*path, key))
        return result

    def _key(self, event: Any, path: YamlPath, line: int) -> str | None:
        """Returns a key; None if it is no text, and then its value is skipped."""
        strict = self.document.strict
        if not isinstance(event, ruamel.events.ScalarEvent) or (
            strict and (event.anchor or event.tag not in (None, *_TEXT_TAGS))
        ):
            if not strict:
                self._value(event, (*path, "?"))
                self._value(next(self._events), (*path, "?"))
            self.document.problem(path, "a key must be plain text", line)
            return None
        key: str = event.value
        if strict:
            check_unicode(key, path, line)
            if len(key) > LONGEST_STRICT_KEY:
                raise YamlFault(path, f"a key has at most {LONGEST_STRICT_KEY} characters", line)
        return key

    def _sequence(self, path: YamlPath) -> list[Any]:
        result: list[Any] = []
        while not isinstance(item := next(self._events), ruamel.events.SequenceEndEvent):
            result.append(self._value(item, (*path, len(result))))
        return result

    def _scalar(self, event: Any, path: YamlPath, line: int) -> Any:
        text: str = event.value
        plain, quoted = event.implicit
        if self.document.strict:
            check_unicode(text, path, line)
            plain = plain and event.tag is None
        return text if quoted or not plain else self.document.plain(text, line)


def check_unicode(text: str, path: YamlPath, line: int) -> str:
    """Threat: half a surrogate pair cannot be written to a file, a pipe or a database, and fails only there."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise YamlFault(path, "contains half a surrogate pair, which is not a character", line, valid=True)
    return text


_DEEPEST_SIMPLE: Final = 20

_KEY: Final = "[A-Za-z_][A-Za-z0-9_-]{0,63}"
_FIELD: Final = regex(rf"( *)({_KEY}):(?: +(.*))?")
_ITEM: Final = regex(r"( *)-( +)([^ -].*)")
_QUOTED: Final = regex(r"""("(?:[^"\\]|\\["\\/bfnrt])*")|'([^']*)'""")
_PLAIN_SCALAR: Final = regex(r"(?:[^\s\-?:,\[\]{}#&*!|>'\"%@`=]|-[0-9.])(?:(?! #|: |:$).)*")
_LINE_END: Final = regex(" *(?: #.*)?")
_FLOW_EMPTY: Final = regex(r"\[ *\]|\{ *\}")
_FLOW_START: Final = regex(r"([\[{]) *")
_FLOW_KEY: Final = regex(rf"""(?:({_KEY})|"([^"\\]{{0,64}})"|'([^']{{0,64}})') *: +""")
_FLOW_PLAIN: Final = regex(r"(?:[A-Za-z0-9_./~$]|-[0-9.])(?:[^:?,\[\]{}#'\"]*[^ :?,\[\]{}#'\"])?")
_FLOW_NEXT: Final = regex(" *(?:([]}])|, *)")
_LITERAL_BLOCK: Final = regex(r"\|(-?)")


def read_simple_document(text: str, *, strict: bool = False) -> YamlDocument | None:
    """Reads simple YAML, which is nearly all there is, ten times faster than the library's parser and without loading
    it. None for anything else: it never decides that something is wrong. A test compares every answer with the
    parser's."""
    if not text.replace("\n", "").isprintable():
        return None
    document = YamlDocument(strict=strict)
    try:
        document.value = _SimpleReader(text, document).whole()
    except _NotSimple:
        return None
    few = len(document.lines) <= (MAX_STRICT_VALUES if strict else MAX_VALUES)
    return document if few and not document.problems else None


class _NotSimple(Exception):
    """Raised if the text needs the library's parser."""


class _SimpleReader:
    def __init__(self, text: str, document: YamlDocument) -> None:
        self.at = 0
        self._lines = text.removesuffix("\n").split("\n")
        self._ends_a_line = text.endswith("\n")
        self._document = document

    def next_indent(self) -> int:
        """Returns the indent of the next non-empty line; -1 at the end."""
        lines = self._lines
        while self.at < len(lines):
            line = lines[self.at]
            rest = line.lstrip(" ")
            if rest and rest[0] != "#":
                return len(line) - len(rest)
            self.at += 1
        return -1

    def whole(self) -> dict[str, Any]:
        """A mapping, or one line that is one, e.g. JSON."""
        if self.next_indent() != 0:
            raise _NotSimple
        line = self._lines[self.at]
        if line[0] == "{":
            self.at += 1
            value: dict[str, Any] = self._on_one_line(line, ())
        else:
            value = self._mapping(0, ())
        if self.next_indent() != -1:
            raise _NotSimple
        return value

    def _mapping(self, indent: int, path: YamlPath) -> dict[str, Any]:
        if len(path) > _DEEPEST_SIMPLE:
            raise _NotSimple
        self._note(path)
        made: dict[str, Any] = {}
        while self.next_indent() == indent:
            match = _FIELD.fullmatch(self._lines[self.at])
            if match is None or match[2] in made:
                raise _NotSimple
            place = (*path, match[2])
            self._note(place)
            self.at += 1
            made[match[2]] = self._value(match[3] or "", indent, place)
        if self.next_indent() > indent:
            raise _NotSimple
        return made

    def _note(self, path: YamlPath) -> None:
        """The value, or the key, at `path` begins here."""
        line = self.at + 1
        if self._document.lines.setdefault(path, line) != line:
            self._document.starts[path] = line

    def _value(self, text: str, indent: int, path: YamlPath) -> Any:
        if text and text[0] != "#":
            if literal := _LITERAL_BLOCK.fullmatch(text):
                return self._literal(indent, literal[1])
            return self._on_one_line(text, path)
        below = self.next_indent()
        if below >= indent and self._lines[self.at][below] == "-":
            return self._sequence(below, path)
        if below > indent:
            return self._mapping(below, path)
        return self._document.plain("", self._document.lines[path])

    def _sequence(self, indent: int, path: YamlPath) -> list[Any]:
        self._note(path)
        made: list[Any] = []
        while self.next_indent() == indent and (match := _ITEM.fullmatch(self._lines[self.at])):
            rest, place = match[3], (*path, len(made))
            if _FIELD.fullmatch(rest):
                inner = indent + 1 + len(match[2])
                self._lines[self.at] = " " * inner + rest
                made.append(self._mapping(inner, place))
            else:
                self._note(place)
                self.at += 1
                made.append(self._on_one_line(rest, place))
        if not made or self.next_indent() > indent:
            raise _NotSimple
        return made

    def _on_one_line(self, text: str, path: YamlPath) -> Any:
        if (match := _PLAIN_SCALAR.match(text)) and (match.end() == len(text) or text.startswith(" #", match.end())):
            return self._document.plain(match[0].rstrip(" "), self.at)
        value, end = self._flow_value(text, 0, path)
        if not _LINE_END.fullmatch(text, end):
            raise _NotSimple
        return value

    def _flow_value(self, text: str, start: int, path: YamlPath) -> tuple[Any, int]:
        """Returns the value that begins at `start`, in a line that was taken already, and where it ends."""
        if len(path) > _DEEPEST_SIMPLE:
            raise _NotSimple
        self._document.lines.setdefault(path, self.at)
        if match := _QUOTED.match(text, start):
            return json.loads(match[1]) if match[1] else match[2], match.end()
        if match := _FLOW_EMPTY.match(text, start):
            return [] if match[0][0] == "[" else {}, match.end()
        if match := _FLOW_START.match(text, start):
            read = self._flow_mapping if match[1] == "{" else self._flow_sequence
            return read(text, match.end(), path)
        if match := _FLOW_PLAIN.match(text, start):
            return self._document.plain(match[0], self.at), match.end()
        raise _NotSimple

    def _flow_mapping(self, text: str, at: int, path: YamlPath) -> tuple[dict[str, Any], int]:
        made: dict[str, Any] = {}
        closed = ""
        while not closed:
            match = _FLOW_KEY.match(text, at)
            key = next(filter(None, match.groups()), "") if match else ""
            if match is None or key in made:
                raise _NotSimple
            place, at = (*path, key), match.end()
            if text.startswith((",", "}"), at):
                self._document.lines[place] = self.at
                made[key] = self._document.plain("", self.at)
            else:
                made[key], at = self._flow_value(text, at, place)
            closed, at = _flow_next(text, at, "}")
        return made, at

    def _flow_sequence(self, text: str, at: int, path: YamlPath) -> tuple[list[Any], int]:
        made: list[Any] = []
        closed = ""
        while not closed:
            value, at = self._flow_value(text, at, (*path, len(made)))
            made.append(value)
            closed, at = _flow_next(text, at, "]")
        return made, at

    def _literal(self, indent: int, chomp: str) -> str:
        start, lines = self.at, self._lines
        first = lines[start] if start < len(lines) else ""
        inner = len(first) - len(first.lstrip(" "))
        if inner <= indent or inner == len(first):
            raise _NotSimple
        margin = " " * inner
        while self.at < len(lines) and (lines[self.at].startswith(margin) or not lines[self.at]):
            if lines[self.at].isspace():
                raise _NotSimple
            self.at += 1
        if self.at < len(lines) and not lines[self.at].strip(" "):
            raise _NotSimple
        block = "\n".join(each[inner:] for each in lines[start : self.at]).rstrip("\n")
        if chomp:
            return block
        if self.at == len(lines) and not self._ends_a_line:
            raise _NotSimple
        return block + "\n"


def _flow_next(text: str, at: int, closing: str) -> tuple[str, int]:
    """Takes the comma, or the bracket `closing`, and gives the bracket."""
    match = _FLOW_NEXT.match(text, at)
    if match is None or match[1] not in (None, closing):
        raise _NotSimple
    return match[1] or "", match.end()


MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class YamlFile:
    name: str
    """The name for messages: `forge.yaml`, `~/.forge/rules.yaml`."""
    value: dict[str, Any]
    lines: dict[YamlPath, int]
    """Lines by path; for a mapping's value the line of its key."""
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
        """Returns the line on which a value itself begins."""
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
            by_link = Path(os.path.abspath(path)).is_relative_to(inside)
            where = "is reached through a link that leads" if by_link else "lies"
            raise ConfigError(f"{name}: {where} outside the program; put the file itself there")
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
    """The file with each `key.path=value` word put in, with its origin (`--set key.path`). Values are read as YAML and
    checked like the file. A name with dots goes in double quotes: `pricing."openai:gpt-4.1".input=2`. Raises
    ConfigError."""
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
