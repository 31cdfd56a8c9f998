"""One connection to a server from start to end, its change subscription, and the backoff between attempts.

`begin` starts one task that enters and leaves the SDK's session; `connected` returns the link and the manifest; `end`
may be called from any task at any time, also twice or while it still connects; `gone` is set when nothing is left. A
connection is used once. `subscribe` listens to the change stream of newer servers and reopens it with a growing delay;
there is no replay, so after a gap everything counts as changed. `Backoff`: 0.5 s doubling to 30 s, full jitter, five
attempts, then a pause.

Threat: the SDK's cancel scopes belong to the task that opened them, so no other task enters or leaves them. A server
that fails at once must not become a loop that starts processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Any, Final

from golem_forge._version import __version__
from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.errors import ForgeError, error_name
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import escape_control_chars
from golem_forge.mcp import lazy_sdk as sdk
from golem_forge.mcp.client.active_calls import ServerRequests
from golem_forge.mcp.client.manifest import fetch_manifest
from golem_forge.mcp.client.model import ServerManifest
from golem_forge.mcp.client.transport import (
    CLOSED_WORDS,
    ErrorResponse,
    NeedsLogin,
    NotSent,
    OpenTransport,
    ServerLink,
    TransportError,
    Unanswered,
    WatchedDispatcher,
    paced,
)

END_TIMEOUT_S: Final = 0.9
"""Seconds for an orderly end; then the task is cancelled."""
START_GRACE_S: Final = 0.25
"""Seconds that a starting process may take to be ready, so that it can be ended in order; then its start is cancelled,
which ends it too.
"""
CONNECTION_ENDED: Final = "CONNECTION_ENDED"
CONNECT_TIMEOUT: Final = "CONNECT_TIMEOUT"
_TOOLS_CHANGED: Final = frozenset({"notifications/tools/list_changed", "notifications/prompts/list_changed"})
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectResult:
    link: ServerLink
    manifest: ServerManifest


class ConnectFailed(Exception):
    """Raised if no connection was made. `cause` gives the reason for people; `probing`: it broke at the
    first request.
    """

    def __init__(self, cause: ForgeError, *, probing: bool) -> None:
        super().__init__(cause.message)
        self.cause = cause
        self.during_probe = probing


class Connection:
    def __init__(
        self,
        spec: ServerSpec,
        opened: OpenTransport,
        requests: ServerRequests,
        *,
        legacy: bool,
        within: float,
        changed: Callable[[], None],
        ended: Callable[[Connection], None],
    ) -> None:
        """`within`: seconds to connect and list; `changed`: the server's lists may be other than before; `ended` is
        called once, when nothing is left."""
        self._spec = spec
        self._opened = opened
        self._requests = requests
        self._legacy = legacy or spec.protocol == "legacy"
        self._within_s = within
        self._changed = changed
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._wanted_end = asyncio.Event()
        self._scope: Any = None
        self._task: asyncio.Task[None] | None = None
        self._probing = False
        self._entering = False
        self._connected: asyncio.Future[ConnectResult] = self._loop.create_future()
        self._connected.add_done_callback(_retrieve_exception)
        self.gone = asyncio.Event()
        self.link: ServerLink | None = None
        self.resources: ResourceWatch | None = None
        self.cause: ForgeError | None = None
        """Why it ended, if nobody wanted that."""

    @property
    def is_alive(self) -> bool:
        return self.link is not None and self.link.is_alive and not self._wanted_end.is_set()

    @property
    def stderr(self) -> tuple[str, ...]:
        return self._opened.stderr()

    @property
    def dropped(self) -> int:
        """Lines on its standard output that were no messages."""
        return self._opened.dropped()

    def begin(self) -> None:
        """Starts the connection's task in its own context, because it outlives the call that first needed it."""
        self._task = self._loop.create_task(self._live(), name=f"mcp {self._spec.name}", context=Context())

    async def connected(self) -> ConnectResult:
        """Raises ConnectFailed. Cancelling this wait cancels nothing else."""
        return await asyncio.shield(self._connected)

    def end(self) -> None:
        if not self._wanted_end.is_set():
            self._wanted_end.set()
            if self._connected.done():
                self._loop.call_later(END_TIMEOUT_S, self._cancel)
            elif self._entering:
                self._loop.call_later(START_GRACE_S, self._cancel)
            else:
                self._cancel()

    async def ended(self) -> None:
        self.end()
        await self.gone.wait()

    def _cancel(self) -> None:
        if self._scope is not None and not self.gone.is_set():
            self._scope.cancel()

    async def _live(self) -> None:
        try:
            with sdk.anyio.CancelScope() as self._scope:
                self._scope.deadline = sdk.anyio.current_time() + self._within_s
                await self._within()
            if not self._wanted_end.is_set():
                timed_out = ForgeError(f"no answer within {self._within_s:g} seconds", code=CONNECT_TIMEOUT)
                self.cause = timed_out if self._scope.cancelled_caught else self._why(None)
        except asyncio.CancelledError:
            self._wanted_end.set()  # the whole program ends
            raise
        except BaseException as error:
            self.cause = self._why(error)
            _log.debug("connection to %s ended: %s", self._spec.name, type(error).__name__)
        finally:
            self.link = None
            if not self._connected.done():
                why = self.cause or ForgeError("the connection was closed", code="CLOSED")
                self._connected.set_exception(ConnectFailed(why, probing=self._probing))
            self.gone.set()
            self._ended(self)

    def _why(self, error: BaseException | None) -> ForgeError:
        """The transport saw it from nearest; of the rest, whatever says most."""
        if (failure := self._opened.failure()) is not None:
            return failure
        cause = _cause(error)
        is_end = cause.code == CONNECTION_ENDED or isinstance(cause, NotSent)  # it may end before it is asked
        if is_end and (words := self._opened.why_ended()):
            return ForgeError(words, code=CONNECTION_ENDED)
        return cause

    async def _within(self) -> None:
        """Runs the connection inside its deadline until its end."""
        if self._wanted_end.is_set():
            return
        self._entering = True
        async with self._opened.transport as (read, write):
            self._entering = False
            if self._wanted_end.is_set():
                return
            inner = sdk.JSONRPCDispatcher(*paced(read, write), on_stream_exception=self._note)
            wire = WatchedDispatcher(inner, self._noticed)
            async with sdk.ClientSession(
                dispatcher=wire,
                elicitation_callback=self._requests.elicitation,
                sampling_callback=self._requests.sampling,
                list_roots_callback=self._requests.roots,
                client_info=sdk.Implementation(name="golem-forge", version=__version__),
            ) as session:
                await self._negotiated(session)
                link = self.link = ServerLink(self._spec.name, session, wire, self._opened.failure)
                self.resources = ResourceWatch(link)
                manifest = await fetch_manifest(link, self._spec)
                self._scope.deadline = float("inf")
                if not self._connected.done():
                    self._connected.set_result(ConnectResult(link, manifest))
                await self._until_the_end(link)

    async def _negotiated(self, session: sdk.ClientSession) -> None:
        if self._legacy:
            await session.initialize()
            return
        self._probing = True
        probe = session.send_discover

        async def asked(version: str) -> Any:
            """The SDK takes any refusal of the probe for an old server's, that of one which wants a login too. One that
            is silent may be of the old era, or still be on its way here: the handshake finds out."""
            try:
                with sdk.anyio.move_on_after(self._spec.connect_timeout):
                    return await probe(version)
                raise sdk.MCPError(sdk.INTERNAL_ERROR, "no answer to server/discover")
            except sdk.MCPError:
                if isinstance(failure := self._opened.failure(), NeedsLogin):
                    raise failure from None
                raise

        session.send_discover = asked  # type: ignore[method-assign]
        await sdk.negotiate_auto(session)
        self._probing = False

    async def _until_the_end(self, link: ServerLink) -> None:
        ends = [self._loop.create_task(event.wait()) for event in (self._wanted_end, link.wire.closed)]
        heard = self._loop.create_task(hear_of_lists(link, self._changed)) if link.is_modern else None
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*ends, heard):
                if task is not None:
                    task.cancel()
            if self.resources is not None:
                self.resources.close()
            if heard is not None:
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await heard

    def _noticed(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/progress":
            if self.link is not None:
                self.link.note_progress(params)
        elif method in _TOOLS_CHANGED:
            self._changed()
        elif method == "notifications/resources/updated" and self.resources is not None:
            self.resources.note_updated(params)

    async def _note(self, error: Exception) -> None:
        _log.debug("%s sent what is no message: %s", self._spec.name, type(error).__name__)


def _retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Marks a future's exception as seen; a failure that nobody waits for is no error of the program."""
    if not future.cancelled():
        future.exception()


def _cause(error: BaseException | None) -> ForgeError:
    """The one that says most of what a task group may have collected."""
    leaves = sorted(_leaves(error), key=lambda leaf: isinstance(leaf, ForgeError), reverse=True) if error else ()
    leaf = leaves[0] if leaves else error
    if isinstance(leaf, ForgeError):
        return leaf
    # -32000 is also what servers refuse with: those words are the dispatcher's own
    closed = isinstance(leaf, sdk.MCPError) and (leaf.code, leaf.message) == (sdk.CONNECTION_CLOSED, CLOSED_WORDS)
    if leaf is None or closed or isinstance(leaf, Unanswered):
        known = leaf.cause if isinstance(leaf, Unanswered) else None
        return known or ForgeError("the server ended the connection", code=CONNECTION_ENDED)
    return ForgeError(_describe_error(leaf), code="CONNECT_FAILED")


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [] if isinstance(error, asyncio.CancelledError) else [error]


def _describe_error(error: BaseException) -> str:
    """Threat: a foreign exception may quote what the server sent, at any length; a validation error is named only by
    where it is."""
    match error:
        case ErrorResponse():
            return f"the server refused to list what it offers: {error.message} ({error.code})"
        case sdk.MCPError():
            return f"the server refused the connection: {escape_control_chars(error.message[:500])} ({error.code})"
        case sdk.ValidationError():
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            problem = f"{escape_control_chars(where[:200])}: {escape_control_chars(first['msg'][:200])}"
            return f"the server's answer is not MCP: {problem}"
        case RuntimeError():
            return f"the server's answer is not MCP: {escape_control_chars(str(error)[:300])}"
        case _:
            return f"{error_name(error)}: {escape_control_chars(str(error)[:300])}"


_LASTED: Final = 30.0
"""A stream that was open for so long was no failure."""


async def hear_of_lists(link: ServerLink, changed: Callable[[], None]) -> None:
    """Calls `changed` for every change of the lists that a server of 2026-07-28 announces."""
    wanted = {f"{kind}_list_changed": True for kind in ("tools", "prompts") if link.announces(kind)}
    if wanted:
        await _listen_on(link, changed, wanted)


async def _listen_on(link: ServerLink, changed: Callable[[], None], wanted: Mapping[str, Any]) -> None:
    """Keeps a `subscriptions/listen` stream open while the connection lives; one that ended is opened again, later each
    time. Ends where the server refuses it."""
    loop = asyncio.get_running_loop()
    failures = 0
    while link.is_alive:
        opened = loop.time()
        try:
            async with sdk.listen(link.session, **wanted) as events:
                if failures:
                    changed()  # whatever happened while nobody listened
                async for _ in events:
                    changed()
        except sdk.MCPError as error:
            if error.code in (sdk.METHOD_NOT_FOUND, sdk.INVALID_PARAMS):
                _log.debug("%s tells of no changes: %s", link.server, error.code)
                return
        except (sdk.SubscriptionLost, TimeoutError):
            pass
        failures = 1 if loop.time() - opened > _LASTED else failures + 1
        # a floor: with full jitter alone a server that closes at once could be asked again at once
        await asyncio.sleep(max(0.1, random.random() * backoff_ceiling(failures)))  # noqa: S311 - jitter


MOST_WATCHED: Final = 200
"""Resources of one server that somebody is subscribed to."""


class ResourceWatch:
    """The resources of one connection whose changes somebody wants to hear of. With the handshake protocol each is
    subscribed to; on 2026-07-28 each has a stream."""

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        self._watched: dict[str, tuple[Callable[[], None], asyncio.Task[None]]] = {}
        """Resource → whom to tell of its changes, and the subscription."""
        self._leaving: set[asyncio.Task[None]] = set()

    def watch(self, uri: str, updated: Callable[[], None]) -> None:
        """Calls `updated` for every change that the server tells of, as long as this connection lives. Safe to repeat;
        nothing happens where the server cannot be subscribed to."""
        offered = getattr(self._link.session.server_capabilities, "resources", None)
        can = bool(getattr(offered, "subscribe", False)) and len(self._watched) < MOST_WATCHED
        if can and uri not in self._watched and self._link.is_alive:
            if self._link.is_modern:
                work = _listen_on(self._link, updated, {"resource_subscriptions": [uri]})
            else:
                work = self._request("resources/subscribe", uri)
            self._watched[uri] = (updated, asyncio.get_running_loop().create_task(work))

    def unwatch(self, uri: str) -> None:
        if (watched := self._watched.pop(uri, None)) is not None:
            watched[1].cancel()
            if not self._link.is_modern and self._link.is_alive:
                task = asyncio.get_running_loop().create_task(self._request("resources/unsubscribe", uri))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

    def note_updated(self, params: Mapping[str, Any]) -> None:
        """A `notifications/resources/updated`; of a resource that nobody watches it is dropped."""
        uri = params.get("uri")
        if isinstance(uri, str) and uri in self._watched:
            self._watched[uri][0]()

    def close(self) -> None:
        """Ends all watches with the connection."""
        for _, task in self._watched.values():
            task.cancel()
        self._watched.clear()

    async def _request(self, method: str, uri: str) -> None:
        with contextlib.suppress(ErrorResponse, Unanswered, TransportError):
            await self._link.request(method, {"uri": uri})


BACKOFF_FIRST_S: Final = 0.5
BACKOFF_CAP_S: Final = 30.0
MAX_ATTEMPTS: Final = 5
FAILED_PAUSE_S: Final = 60.0
"""Seconds after which a new use of a failed server tries again."""


def backoff_ceiling(failures: int) -> float:
    """The longest wait after so many failures in a row (from 1)."""
    return min(BACKOFF_CAP_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 16))


@dataclass(slots=True)
class Backoff:
    """Counts a server's failures in a row."""

    draw: Callable[[], float] = random.random
    failures: int = 0

    def failed(self) -> float | None:
        """Seconds to wait before the next attempt; None: that was the last one."""
        self.failures += 1
        if self.failures >= MAX_ATTEMPTS:
            return None
        return self.draw() * backoff_ceiling(self.failures)

    def reset(self) -> None:
        self.failures = 0
