"""MCP servers: their state and prompts, letting one start, agreeing to a new or changed definition, reconnecting.

The same actions as `forge mcp approve` and `/mcp reconnect`, in the same trust file. A yes names the digest of what was
shown, and is refused (409) when configuration or definition differ by now. A session that does not run here shows its
servers as they would start; it has no prompts.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any, Final

from pydantic import Field

from golem_forge.agent import mcp_status
from golem_forge.agent.mcp_status import KnownServer, ServerInventory
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.slash.invocation import prompts_of
from golem_forge.core.errors import ForgeError
from golem_forge.core.text import escape_control_chars, nearest_remark
from golem_forge.events.serialization import iso_time
from golem_forge.mcp.client.approval_text import server_card
from golem_forge.mcp.client.model import RemoteTool, ServerStatus, ServerToolList
from golem_forge.mcp.client.pool import Pool
from golem_forge.mcp.client.resources import ServerAccess
from golem_forge.mcp.client.tool_list import awaiting_approval, definition_to_approve, is_awaiting_approval
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api import ApiModel, ApiRefusal
from golem_forge.ui.web.api.operation import RequestedSession, operation

_MAX_WAIT_S: Final = 20
"""Then it is shown as it is: connecting."""
_CHANGED: Final = "It changed after the page showed it; read it again, then agree."
_REFUSALS: Final = {404: "no such server, or no such tool of it", 409: "what was shown is not what is there now"}


class ServerTool(ApiModel, title="ServerTool"):
    """One tool of a server, offered under `name`, called `tool` by the server itself."""

    name: str
    tool: str
    title: str = ""
    description: str = ""
    pin: str
    """`pinned`, or `new`: it came after the first list, and its first call asks."""
    offered: bool
    digest: str
    annotations: dict[str, Any] = Field(default_factory=dict)
    definition: str = ""
    """Of a new one, every line of what would be agreed to."""


class HeldBackTool(ApiModel, title="HeldBack"):
    """A tool of a server that nobody can call, and why."""

    name: str
    tool: str
    reason: str
    """`drift`, `schema_invalid`, `entry_invalid`, `hidden_text`."""
    message: str
    diff: str | None = None
    """`drift`: from the definition that was pinned to the present one."""
    digest: str = ""
    """`drift`: what a yes is given to. Empty: nobody can agree to it."""


class ServerModel(ApiModel, title="Server"):
    name: str
    state: str
    error: str | None = None
    retry_at: str | None = None
    transport: str
    origin: str
    approved: bool
    trust: str
    required: bool
    tools: int | None = None
    """How many are offered; null: not known yet."""
    held: int = 0
    protocol: str | None = None
    digest: str
    """Of its configuration: what a yes to start it is given to."""
    card: str
    """What a person agrees to by that yes, line by line."""
    config_diff: str | None = None
    """What changed in it since somebody agreed."""
    last_words: list[str] = Field(default_factory=list)
    """The end of its stderr, where it failed."""
    offers: list[ServerTool] = Field(default_factory=list)
    held_back: list[HeldBackTool] = Field(default_factory=list)
    prompts: list[str] = Field(default_factory=list)
    diagnostics: list[str] = Field(default_factory=list)


class ApproveServerRequest(ApiModel, title="Shown-Input"):
    """The digest of what the person read before they said yes."""

    digest: str = Field(max_length=200)


class AgreeRequest(ApproveServerRequest, title="ShownDefinition"):
    tool: str = Field(max_length=500)
    """By the server's own name for it, as `tool` has it."""


_server_action = partial(operation, tag="servers", refusals=_REFUSALS)


@_server_action("POST", "/api/sessions/{id}/servers/{name}/approve", "approve_server")
async def approve_server(subject: RequestedSession, name: str, body: ApproveServerRequest) -> ServerModel:
    """Lets a server start, as it is configured now. `digest`: of the configuration that was shown."""
    known = await _find_server(subject, name)
    _check_digest(known.spec.digest, body.digest)
    if known.spec.problem:
        raise ApiRefusal(409, subject.redact(f"'{name}' cannot be used: {known.spec.problem}"))
    if known.approved:
        return await _server_answer(subject, name)
    if subject.runtime is None:
        await run_in_thread(lambda: configured_servers(subject).book.approve_server(known.spec, "person"))
    else:
        pool, _ = pool_of(subject.runtime)
        assert pool is not None
        pool.approve(name)
        await _wait_connected(subject, pool, name)
    return await _server_answer(subject, name)


@_server_action("POST", "/api/sessions/{id}/servers/{name}/agree", "agree_to_definition")
async def agree_to_definition(subject: RequestedSession, name: str, body: AgreeRequest) -> ServerModel:
    """Agrees to a changed or new definition of one tool: it is the one from now on. `digest`: of what was shown."""
    known = await _find_server(subject, name)
    if not known.approved:
        raise ApiRefusal(409, f"'{name}' itself waits for approval; agree to that first.")
    tool = _pending_definition(known.listing, body.tool)
    _check_digest(tool.digest, body.digest)
    if subject.runtime is not None and subject.runtime.servers is not None:
        subject.runtime.servers.pin(tool)
        await subject.refresh_tools()
    else:
        await run_in_thread(lambda: configured_servers(subject).book.pin(known.spec.scope, tool))
    return await _server_answer(subject, name)


