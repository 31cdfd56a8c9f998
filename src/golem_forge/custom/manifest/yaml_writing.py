"""Plain values as YAML that a person likes to read and every YAML reader reads the same way.

Takes mappings, lists, texts, numbers, booleans and None. Text that some reader could take for a number, a date or a
boolean is quoted; text over several lines becomes a literal block; what cannot stand in a file as it is (control and
hidden characters) is written as an escape, so the file never hides anything from whoever opens it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from golem_forge.core.visible import visible
from golem_forge.custom.manifest.node_reading import needs_quotes

_WIDTH: Final = 100
_LONGEST_PLAIN_KEY: Final = 1000
"""A key before a `:` has at most 1024 characters in YAML; a longer one is marked with `?`."""

_PLAIN: Final = re.compile(r"[^\W\d]|[\w(/.][^\n]*[^\s:]")
_PLAIN_IN_LIST: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_PLAIN_KEY: Final = re.compile(r"[$A-Za-z][A-Za-z0-9_.-]*")
_NUMBER_TO_SOMEBODY: Final = re.compile(r"[0-9.][0-9_:.,xXoObBeEtTzZ +-]*")
_DOTTED_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(\.[0-9]+)*")
_WORD_TO_SOMEBODY: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def yaml_text(value: Mapping[str, Any]) -> str:
    return "".join(f"{line}\n" for line in _mapping(value, 0))


def _mapping(value: Mapping[str, Any], indent: int) -> Iterator[str]:
    pad = " " * indent
    for key, item in value.items():
        name = _key(key)
        head = f"{pad}{name}:"
        if len(name) > _LONGEST_PLAIN_KEY:
            yield f"{pad}? {name}"
            head = f"{pad}:"
        if isinstance(item, Mapping) and item:
            yield head
            yield from _mapping(item, indent + 2)
        elif isinstance(item, (list, tuple)) and item and _wants_lines(item, len(head)):
            yield head
            yield from _items(item, indent + 2)
        elif isinstance(item, str) and _as_block(item):
            yield f"{head} |" if item.endswith("\n") else f"{head} |-"
            yield from (f"{pad}  {line}" if line else "" for line in item.removesuffix("\n").split("\n"))
        else:
            yield f"{head} {_scalar(item) if isinstance(item, str) else _flow(item)}"


def _items(value: list[Any] | tuple[Any, ...], indent: int) -> Iterator[str]:
    pad = " " * indent
    for item in value:
        if isinstance(item, Mapping) and item:
            lines = _mapping(item, indent + 2)
            yield f"{pad}- {next(lines)[indent + 2 :]}"
            yield from lines
        else:
            yield f"{pad}- {_scalar(item) if isinstance(item, str) else _flow(item)}"


def _wants_lines(value: list[Any] | tuple[Any, ...], before: int) -> bool:
    return any(isinstance(item, Mapping) for item in value) or before + len(_flow(value)) > _WIDTH


def _as_block(text: str) -> bool:
    body = text.removesuffix("\n")
    lines = body.split("\n")
    return (
        len(lines) > 1
        and not text.endswith("\n\n")
        and not body.startswith((" ", "\n"))
        and all(line.isprintable() and (not line or not line.isspace()) for line in lines)
    )


def _key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) and not _is_more_than_text(key) else _quoted(key)


def _scalar(text: str) -> str:
    """Where a whole line is its own."""
    usable = _PLAIN.fullmatch(text) and text.isprintable() and ": " not in text and " #" not in text
    return text if usable and not _is_more_than_text(text) else _quoted(text)


def _is_more_than_text(text: str) -> bool:
    if needs_quotes(text) or text.lower() in _WORD_TO_SOMEBODY:
        return True
    return bool(_NUMBER_TO_SOMEBODY.fullmatch(text)) and not _DOTTED_VERSION.fullmatch(text)


def _flow(value: Any) -> str:
    """On one line, as in JSON."""
    if isinstance(value, str):
        return value if _PLAIN_IN_LIST.fullmatch(value) and not _is_more_than_text(value) else _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow_key(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return repr(value)


def _flow_key(key: str) -> str:
    name = _quoted(key)
    return f"? {name} " if len(name) > _LONGEST_PLAIN_KEY else name


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    escaped = visible(escaped).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
    return f'"{escaped}"'
