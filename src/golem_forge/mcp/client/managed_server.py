"""One configured server during a session: when to connect, what it offers, how it is used and ended.

At most one connection and one attempt exist at a time; everybody who needs a connection waits for the same one, and
nobody who stops waiting cancels it. Nothing starts that a person did not approve (checked again before every start).
After five failed attempts it pauses. `StatusTracker` holds the state as it is shown and the errors that callers get;
every change is reported. `ApprovalPrompt` asks whether the server may be started, one question at a time; a yes goes
into the trust store.

Threat: a server may repeat a secret in an error, so texts are redacted before they are kept.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from golem_forge.config.mcp_spec import CONNECT_TIMEOUT_S, ServerSpec
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError, error_name
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import shorten
from golem_forge.events.redaction import Redactor
from golem_forge.mcp import lazy_sdk as sdk
from golem_forge.mcp import need_sdk
from golem_forge.mcp.client.active_calls import ActiveCall, CallSlots, ServerRequests
from golem_forge.mcp.client.approval_text import server_card, server_diff
from golem_forge.mcp.client.call import Rewriter
from golem_forge.mcp.client.connection import (
    CONNECT_TIMEOUT,
    FAILED_PAUSE_S,
    Backoff,
    ConnectFailed,
    Connection,
    ConnectResult,
)
from golem_forge.mcp.client.manifest import Freshness, RefetchDebounce, fetch_manifest
from golem_forge.mcp.client.model import Hooks, ServerManifest, ServerState, ServerStatus, offer_unknown
from golem_forge.mcp.client.tool_list import ServerOffer
from golem_forge.mcp.client.transport import (
    BadAddress,
    CannotStart,
    NeedsLogin,
    Redirected,
    ServerLink,
    TransportOpener,
    Unprocessed,
    WallsFailed,
)

if TYPE_CHECKING:
    from golem_forge.mcp.client.manifest import ManifestCache
    from golem_forge.mcp.client.trust_store import ServerTrustStore

STDERR_LINES: Final = 20
FIRST_START_S: Final = 120
"""A package runner (`npx`, `uvx`) downloads the server before it starts for the first time."""
_LAST_WORDS: Final = 300
_MOST_TELLING: Final = 3
_ERROR_WORD: Final = regex(r"(?i)\b(?:error|err!|fatal|failed|exception|not found|denied)\b")
_UNKNOWN_CA: Final = regex(
    r"SELF_SIGNED_CERT|UNABLE_TO_(?:GET_ISSUER|VERIFY)|CERTIFICATE_VERIFY_FAILED|UnknownIssuer"
    r"|unable to get local issuer|self.signed certificate"
)
_HINTS: Final = (
    (
        _UNKNOWN_CA,
        "it does not know the CA of that host: add `pass_env: [NODE_EXTRA_CA_CERTS]` (npx) or `pass_env: "
        "[SSL_CERT_FILE]` (uvx) to the server, and point the variable at your CA file",
    ),
    (
        regex(r"ModuleNotFoundError: No module named|Cannot find (?:module|package) '"),
        "a part of it is not visible inside walls: of a program that runs from a clone (an editable install), name the "
        "clone in `sandbox.read` of your own config.yaml",
    ),
)
"""Patterns in stderr, what they mean, and what to do about it."""
_STDOUT: Final = "standard output: "
_NOT_RETRIED: Final = (WallsFailed, CannotStart, BadAddress, Redirected)
"""Another try in a second would end the same way."""
_ENDING: Final = 15.0
"""A net under steps that are bounded themselves and take 0.9 seconds together. It must be far above that: its clock
also runs while a busy machine gives this process no time, and what gives up waiting leaves processes behind."""
_SDK: Final = "golem_forge.mcp.sdk"
T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """What all servers of a session share."""

    opener: TransportOpener
    hooks: Hooks
    trust_store: ServerTrustStore
    cache: ManifestCache
    changed: Callable[[], None]
    """Something that is shown or offered is other than before."""


class ManagedServer:
    def __init__(self, spec: ServerSpec, around: ServerContext) -> None:
        self.spec = spec
        self.offer = ServerOffer(spec, around.trust_store)
        self.status = StatusTracker(self.offer, around.opener.redactor, around.hooks.tell, around.changed)
        self.slots = CallSlots()
        self.rewriter = Rewriter()
        self.approval_prompt = ApprovalPrompt(
            around.hooks, around.trust_store, agreed=self.begin, not_kept=self.status.mark_not_stored
        )
        self._around = around
        self._requests = ServerRequests(spec, around.hooks, self.slots.active_calls, around.opener.redactor)
        self._quiet = RefetchDebounce(self._refetch)
        self._backoff = Backoff()
        self._failed_at: float | None = None
        self._first_failure = ""
        """Why the first of several attempts failed."""
        self._connection: Connection | None = None
        self._ending: set[Connection] = set()
        self._driver: asyncio.Task[None] | None = None
        """Makes attempts; nobody waits for it, all wait for `_waiting`."""
        self._cancelled: set[asyncio.Task[None]] = set()
        """Drivers that were told to end and have not yet."""
        self._waiting: asyncio.Future[ServerLink] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        self._closed = False
        self.status.set_initial(*self._at_rest())

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The one that runs: a session may be made before there is any."""
        return asyncio.get_running_loop()

    # Beginning and ending

    def begin(self) -> None:
        """Prepares the server at the start of a session; connects only if that is necessary."""
        if self._closed or self._driver is not None or self._connection is not None:
            return
        state, error = self._at_rest()
        if state is not ServerState.KNOWN:
            self.status.set(state, error)
            if state is ServerState.PENDING:
                self.approval_prompt.show(self.spec)
        elif not self._is_known() or self.spec.required:
            self._connect_soon()

    def load_cached(self) -> None:
        """Loads the cached manifest of an approved server; starts nothing."""
        if self._at_rest()[0] is ServerState.KNOWN:
            self._is_known()
            if self.offer.manifest is None:
                answered = self._around.trust_store.was_listed(self.spec.scope, self.spec.name)
                self.status.set(ServerState.KNOWN if answered else ServerState.PENDING, offer_unknown(self.spec.name))

    def _at_rest(self) -> tuple[ServerState, str]:
        """The state, and why, of what was not started, by the config and the book alone."""
        if not self.spec.enabled:
            return ServerState.DISABLED, ""
        if self.spec.problem:
            return ServerState.FAILED, self.spec.problem
        approved = self._around.trust_store.approved(self.spec)
        return (ServerState.KNOWN, "") if approved else (ServerState.PENDING, self.status.pending_text)

    def _is_known(self) -> bool:
        """Whether a manifest tells so well what it offers that nothing has to be started for that."""
        found = self._around.cache.load(self.spec, time.time())
        if found is None:
            return False
        manifest, freshness = found
        self.offer.update(manifest)
        self.status.set(ServerState.KNOWN)
        return freshness is Freshness.FRESH

    def approve(self, who: str) -> None:
        """A person agreed by another way than the card, which is needless now."""
        if not self._closed:
            self._around.trust_store.approve_server(self.spec, who)
            self.approval_prompt.cancel()
            self.begin()

    def apply_config(self, spec: ServerSpec) -> bool:
        """Whether an edited config can count from now on without a new process."""
        if _connection_settings(spec) != _connection_settings(self.spec):
            return False
        if spec != self.spec:
            self.spec = self.offer.spec = spec
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
        """Closes the server for good. Everything is told to end before anything is awaited."""
        self._closed = True
        self._quiet.stop()
        self.approval_prompt.cancel()
        self.slots.stop()
        if self._idle is not None:
            self._idle.cancel()
        await self._halt()
        self._disappoint(self.status.closed())

    async def _halt(self) -> None:
        """Returns when nothing is left, also of what another halt is just ending."""
        if self._driver is not None:
            self._driver.cancel()
            self._cancelled.add(self._driver)
            self._driver = None
        self._retire()
        waits: list[asyncio.Task[Any]] = [*self._cancelled]
        waits += [self._loop.create_task(connection.gone.wait()) for connection in self._ending]
        if waits:
            await asyncio.wait(waits, timeout=_ENDING)

    def _retire(self, link: ServerLink | None = None) -> None:
        """The present connection is not used any more; with `link`, only if it is that one."""
        connection = self._connection
        if connection is None or (link is not None and connection.link is not link):
            return
        self._connection = None
        self._ending.add(connection)
        connection.end()
        if self.status.state is ServerState.READY and not self._closed:
            self.status.set(ServerState.KNOWN)

    def _ended(self, connection: Connection) -> None:
        """Cleans up after a connection has ended completely."""
        self._ending.discard(connection)
        self._note_dropped(connection)
        if connection is self._connection:
            self._connection = None
            if self.status.state is ServerState.READY:
                self.status.set(ServerState.KNOWN, connection.cause.message if connection.cause is not None else "")

    # Connecting

    @property
    def live_connection(self) -> Connection | None:
        """Returns the open connection; None if there is none."""
        connection = self._connection
        ready = connection is not None and self.status.state is ServerState.READY and connection.is_alive
        return connection if ready else None

    async def link(self) -> ServerLink:
        """A live connection, made if there is none. Raises ForgeError."""
        if (connection := self.live_connection) is not None and connection.link is not None:
            return connection.link
        self._must_be_usable()
        paused = self._failed_at is not None and self._loop.time() < self._failed_at + FAILED_PAUSE_S
        if paused and self._driver is None:
            raise self.status.failure()
        return await self._connected_by(self._connect_soon())

    def _must_be_usable(self) -> None:
        name = self.spec.name
        if self._closed:
            raise self.status.closed()
        if not self.spec.enabled:
            raise ForgeError(f"server '{name}' is disabled; set `enabled: true` in {self.spec.origin}", code="DISABLED")
        if self.spec.problem:
            raise ForgeError(f"server '{name}' cannot be used: {self.spec.problem}", code="CONFIG")
        if not self._around.trust_store.approved(self.spec):
            raise self.status.mark_pending()

    async def _connected_by(self, waiting: asyncio.Future[ServerLink]) -> ServerLink:
        """`asyncio.wait` never cancels what it waits for: others wait for the same."""
        within = self._connect_timeout()
        await asyncio.wait([waiting], timeout=within)
        if not waiting.done():
            known = self.status.error or (f"the first start: {self._first_failure}" if self._first_failure else "")
            why = f": {known}" if known else ""
            late = ForgeError(
                f"server '{self.spec.name}' is not connected after {within:g} seconds{why}", code=CONNECT_TIMEOUT
            )
            if self._connection is not None:
                self.status.last_words = self._connection.stderr[-STDERR_LINES:]
            said = late.message if why else _with_last_words(late, self._connection)
            raise ForgeError(self._around.opener.redactor.text(said), code="NOT_CONNECTED")
        return waiting.result()

    def _connect_timeout(self) -> float:
        """Longer for the first start of a program, unless the config has its own."""
        cached = self._around.cache
        first = not self.spec.is_http and not self._backoff.failures and self.offer.manifest is None
        if first and self.spec.connect_timeout == CONNECT_TIMEOUT_S and cached.load(self.spec, time.time()) is None:
            return FIRST_START_S
        return self.spec.connect_timeout

    def _connect_soon(self) -> asyncio.Future[ServerLink]:
        if self._waiting is None or self._waiting.done():
            self._waiting = self._loop.create_future()
        if self._driver is None:
            if self._failed_at is not None:
                self._failed_at = None
                self._first_failure = ""
                self._backoff.reset()
            self.status.set(ServerState.CONNECTING)
            self._driver = self._loop.create_task(self._drive(), name=f"mcp connect {self.spec.name}")
            self._driver.add_done_callback(self._driven)
        return self._waiting

    def _driven(self, driver: asyncio.Task[None]) -> None:
        self._cancelled.discard(driver)
        if self._driver is driver:
            self._driver = None
        if not driver.cancelled() and (error := driver.exception()) is not None:
            self._give_up(ForgeError(f"{error_name(error)} while connecting", code="CONNECT_FAILED"))

    async def _drive(self) -> None:
        """Attempts till there is a connection or no use in another one."""
        if sys.modules.get(_SDK) is None:
            try:
                need_sdk()
            except ForgeError as error:
                return self._give_up(error)
            await asyncio.to_thread(__import__, _SDK)  # most of a second: the terminal goes on meanwhile
        legacy = False
        while True:
            if not self._around.trust_store.approved(self.spec):
                return self._disappoint(self.status.mark_pending())
            self.status.set(ServerState.CONNECTING)
            connection: Connection | None = None
            try:
                connection = await self._attempt(legacy=legacy)
                return self._use(connection, await connection.connected())
            except ConnectFailed as failed:
                cause = failed.cause
                # servers of the old era exist that fall silent or die at a question they do not know
                legacy = failed.during_probe and not legacy
            except ForgeError as error:  # the config asks for what it cannot have
                if isinstance(error, NeedsLogin):
                    return self._disappoint(self.status.mark_needs_login())
                return self._give_up(error)
            stderr = connection.stderr[-STDERR_LINES:] if connection is not None else ()
            if isinstance(cause, NeedsLogin):
                return self._disappoint(self.status.mark_needs_login())
            wait = None if isinstance(cause, _NOT_RETRIED) else self._backoff.failed()
            if wait is None:
                said = self._with_first_failure(cause, connection)
                return self._give_up(ForgeError(said, code=cause.code), stderr)
            said = self._with_first_failure(cause, connection)
            self.status.set(ServerState.BACKOFF, said, retry_at=time.time() + wait, stderr=stderr)
            await asyncio.sleep(wait)

    def _with_first_failure(self, cause: ForgeError, connection: Connection | None) -> str:
        """A later attempt often fails for another reason, which says less: a lock that the first one left, its own
        silence. What the first one said stays in the message."""
        said = _with_last_words(cause, connection)
        if cause.code == CONNECT_TIMEOUT and not self._first_failure:
            return said
        self._first_failure = self._first_failure or said
        return said if said == self._first_failure else f"{said}; the first start: {self._first_failure}"

    async def _attempt(self, *, legacy: bool) -> Connection:
        self._retire()  # one that is dead but not yet gone
        if self._ending:  # two processes of one server might write the same file
            await asyncio.wait([self._loop.create_task(one.gone.wait()) for one in self._ending], timeout=_ENDING)
        opened = await self._around.opener.open(self.spec)
        self.rewriter.clean_text, self.rewriter.zone_paths = opened.clean_text, opened.zone_paths
        connection = self._connection = Connection(
            self.spec,
            opened,
            self._requests,
            legacy=legacy,
            within=self._connect_timeout(),
            changed=self._quiet.changed,
            ended=self._ended,
        )
        connection.begin()
        return connection

    def _use(self, connection: Connection, connected: ConnectResult) -> None:
        if not connection.is_alive or connection is not self._connection:
            raise ConnectFailed(connection.cause or ForgeError("the server ended at once", code="ENDED"), probing=False)
        self._backoff.reset()
        self._first_failure = ""
        self._keep(connected.manifest, connection)
        self.slots.touch()
        if not self.spec.is_http:
            self._look_idle_in(self.spec.close_after)
        self.status.set(ServerState.READY)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(connected.link)

    def _give_up(self, cause: ForgeError, stderr: tuple[str, ...] = ()) -> None:
        self._failed_at = self._loop.time()
        self.status.set(ServerState.FAILED, cause.message, stderr=stderr)
        self._disappoint(self.status.failure())

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
        rest = self.spec.close_after - self.slots.idle_seconds()
        if rest <= 0:
            self._retire()
        elif self._connection is not None:
            self._look_idle_in(rest)

    # What it offers

    def _keep(self, listed: ServerManifest, connection: Connection) -> None:
        self._store(_with_dropped(self.rewriter.manifest(listed), connection.dropped))

    def _note_dropped(self, connection: Connection) -> None:
        """Stores how many invalid lines the server wrote since it was listed."""
        manifest = self.offer.manifest
        if manifest is not None and connection.dropped:
            counted = _with_dropped(manifest, connection.dropped)
            if counted.diagnostics != manifest.diagnostics:
                self._store(counted)

    def _store(self, manifest: ServerManifest) -> None:
        if self.offer.update(manifest):
            self._around.changed()
        try:
            self._around.cache.store(manifest)
        except (OSError, ValueError) as error:
            _log.warning("the manifest of %s could not be kept: %s", self.spec.name, type(error).__name__)

    def refresh_soon(self) -> None:
        self._quiet.changed()

    async def _refetch(self) -> None:
        """Lists the tools again. After any failure the known list stays, and the next connection lists anew."""
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
            self._keep(manifest, connection)
            self.status.report()
            self._quiet.note_cost(time.monotonic() - begun)

    # Using it

    async def run_with_link(self, flight: ActiveCall, job: Callable[[ServerLink], Awaitable[T]]) -> T:
        """`job` with a live link, when it is its turn; once more on a new one if the first certainly did nothing."""
        await self.slots.acquire()
        try:
            try:
                return await self._once(flight, job)
            except Unprocessed:
                return await self._once(flight, job)
        finally:
            self.slots.release()

    async def _once(self, flight: ActiveCall, job: Callable[[ServerLink], Awaitable[T]]) -> T:
        link = await self.link()
        self.slots.call_began(flight)
        try:
            return await job(link)
        except Unprocessed:
            self._retire(link)
            raise
        except NeedsLogin:
            self._retire(link)
            raise self.status.mark_needs_login() from None
        finally:
            self.slots.call_ended(flight)


