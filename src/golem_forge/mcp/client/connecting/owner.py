"""Owner: one configured server over a session: when it is connected to, what it offers, how it ends.

At most one connection lives at a time and at most one attempt is made at a time; whoever needs one waits for that.
Nobody who gives up waiting stops it. It starts nothing that a person did not agree to (looked up again before every
start), tries five times, then rests.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.core.errors import ForgeError, error_name
from golem_forge.mcp.client.asking.requests import Requests
from golem_forge.mcp.client.calling.flight import Flight
from golem_forge.mcp.client.calling.rewriting import Rewriter
from golem_forge.mcp.client.calling.turns import Turns
from golem_forge.mcp.client.connecting.backoff import REST, Backoff
from golem_forge.mcp.client.connecting.card import Card
from golem_forge.mcp.client.connecting.connection import Connected, Connection, Failed
from golem_forge.mcp.client.connecting.fetching import fetch_manifest
from golem_forge.mcp.client.connecting.link import Link, Unprocessed
from golem_forge.mcp.client.connecting.opening import Opener
from golem_forge.mcp.client.connecting.quiet import Quiet
from golem_forge.mcp.client.connecting.standing import Standing
from golem_forge.mcp.client.definitions.manifest import Manifest
from golem_forge.mcp.client.definitions.offered import Offered
from golem_forge.mcp.client.hooks import Hooks
from golem_forge.mcp.client.state import State
from golem_forge.mcp.client.transport.errors import BadAddress, CannotStart, NeedsLogin, WallsFailed
from golem_forge.mcp.missing import need_sdk

if TYPE_CHECKING:
    from golem_forge.mcp.client.definitions.manifest_cache import ManifestCache
    from golem_forge.mcp.client.trust.trust_book import TrustBook

STDERR_LINES: Final = 20
_HOPELESS: Final = (WallsFailed, CannotStart, BadAddress)
"""Another try in a second would end the same way."""
_ENDING: Final = 2.0
"""Twice what the end of a connection takes at most."""
_SDK: Final = "golem_forge.mcp.sdk"
T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What all servers of a session share."""

    opener: Opener
    hooks: Hooks
    book: TrustBook
    cache: ManifestCache
    changed: Callable[[], None]
    """Something that is shown or offered is other than before."""


