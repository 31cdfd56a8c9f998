"""Protocol completion: before the next request every requested call has exactly one result, in request order.

Takes a history and, for a call nobody answered, who can say what became of it; gives the history with the results put
in. A result for which no call is there is left out: no provider accepts either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from golem_forge.workers.messages import AssistantMessage, CallResult, Message, RequestedCall, ResultsMessage

Answer = Callable[[RequestedCall], CallResult]


def open_calls(messages: Sequence[Message]) -> list[RequestedCall]:
    """The calls of the last response that have no result yet."""
    if messages and isinstance(last := messages[-1], AssistantMessage):
        return list(last.calls)
    return []


def completed(messages: Sequence[Message], answer: Answer, note: str = "") -> list[Message]:
    """`note` is told with results that had to be made; the same objects where nothing was missing."""
    whole: list[Message] = []
    asked: tuple[RequestedCall, ...] = ()
    for message in (*messages, None):
        given = message if isinstance(message, ResultsMessage) else None
        if asked:
            whole.append(_answered(asked, given, answer, note))
        if message is None or given is not None:
            asked = ()
            continue
        whole.append(message)
        asked = message.calls if isinstance(message, AssistantMessage) else ()
    return whole


def _answered(
    asked: tuple[RequestedCall, ...], given: ResultsMessage | None, answer: Answer, note: str
) -> ResultsMessage:
    known = {result.id: result for result in given.results} if given else {}
    if given is not None and tuple(known) == tuple(call.id for call in asked) and len(known) == len(given.results):
        return given
    results = tuple(known.get(call.id) or answer(call) for call in asked)
    return ResultsMessage(results=results, note=(given.note if given else "") or note)