def _with_last_words(cause: ForgeError, connection: Connection | None) -> str:
    """Why there is no connection, and what the server wrote meanwhile that may tell more."""
    words = [cause.message]
    if connection is not None and connection.dropped:
        words.append(_dropped_lines(connection.dropped))
    lines = [line for line in connection.stderr if line.strip()] if connection is not None else []
    if connection is not None and cause.code == CONNECT_TIMEOUT:
        words += [f"the end of its stderr: {shorten(line, _LAST_WORDS)}" for line in lines[-1:]]
    elif lines:
        words.append(f"its stderr: {shorten(' | '.join(_telling(lines)), _LAST_WORDS)}")
    words += [hint for pattern, hint in _HINTS if any(pattern.search(line) for line in lines)]
    return "; ".join(words)


def _telling(lines: Sequence[str]) -> list[str]:
    """The first lines that speak of an error, which tell more than where a log was written; else the last line."""
    return [line.strip() for line in lines if _ERROR_WORD.search(line)][:_MOST_TELLING] or [lines[-1].strip()]


def _with_dropped(manifest: ServerManifest, dropped: int) -> ServerManifest:
    others = tuple(text for text in manifest.diagnostics if not text.startswith(_STDOUT))
    note = f"{_STDOUT}{_dropped_lines(dropped)}; a server must write everything except messages to stderr"
    return replace(manifest, diagnostics=(*others, note) if dropped else others)