class Owner:
    def __init__(self, spec: ServerSpec, around: Around) -> None:
        self.spec = spec
        self.offered = Offered(spec, around.book)
        self.standing = Standing(self.offered, around.opener.redactor, around.hooks.tell, around.changed)
        self.turns = Turns()
        self.rewriter = Rewriter()
        self.card = Card(around.hooks, around.book, agreed=self.begin, not_kept=self.standing.not_kept)
        self._around = around
        self._requests = Requests(spec, around.hooks, self.turns.flights)
        self._quiet = Quiet(self._refetch)
        self._backoff = Backoff()
        self._failed_at: float | None = None
        self._connection: Connection | None = None
        self._ending: set[Connection] = set()
        self._driver: asyncio.Task[None] | None = None
        """Makes attempts; nobody waits for it, all wait for `_waiting`."""
        self._waiting: asyncio.Future[Link] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        self._closed = False
        self.standing.rest(*self._at_rest())

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The one that runs: a session may be made before there is any."""
        return asyncio.get_running_loop()

    # Beginning and ending

    def begin(self) -> None:
        """Whatever this server needs at the start of a session; nothing runs that need not."""
        if self._closed or self._driver is not None or self._connection is not None:
            return
        state, error = self._at_rest()
        if state is not State.KNOWN:
            self.standing.set(state, error)
            if state is State.PENDING:
                self.card.show(self.spec)
        elif not self._is_known() or self.spec.required:
            self._connect_soon()

    def recall(self) -> None:
        """What a cached manifest tells of a server that a person agreed to; nothing is started."""
        if self._at_rest()[0] is State.KNOWN:
            self._is_known()

    def _at_rest(self) -> tuple[State, str]:
        """The state, and why, of what was not started, by the config and the book alone."""
        if not self.spec.enabled:
            return State.DISABLED, ""
        if self.spec.problem:
            return State.FAILED, self.spec.problem
        approved = self._around.book.approved(self.spec)
        return (State.KNOWN, "") if approved else (State.PENDING, self.standing.waits)

    def _is_known(self) -> bool:
        """Whether a manifest tells so well what it offers that nothing has to be started for that."""
        from golem_forge.mcp.client.definitions.manifest_cache import Freshness

        found = self._around.cache.load(self.spec, time.time())
        if found is None:
            return False
        manifest, freshness = found
        self.offered.take(manifest)
        self.standing.set(State.KNOWN)
        return freshness is Freshness.FRESH

    def approve(self, who: str) -> None:
        """A person agreed by another way than the card, which is needless now."""
        if not self._closed:
            self._around.book.approve_server(self.spec, who)
            self.card.withdraw()
            self.begin()

    def takes(self, spec: ServerSpec) -> bool:
        """Whether an edited config can count from now on without a new process."""
        if _life(spec) != _life(self.spec):
            return False
        if spec != self.spec:
            self.spec = self.offered.spec = spec
            self._around.changed()
        return True

    async def reconnect(self) -> None:
        """Ends what there is and connects anew, whatever happened before. Raises ForgeError."""
        async with self._turn:
            await self._halt()
            self._failed_at = None
            self._backoff.reset()
            self._must_be_usable()
            waiting = self._connect_soon()
        await self._connected_by(waiting)

    async def close(self) -> None:
        """For good. Everything is told to end before anything is waited for."""
        self._closed = True
        self._quiet.stop()
        self.card.withdraw()
        self.turns.stop()
        if self._idle is not None:
            self._idle.cancel()
        await self._halt()
        self._disappoint(self.standing.closed())

    async def _halt(self) -> None:
        driver, self._driver = self._driver, None
        waits: list[asyncio.Task[Any]] = []
        if driver is not None:
            driver.cancel()
            waits.append(driver)
        self._retire()
        waits += [self._loop.create_task(connection.gone.wait()) for connection in self._ending]
        if waits:
            await asyncio.wait(waits, timeout=_ENDING)

    def _retire(self, link: Link | None = None) -> None:
        """The present connection is not used any more; with `link`, only if it is that one."""
        connection = self._connection
        if connection is None or (link is not None and connection.link is not link):
            return
        self._connection = None
        self._ending.add(connection)
        connection.end()
        if self.standing.state is State.READY and not self._closed:
            self.standing.set(State.KNOWN)

    def _ended(self, connection: Connection) -> None:
        """Nothing is left of it."""
        self._ending.discard(connection)
        if connection is self._connection:
            self._connection = None
            if self.standing.state is State.READY:
                self.standing.set(State.KNOWN, connection.cause.message if connection.cause is not None else "")

    # Connecting

    async def link(self) -> Link:
        """A live connection, made if there is none. Raises ForgeError."""
        connection = self._connection
        if connection is not None and self.standing.state is State.READY and connection.is_alive:
            assert connection.link is not None
            return connection.link
        self._must_be_usable()
        if self._failed_at is not None and self._loop.time() < self._failed_at + REST and self._driver is None:
            raise self.standing.failure()
        return await self._connected_by(self._connect_soon())

    def _must_be_usable(self) -> None:
        name = self.spec.name
        if self._closed:
            raise self.standing.closed()
        if not self.spec.enabled:
            raise ForgeError(f"server '{name}' is disabled; set `enabled: true` in {self.spec.origin}", code="DISABLED")
        if self.spec.problem:
            raise ForgeError(f"server '{name}' cannot be used: {self.spec.problem}", code="CONFIG")
        if not self._around.book.approved(self.spec):
            raise self.standing.pend()

    async def _connected_by(self, waiting: asyncio.Future[Link]) -> Link:
        """`asyncio.wait` never cancels what it waits for: others wait for the same."""
        await asyncio.wait([waiting], timeout=self.spec.connect_timeout)
        if not waiting.done():
            why = f": {self.standing.error}" if self.standing.error else ""
            text = f"server '{self.spec.name}' is not connected after {self.spec.connect_timeout:g} seconds{why}"
            raise ForgeError(text, code="NOT_CONNECTED")
        return waiting.result()

    def _connect_soon(self) -> asyncio.Future[Link]:
        if self._waiting is None or self._waiting.done():
            self._waiting = self._loop.create_future()
        if self._driver is None:
            if self._failed_at is not None:
                self._failed_at = None
                self._backoff.reset()
            self.standing.set(State.CONNECTING)
            self._driver = self._loop.create_task(self._drive(), name=f"mcp connect {self.spec.name}")
            self._driver.add_done_callback(self._driven)
        return self._waiting

    def _driven(self, driver: asyncio.Task[None]) -> None:
        if self._driver is driver:
            self._driver = None
        if not driver.cancelled() and (error := driver.exception()) is not None:
            self._give_up(ForgeError(f"{error_name(error)} while connecting", code="CONNECT_FAILED"))

    async def _drive(self) -> None:
        """Attempts till there is a connection or no use in another one."""
        if _SDK not in sys.modules:
            try:
                need_sdk()
            except ForgeError as error:
                return self._give_up(error)
            await asyncio.to_thread(__import__, _SDK)  # most of a second: the terminal goes on meanwhile
        legacy = False
        while True:
            if not self._around.book.approved(self.spec):
                return self._disappoint(self.standing.pend())
            self.standing.set(State.CONNECTING)
            connection: Connection | None = None
            try:
                connection = await self._attempt(legacy=legacy)
                return self._use(connection, await connection.connected())
            except Failed as failed:
                cause = failed.cause
                # servers of the old era exist that fall silent or die at a question they do not know
                legacy = failed.probing and not legacy
            except ForgeError as error:  # the config asks for what it cannot have
                return self._disappoint_or_give_up(error)
            stderr = connection.stderr[-STDERR_LINES:] if connection is not None else ()
            if isinstance(cause, NeedsLogin):
                return self._disappoint(self.standing.need_login())
            wait = None if isinstance(cause, _HOPELESS) else self._backoff.failed()
            if wait is None:
                return self._give_up(cause, stderr)
            self.standing.set(State.BACKOFF, cause.message, retry_at=time.time() + wait, stderr=stderr)
            await asyncio.sleep(wait)

    async def _attempt(self, *, legacy: bool) -> Connection:
        self._retire()  # one that is dead but not yet gone
        if self._ending:  # two processes of one server might write the same file
            await asyncio.wait([self._loop.create_task(one.gone.wait()) for one in self._ending], timeout=_ENDING)
        opened = await self._around.opener.open(self.spec)
        self.rewriter.clean, self.rewriter.places = opened.clean, opened.places
        connection = self._connection = Connection(
            self.spec, opened, self._requests, legacy=legacy, changed=self._quiet.notice, ended=self._ended
        )
        connection.begin()
        return connection

    def _use(self, connection: Connection, connected: Connected) -> None:
        if not connection.is_alive or connection is not self._connection:
            raise Failed(connection.cause or ForgeError("the server ended at once", code="ENDED"), probing=False)
        self._backoff.reset()
        self._keep(connected.manifest)
        self.turns.touch()
        if not self.spec.is_http:
            self._look_idle_in(self.spec.close_after)
        self.standing.set(State.READY)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(connected.link)

    def _disappoint_or_give_up(self, error: ForgeError) -> None:
        if isinstance(error, NeedsLogin):
            self._disappoint(self.standing.need_login())
        else:
            self._give_up(error)

    def _give_up(self, cause: ForgeError, stderr: tuple[str, ...] = ()) -> None:
        self._failed_at = self._loop.time()
        self.standing.set(State.FAILED, cause.message, stderr=stderr)
        self._disappoint(self.standing.failure())

    def _disappoint(self, error: ForgeError) -> None:
        """Tells all who wait for a connection that there will be none."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
            self._waiting.exception()  # perhaps nobody waits

    def _look_idle_in(self, seconds: float) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._loop.call_later(seconds, self._look_idle)

    def _look_idle(self) -> None:
        self._idle = None
        rest = self.spec.close_after - self.turns.unused_for()
        if rest <= 0:
            self._retire()
        elif self._connection is not None:
            self._look_idle_in(rest)

    # What it offers

    def _keep(self, listed: Manifest) -> None:
        manifest = self.rewriter.manifest(listed)
        if self.offered.take(manifest):
            self._around.changed()
        try:
            self._around.cache.store(manifest)
        except (OSError, ValueError) as error:
            _log.warning("the manifest of %s could not be kept: %s", self.spec.name, type(error).__name__)

    def refresh_soon(self) -> None:
        self._quiet.notice()

    async def _refetch(self) -> None:
        """Whatever goes wrong, what was known stays: the next connection lists anew."""
        from golem_forge.mcp import sdk

        connection = self._connection
        if connection is None or connection.link is None or not connection.is_alive:
            return
        try:
            with sdk.anyio.fail_after(self.spec.connect_timeout):
                manifest = await fetch_manifest(connection.link, self.spec)
        except Exception as error:
            _log.info("%s could not be listed again: %s", self.spec.name, type(error).__name__)
            return
        if self._connection is connection and not self._closed:
            begun = time.monotonic()
            self._keep(manifest)
            self.standing.tell()
            self._quiet.cost(time.monotonic() - begun)

    # Using it

    async def perform(self, flight: Flight, job: Callable[[Link], Awaitable[T]]) -> T:
        """`job` with a live link, when it is its turn; once more on a new one if the first certainly did nothing."""
        await self.turns.take()
        try:
            try:
                return await self._once(flight, job)
            except Unprocessed:
                return await self._once(flight, job)
        finally:
            self.turns.give_back()

    async def _once(self, flight: Flight, job: Callable[[Link], Awaitable[T]]) -> T:
        link = await self.link()
        self.turns.airborne(flight)
        try:
            return await job(link)
        except Unprocessed:
            self._retire(link)
            raise
        except NeedsLogin:
            self._retire(link)
            raise self.standing.need_login() from None
        finally:
            self.turns.landed(flight)


def _life(spec: ServerSpec) -> tuple[Any, ...]:
    """All that a running connection depends on."""
    return (
        (spec.name, spec.scope, spec.digest, spec.enabled, spec.required, spec.problem, spec.protocol, spec.sampling),
        (spec.connect_timeout, spec.idle_timeout, spec.total_timeout, spec.close_after),
    )
