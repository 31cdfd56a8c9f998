"""Takes known secrets out of a result before anyone reads it, keeps it, or shows it.

Only known values are taken out here: a result that happens to have a member named `token` belongs to its caller, and
the content of a file keeps its paths, or it could not be written back. (Events and the journal also hide by name.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from golem_forge.core.result import ToolResult
from golem_forge.events.redaction import Redactor
from golem_forge.tools.json_values import safe_json

_LITTLE: Final = 4096
_A_LEVEL: Final = 64
"""What a container weighs: so little holds no nesting that matters."""
_SAFE_INTEGER: Final = 1 << 63


def redact_result(result: ToolResult, redactor: Redactor) -> ToolResult:
    plain = replace(
        result,
        text=str(result.text),
        value=_json(result.value),
        content=tuple(_json(block) for block in result.content),
        structured=_json(result.structured),
        meta=_json(result.meta),
    )
    if not redactor.secrets:
        return plain
    return replace(
        plain,
        text=redactor.secrets_out(plain.text),
        value=_cleaned(plain.value, redactor),
        content=tuple(_cleaned(block, redactor) for block in plain.content),
        structured=_cleaned(plain.structured, redactor),
        meta=_cleaned(plain.meta, redactor),
    )


def is_plain(result: ToolResult, redactor: Redactor) -> bool:
    """Whether it is little, pure JSON in plain ASCII, and holds no secret: it is given as it is, as most are.

    False means only: look closer.
    """
    clean = redactor.secrets_out
    if type(result.text) is not str or clean(result.text) is not result.text:
        return False
    value, structured = result.value, result.structured
    room = _plain(value, _LITTLE, clean)
    if structured is not None and value.get("data") is not structured:
        room = _plain(structured, room, clean)
    for block in result.content:
        room = _plain(block, room, clean)
    return (room if result.meta is None else _plain(result.meta, room, clean)) >= 0


def _plain(value: Any, room: int, clean: Callable[[str], str]) -> int:
    """What is left of `room` after this value; negative: too much, or not plain."""
    if room < 0:
        return -1
    kind = type(value)
    if kind is str:
        return room - len(value) if value.isascii() and clean(value) is value else -1
    if value is None or kind is bool:
        return room
    if kind is int:
        return room if -_SAFE_INTEGER < value < _SAFE_INTEGER else -1
    if kind is float:
        return room if value - value == 0.0 else -1
    room -= _A_LEVEL
    if kind is dict:
        for key, item in value.items():
            room = _plain(item, _plain(key, room, clean) if type(key) is str else -1, clean)
        return room
    if kind is list:
        for item in value:
            room = _plain(item, room - 1, clean)
        return room
    return -1


def _json(value: Any) -> Any:
    """A tool's own ToolResult may hold anything; what is not JSON could not be looked through."""
    return safe_json(value)[0]


def _cleaned(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redactor.secrets_out(value)
    if isinstance(value, dict):
        return {redactor.secrets_out(key): _cleaned(item, redactor) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(item, redactor) for item in value]
    return value
