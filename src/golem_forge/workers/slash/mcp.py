"""`/mcp [reconnect NAME]`: the MCP servers of this worker, how each of them is, and the prompts it offers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.nearest import nearest
from golem_forge.core.visible import visible
from golem_forge.mcp.client.pool_place import PoolPlace
from golem_forge.mcp.client.state import ServerStatus
from golem_forge.workers.slash.host import Invocation, SlashHost
from golem_forge.workers.slash.prompts import prompts_of
from golem_forge.workers.slash.table import columns
from golem_forge.workers.slash.tokens import CommandError

if TYPE_CHECKING:
    from golem_forge.mcp.client.pool import Pool

_NONE: Final = "No MCP server is configured for this worker."
_USAGE: Final = "/mcp shows the servers, /mcp reconnect NAME connects one anew"


async def mcp(call: Invocation) -> str:
    match call.args:
        case []:
            return _shown(call.host)
        case ["reconnect", name]:
            return await _reconnected(call.host, name)
        case ["reconnect"]:
            raise CommandError("Which server? /mcp reconnect NAME")
    raise CommandError(_USAGE)


def servers_in_words(host: SlashHost) -> str:
    """For `/status`: `2 ready, 1 failed`; empty: there are none."""
    pool, names = _servers(host)
    states = [pool.status(name).state.value for name in names] if pool is not None else []
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def _servers(host: SlashHost) -> tuple[Pool | None, tuple[str, ...]]:
    place = host.path.parts.get(PoolPlace)
    return place.pool, place.servers_of(host.path.worker)


def _shown(host: SlashHost) -> str:
    pool, names = _servers(host)
    if pool is None or not names:
        return _NONE
    statuses = [pool.status(name) for name in names]
    text = columns(_row(status) for status in statuses)
    for status in statuses:
        if status.stderr:
            lines = "\n".join(f"  {visible(line)}" for line in status.stderr)
            text += f"\nLast words of {status.server}:\n{lines}"
    if prompts := prompts_of(host):
        rows = [(f"/{name}", command.description.partition("\n")[0]) for name, command in sorted(prompts.items())]
        text += "\nPrompts\n" + columns(rows, indent="  ")
    return text


def _row(status: ServerStatus) -> tuple[str, ...]:
    tools = "" if status.tools is None else f"{status.tools} tool{'' if status.tools == 1 else 's'}"
    again = f"again at {_clock(status.retry_at)}" if status.retry_at is not None else ""
    return status.server, status.state.value, tools, status.protocol, ", ".join(filter(None, (status.error, again)))


def _clock(at: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")


async def _reconnected(host: SlashHost, name: str) -> str:
    pool, names = _servers(host)
    if pool is None or name not in names:
        close = nearest(name, names)
        hint = f" (did you mean '{close}'?)" if close else ""
        raise CommandError(f"MCP server not found: {visible(name[:100])}{hint}")
    await pool.reconnect(name)
    with contextlib.suppress(ForgeError):  # its state says why
        await pool.settled(name)
    return columns([_row(pool.status(name))])
