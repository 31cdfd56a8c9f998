"""HttpTransport: a server over streamable HTTP, through the SDK's client with an HTTP client of our own under it.

Takes a spec with its values put in; gives the SDK's two streams. Refuses an address that is neither https nor http to
this machine, before anything is sent. What goes wrong on the way is told to the call it happened to (`delivery.py`) and
never ends the others: see `endpoint.py`. A redirect is followed only within the server's own origin and with the same
method; headers and tokens go nowhere else, and the error names where it led. The person's proxies and certificates
count, but no proxy stands on the way to this machine.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING

from golem_forge.config.mcp.address import url_problem
from golem_forge.config.mcp.expanding import Expanded
from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.mcp.client.transport.errors import BadAddress, TransportError

if TYPE_CHECKING:
    from golem_forge.mcp import sdk
    from golem_forge.mcp.client.transport.endpoint import Endpoint


class HttpTransport:
    def __init__(self, spec: ServerSpec, expanded: Expanded, *, auth: sdk.httpx2.Auth | None = None) -> None:
        """For one connection: make another for the next."""
        if why := url_problem(expanded.url):
            raise BadAddress(f"url: {why}", code="URL")
        self._spec = spec
        self._expanded = expanded
        self._auth = auth
        self._endpoint: Endpoint | None = None
        self._stack = contextlib.AsyncExitStack()

    @property
    def failure(self) -> TransportError | None:
        """What went wrong last, whoever it happened to; None if the last answer was a good one."""
        return self._endpoint.failure if self._endpoint else None

    async def __aenter__(self) -> sdk.TransportStreams:
        from golem_forge.mcp import sdk
        from golem_forge.mcp.client.transport.endpoint import LARGEST, Endpoint, Outbox

        async with contextlib.AsyncExitStack() as stack:
            self._endpoint = await stack.enter_async_context(Endpoint(self._spec, self._expanded, self._auth))
            read, write = await stack.enter_async_context(
                sdk.streamable_http_client(self._expanded.url, http_client=self._endpoint, max_sse_event_size=LARGEST)
            )
            self._stack = stack.pop_all()
        return read, Outbox(write)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._endpoint is not None:
            self._endpoint.is_leaving = True
        await self._stack.__aexit__(kind, error, trace)


def http_transport(spec: ServerSpec, expanded: Expanded, *, auth: sdk.httpx2.Auth | None = None) -> HttpTransport:
    """Raises BadAddress."""
    return HttpTransport(spec, expanded, auth=auth)
