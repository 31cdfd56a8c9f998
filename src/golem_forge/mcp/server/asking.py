"""How a client is asked, in its era. Takes a Question, gives a Reply or the result that carries the question.

Handshake era: an elicitation request while the call's own request stays open. 2026-07-28: the request is answered with
`input_required` and a sealed state; the client comes back with both. Whatever goes wrong on the way is a `cancel`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.ids import new_id
from golem_forge.mcp.server.served_call import ANSWER_SECONDS, Abilities, Question, Reply

if TYPE_CHECKING:
    from golem_forge.mcp.server.sdk import Context, types

_ACTIONS: Final = frozenset({"accept", "decline", "cancel"})


def abilities_of(ctx: Context) -> Abilities:
    """What the client declared. `elicitation: {}` without a mode means forms, as it did before there were modes."""
    from golem_forge.mcp.server.sdk import MODERN_PROTOCOL_VERSIONS

    declared = ctx.session.client_capabilities
    elicitation = declared.elicitation if declared is not None else None
    reachable = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or ctx.session.can_send_request
    if elicitation is None or not reachable:
        return Abilities()
    pages = elicitation.url is not None
    return Abilities(forms=elicitation.form is not None or not pages, pages=pages)


async def ask_now(ctx: Context, question: Question) -> None:
    """Puts the question while the request is open, and answers it. Ends early if the question is withdrawn."""
    from golem_forge.mcp.server.sdk import MCPError, ValidationError, anyio

    async with anyio.create_task_group() as together:

        async def put() -> None:
            reply = Reply()
            with suppress(MCPError, ValidationError), anyio.move_on_after(ANSWER_SECONDS):
                reply = _reply(await _elicit(ctx, question))
            question.answer(reply)

        together.start_soon(put)
        await question.replied()
        together.cancel_scope.cancel()


async def _elicit(ctx: Context, question: Question) -> types.ElicitResult:
    if question.url:
        return await ctx.session.elicit_url(question.message, question.url, new_id(), ctx.request_id)
    return await ctx.session.elicit_form(question.message, dict(question.schema), ctx.request_id)


def input_required(question: Question, state: str) -> types.InputRequiredResult:
    from golem_forge.mcp.server.sdk import types

    params: types.ElicitRequestFormParams | types.ElicitRequestURLParams
    if question.url:
        params = types.ElicitRequestURLParams(message=question.message, url=question.url, elicitation_id=new_id())
    else:
        params = types.ElicitRequestFormParams(message=question.message, requested_schema=dict(question.schema))
    return types.InputRequiredResult(
        input_requests={question.key: types.ElicitRequest(params=params)},
        request_state=state,
    )


def reply_in(responses: Mapping[str, Any] | None, key: str) -> Reply | None:
    """What a returning client answered; None: nothing that could be an answer."""
    from golem_forge.mcp.server.sdk import types

    given = (responses or {}).get(key)
    return _reply(given) if isinstance(given, types.ElicitResult) else None


def _reply(result: types.ElicitResult) -> Reply:
    action = result.action if result.action in _ACTIONS else "cancel"
    return Reply(action=action, content=dict(result.content or {}) if action == "accept" else {})
