"""Resources and prompts that `forge mcp serve` offers: of zones, of the program, of proxied servers, a client's
outputs.

`forge://zone/<zone>/<path>` and `forge://mcp/<server>/<percent-encoded uri>` are read with the tools that a model would
use, `notes://today` of the program's own (`@resource`) with its function, all on the one path, so policy and journal
apply. `forge://output/<handle>` returns what was cut from a client's own results, to that client only: up to 12 MiB
whole, in parts of at most 4 MiB, and with `?offset=BYTE&length=BYTES` a range of it, whatever its size. A range has the
characters that begin in it, so that ranges side by side are the whole. Listed are a client's outputs, the program's
resources, and those of proxied servers that may be listed unasked.

`PromptHandler` serves `prompts/list`, `prompts/get` and `completion/complete`: the program's own prompts (`@prompt`),
and those of proxied servers as `<server>__<prompt>`; a name that both have is the program's. Completion comes from
lists, functions or the server, and never asks anybody.

Threat: everything a client sends is hostile, and so is what a proxied server answers. Names, numbers and sizes are
bounded; a client sees only its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping
from typing import Any, BinaryIO, Final
from urllib.parse import quote, unquote

from golem_forge.core.calls import Outcome
from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.client.resources import PromptCommand, prompt_commands
from golem_forge.mcp.server.calls import OUTPUT_URI, CallHandler, outcome_facts, supported_block
from golem_forge.mcp.server.clients import ClientRegistry, ExportedToolList
from golem_forge.mcp.server.host import ClientHandle, ServedCalls
from golem_forge.mcp.server.sdk import MODERN_PROTOCOL_VERSIONS, Context, MCPError, types
from golem_forge.tools.factory import MOST_VALUES, match_uri, uri_variables
from golem_forge.tools.tool import Tool

ZONE_URI: Final = "forge://zone/"
MCP_URI: Final = "forge://mcp/"
MOST_BYTES: Final = 4 << 20
MOST_WHOLE_BYTES: Final = 12 << 20
"""Clients bound an answer too, Forge's at 16 MiB."""
RANGE_BYTES: Final = 512 << 10
"""Default length of a range; many clients take 1 MiB at most."""
_RANGE: Final = regex(r"offset=(?P<offset>\d{1,15})(&length=(?P<length>\d{1,15}))?", re.ASCII)
_MOST_FOLLOWING: Final = 3
"""Maximum bytes of a UTF-8 character after its first one."""
MOST_LISTED: Final = 2000
_MOST_SERVERS: Final = 50
_MOST_PAGES: Final = 160
_NOT_FOUND: Final = -32002
LONGEST_URI: Final = 16 * 1024
_LONGEST_OWN_URI: Final = 2000
_PLAIN: Final = "text/plain"