@_server_action("POST", "/api/sessions/{id}/servers/{name}/reconnect", "reconnect_server")
async def reconnect_server(subject: RequestedSession, name: str) -> ServerModel:
    """Ends what there is and connects anew; gives its state then."""
    runtime = subject.live_runtime
    await _find_server(subject, name)
    pool, _ = pool_of(runtime)
    assert pool is not None
    await _wait_connected(subject, pool, name, reconnect=True)
    return await _server_answer(subject, name)


async def _wait_connected(subject: RequestedSession, pool: Pool, name: str, *, reconnect: bool = False) -> None:
    with contextlib.suppress(ForgeError, TimeoutError):  # its state says why
        async with asyncio.timeout(_MAX_WAIT_S):
            if reconnect:
                await pool.reconnect(name)
            await pool.wait_connected(name)
    await subject.refresh_tools()


async def _all_servers(subject: RequestedSession) -> list[tuple[KnownServer, ServerStatus | None]]:
    if subject.runtime is not None:
        return servers_of_runtime(subject.runtime)
    return await run_in_thread(lambda: [(each, None) for each in configured_servers(subject).all()])


async def _find_server(subject: RequestedSession, name: str) -> KnownServer:
    """Refused (404): there is no such server."""
    every = {known.spec.name: known for known, _ in await _all_servers(subject)}
    if name not in every:
        hint = nearest_remark(name, every)
        raise ApiRefusal(404, f"There is no MCP server '{escape_control_chars(name[:100])}' here{hint}.")
    return every[name]


async def _server_answer(subject: RequestedSession, name: str) -> ServerModel:
    every = await _all_servers(subject)
    found = await run_in_thread(lambda: describe_servers(every))
    return ServerModel.model_validate(subject.redact(next(each for each in found if each["name"] == name)))


def _pending_definition(listing: ServerToolList | None, raw_name: str) -> RemoteTool:
    pending = [definition_to_approve(one)[0] for one in awaiting_approval(listing)] if listing is not None else []
    found = next((tool for tool in pending if raw_name in (tool.name, escape_control_chars(tool.name))), None)
    if found is None:
        raise ApiRefusal(404, f"No changed definition of '{escape_control_chars(raw_name[:100])}' waits for a yes.")
    return found


def _check_digest(now: str, shown: str) -> None:
    if now != shown:
        raise ApiRefusal(409, _CHANGED)


def pool_of(runtime: WorkerRuntime) -> tuple[Pool | None, tuple[str, ...]]:
    """The pool, and the names of the servers that the root worker was given."""
    place = runtime.path.parts.get(ServerAccess)
    return place.pool, place.servers_of(runtime.path.worker)


def servers_of_runtime(runtime: WorkerRuntime) -> list[tuple[KnownServer, ServerStatus | None]]:
    """Must run on the loop: the pool belongs to it."""
    pool, names = pool_of(runtime)
    servers = runtime.servers
    if pool is None or servers is None:
        return []
    return [(mcp_status.known_in_session(servers, name), pool.status(name)) for name in names]


def configured_servers(subject: RequestedSession) -> ServerInventory:
    """Off the loop. Raises ConfigError."""
    return mcp_status.read_inventory(subject.root, subject.home)


def describe_servers(servers: list[tuple[KnownServer, ServerStatus | None]]) -> list[dict[str, Any]]:
    """Off the loop: it works out differences, which may take a moment."""
    names = mcp_status.offered_names(each.listing for each, _ in servers)
    rows = []
    for known, status in servers:
        offers: list[dict[str, Any]] = []
        held_back: list[dict[str, Any]] = []
        if (listing := known.listing) is not None:
            offers = mcp_status.tools_json(known.spec, listing.tools, names)
            for row, tool in zip(offers, listing.tools, strict=True):
                row["definition"] = definition_to_approve(tool)[1] if is_awaiting_approval(tool) else ""
            held_back = mcp_status.held_json(listing.held, names)
            for row, held in zip(held_back, listing.held, strict=True):
                row["digest"] = held.tool.digest if held.tool is not None else ""
        retry_at = status.retry_at if status is not None else None
        row = mcp_status.server_summary(known) | {
            "retry_at": iso_time(retry_at) if retry_at is not None else None,
            "digest": known.spec.digest,
            "card": server_card(known.spec),
            "config_diff": known.config_diff or None,
            "last_words": status.stderr if status is not None else (),
            "offers": offers,
            "held_back": held_back,
            "prompts": mcp_status.prompt_names(known.manifest) if known.manifest is not None else [],
            "diagnostics": listing.diagnostics if listing is not None else (),
        }
        rows.append(row)
    return rows


class PromptShown(ApiModel, title="PromptShown"):
    name: str
    """What is typed behind the `/`."""
    server: str
    description: str
    fields: list[dict[str, Any]]
    """Of its arguments, as a tool's."""


class PromptList(ApiModel, title="PromptList"):
    prompts: list[PromptShown]


@operation("GET", "/api/sessions/{id}/prompts", "list_prompts", tag="servers")
async def list_prompts(subject: RequestedSession) -> PromptList:
    """The prompts of the MCP servers that are ready, or known from before, by the commands that run them."""
    found = prompts_of(subject.runtime) if subject.runtime is not None else {}
    shown = [
        {"name": name, "server": each.server, "description": each.description, "fields": each.fields}
        for name, each in sorted(found.items())
    ]
    return PromptList.model_validate(subject.redact({"prompts": shown}))
