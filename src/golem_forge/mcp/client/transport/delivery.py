"""Delivery: what is known of the requests one caller sent: whether any of them may have been processed.

A caller opens one with `tracked()` around what it awaits; both transports find it in the caller's context, whichever
task does the sending, and note there what happened. So the rule "a call that may have reached the server is never
repeated" rests on facts of ours and never on what a server says of itself. What is provable:

- stdio: not one byte of the request's line was written. A line that was written in part counts as sent, and so does
  one that lies in the pipe of a server that died: it may have read it.
- HTTP: no connection came about; or the server answered 404 or 410 to the session's id.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass

from golem_forge.mcp.client.transport.errors import TransportError


@dataclass(slots=True)
class Delivery:
    sent: int = 0
    """Requests of which a byte may have reached the server."""
    refused: int = 0
    """Those of them that it certainly did not process."""
    failure: TransportError | None = None
    """What the way to the server made of the last request; None: it was answered, or still may be."""

    @property
    def unprocessed(self) -> bool:
        """Nothing that was sent can have had an effect: it may be sent once more."""
        return self.sent == self.refused


_current: ContextVar[Delivery | None] = ContextVar("delivery", default=None)


def current() -> Delivery:
    """The caller's; one that nobody reads, if it did not ask for any."""
    return _current.get() or Delivery()


class tracked:
    """`with tracked() as delivery: await session.call_tool(…)`; read it after a failure."""

    __slots__ = ("_token",)

    def __enter__(self) -> Delivery:
        delivery = Delivery()
        self._token: Token[Delivery | None] = _current.set(delivery)
        return delivery

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
