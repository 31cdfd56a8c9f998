"""answered: in the new era a server asks inside a result, and the call is repeated with the answers.

Takes the first such result, gives the final one. Each question goes to the same callbacks that serve the old era's
requests, one after the other: a person answers one at a time. At most ten rounds. A round that did not reach the
server is not sent again on another connection: the server has begun with this call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.mcp.client.calling.clocks import Clocks
from golem_forge.mcp.client.connecting.link import Link, Lost, Progress, Unprocessed

if TYPE_CHECKING:
    from golem_forge.mcp import sdk

ROUNDS: Final = 10
MOST_QUESTIONS: Final = 10
_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 0.25


async def answered(
    link: Link,
    method: str,
    params: Mapping[str, Any],
    result: dict[str, Any],
    clocks: Clocks,
    *,
    progress: Progress,
    headers: Mapping[str, str] | None,
) -> dict[str, Any]:
    from golem_forge.mcp import sdk

    wait = _FIRST_WAIT
    for _ in range(ROUNDS):
        try:
            asked = sdk.InputRequiredResult.model_validate(result, by_name=False)
        except sdk.ValidationError:
            raise ForgeError(f"{link.server} asked for input in a way that is not MCP", code="NOT_MCP") from None
        again = dict(params)
        if asked.request_state is not None:
            again["requestState"] = asked.request_state
        if asked.input_requests:
            again["inputResponses"] = await _answers(link, asked)
            wait = _FIRST_WAIT
        else:  # the server only wants to be asked again
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT)
        clocks.touch()
        try:
            result = await link.request(method, again, progress=progress, headers=headers)
        except Unprocessed as error:
            raise Lost(error.cause) from None
        if result.get("resultType") != "input_required":
            return result
    raise ForgeError(f"{link.server} asked for input more than {ROUNDS} times during one call", code="TOO_MANY_ROUNDS")


async def _answers(link: Link, asked: sdk.InputRequiredResult) -> dict[str, Any]:
    from golem_forge.mcp import sdk

    requests = asked.input_requests or {}
    if len(requests) > MOST_QUESTIONS:
        raise ForgeError(f"{link.server} asked more than {MOST_QUESTIONS} questions at once", code="TOO_MANY_QUESTIONS")
    answers: dict[str, Any] = {}
    for key, request in requests.items():
        meta = request.params.meta if request.params else None
        context = sdk.ClientRequestContext(session=link.session, request_id=key, meta=meta)
        answer = await link.session.dispatch_input_request(context, request)
        if isinstance(answer, sdk.ErrorData):
            raise ForgeError(f"{link.server} asked for what cannot be given: {answer.message}", code="INPUT_REFUSED")
        answers[key] = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
    return answers
