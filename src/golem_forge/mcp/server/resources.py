"""Resources: files in zones, stored outputs of this client, resources of proxied servers. Read-only.

`forge://zone/<zone>/<path>` and `forge://mcp/<server>/<percent-encoded uri>` are read with the tools that a model would
use, on the one path, so policy and journal apply. `forge://output/<handle>` returns what was cut from a client's own
results, to that client only. Only a client's outputs are listed; resources of proxied servers are listed by
`list_mcp_resources`, which may have to ask first.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import unquote

from golem_forge.core.calls import Outcome
from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.text import escape_control_chars
from golem_forge.mcp.server.calls import OUTPUT_URI, CallHandler, outcome_facts
from golem_forge.mcp.server.clients import ClientRegistry
from golem_forge.mcp.server.host import ClientHandle
from golem_forge.mcp.server.sdk import MODERN_PROTOCOL_VERSIONS, Context, MCPError, types
from golem_forge.mcp.server.tool_list import ExportedToolList

ZONE_URI: Final = "forge://zone/"
MCP_URI: Final = "forge://mcp/"
MOST_BYTES: Final = 4 << 20
_MOST_PAGES: Final = 160
_NOT_FOUND: Final = -32002
_LONGEST_URI: Final = 16 * 1024
_PLAIN: Final = "text/plain"


class ResourceHandler:
    def __init__(self, clients: ClientRegistry, calls: CallHandler, listing: ExportedToolList) -> None:
        self._clients = clients
        self._calls = calls
        self._listing = listing

    async def list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        kept = self._clients.client_of(ctx).outputs()
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=OUTPUT_URI + handle, name=handle, title=f"Whole output of {tool}", mime_type=_PLAIN)
                for handle, tool in kept.items()
            ]
        )

    async def list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        known = [(OUTPUT_URI + "{handle}", "output", "An output of this connection that was too long to be sent whole")]
        if "read_file" in self._listing:
            known.insert(0, (ZONE_URI + "{zone}/{+path}", "zone file", "A text file in a zone"))
        if "read_mcp_resource" in self._listing:
            known.append((MCP_URI + "{server}/{uri}", "proxied resource", "A resource of a connected MCP server"))
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(uri_template=template, name=name, description=about)
                for template, name, about in known
            ]
        )

    async def read(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        uri = params.uri
        if len(uri) <= _LONGEST_URI:
            if uri.startswith(OUTPUT_URI):
                return _contents([self._output(ctx, uri)])
            if uri.startswith(ZONE_URI):
                return await self._file(ctx, params, "/" + unquote(uri.removeprefix(ZONE_URI)))
            server, _, rest = uri.removeprefix(MCP_URI).partition("/")
            if uri.startswith(MCP_URI) and server and rest:
                return await self._proxied(ctx, params, unquote(server), unquote(rest))
        raise _not_found(ctx, uri)

    def _output(self, ctx: Context, uri: str) -> dict[str, Any]:
        client = self._clients.client_of(ctx)
        handle = uri.removeprefix(OUTPUT_URI)
        path = client.guest.output(handle) if handle in client.outputs() else None
        if path is None:
            raise _not_found(ctx, uri)
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise _internal_error(
                f"'{uri}' is larger than {MOST_BYTES >> 20} MiB; read it in pages: read_output handle={handle}"
            )
        return {"uri": uri, "mimeType": _PLAIN, "text": data.decode("utf-8", "replace")}

    async def _file(
        self, ctx: Context, params: types.ReadResourceRequestParams, path: str
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        """Page by page, as `read_file` gives them. What a person was asked about is read once: the first page."""
        parts: list[str] = []
        line = 1
        for _ in range(_MOST_PAGES):
            page = await self._calls.outcome(ctx, params, "read_file", {"path": path, "offset": line, "limit": 10_000})
            if not isinstance(page, Outcome):
                return page
            value = _value(ctx, page, params.uri)
            if int(value.get("size", 0)) > MOST_BYTES:  # each page costs a look at the whole
                break
            parts.append(str(value.get("content", "")))
            line = int(value.get("end_line", 0)) + 1
            asked = page.decision is None or page.decision.verdict is not Verdict.PRE_APPROVED
            if line > int(value.get("total_lines", 0)) or asked:
                return _contents([{"uri": params.uri, "mimeType": _PLAIN, "text": "".join(parts)}])
        raise _internal_error(
            f"'{path}' is larger than {MOST_BYTES >> 20} MiB; read it in pages: read_file path offset limit"
        )

    async def _proxied(
        self, ctx: Context, params: types.ReadResourceRequestParams, server: str, uri: str
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        read = await self._calls.outcome(ctx, params, "read_mcp_resource", {"server": server, "uri": uri})
        if not isinstance(read, Outcome):
            return read
        value = _value(ctx, read, params.uri)
        guest = self._clients.client_of(ctx).guest
        data = value.get("data", value)
        if read.output_handle and not (isinstance(data, dict) and "contents" in data):
            data = _stored_output(guest, read.output_handle)
        found = data.get("contents") if isinstance(data, dict) else None
        parts = [_part(guest, part, params.uri) for part in found or () if isinstance(part, dict)]
        if not parts:
            raise _internal_error(
                f"'{escape_control_chars(uri[:200])}' of {escape_control_chars(server[:100])} has no content "
                "that can be passed on"
            )
        return _contents(parts)


def _value(ctx: Context, outcome: Outcome, uri: str) -> dict[str, Any]:
    """What was read, or the error that says why it was not."""
    if outcome.ok and outcome.result is not None:
        return outcome.result.value
    if outcome.status is Status.TOOL_NOT_FOUND:
        raise _not_found(ctx, uri)
    missing = outcome.status in (Status.EXECUTION_FAILED, Status.INPUT_INVALID)
    code = _missing_code(ctx) if missing else types.INTERNAL_ERROR
    raise MCPError(code, f"{outcome.status.value}: {outcome.error}", outcome_facts(outcome))


def _part(guest: ClientHandle, part: dict[str, Any], uri: str) -> dict[str, Any]:
    """One part of a proxied resource: text as it is, bytes from where they were kept (base64, in lines)."""
    plain = {"uri": uri}
    if isinstance(kind := part.get("mimeType"), str):
        plain["mimeType"] = kind
    if isinstance(text := part.get("text"), str):
        return {**plain, "text": text}
    path = guest.output(str(part.get("handle", "")))
    if path is None or path.stat().st_size > MOST_BYTES * 2:
        return {**plain, "text": str(part.get("error") or f"[{part.get('bytes', '?')} bytes, too large to be sent]")}
    return {**plain, "blob": "".join(path.read_text("ascii", "replace").split())}


def _stored_output(guest: ClientHandle, handle: str) -> Any:
    """A value too large for a result is whole in its kept text."""
    path = guest.output(handle)
    if path is None or path.stat().st_size > MOST_BYTES * 2:
        return None
    try:
        return json.loads(path.read_text("utf-8", "replace"))
    except ValueError:
        return None


def _contents(parts: list[dict[str, Any]]) -> types.ReadResourceResult:
    return types.ReadResourceResult.model_validate({"contents": parts}, by_name=False)


def _missing_code(ctx: Context) -> int:
    return types.INVALID_PARAMS if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else _NOT_FOUND


def _not_found(ctx: Context, uri: str) -> Exception:
    shown = escape_control_chars(uri[:200])
    return MCPError(_missing_code(ctx), f"Resource not found: {shown}", {"uri": shown})


def _internal_error(message: str) -> Exception:
    return MCPError(types.INTERNAL_ERROR, message)