def _dropped_lines(count: int) -> str:
    return f"{count:,} {'line was' if count == 1 else 'lines were'} not JSON-RPC and dropped"


def _connection_settings(spec: ServerSpec) -> tuple[Any, ...]:
    """Returns all settings that a running connection depends on."""
    return (
        (spec.name, spec.scope, spec.digest, spec.enabled, spec.required, spec.problem, spec.protocol, spec.sampling),
        (spec.connect_timeout, spec.idle_timeout, spec.total_timeout, spec.close_after),
    )


class StatusTracker:
    def __init__(
        self,
        offered: ServerOffer,
        redactor: Redactor,
        tell: Callable[[ServerStatus], None],
        changed: Callable[[], None],
    ) -> None:
        self._offered = offered
        self._redactor = redactor
        self._tell = tell
        self._changed = changed
        self._retry_at: float | None = None
        self.last_words: tuple[str, ...] = ()
        """The end of its stderr."""
        self._untold = False
        self.state = ServerState.DISABLED
        self.error = ""

    @property
    def _name(self) -> str:
        return self._offered.spec.name

    def status(self) -> ServerStatus:
        manifest = self._offered.manifest
        return ServerStatus(
            server=self._name,
            state=self.state,
            error=self.error,
            retry_at=self._retry_at,
            tools=self._offered.count,
            stderr=self.last_words,
            protocol=manifest.protocol if manifest is not None else "",
            info=manifest.info if manifest is not None else {},
        )

    def set_initial(self, state: ServerState, error: str) -> None:
        """Sets the first state; it is reported when the session begins."""
        self.state, self.error = state, self._redactor.text(error)
        self._untold = state is not ServerState.DISABLED

    def set(
        self, state: ServerState, error: str = "", *, retry_at: float | None = None, stderr: tuple[str, ...] = ()
    ) -> None:
        error = self._redactor.text(error)
        before = (self.state, self.error, self._retry_at)
        self.state, self.error, self._retry_at, self.last_words = state, error, retry_at, stderr
        if self._untold or before != (state, error, retry_at):
            self.report()

    def report(self) -> None:
        self._untold = False
        self._changed()
        try:
            self._tell(self.status())
        except Exception as error:
            _log.warning("the state of %s could not be told: %s", self._name, type(error).__name__)

    @property
    def pending_text(self) -> str:
        return f"server '{self._name}' waits for approval; run: forge mcp approve {self._name}"

    def mark_pending(self) -> ForgeError:
        """Waits for a person. The error is for whoever wanted to use it."""
        text = self.pending_text
        self.set(ServerState.PENDING, text)
        return ForgeError(text, status=Status.APPROVAL_DENIED, code="SERVER_PENDING")

    def mark_needs_login(self) -> ForgeError:
        self.set(ServerState.NEEDS_LOGIN, f"run: forge mcp login {self._name}")
        return ForgeError(f"server '{self._name}' needs a login; {self.error}", code="NEEDS_LOGIN")

    def mark_not_stored(self, error: ForgeError) -> None:
        """A person agreed to it, and that could not be written down: nothing is started on such a yes."""
        self.set(ServerState.PENDING, f"{self.pending_text} ({error.message})")

    def failure(self) -> ForgeError:
        """Returns the error for callers of a server that gave up."""
        text = f"server '{self._name}' failed: {self.error}; then run: forge mcp reconnect {self._name}"
        return ForgeError(text, code="SERVER_FAILED")

    def closed(self) -> ForgeError:
        return ForgeError(f"server '{self._name}' was closed", code="CLOSED")


