"""ToolResult: what a tool returned, as a semantic value that every caller and every UI can read.

A semantic value is a dict with a `kind`: a well-known kind with the fields it needs, or a tool's own kind.

`to_mcp` and `from_mcp` convert a ToolResult to and from MCP's CallToolResult (a plain dict) without loss:
`to_mcp(from_mcp(m)) == m` and `from_mcp(to_mcp(r)) == r`. A result is written the way any MCP client reads it (content
blocks, structuredContent, isError, `_meta`). Only what a reader could not derive from that is added under
`_meta[RESULT_KEY]`. What MCP can express in two ways (a false `isError`, an empty `_meta`, unknown top-level fields) is
kept in the ToolResult's own meta under FRAME_KEY and is never sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex

_KIND: Final = regex(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*")
_REQUIRED: Final[dict[str, dict[str, type | tuple[type, ...]]]] = {
    "text": {"content": str},
    "diff": {"path": str, "modified": str, "isNew": bool, "bytesWritten": int},
    "file_content": {"path": str, "content": str, "size": int},
    "file_list": {"path": str, "files": (list, tuple), "count": int},
    "json": {"data": object},
}
WELL_KNOWN_KINDS: Final = frozenset(_REQUIRED)
_DEFAULT_TEXT: Final = str(b"the text of the value", "ascii")
"""Compared by identity: no text that is given is this very object."""
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode
_DESCRIPTIVE_KEYS: Final = frozenset({"kind", "summary", "mimeType", "display"})


@dataclass(slots=True)
class ToolResult:
    """The result of a tool. Raises TypeError for a value without a kind."""

    value: dict[str, Any]
    """The semantic value; always has a `kind` (`text`, `diff`, `file_content`, `file_list`, `json` or a custom one)."""
    text: str = _DEFAULT_TEXT
    """The text for a model or a shell. If not given it is taken from the value (`text_of`); an empty
    text stays empty.
    """
    content: tuple[dict[str, Any], ...] = ()
    """MCP content blocks, only where the result holds more than its text (images, audio, resources)."""
    structured: Any = None
    """MCP structuredContent, checked against the tool's output schema when it has one."""
    is_error: bool = False
    meta: dict[str, Any] | None = None
    """MCP `_meta`; never shown to a model."""

    def __post_init__(self) -> None:
        value = self.value
        if type(value) is not dict or type(value.get("kind")) is not str:
            self.value = _with_kind(value)
        if self.text is _DEFAULT_TEXT:
            self.text = text_of(self.value)

    @property
    def kind(self) -> str:
        return str(self.value["kind"])

    def to_mcp(self) -> dict[str, Any]:
        """Returns MCP's CallToolResult, without loss: `ToolResult.from_mcp(result.to_mcp()) == result`."""
        return to_mcp(self)

    @classmethod
    def from_mcp(cls, message: Mapping[str, Any]) -> ToolResult:
        """Builds a ToolResult from a CallToolResult: a dict with JSON or Python names, or an object of the `mcp`
        package. Raises TypeError for anything else.
        """
        dump = getattr(message, "model_dump", None)
        if dump is not None:
            message = dump(mode="json", by_alias=True, exclude_none=True)
        if not isinstance(message, Mapping):
            raise TypeError(f"from_mcp takes a CallToolResult (a mapping with 'content'), got {type(message).__name__}")
        return from_mcp(with_json_names(message))


def text_of(value: Mapping[str, Any]) -> str:
    """Returns the text of a semantic value for a model or a shell: its content, or its summary and its data as JSON."""
    kind = value.get("kind")
    if is_well_known_kind(kind) and semantic_value(value) is not None:
        if kind in ("text", "file_content"):
            return str(value["content"])
        if kind == "file_list":
            return "\n".join(map(_file_name, value["files"]))
        if kind == "diff":
            return f"{'Created' if value['isNew'] else 'Updated'} {value['path']} ({value['bytesWritten']} bytes)"
    summary = value.get("summary")
    if not isinstance(summary, str) or not summary:
        return _compact(value["data"] if "data" in value else {key: value[key] for key in value if key != "kind"})
    data = value["data"] if "data" in value else {key: value[key] for key in value if key not in _DESCRIPTIVE_KEYS}
    return summary if data is None or data == {} else f"{summary}\n{_compact(data)}"


