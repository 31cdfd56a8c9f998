"""Link: one live connection as callers use it. Sends requests raw and gives the answers as they came.

A caller learns exactly one of: the result (a plain dict, nothing dropped), `Refused` (the server said no), `Lost`
(no answer will come and it may have run), `Unprocessed` (it certainly did not run), a TransportError that says more.
Which of the last three it is rests on the transport's own record (`transport/delivery.py`), not on the server's word.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.visible import visible
from golem_forge.mcp.client.transport.delivery import tracked
from golem_forge.mcp.client.transport.errors import NeedsLogin, TransportError

if TYPE_CHECKING:
    from golem_forge.mcp import sdk
    from golem_forge.mcp.client.connecting.wire import Wire

MOST_WORDS: Final = 2000
_FIRST_ID: Final = 1000
"""Above every id that the SDK gives to the few requests it sends by itself."""
Progress = Callable[[float, float | None, str], None]
_log = logging.getLogger(__name__)


class Refused(Exception):
    """A JSON-RPC error of the server."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class Unanswered(Exception):
    """No answer will come. `cause`: what the transport knows about it."""

    def __init__(self, cause: TransportError | None) -> None:
        super().__init__(cause)
        self.cause = cause


class Lost(Unanswered):
    """It may have run."""


class Unprocessed(Unanswered):
    """It did not reach the server, or was turned away before anything was done with it."""


class Link:
    def __init__(self, server: str, session: sdk.ClientSession, wire: Wire) -> None:
        from golem_forge.mcp import sdk

        self.server = server
        self.session = session
        self.wire = wire
        self.version = session.protocol_version or ""
        self.is_modern = self.version in sdk.MODERN_PROTOCOL_VERSIONS
        """2026-07-28 and later: no session, no ping, questions inside results."""
        self._stamp, self._error = sdk.stamp, sdk.MCPError  # every request needs them: here they are imported once
        self._ids = itertools.count(_FIRST_ID)
        self._progress: dict[int, Progress] = {}

    @property
    def is_alive(self) -> bool:
        return not self.wire.over.is_set()

    def offers(self, capability: str) -> bool:
        return getattr(self.session.server_capabilities, capability, None) is not None

    def announces(self, capability: str) -> bool:
        """Whether it says that it will tell of changes in its list."""
        offered = getattr(self.session.server_capabilities, capability, None)
        return bool(getattr(offered, "list_changed", False))

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        progress: Progress | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Cancelling the task that awaits this tells the server."""
        ident = next(self._ids)
        sent: dict[str, Any] = dict(params or {})
        options: sdk.CallOptions = {"request_id": ident}
        if headers:
            options["headers"] = dict(headers)
        if progress is not None:
            sent["_meta"] = {**sent.get("_meta", {}), "progressToken": ident}
            self._progress[ident] = progress
        data = {"method": method, "params": sent}
        self._stamp(self.session, data, options)
        with tracked() as delivery:
            try:
                return await self.wire.send_raw_request(method, sent, options)
            except self._error as error:
                failure = delivery.failure
                if isinstance(failure, NeedsLogin):
                    raise failure from None
                if failure is not None or self._is_end(error):
                    raise (Unprocessed(failure) if delivery.unprocessed else Lost(failure)) from None
                raise Refused(error.code, visible(error.message[:MOST_WORDS])) from None
            except TransportError as failure:
                if isinstance(failure, NeedsLogin):
                    raise
                raise (Unprocessed(failure) if delivery.unprocessed else Lost(failure)) from None
            finally:
                self._progress.pop(ident, None)

    def _is_end(self, error: sdk.MCPError) -> bool:
        """The dispatcher's own word for the end. A server that says exactly that of itself is believed: it costs a
        new connection, and nothing is repeated."""
        from golem_forge.mcp import sdk

        return error.code == sdk.CONNECTION_CLOSED and (error.message == "Connection closed" or not self.is_alive)

    def note_progress(self, params: Mapping[str, Any]) -> None:
        """A `notifications/progress`; for no call of ours it is dropped."""
        token, done, total, words = (params.get(key) for key in ("progressToken", "progress", "total", "message"))
        if isinstance(token, str) and token.isascii() and token.isdigit() and len(token) < 20:
            token = int(token)  # servers that keep tokens as text
        heard = self._progress.get(token) if type(token) is int else None
        if heard is None or not isinstance(done, int | float) or not _is_finite(done):
            return
        whole = float(total) if isinstance(total, int | float) and _is_finite(total) else None
        try:
            heard(float(done), whole, words if isinstance(words, str) else "")
        except Exception as error:
            _log.debug("progress of %s could not be shown: %s", self.server, type(error).__name__)


def _is_finite(value: float) -> bool:
    return not isinstance(value, bool) and abs(value) < 1e300
