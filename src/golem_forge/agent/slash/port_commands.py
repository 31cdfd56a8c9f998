"""Slash commands about servers that commands of the session started: `/ports`, `/publish`, `/unpublish`.

`/publish` and `/unpublish` are calls of the tools `publish_port` and `unpublish_port` by the person, on the one path.
"""

from __future__ import annotations

import re
from typing import Final

from golem_forge.agent.slash.invocation import Invocation, SlashHost
from golem_forge.agent.slash.parser import CommandError
from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.regex import regex
from golem_forge.core.text import columns
from golem_forge.sandbox.network.loopback import OWN_LOOPBACK, SessionLoopbacks
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.exec.ports import PUBLISH_TOOL, UNPUBLISH_TOOL, port_lines, port_rows

_NOTHING: Final = "No command of this session listens on a port."
_NEXT: Final = "/publish PORT gives you a link to one, /unpublish PORT ends it."


_TYPED: Final = regex(r"/(?:ports|(?:un)?publish [0-9]{1,5})", re.ASCII)


def is_port_command(text: str) -> bool:
    """Whether a line is one of these commands, and nothing else."""
    return _TYPED.fullmatch(text) is not None


async def ports_command(call: Invocation) -> str:
    path = call.host.path
    parts, walls = path.parts, path.walls
    redact = walls.redact if walls is not None else path.redactor.text
    rows = await run_in_thread(lambda: port_rows(parts, redact))
    if rows:
        return f"{columns(port_lines(rows))}\n{_NEXT}"
    problem = parts.get(SessionLoopbacks).problem
    return f"Here {OWN_LOOPBACK}: {problem}." if problem else _NOTHING


async def publish_command(call: Invocation) -> str:
    return await _run(call.host, PUBLISH_TOOL, _port(call, "/publish PORT, for example /publish 3000"))


async def unpublish_command(call: Invocation) -> str:
    return await _run(call.host, UNPUBLISH_TOOL, _port(call, "/unpublish PORT; /ports lists what is published"))


def _port(call: Invocation, usage: str) -> int:
    typed = call.args[0] if len(call.args) == 1 else ""
    if not (typed.isascii() and typed.isdigit() and len(typed) <= 5 and 0 < int(typed) < 65536):
        raise CommandError(usage)
    return int(typed)


async def _run(host: SlashHost, tool: str, port: int) -> str:
    outcome = await host.path.call(ToolCall(tool, {"port": port}, Caller.HUMAN))
    if not outcome.ok:
        raise CommandError(outcome.error)
    return ""  # its result was shown as every result is