def _with_kind(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise TypeError(
            f"ToolResult: value must be a mapping with a 'kind', not {repr(value)[:80]}; "
            "{'kind': 'text', 'content': …} is a text, {'kind': 'json', 'data': …} any JSON"
        )
    return dict(value)


def _file_name(item: Any) -> str:
    if isinstance(item, Mapping):
        item = item.get("path") or item.get("name") or _compact(dict(item))
    return str(item)


def _compact(data: Any) -> str:
    try:
        return _encode(data)
    except (TypeError, ValueError, RecursionError):
        return repr(data)


def is_valid_kind(kind: object) -> bool:
    return isinstance(kind, str) and _KIND.fullmatch(kind) is not None


def is_well_known_kind(kind: object) -> bool:
    return isinstance(kind, str) and kind in WELL_KNOWN_KINDS


def semantic_value(value: Any) -> dict[str, Any] | None:
    """The mapping as a dict if it has a valid kind and, for a well-known kind, the fields that kind needs."""
    if not isinstance(value, Mapping):
        return None
    kind = value.get("kind")
    if not is_valid_kind(kind):
        return None
    for name, wanted in _REQUIRED.get(str(kind), {}).items():
        if name not in value or not isinstance(value[name], wanted):
            return None
    return value if type(value) is dict else dict(value)


def structured_form(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """The object that stands for a semantic value in MCP's structuredContent; None where text says it all."""
    if value.get("kind") == "text":
        return None
    if value.get("kind") == "json" and value.keys() == {"kind", "data"}:
        data = value["data"]
        return data if isinstance(data, dict) and semantic_value(data) is None else None
    return dict(value)


RESULT_KEY: Final = "golem-forge/result"
FRAME_KEY: Final = "golem-forge/frame"
_FIELDS: Final = ("value", "text", "content", "structured", "is_error", "meta")
_KNOWN: Final = frozenset({"content", "structuredContent", "isError", "_meta"})
_PYTHON_NAMES: Final = {
    "structured_content": "structuredContent",
    "is_error": "isError",
    "result_type": "resultType",
    "meta": "_meta",
    "mime_type": "mimeType",
    "last_modified": "lastModified",
}
_NESTED: Final = frozenset({"resource", "annotations"})


def to_mcp(result: ToolResult) -> dict[str, Any]:
    frame = _frame(result)
    if "message" in frame:
        return dict(frame["message"])
    bare = _without_frame(result, frame) if frame else result
    written = _write_message(bare, frame)
    if _read_message(written) != bare:
        plain = _without_key(_plain_reading(written))
        written["_meta"] = {**(plain.meta or {}), RESULT_KEY: _difference(plain, bare)}
    return written


def from_mcp(message: Mapping[str, Any]) -> ToolResult:
    """Takes any CallToolResult, also a sloppy one: what is not of the right type is kept and not interpreted."""
    message = dict(message)
    if (quick := _quick_reading(message)) is not None:
        return quick
    plain = _plain_reading(message)
    result = _read_message(message)
    for candidate in (result, _framed(result, message), _framed(plain, message)):
        if to_mcp(candidate) == message:
            return candidate
    return replace(plain, meta={FRAME_KEY: {"message": message}})


def with_json_names(message: Mapping[str, Any]) -> dict[str, Any]:
    """A CallToolResult as the `mcp` package dumps it (`is_error`, `mime_type`, fields that are None) by its JSON names;
    one that has them is as it was."""
    named = _with_json_keys(message)
    if isinstance(blocks := named.get("content"), (list, tuple)):
        named["content"] = [_json_block(block) for block in blocks]
    if type(named.get("resultType")) is str and "result_type" in message:
        del named["resultType"]  # of the package's own frame: always there, and nothing for a reader
    return named


def convert_call_result(value: Any) -> Any:
    """An object of the `mcp` package (which is not imported for this) as a ToolResult; anything else as it is."""
    if not hasattr(value, "model_dump") or not isinstance(getattr(value, "content", None), (list, tuple)):
        return value
    return ToolResult.from_mcp(value) if hasattr(value, "isError") or hasattr(value, "is_error") else value


def _json_block(block: Any) -> Any:
    if hasattr(block, "model_dump"):
        return block.model_dump(mode="json", by_alias=True, exclude_none=True)
    if not isinstance(block, Mapping):
        return block
    return {
        key: _with_json_keys(item) if key in _NESTED and isinstance(item, Mapping) else item
        for key, item in _with_json_keys(block).items()
    }


def _with_json_keys(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Renames the keys of a mapping in Python's spelling. A mapping in wire spelling is returned as it is, with its
    nulls and `meta`.
    """
    if fields.keys().isdisjoint(_PYTHON_NAMES):
        return dict(fields)
    named: dict[str, Any] = {}
    for key, item in fields.items():
        if item is not None:
            named.setdefault(_PYTHON_NAMES.get(key, key), item)
    return named


def block_text(block: Any) -> str:
    """Returns the text that stands for one content block where pictures and sound cannot be shown."""
    if not isinstance(block, Mapping):
        return ""
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource":
        resource = block.get("resource")
        resource = resource if isinstance(resource, Mapping) else {}
        text = resource.get("text")
        return text if isinstance(text, str) else f"[resource {resource.get('uri', '')}]"
    if kind == "resource_link":
        return f"[{block.get('name') or 'resource'}: {block.get('uri', '')}]"
    return f"[{kind} {block.get('mimeType', '')}]".replace(" ]", "]")


def _quick_reading(message: dict[str, Any]) -> ToolResult | None:
    """Reads the usual message, one text and perhaps an object beside it, at a tenth of the cost; None if the message
    needs the full reading.
    """
    blocks = message.get("content")
    if type(blocks) is not list or len(blocks) != 1 or type(blocks[0]) is not dict or len(blocks[0]) != 2:
        return None
    text = blocks[0].get("text")
    if type(text) is not str or not text or blocks[0].get("type") != "text":
        return None
    structured, is_error = message.get("structuredContent"), message.get("isError", False)
    if type(is_error) is not bool:
        return None
    meta = message.get("_meta")
    if "_meta" in message and (type(meta) is not dict or RESULT_KEY in meta or FRAME_KEY in meta):
        return None
    if structured is None:
        if "structuredContent" in message:
            return None
        value: dict[str, Any] = {"kind": "text", "content": text}
    elif type(structured) is dict and "kind" not in structured:
        value = {"kind": "json", "data": structured}
    else:
        return None
    own = None if meta is None else dict(meta)
    if not message.keys() <= _KNOWN or ("isError" in message and not is_error):
        own = _with_frame(own, message)
    return ToolResult(value=value, text=text, structured=structured, is_error=is_error, meta=own)


# The frame: how the message was dressed


def _framed(result: ToolResult, message: dict[str, Any]) -> ToolResult:
    return replace(result, meta=_with_frame(result.meta, message))


def _with_frame(meta: Mapping[str, Any] | None, message: dict[str, Any]) -> dict[str, Any]:
    present = message.keys() & (_KNOWN if meta is not None else _KNOWN - {"_meta"})
    if not message.get("content"):
        present -= {"content"}
    frame = {
        "present": sorted(present),
        "extra": {key: value for key, value in message.items() if key not in _KNOWN},
    }
    return {**(meta or {}), FRAME_KEY: frame}


def _frame(result: ToolResult) -> dict[str, Any]:
    frame = result.meta.get(FRAME_KEY) if result.meta else None
    return frame if isinstance(frame, dict) and frame.keys() in ({"present", "extra"}, {"message"}) else {}


def _without_frame(result: ToolResult, frame: dict[str, Any]) -> ToolResult:
    rest = {key: value for key, value in (result.meta or {}).items() if key != FRAME_KEY}
    return replace(result, meta=rest if rest or "_meta" in frame["present"] else None)


# Writing


def _write_message(result: ToolResult, frame: dict[str, Any]) -> dict[str, Any]:
    present = frame.get("present", ())
    blocks = [*result.content]
    if not blocks and result.text and (not frame or "content" in present):  # else the structured content says it
        blocks = [_text_block(result.text)]
    written: dict[str, Any] = {**frame.get("extra", {}), "content": blocks}
    structured = result.structured
    if structured is None and (not frame or "structuredContent" in present):
        structured = structured_form(result.value)
    if structured is not None or "structuredContent" in present:
        written["structuredContent"] = structured
    if result.is_error or "isError" in present:
        written["isError"] = result.is_error
    if result.meta is not None:
        written["_meta"] = result.meta
    return written


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _difference(plain: ToolResult, result: ToolResult) -> dict[str, Any]:
    """The fields a plain reading gets wrong, as JSON."""
    differing = {name: getattr(result, name) for name in _FIELDS if getattr(plain, name) != getattr(result, name)}
    if "content" in differing:
        differing["content"] = list(differing["content"])
    return differing


# Reading


def _read_message(message: dict[str, Any]) -> ToolResult:
    plain = _plain_reading(message)
    base = _without_key(plain)
    payload = plain.meta.get(RESULT_KEY) if isinstance(plain.meta, dict) else None
    if not _is_payload(payload):
        return plain
    assert isinstance(payload, dict)
    fields = {**payload, "content": tuple(payload["content"])} if "content" in payload else payload
    result = replace(base, **fields)
    # Threat: a foreign server may send our key to show people one thing and the model another. It is believed only
    # where it says what we would have said ourselves about exactly this message.
    honest = _difference(base, result) == payload and _main_fields(_write_message(result, {})) == _main_fields(message)
    return result if honest else plain


def _main_fields(message: Mapping[str, Any]) -> dict[str, Any]:
    essence = {key: message[key] for key in ("content", "structuredContent") if message.get(key) is not None}
    return {**essence, "isError": True} if message.get("isError") else essence


def _is_payload(payload: Any) -> bool:
    if not isinstance(payload, dict) or not payload or not payload.keys() <= set(_FIELDS):
        return False
    return (
        isinstance(payload.get("value", {"kind": "text"}), dict)
        and isinstance(payload.get("value", {"kind": "text"}).get("kind"), str)
        and isinstance(payload.get("text", ""), str)
        and isinstance(payload.get("content", []), list)
        and isinstance(payload.get("is_error", False), bool)
        and isinstance(payload.get("meta", {}), (dict, type(None)))
    )


def _without_key(plain: ToolResult) -> ToolResult:
    rest = {key: value for key, value in (plain.meta or {}).items() if key != RESULT_KEY}
    return replace(plain, meta=rest or None)


def _plain_reading(message: Mapping[str, Any]) -> ToolResult:
    raw = message.get("content")
    blocks = raw if isinstance(raw, list) else []
    text = "\n".join(map(block_text, blocks))
    structured = message.get("structuredContent")
    meta = message.get("_meta")
    if structured is None:
        value: dict[str, Any] = {"kind": "text", "content": text}
    else:
        value = semantic_value(structured) or {"kind": "json", "data": structured}
    return ToolResult(
        value=value,
        text=text if blocks else text_of(value),
        content=() if text and blocks == [_text_block(text)] else tuple(blocks),
        structured=structured,
        is_error=message.get("isError") is True,
        meta=dict(meta) if isinstance(meta, Mapping) else None,
    )
