"""The parts of a resource as a caller gets them: text as it is, binary parts kept and named by handle, type and size.

Kept as base64 in lines: what reads kept outputs reads text, and so every byte can be had back. Secrets are taken out
first, as from everything that is kept. A part that is neither says so; it never fails the others.
"""

from __future__ import annotations

from typing import Any, Final

from golem_forge.core.errors import ToolFailed
from golem_forge.core.visible import visible
from golem_forge.tools.context import ToolContext

_UNKNOWN_TYPE: Final = "application/octet-stream"
_LONGEST_TYPE: Final = 200
_MOST_PARTS: Final = 1000


async def plain_parts(contents: Any, ctx: ToolContext) -> list[dict[str, Any]]:
    from golem_forge.tools.threads import run_in_thread

    parts = contents if isinstance(contents, list) else []
    if len(parts) > _MOST_PARTS:
        raise ToolFailed(f"The resource has {len(parts)} parts, more than {_MOST_PARTS}.", code="TOO_LARGE")
    return await run_in_thread(lambda: [_plain(part, ctx) for part in parts if isinstance(part, dict)])


def _plain(part: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
    if isinstance(part.get("text"), str):
        return {name: part[name] for name in ("uri", "mimeType", "text") if isinstance(part.get(name), str)}
    kind = part.get("mimeType")
    shown = visible(kind[:_LONGEST_TYPE]) if isinstance(kind, str) and kind else _UNKNOWN_TYPE
    data = _decoded(part.get("blob"))
    if data is None:
        return {"mimeType": shown, "error": "neither text nor valid base64"}
    return {"mimeType": shown, "bytes": len(data), "handle": _kept(data, ctx)}


def _decoded(blob: Any) -> bytes | None:
    from base64 import b64decode

    try:
        return b64decode(blob, validate=True) if isinstance(blob, str) else None
    except ValueError:
        return None


def _kept(data: bytes, ctx: ToolContext) -> str:
    from base64 import encodebytes

    if ctx.outputs is None:
        raise ToolFailed("The resource is binary, and there is no place to keep it.", code="NO_OUTPUTS")
    if ctx.redactor is not None:
        text = data.decode("utf-8", "surrogateescape")
        clean = ctx.redactor.secrets_out(text)
        data = clean.encode("utf-8", "surrogateescape") if clean != text else data
    return ctx.outputs.keep_pieces((encodebytes(data),), ctx.worker)