class ResourceHandler:
    def __init__(
        self,
        clients: ClientRegistry,
        calls: CallHandler,
        listing: ExportedToolList,
        host: ServedCalls,
        redactor: Redactor,
    ) -> None:
        self._clients = clients
        self._calls = calls
        self._listing = listing
        self._host = host
        self._redactor = redactor

    async def list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        kept = self._clients.client_of(ctx).outputs()
        listed = [
            types.Resource(uri=OUTPUT_URI + handle, name=handle, title=f"Whole output of {tool}", mime_type=_PLAIN)
            for handle, tool in kept.items()
        ]
        listed += [
            types.Resource.model_validate({"uri": own["uri"], **self._shown(tool, own)}, by_name=False)
            for tool, own in self._own()
            if not uri_variables(own["uri"])
        ]
        listed += await self._of_servers(ctx, "list_mcp_resources", "resources", types.Resource)
        return types.ListResourcesResult(resources=listed[:MOST_LISTED])

    async def list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        known = [(OUTPUT_URI + "{handle}", "output", "An output of this connection that was too long to be sent whole")]
        if "read_file" in self._listing:
            known.insert(0, (ZONE_URI + "{zone}/{+path}", "zone file", "A text file in a zone"))
        if "read_mcp_resource" in self._listing:
            known.append((MCP_URI + "{server}/{uri}", "proxied resource", "A resource of a connected MCP server"))
        listed = [
            types.ResourceTemplate(uri_template=template, name=name, description=about)
            for template, name, about in known
        ]
        listed += [
            types.ResourceTemplate.model_validate({"uriTemplate": own["uri"], **self._shown(tool, own)}, by_name=False)
            for tool, own in self._own()
            if uri_variables(own["uri"])
        ]
        return types.ListResourceTemplatesResult(resource_templates=listed)

    def _own(self) -> list[tuple[Tool, Mapping[str, Any]]]:
        return [(tool, tool.annotations["resource"]) for tool in self._host.offers.reserved("resource")]

    def _shown(self, tool: Tool, own: Mapping[str, Any]) -> dict[str, Any]:
        told = {"name": own_name(tool), "title": tool.label, "description": tool.description}
        shown: dict[str, Any] = self._redactor.without_secrets({**told, "mimeType": own.get("mimeType")})
        return {name: value for name, value in shown.items() if value}

    async def _of_servers(self, ctx: Context, tool: str, member: str, kind: Any) -> list[Any]:
        """Returns what proxied servers list, if that asks nobody; each is asked by itself, so that a failure leaves the
        others.
        """
        offers = self._host.offers
        pool = offers.access.pool
        if pool is None or tool not in self._listing:
            return []
        servers = [name for name in offers.access.servers_of(offers.worker) if _has_resources(pool.manifest(name))]
        asked = [self._calls.unasked(ctx, tool, {"server": name}) for name in servers[:_MOST_SERVERS]]
        found: list[Any] = []
        for server, outcome in zip(servers, await asyncio.gather(*asked), strict=False):
            data = outcome.result.value.get("data") if outcome.ok and outcome.result is not None else None
            if outcome.output_handle and not isinstance(data, dict):
                data = stored_output(self._clients.client_of(ctx).guest, outcome.output_handle)
            for entry in data.get(member) or () if isinstance(data, dict) else ():
                found += _passed_on(entry, server, kind)
        return found[:MOST_LISTED]

    async def read(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        uri = params.uri
        if len(uri) <= LONGEST_URI:
            if uri.startswith(OUTPUT_URI):
                return _contents(self._output(ctx, uri))
            if uri.startswith(ZONE_URI):
                return await self._file(ctx, params, "/" + unquote(uri.removeprefix(ZONE_URI)))
            server, _, rest = uri.removeprefix(MCP_URI).partition("/")
            if uri.startswith(MCP_URI) and server and rest:
                return await self._proxied(ctx, params, unquote(server), unquote(rest))
            if (own := self.find(uri)) is not None:
                return await self._program(ctx, params, *own)
        raise resource_not_found(ctx, uri)

    def find(self, uri: str) -> tuple[Tool, dict[str, Any]] | None:
        """The program's resource of this URI, and the arguments of its function."""
        for tool, own in self._own() if len(uri) <= _LONGEST_OWN_URI else ():
            found = match_uri(own["uri"], uri)
            if found is not None:
                return tool, typed_values(tool, found)
        return None

    async def may_read(self, ctx: Context, uri: str) -> bool:
        """Whether this client may read it now, without being asked: by reading it, on the one path."""
        if uri.startswith(OUTPUT_URI):
            return uri.removeprefix(OUTPUT_URI) in self._clients.client_of(ctx).outputs()
        if uri.startswith(ZONE_URI):
            path = "/" + unquote(uri.removeprefix(ZONE_URI))
            return (await self._calls.unasked(ctx, "read_file", {"path": path, "limit": 1})).ok
        server, _, rest = uri.removeprefix(MCP_URI).partition("/")
        if uri.startswith(MCP_URI) and server and rest:
            args = {"server": unquote(server), "uri": unquote(rest)}
            return (await self._calls.unasked(ctx, "read_mcp_resource", args)).ok
        own = self.find(uri)
        return own is not None and (await self._calls.unasked(ctx, own[0].name, own[1])).ok

    async def _program(
        self, ctx: Context, params: types.ReadResourceRequestParams, tool: Tool, args: dict[str, Any]
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        read = await self._calls.outcome(ctx, params, tool.name, args)
        if not isinstance(read, Outcome):
            return read
        value = _value(ctx, read, params.uri)
        data = value.get("data")
        if read.output_handle and not _is_content(data):
            data = stored_output(self._clients.client_of(ctx).guest, read.output_handle)
        if not isinstance(data, dict) or not _is_content(data):
            raise _internal_error(f"'{escape_control_chars(params.uri[:200])}' is too large to be sent")
        return _contents([{"uri": params.uri, **data}])

    def _output(self, ctx: Context, uri: str) -> list[dict[str, Any]]:
        client = self._clients.client_of(ctx)
        handle, mark, query = uri.removeprefix(OUTPUT_URI).partition("?")
        path = client.guest.output(handle) if handle in client.outputs() else None
        wanted = _RANGE.fullmatch(query) if mark else None
        if path is None or (mark and wanted is None):
            raise resource_not_found(ctx, uri)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if wanted is not None:
                return [_range(file, handle, int(wanted["offset"]), int(wanted["length"] or RANGE_BYTES), size)]
            if size <= MOST_BYTES:
                return [{"uri": uri, "mimeType": _PLAIN, "text": file.read(MOST_BYTES).decode("utf-8", "replace")}]
            if size <= MOST_WHOLE_BYTES:
                return [_range(file, handle, offset, MOST_BYTES, size) for offset in range(0, size, MOST_BYTES)]
        raise _internal_error(
            f"'{uri}' has {size} bytes; read it in ranges: {uri}?offset=0&length={RANGE_BYTES}, "
            f"then offset={RANGE_BYTES} and so on"
        )

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
            data = stored_output(guest, read.output_handle)
        found = data.get("contents") if isinstance(data, dict) else None
        parts = [_part(guest, part, params.uri) for part in found or () if isinstance(part, dict)]
        if not parts:
            raise _internal_error(
                f"'{escape_control_chars(uri[:200])}' of {escape_control_chars(server[:100])} has no content "
                "that can be passed on"
            )
        return _contents(parts)


def _value(ctx: Context, outcome: Outcome, uri: str) -> dict[str, Any]:
    """Returns the value that was read; raises MCPError with the reason if it was not."""
    if outcome.ok and outcome.result is not None:
        return outcome.result.value
    if outcome.status is Status.TOOL_NOT_FOUND:
        raise resource_not_found(ctx, uri)
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


def stored_output(guest: ClientHandle, handle: str) -> Any:
    """A value too large for a result is whole in its kept text."""
    path = guest.output(handle)
    if path is None or path.stat().st_size > MOST_BYTES * 2:
        return None
    try:
        return json.loads(path.read_text("utf-8", "replace"))
    except ValueError:
        return None


def _range(file: BinaryIO, handle: str, offset: int, length: int, size: int) -> dict[str, Any]:
    """The characters that begin in these bytes: the end of the last one is read too, that of the one before is not."""
    length = min(length, MOST_BYTES)
    file.seek(min(offset, size))
    data = file.read(length + _MOST_FOLLOWING)
    start = _following(data, 0) if offset else 0
    end = _following(data, length)
    return {
        "uri": f"{OUTPUT_URI}{handle}?offset={offset}&length={length}",
        "mimeType": _PLAIN,
        "text": data[start:end].decode("utf-8", "replace"),
        "_meta": {"golem-forge/range": {"offset": offset, "length": length, "size": size}},
    }


def _following(data: bytes, place: int) -> int:
    """Behind the bytes at that place that belong to a character which began before."""
    last = min(place + _MOST_FOLLOWING, len(data))
    while place < last and data[place] & 0xC0 == 0x80:
        place += 1
    return place


def _contents(parts: list[dict[str, Any]]) -> types.ReadResourceResult:
    return types.ReadResourceResult.model_validate({"contents": parts}, by_name=False)


def _missing_code(ctx: Context) -> int:
    return types.INVALID_PARAMS if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else _NOT_FOUND


def resource_not_found(ctx: Context, uri: str) -> Exception:
    shown = escape_control_chars(uri[:200])
    return MCPError(_missing_code(ctx), f"Resource not found: {shown}", {"uri": shown})


def _internal_error(message: str) -> Exception:
    return MCPError(types.INTERNAL_ERROR, message)


def _is_content(data: Any) -> bool:
    return isinstance(data, dict) and ("text" in data or "blob" in data)


def _has_resources(manifest: Any) -> bool:
    return manifest is None or bool(manifest.has_resources)


def _passed_on(entry: Any, server: str, kind: Any) -> list[Any]:
    """A server's entry under our own URI. Threat: an entry that is no resource costs nobody else theirs."""
    uri = entry.get("uri") if isinstance(entry, dict) else None
    if not isinstance(uri, str) or len(uri) > LONGEST_URI // 4:
        return []
    told = {
        name: entry[name] for name in ("name", "title", "description", "mimeType") if isinstance(entry.get(name), str)
    }
    shown = {name: escape_control_chars(text[:1000]) for name, text in told.items()}
    own = f"{MCP_URI}{quote(server, safe='')}/{quote(uri, safe='')}"
    return [kind.model_validate({"name": uri[:200], **shown, "uri": own}, by_name=False)]


def own_name(tool: Tool) -> str:
    """Returns the name of a program's prompt or resource for clients."""
    return tool.name.partition(":")[2]


def typed_values(tool: Tool, given: Mapping[str, str]) -> dict[str, Any]:
    """Clients send texts; a parameter that is a number, a truth or a list gets one where the text is one."""
    properties = tool.input_schema.get("properties", {})
    return {name: _typed(text, properties.get(name)) for name, text in given.items()}


def _typed(text: str, schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind in (None, "string"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_LONGEST_NAME: Final = 200


class PromptHandler:
    def __init__(self, clients: ClientRegistry, calls: CallHandler, host: ServedCalls, redactor: Redactor) -> None:
        self._clients = clients
        self._calls = calls
        self._host = host
        self._redactor = redactor
        self._known: tuple[object, list[dict[str, Any]]] = (None, [])
        """What `entries` gave last, and what it was made from."""

    async def list_prompts(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        return types.ListPromptsResult.model_validate({"prompts": self.entries()}, by_name=False)

    def entries(self) -> list[dict[str, Any]]:
        """Returns the prompts for clients: the program's, then those of servers; a shared name is the program's. The
        same list until something changes.
        """
        pool = self._host.offers.access.pool
        now = (self._own(), pool.version if pool is not None else 0, self._redactor.version)
        if self._known[0] == now:
            return self._known[1]
        found = {
            own_name(tool): _prompt(own_name(tool), tool.description, tool.input_schema, tool.label)
            for tool in self._own().values()
        }
        for name, command in self._proxied().items():
            found.setdefault(name, _prompt(name, command.description, command.schema))
        shown: list[dict[str, Any]] = self._redactor.without_secrets(list(found.values())[:MOST_LISTED])
        self._known = (now, shown)
        return shown

    async def get(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        tool, args = self._meant(params.name, params.arguments or {})
        came = await self._calls.outcome(ctx, params, tool, args)
        if not isinstance(came, Outcome):
            return came
        if came.status is Status.TOOL_NOT_FOUND:
            raise _unknown_prompt(params.name)
        if not came.ok or came.result is None:
            code = types.INVALID_PARAMS if came.status is Status.INPUT_INVALID else types.INTERNAL_ERROR
            raise MCPError(code, f"{came.status.value}: {came.error}", outcome_facts(came))
        data = came.result.value.get("data")
        if came.output_handle and not (isinstance(data, dict) and "messages" in data):
            data = stored_output(self._clients.client_of(ctx).guest, came.output_handle)
        messages = [_message(each, ctx.protocol_version) for each in _listed(data, "messages")]
        about = data.get("description") if isinstance(data, dict) else None
        told = {"description": about} if isinstance(about, str) else {}
        return types.GetPromptResult.model_validate({**told, "messages": messages}, by_name=False)

    def _meant(self, name: str, given: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """The reserved tool behind a prompt, and its arguments. Raises MCPError."""
        if len(name) <= _LONGEST_NAME:
            if (tool := self._own().get(name)) is not None:
                return tool.name, typed_values(tool, given)
            if (command := self._proxied().get(name)) is not None:
                return "server:prompt", {"server": command.server, "prompt": command.prompt, "arguments": dict(given)}
        raise _unknown_prompt(name)

    def _own(self) -> dict[str, Tool]:
        return {own_name(tool): tool for tool in self._host.offers.reserved("prompt")}

    def _proxied(self) -> dict[str, PromptCommand]:
        offers = self._host.offers
        pool = offers.access.pool
        if pool is None or not offers.reserved("server"):
            return {}
        return prompt_commands(pool, offers.access.servers_of(offers.worker))

    # Completion

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Values for an argument of a prompt or a resource template. A request for it never asks anybody."""
        argument, typed = params.argument.name, params.argument.value
        others = dict(params.context.arguments or {}) if params.context is not None else {}
        if isinstance(params.ref, types.PromptReference):
            found = await self._of_prompt(ctx, params.ref.name, argument, typed, others)
        else:
            found = await self._of_template(ctx, params.ref.uri, argument, typed, others)
        values = [str(each)[:_LONGEST_NAME] for each in found]
        completion = types.Completion(
            values=values[:MOST_VALUES], total=len(values), has_more=len(values) > MOST_VALUES
        )
        return types.CompleteResult(completion=completion)

    async def _of_prompt(self, ctx: Context, name: str, argument: str, typed: str, others: dict[str, str]) -> list[Any]:
        if (tool := self._own().get(name)) is not None:
            return await self._completed(ctx, tool, tool.annotations["prompt"], (argument, typed, others))
        if (command := self._proxied().get(name)) is not None:
            ref = {"type": "ref/prompt", "name": command.prompt}
            args = {"server": command.server, "ref": ref, "argument": argument, "value": typed, "others": others}
            return _listed(_data(await self._calls.unasked(ctx, "server:complete", args)), "values")
        raise _unknown_prompt(name)

    async def _of_template(
        self, ctx: Context, uri: str, argument: str, typed: str, others: dict[str, str]
    ) -> list[Any]:
        for tool in self._host.offers.reserved("resource"):
            own = tool.annotations["resource"]
            if own["uri"] == uri:
                return await self._completed(ctx, tool, own, (argument, typed, others))
        if uri.startswith((ZONE_URI, OUTPUT_URI, MCP_URI)):
            return []
        raise resource_not_found(ctx, uri)

    async def _completed(
        self, ctx: Context, tool: Tool, told: Mapping[str, Any], asked: tuple[str, str, dict[str, str]]
    ) -> list[Any]:
        argument, typed, others = asked
        known = told.get("complete") or {}
        if argument not in tool.input_schema.get("properties", {}):
            shown = escape_control_chars(argument[:_LONGEST_NAME])
            raise MCPError(types.INVALID_PARAMS, f"{own_name(tool)} has no argument '{shown}'")
        if (values := known.get(argument)) is not None:
            return [each for each in values if each.lower().startswith(typed.lower())]
        if argument not in known and "*" not in known:
            return []
        args = {"argument": argument, "value": typed, "others": others}
        found = _data(await self._calls.unasked(ctx, f"complete:{tool.name}", args))
        return found if isinstance(found, list) else []


def _unknown_prompt(name: str) -> Exception:
    return MCPError(types.INVALID_PARAMS, f"Unknown prompt: {escape_control_chars(name[:_LONGEST_NAME])}")


def _prompt(name: str, about: str, schema: Mapping[str, Any], title: str = "") -> dict[str, Any]:
    required = schema.get("required") or ()
    arguments = [
        {"name": each, **_described(said), "required": each in required}
        for each, said in (schema.get("properties") or {}).items()
    ]
    told = {"name": name, "title": title, "description": about or f"The prompt {name}", "arguments": arguments}
    return {key: value for key, value in told.items() if value}


def _described(said: Any) -> dict[str, str]:
    about = said.get("description") if isinstance(said, Mapping) else None
    return {"description": about} if isinstance(about, str) and about else {}


def _message(message: Any, version: str) -> dict[str, Any]:
    given = message if isinstance(message, dict) else {}
    role = "assistant" if given.get("role") == "assistant" else "user"
    return {"role": role, "content": supported_block(given.get("content"), version)}


def _listed(data: Any, member: str) -> list[Any]:
    found = data.get(member) if isinstance(data, dict) else None
    return found[:MOST_LISTED] if isinstance(found, list) else []


def _data(outcome: Outcome) -> Any:
    return outcome.result.value.get("data") if outcome.ok and outcome.result is not None else None
