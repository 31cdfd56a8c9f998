"""Requests: what one server may ask of us during its calls, as the callbacks that the SDK's client takes.

Elicitation and sampling belong to a call in flight and are answered with an error when there is none; roots are
answered at any time. Whatever a server sends, the callbacks give an answer: they raise nothing but a cancellation.
`sampling` is None where the config blocks it, so that the capability is not declared.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.core.verdict import Verdict
from golem_forge.mcp.client.asking.elicitation import answer_elicitation
from golem_forge.mcp.client.asking.request_errors import INVALID_REQUEST, Refused
from golem_forge.mcp.client.asking.roots import list_roots
from golem_forge.mcp.client.asking.sampling import answer_sampling
from golem_forge.mcp.client.calling.flight import Flight, asking_flight, flying
from golem_forge.mcp.client.hooks import Hooks

if TYPE_CHECKING:
    from golem_forge.mcp import sdk

__all__ = ["Flight", "Requests", "flying"]

T = TypeVar("T")
_INTERNAL_ERROR: Final = -32603
_log = logging.getLogger(__name__)


class Requests:
    def __init__(self, spec: ServerSpec, hooks: Hooks, flights: Callable[[], Sequence[Flight]]) -> None:
        """`flights`: the calls of this server that are in flight, in the order they began."""
        self._spec = spec
        self._hooks = hooks
        self._flights = flights
        self.sampling = None if spec.sampling is Verdict.BLOCKED else self._sampling

    async def elicitation(
        self, context: sdk.ClientRequestContext, params: sdk.ElicitRequestParams
    ) -> sdk.ElicitResult | sdk.ErrorData:
        key = context.request_id if isinstance(context.request_id, str) else ""  # a number names nothing
        return await self._answered(
            "elicitation", lambda flight: answer_elicitation(self._spec, self._hooks, flight, params, key)
        )

    async def _sampling(
        self, context: sdk.ClientRequestContext, params: sdk.CreateMessageRequestParams
    ) -> sdk.CreateMessageResult | sdk.ErrorData:
        return await self._answered("sampling", partial(answer_sampling, self._spec, self._hooks, params=params))

    async def roots(self, context: sdk.ClientRequestContext) -> sdk.ListRootsResult | sdk.ErrorData:
        try:
            return await list_roots(self._spec, self._hooks)
        except Exception as error:
            return _failed("roots", error)

    async def _answered(self, what: str, answer: Callable[[Flight], Awaitable[T]]) -> T | sdk.ErrorData:
        try:
            flight = asking_flight(self._flights())
            if flight is None:
                raise Refused(INVALID_REQUEST, f"{what} is answered only during a call")
            return await answer(flight)
        except Exception as error:
            return _failed(what, error)


def _failed(what: str, error: Exception) -> sdk.ErrorData:
    """Threat: the words of a foreign exception may hold paths or secrets; the server is told that it failed."""
    from golem_forge.mcp import sdk

    if isinstance(error, Refused):
        return sdk.ErrorData(code=error.code, message=error.message)
    _log.warning("%s could not be answered: %s", what, type(error).__name__)
    return sdk.ErrorData(code=_INTERNAL_ERROR, message=f"{what} could not be answered")
