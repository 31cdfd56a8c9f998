"""Edits of a person's YAML that keep every other byte, comments included.

`put_entry` and `remove_entry` change one entry of a block mapping by lines. Where that cannot be done (`{…}`, an alias,
nothing at all) or `check` raises for the result, they write the whole document again, with its comments and without its
blank lines. `set_text` does the same for one text at the top level. `read_existing` and `replace_existing` read such a
file and put the new text in its place at once, with its mode; they refuse (ConfigError) a link to somewhere else and a
file that somebody changed meanwhile. `compose`, `find_pair` and `find_value` give nodes with their marks to whoever
replaces a single value.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.yaml_file import read_bytes
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_module import LazyModule
from golem_forge.storage.home import replacing

if TYPE_CHECKING:
    from ruamel import yaml as ruamel
else:
    ruamel = LazyModule("ruamel.yaml")

_LINE_WIDTH: Final = 10_000
"""Columns at which the writer would fold a person's long line."""
_INDENT: Final = 2


def compose(text: str) -> Any:
    """Returns the root node; None for an empty text."""
    return ruamel.YAML(typ="safe", pure=True).compose(text)


def find_pair(mapping: Any, name: str) -> tuple[Any, Any] | None:
    """Returns the nodes of a key and its value."""
    return next(((key, value) for key, value in mapping.value if key.value == name), None)


def find_value(mapping: Any, name: str) -> Any:
    pair = find_pair(mapping, name)
    return None if pair is None else pair[1]


def put_entry(
    text: str, path: tuple[str, ...], name: str, block: Mapping[str, Any], check: Callable[[str], None]
) -> str:
    """The text with the entry below all others of the mapping at `path`. Raises ConfigError."""

    def put(document: Any) -> None:
        for key in path:
            if document.get(key) is None:
                document[key] = {}
            document = document[key]
        document[name] = _to_ruamel(block)

    return _checked_edit(text, _with_entry(text, path, name, block), put, check)


def remove_entry(text: str, path: tuple[str, ...], name: str, check: Callable[[str], None]) -> str:
    """The text without the entry `name` of the mapping at `path`. Raises ConfigError."""

    def take(document: Any) -> None:
        for key in path:
            document = document[key]
        del document[name]

    return _checked_edit(text, _without_entry(text, path, name), take, check)


def set_text(text: str, name: str, value: str, check: Callable[[str], None]) -> str:
    """The text with this value of a key at the top level; a new key comes first. Raises ConfigError."""

    def put(document: Any) -> None:
        document[name] = _to_ruamel(value)

    return _checked_edit(text, _with_text(text, name, value), put, check)


def _with_text(text: str, name: str, value: str) -> str | None:
    root = compose(text)
    line = _render({name: value})
    if root is None:
        return _with_final_newline(text) + _with_line_ends(text, line)
    if root.flow_style or root.start_mark.column:
        return None
    pair = find_pair(root, name)
    if pair is None:
        return _splice_lines(text, root.start_mark.line, 0, [line])
    start, end = pair[1].start_mark, pair[1].end_mark
    if not isinstance(pair[1].value, str) or start.line != end.line or start.line != pair[0].start_mark.line:
        return None
    old = text.splitlines(keepends=True)[start.line]
    shown = line.rstrip("\n").partition(": ")[2]
    changed = old[: start.column] + shown + old[end.column :]
    lines = text.splitlines(keepends=True)
    return "".join([*lines[: start.line], changed, *lines[start.line + 1 :]])


def read_existing(file: Path) -> bytes:
    """The bytes as they are; none for a file that is yet to be made."""
    try:
        kind = os.lstat(file).st_mode
    except FileNotFoundError:
        return b""
    if stat.S_ISLNK(kind):
        raise ConfigError(f"{file.name}: is a link; edit the file it leads to, or replace it by a file")
    return read_bytes(file, file.name)


def replace_existing(file: Path, before: bytes, text: str) -> None:
    """Replaces a file in one step. Raises ConfigError if somebody else changed it since it was read."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(file, mode=0o666) as out:
        out.write(text.encode())
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(out.fileno(), stat.S_IMODE(os.lstat(file).st_mode))
        out.flush()
        os.fsync(out.fileno())  # it takes longest: done before the last look at what is there
        if read_existing(file) != before:
            raise ConfigError(f"{file.name}: was changed meanwhile; nothing was written, try again")


def _checked_edit(text: str, edited: str | None, change: Callable[[Any], None], check: Callable[[str], None]) -> str:
    """Returns the edited lines if they pass the check, else the file written anew."""
    if edited is not None:
        with contextlib.suppress(ConfigError):
            check(edited)
            return edited
    anew = _rewrite(text, change)
    check(anew)
    return anew


def _with_entry(text: str, path: tuple[str, ...], name: str, block: Mapping[str, Any]) -> str | None:
    """Adds an entry at the end, with the missing parts of the path."""
    root = compose(text)
    if root is None or path[0] not in tuple(key.value for key, _ in root.value):
        nested: Mapping[str, Any] = {name: block}
        for key in reversed(path):
            nested = {key: nested}
        if root is not None and (root.flow_style or root.start_mark.column):
            return None
        gap = "\n" if text.strip() else ""
        return _with_final_newline(text) + _with_line_ends(text, gap + _render(nested))
    node = _mapping_at(root, path)
    if node is None or node.flow_style or not node.value:
        return None
    column = node.value[0][0].start_mark.column
    lines = _render({name: block}).splitlines(keepends=True)
    return _splice_lines(text, _last_line(node) + 1, 0, [" " * column + line for line in lines])


def _without_entry(text: str, path: tuple[str, ...], name: str) -> str | None:
    node = _mapping_at(compose(text), path)
    if node is None or node.flow_style or len(node.value) < 2 or (pair := find_pair(node, name)) is None:
        return None
    line = pair[0].start_mark.line
    return _splice_lines(text, line, _last_line(pair[1]) - line + 1, [])


def _rewrite(text: str, change: Callable[[Any], None]) -> str:
    yaml = _writer()
    yaml.preserve_quotes = True
    out = io.StringIO()
    try:
        document = yaml.load(text.replace("\r\n", "\n"))
        document = ruamel.comments.CommentedMap() if document is None else document
        change(document)
        yaml.dump(document, out)
    except ruamel.error.YAMLError:
        raise ConfigError("cannot be edited by Forge; change it by hand") from None
    return _with_line_ends(text, out.getvalue())


def _render(value: Mapping[str, Any]) -> str:
    """Renders mappings in lines and lists within one line."""
    out = io.StringIO()
    _writer().dump(_to_ruamel(value), out)
    return out.getvalue()


def _writer() -> Any:
    yaml = ruamel.YAML(typ="rt", pure=True)
    yaml.width = _LINE_WIDTH
    yaml.indent(mapping=_INDENT)
    return yaml


def _to_ruamel(value: Any) -> Any:
    """The value for the writer: lists within one line, and texts that it would not write so that they can be read back
    (U+0085 is folded away, `?0` in a list becomes a key) in double quotes."""
    if isinstance(value, Mapping):
        return {key: _to_ruamel(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = ruamel.comments.CommentedSeq(_to_ruamel(item) for item in value)
        items.fa.set_flow_style()
        return items
    if isinstance(value, str) and (not value.isprintable() or value.startswith(("?", ":"))):
        return ruamel.scalarstring.DoubleQuotedScalarString(value)
    return value


def _mapping_at(node: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        node = find_value(node, part) if isinstance(node, ruamel.nodes.MappingNode) else None
    return node if isinstance(node, ruamel.nodes.MappingNode) else None


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
