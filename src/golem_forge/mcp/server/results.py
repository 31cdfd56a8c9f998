"""Outcome → CallToolResult, for the version the client speaks.

A success is its ToolResult, kinds and all; anything else has `isError` and `<status>: <message>` as its first line.
Every result says in `_meta` what became of the call. Blocks that the client's version does not know, or that a proxied
server wrote wrongly, become text: one such block would cost the client the whole answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from golem_forge.core.call import Outcome
from golem_forge.core.result import ToolResult
from golem_forge.tools.mcp_results import block_text, to_mcp

OUTCOME_KEY: Final = "golem-forge/outcome"
OUTPUT_URI: Final = "forge://output/"
_SINCE: Final = {"audio": "2025-03-26", "resource_link": "2025-06-18"}


def call_result(outcome: Outcome, version: str) -> dict[str, Any]:
    from golem_forge.mcp.server.sdk import MODERN_PROTOCOL_VERSIONS as MODERN

    written = _success(outcome) if outcome.ok else _failure(outcome)
    written["content"] = [_known(block, version) for block in _as_list(written.get("content"))]
    if version in MODERN:
        written["resultType"] = "complete"
    elif not isinstance(written.get("structuredContent"), dict):
        written.pop("structuredContent", None)  # objects only, in the handshake era; its text is there
    meta = written.get("_meta")
    written["_meta"] = {**(meta if isinstance(meta, dict) else {}), OUTCOME_KEY: outcome_facts(outcome)}
    return written


def outcome_facts(outcome: Outcome) -> dict[str, Any]:
    return {
        "status": outcome.status.value,
        "callId": outcome.call.id,
        "durationMs": round(outcome.duration_ms, 3),
    }


def _success(outcome: Outcome) -> dict[str, Any]:
    result = outcome.result or ToolResult(value={"kind": "text", "content": ""})
    if outcome.output_handle:
        result = replace(result, text=_naming_resource(result.text, outcome.output_handle))
    written = dict(to_mcp(replace(result, is_error=False)))
    if notes := (*outcome.left_lines, *outcome.notes):
        written["content"] = [_text("\n".join(notes)), *_as_list(written.get("content"))]
    return written


def _failure(outcome: Outcome) -> dict[str, Any]:
    result = outcome.result
    body = result.text if result is not None else ""
    error = outcome.error or body or "no reason was given"
    lines = [f"{outcome.status.value}: {error}", *outcome.left_lines, *outcome.notes]
    if body and body not in error:
        lines.append(body)
    text = "\n".join(lines)
    if outcome.output_handle:
        text = _naming_resource(text, outcome.output_handle)
    written = dict(to_mcp(result)) if result is not None else {}
    others = [block for block in _as_list(written.get("content")) if not _is_text(block)]
    return {**written, "content": [_text(text), *others], "isError": True}


def _naming_resource(text: str, handle: str) -> str:
    """Where the whole output is, for a client that may not have `read_output`."""
    named = f"read_output handle={handle}"
    uri = OUTPUT_URI + handle
    return text.replace(named, f"{uri} or {named}", 1) if named in text else f"{text}\n[whole output: {uri}]"


def _known(block: Any, version: str) -> dict[str, Any]:
    """The block, if this version has its kind and it is well made; else its text."""
    if _is_text(block):
        return block if isinstance(block.get("text"), str) else _text(block_text(block))
    kind = block.get("type") if isinstance(block, dict) else None
    if isinstance(kind, str) and version >= _SINCE.get(kind, "") and _well_made(block):
        return dict(block)
    return _text(block_text(block))


def _well_made(block: dict[str, Any]) -> bool:
    from golem_forge.mcp.server.sdk import TypeAdapter, ValidationError, types

    global _blocks
    _blocks = _blocks or TypeAdapter(types.ContentBlock)
    try:
        _blocks.validate_python(block, by_name=False)
    except ValidationError:
        return False
    return True


_blocks: Any = None


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, (str, dict)) else []


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text"


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
