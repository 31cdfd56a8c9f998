"""What a person does about MCP servers: let one start, agree to a changed or new definition, connect anew.

The same acts as `forge mcp approve` and `/mcp reconnect`, kept in the same book. A yes is to exactly what was shown: it
names the digest of that, and is refused (409) when the configuration or the definition is another one by now.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from pydantic import Field

from golem_forge.core.errors import ForgeError
from golem_forge.core.nearest import nearest
from golem_forge.core.visible import visible
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api.operation import Call, operation
from golem_forge.ui.web.api.server_facts import known_here, place_of, pool_of, told
from golem_forge.ui.web.api.subject import Subject, subject_of
from golem_forge.ui.web.api.tool_answers import Server
from golem_forge.ui.web.wire import Model, Refused

if TYPE_CHECKING:
    from golem_forge.config.mcp.spec import ServerSpec
    from golem_forge.mcp.client.definitions.definition import Listing, RemoteTool
    from golem_forge.mcp.client.state import ServerStatus
    from golem_forge.workers.mcp.known import Known

_LONGEST_WAIT_S: Final = 20
"""Then it is shown as it is: connecting."""
_PERSON: Final = "person"
_CHANGED: Final = "It is not what was shown any more; read what it is now, then agree to that."
_REFUSALS: Final = {404: "no such server, or no such tool of it", 409: "what was shown is not what is there now"}


class Shown(Model, title="Shown-Input"):
    """The digest of what the person read before they said yes."""

    digest: str = Field(max_length=200)


class ShownDefinition(Shown, title="ShownDefinition"):
    tool: str = Field(max_length=500)
    """By the server's own name for it, as `tool` has it."""


@operation(
    "POST",
    "/api/sessions/{id}/servers/{name}/approve",
    "approve_server",
    body=Shown,
    answer=Server,
    tag="servers",
    refusals=_REFUSALS,
)
async def approve_server(call: Call) -> Server:
    """Lets a server start, as it is configured now. `digest`: of the configuration that was shown."""
    subject, name = await subject_of(call), call.path["name"]
    known = await _known(subject, name)
    _must_be(known.spec.digest, call.body.digest)
    if known.spec.problem:
        raise Refused(409, subject.fit(f"'{name}' cannot be used: {known.spec.problem}"))
    if not known.approved:
        await _approve(subject, known.spec)
    return await _shown(subject, name)


@operation(
    "POST",
    "/api/sessions/{id}/servers/{name}/agree",
    "agree_to_definition",
    body=ShownDefinition,
    answer=Server,
    tag="servers",
    refusals=_REFUSALS,
)
async def agree_to_definition(call: Call) -> Server:
    """Agrees to a changed or new definition of one tool: it is the one from now on. `digest`: of what was shown."""
    subject, name = await subject_of(call), call.path["name"]
    known = await _known(subject, name)
    if not known.approved:
        raise Refused(409, f"'{name}' itself waits for approval; agree to that first.")
    tool = _at_stake(known.listing, call.body.tool)
    _must_be(tool.digest, call.body.digest)
    if subject.runtime is not None and subject.runtime.servers is not None:
        subject.runtime.servers.pin(tool)
        await subject.look_at_tools()
    else:
        await run_in_thread(lambda: place_of(subject).book.pin(known.spec.scope, tool))
    return await _shown(subject, name)


@operation(
    "POST",
    "/api/sessions/{id}/servers/{name}/reconnect",
    "reconnect_server",
    answer=Server,
    tag="servers",
    refusals=_REFUSALS,
)
async def reconnect_server(call: Call) -> Server:
    """Ends what there is and connects anew; gives its state then."""
    subject, name = await subject_of(call), call.path["name"]
    runtime = subject.live
    await _known(subject, name)
    pool, _ = pool_of(runtime)
    assert pool is not None
    with contextlib.suppress(ForgeError, TimeoutError):  # its state says why
        async with asyncio.timeout(_LONGEST_WAIT_S):
            await pool.reconnect(name)
            await pool.settled(name)
    await subject.look_at_tools()
    return await _shown(subject, name)


async def _approve(subject: Subject, spec: ServerSpec) -> None:
    runtime = subject.runtime
    if runtime is None:
        await run_in_thread(lambda: place_of(subject).book.approve_server(spec, _PERSON))
        return
    pool, _ = pool_of(runtime)
    assert pool is not None
    pool.approve(spec.name)
    with contextlib.suppress(ForgeError, TimeoutError):  # its state says why
        async with asyncio.timeout(_LONGEST_WAIT_S):
            await pool.settled(spec.name)
    await subject.look_at_tools()


async def _all(subject: Subject) -> list[tuple[Known, ServerStatus | None]]:
    if subject.runtime is not None:
        return known_here(subject.runtime)
    return await run_in_thread(lambda: [(each, None) for each in place_of(subject).all()])


async def _known(subject: Subject, name: str) -> Known:
    """Refused (404): there is no such server."""
    every = {known.spec.name: known for known, _ in await _all(subject)}
    if name not in every:
        close = nearest(name, every)
        hint = f" (did you mean '{close}'?)" if close else ""
        raise Refused(404, f"There is no MCP server '{visible(name[:100])}' here{hint}.")
    return every[name]


async def _shown(subject: Subject, name: str) -> Server:
    every = await _all(subject)
    found = await run_in_thread(lambda: told(every))
    return Server.model_validate(subject.fit(next(each for each in found if each["name"] == name)))


def _at_stake(listing: Listing | None, raw_name: str) -> RemoteTool:
    from golem_forge.mcp.client.trust.agreeing import definition_at_stake, waiting

    at_stake = [definition_at_stake(one)[0] for one in waiting(listing)] if listing is not None else []
    found = next((tool for tool in at_stake if raw_name in (tool.name, visible(tool.name))), None)
    if found is None:
        raise Refused(404, f"No definition of '{visible(raw_name[:100])}' waits for a yes.")
    return found


def _must_be(now: str, shown: str) -> None:
    if now != shown:
        raise Refused(409, _CHANGED)