class ApprovalPrompt:
    def __init__(
        self,
        hooks: Hooks,
        book: ServerTrustStore,
        *,
        agreed: Callable[[], None],
        not_kept: Callable[[ForgeError], None],
    ) -> None:
        """`agreed`: a person said yes, and the book knows it; `not_kept`: it could not be written there."""
        self._hooks = hooks
        self._book = book
        self._agreed = agreed
        self._not_kept = not_kept
        self._task: asyncio.Task[None] | None = None

    def show(self, spec: ServerSpec) -> None:
        """Shows the card if somebody can answer and it is not shown already."""
        if self._task is None and self._hooks.can_ask():
            self._task = asyncio.get_running_loop().create_task(self._ask(spec))
            self._task.add_done_callback(self._gone)

    async def wait_answered(self, within: float | None = None) -> None:
        """Waits for a person who is being asked; returns at once if nobody is."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _ask(self, spec: ServerSpec) -> None:
        before = self._book.approved_before(spec)
        diff = server_diff(before, spec) if before is not None else ""
        if await self._hooks.approve_server(spec, server_card(spec), diff):
            try:
                self._book.approve_server(spec, "person")
            except ForgeError as error:
                self._not_kept(error)
            else:
                self._agreed()

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a card could not be shown: %s", type(error).__name__)
