"""Arguments and calls as XML, the way a model should write them: for examples, and for calls from another format.

`write_call` always gives text that XmlReader reads back as the same call: elements where they say exactly the same,
else one JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from golem_forge.tools.json_values import compact
from golem_forge.workers.xml_calls.elements import BLANKS, NAME
from golem_forge.workers.xml_calls.reader import BETWEEN, XmlReader

_ITEM: Final = "item"


def write_call(name: str, args: Any, schema: Mapping[str, Any]) -> str:
    """`args`: a mapping, or JSON text; text that is no JSON object is written as it is."""
    if isinstance(args, str):
        try:
            args = json.loads(args)
        except (ValueError, RecursionError):
            return _call(name, cdata(args))
    if isinstance(args, Mapping) and (inner := _members(args)) is not None:
        written = _call(name, inner)
        if _reads_as(written, name, args, schema):
            return written
    return _call(name, _text(compact(args)))


def cdata(text: str) -> str:
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>"


def _reads_as(written: str, name: str, args: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    reader = XmlReader({name: schema})
    reader.feed(written)
    calls = reader.finish().calls
    return len(calls) == 1 and not calls[0].problem and _same(calls[0].args, args) and calls[0].name == name


def _same(one: Any, other: Any) -> bool:
    """Equal also in type: `1`, `1.0` and `true` are three values."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _call(name: str, arguments: str) -> str:
    server, between, tool = name.partition(BETWEEN)
    head = f"<server_name>{_text(server)}</server_name>" if between else ""
    named = f"<tool_name>{_text(tool if between else name)}</tool_name>"
    return f"<tool>{head}{named}<arguments>{arguments}</arguments></tool>"


def _members(value: Mapping[str, Any]) -> str | None:
    """None where a key is no element name."""
    parts = []
    for key, item in value.items():
        inner = _inner(item) if isinstance(key, str) and NAME.fullmatch(key) else None
        if inner is None:
            return None
        parts.append(f"<{key}>{inner}</{key}>")
    return "".join(parts)


def _inner(value: Any) -> str | None:
    if isinstance(value, Mapping):
        return _members(value)
    if isinstance(value, list):
        items = [_inner(item) for item in value]
        return None if None in items else "".join(f"<{_ITEM}>{item}</{_ITEM}>" for item in items)
    return _text(value if isinstance(value, str) else compact(value))


def _text(text: str) -> str:
    plain = text.strip(BLANKS) == text and "<" not in text and "&" not in text and "]]>" not in text
    return text if plain and text else cdata(text)
