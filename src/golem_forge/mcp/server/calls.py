"""tools/call, and every other request that becomes a call: from the request to its Outcome, with questions between.

A name that means nothing to Caller.MCP is a JSON-RPC error, as the protocol wants it; every other end is a result. A
request that the client cancels ends the call's whole process tree within a second and gets no response.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.call import Outcome
from golem_forge.core.verdict import Status
from golem_forge.core.visible import visible
from golem_forge.mcp.server.asking import abilities_of, ask_now, input_required, reply_in
from golem_forge.mcp.server.clients import Client, Parked
from golem_forge.mcp.server.connections import Clients
from golem_forge.mcp.server.listing import Listing
from golem_forge.mcp.server.progress import progress_sent
from golem_forge.mcp.server.results import call_result
from golem_forge.mcp.server.sealing import NotSealed
from golem_forge.mcp.server.served_call import Question, ServedCall

if TYPE_CHECKING:
    from golem_forge.mcp.server.sdk import Context, types

_LONGEST_NAME: Final = 200


class Calls:
    def __init__(self, clients: Clients, listing: Listing) -> None:
        self._clients = clients
        self._listing = listing

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> dict[str, Any] | types.Result:
        came = await self.outcome(ctx, params, params.name, params.arguments or {})
        if not isinstance(came, Outcome):
            return came
        if came.status is Status.TOOL_NOT_FOUND and not came.executed and params.name not in self._listing:
            raise _invalid(f"Unknown tool: {visible(params.name[:_LONGEST_NAME])}")
        return call_result(came, ctx.protocol_version)

    async def outcome(
        self, ctx: Context, params: types.InputResponseRequestParams, name: str, args: dict[str, Any]
    ) -> Outcome | types.InputRequiredResult:
        """Runs the call, or goes on with the one that was parked for exactly this request of this client."""
        from golem_forge.mcp.server.sdk import MODERN_PROTOCOL_VERSIONS, anyio

        client = self._clients.of(ctx)
        returns = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        bound_to = _spelled(ctx.method, name, args)
        call = self._resumed(client, params, bound_to) if returns else None
        if call is None:
            if client.full:
                raise _busy()
            call = client.begin(name, args, abilities_of(ctx))
        try:
            async with progress_sent(ctx, call):
                while isinstance(news := await call.next(), Question):
                    if returns:
                        return input_required(news, client.parked.seal(bound_to, Parked(call, news)))
                    await ask_now(ctx, news)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await call.end("cancelled by the client")
            raise
        if news.output_handle:
            client.was_given(news.output_handle, news.tool)
        return news

    def _resumed(self, client: Client, params: types.InputResponseRequestParams, bound_to: str) -> ServedCall | None:
        """The call this request goes on with. One that brings no answer is asked the same again."""
        if not params.request_state:
            return None
        try:
            parked = client.parked.open(params.request_state, bound_to)
        except NotSealed:
            raise _invalid("requestState is not as this server gave it; call again without it") from None
        if parked is None:
            return None
        reply = reply_in(params.input_responses, parked.question.key)
        if reply is not None:
            parked.question.answer(reply)
        return parked.call


def _spelled(method: str, name: str, args: dict[str, Any]) -> str:
    return json.dumps([method, name, args], sort_keys=True, ensure_ascii=True)


def _invalid(message: str) -> Exception:
    from golem_forge.mcp.server.sdk import MCPError, types

    return MCPError(types.INVALID_PARAMS, message)


def _busy() -> Exception:
    from golem_forge.mcp.server.sdk import MCPError, types

    return MCPError(types.INTERNAL_ERROR, "too many calls under way; wait for some of them to end")
