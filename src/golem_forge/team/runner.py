"""Runner: takes sessions from the store and runs them, at most `slots` at a time. `forge runner`.

Two things bring work: a ring (with SQLite another process changed the file, with PostgreSQL a job names a session) and
a sweep every 5 seconds, which finds what no ring told: a lost one, a session whose runner died, a question whose time
is over, a schedule whose tick has come. Which session runs is decided by `LeaseTable.claim` alone.

`LeaseKeeper` renews the leases of the sessions that the runner holds, every 5 seconds, on a thread with its own
connection. A lease lasts 15 seconds by the database's clock. The runner trusts itself for less: `deadline` is 10
seconds after the last renewal began, by this machine's monotonic clock. After every renewal the watchdog of the process
trees gets a beat; without one for 15 seconds it ends them.

TERM drains: no new work; calls that run get 60 seconds; what waits parks, the rest is given back to the queue. A second
TERM interrupts.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from golem_forge._version import __version__
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.events.serialization import Event
from golem_forge.events.telemetry import Metrics
from golem_forge.sandbox.process.tree import watchdog
from golem_forge.sandbox.walls.probe import remove_abandoned_probes
from golem_forge.storage.home import make_private_dir
from golem_forge.team.accounts import StoreRules
from golem_forge.team.database import PostgresDatabase, StoreUnavailable, TeamError, complaints
from golem_forge.team.dispatch import DispatchThread, listen
from golem_forge.team.journal import CommitThread
from golem_forge.team.leases import LEASE_S
from golem_forge.team.live import WATCH_CHANNEL, WHOLE, LiveSender
from golem_forge.team.schema import check_version
from golem_forge.team.session_run import Phase, RunnerParts, SessionRun
from golem_forge.team.session_workspace import remove_old_clones
from golem_forge.team.store import Store
from golem_forge.team.webhooks import Outbox, Webhook, WebhookSender

RENEW_S: Final = 5.0
TRUST_S: Final = 10.0
_RETRY_S: Final = 1.0


class LeaseKeeper:
    def __init__(
        self, store: Store, runner: str, on_news: Callable[[str, bool, int], None], on_lost: Callable[[str], None]
    ) -> None:
        self._store = store
        self._runner = runner
        self._on_news = on_news
        self._on_lost = on_lost
        self._held: dict[str, int] = {}
        self._deadlines: dict[str, float] = {}
        self._last_beat = time.monotonic()
        self._silent_until = 0.0
        """When (monotonic) the last silence ended that was long enough for the watchdog to end the process trees."""
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="forge-leases", daemon=True)

    def start(self) -> None:
        self._beat()
        self._thread.start()

    def hold(self, session: str, epoch: int, claimed_at: float) -> None:
        """`claimed_at`: monotonic, before the claim was sent."""
        with self._changed:
            self._held[session] = epoch
            self._deadlines[session] = claimed_at + TRUST_S

    def release(self, session: str) -> None:
        with self._changed:
            self._held.pop(session, None)
            self._deadlines.pop(session, None)

    def deadline(self, session: str) -> float:
        """Returns until when (monotonic) this runner may act for the session; 0 if it does not hold it. For an expired
        lease it triggers a renewal, because the database may be back.
        """
        until = self._deadlines.get(session, 0.0)
        if until and until <= time.monotonic():
            with self._changed:
                self._changed.notify()
        return until

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout=5)
        watchdog.beat(0)  # who goes on in this process without leases would lose what it runs

    def _run(self) -> None:
        pause = RENEW_S
        while True:
            with self._changed:
                if not self._closing:
                    self._changed.wait(pause)
                if self._closing:
                    return
                held = dict(self._held)
            began = time.monotonic()
            try:
                found = self._store.leases.renew(self._runner, held)
            except Exception as error:  # the database is away: the deadlines come nearer by themselves
                complaints.tell("the leases could not be renewed", error)
                pause = _RETRY_S
                continue
            pause = RENEW_S
            complaints.end()
            with self._changed:
                still = [session for session, epoch in held.items() if self._held.get(session) == epoch]
                for session in still:
                    if session in found:
                        self._deadlines[session] = began + TRUST_S
            self._beat()
            for session in still:  # not those that were let go, or taken again, meanwhile
                if session in found:
                    self._on_news(session, *found[session])
                else:
                    self._on_lost(session)

    def was_silent(self, since: float) -> bool:
        """Whether the watchdog may have ended what this process runs, after `since` (monotonic)."""
        # Read in the reverse of the order in which `_beat` writes them, on another thread.
        return time.monotonic() - self._last_beat >= _beat_s() or self._silent_until > since

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._last_beat >= _beat_s():
            self._silent_until = now
        self._last_beat = now
        if not self._closing:
            watchdog.beat(_beat_s())


def _beat_s() -> int:
    return max(1, math.ceil(LEASE_S))


SWEEP_S: Final = 5.0
DRAIN_S: Final = 60.0
RULES_S: Final = 0.25
FULL_REST_S: Final = 5.0
"""Seconds that a runner takes no session after its disk was full."""
COLLECT_AFTER: Final = 16
COLLECT_S: Final = 1.0
"""Zones hold descriptors until they are collected, and Python may not collect for hundreds of sessions: the runner does
after so many, and when it had no work for so long. That costs a millisecond or two, and not 80, since what was there at
the first collection after a rest is left out: of the sessions that ran just then, at most one a slot, descriptors stay
until the next rest."""
_ENDED: Final = "the runner ended"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOptions:
    slots: int = 4
    labels: Sequence[str] = ()
    projects: Sequence[str] = ()
    """Ids of the projects whose sessions it takes; empty: of all."""
    limits: Mapping[str, int] = field(default_factory=dict)
    hold_s: float = 1800.0
    idle_s: float = 0.0
    """Seconds without work after which it ends; 0 means never."""
    offers: Mapping[str, Any] = field(default_factory=dict)
    """What it publishes about itself: digests of trusted programs and of user tools."""
    metrics: Metrics = field(default_factory=Metrics)
    webhooks: Sequence[Webhook] = ()
    page: str = ""
    """The address of the team's page, for links in what webhooks are told."""


class Runner:
    def __init__(self, store: Store, home: Path, options: RunnerOptions) -> None:
        self.id = new_id()
        self.store = store
        self.options = options
        self._home = home
        self._runs: dict[str, SessionRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By session, as `_runs`: until everything of it here has ended."""
        self._next_sweep = 0.0
        self._slot_is_free = False
        self._rang = 0.0
        self._idle_since = 0.0
        self._rests_until = 0.0
        self._uncollected = 0
        """Sessions that left since the last collection."""
        self._leaves_out = False
        """Whether collections leave out what has been there since the last rest."""
        self._rules = StoreRules(store)
        self._rules_read = 0.0
        self._rung = asyncio.Event()
        self._draining = False
        self._leaving = False
        """It was idle for long enough, and takes nothing more."""
        self._claims = 0
        """How many are being made: a session may be this runner's already."""
        self._news_of: set[str] = set()
        """Sessions of this runner that rang; empty: any may have."""
        self._interrupted = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._live = LiveSender(store, self.id, self._answer_form, home / "state")
        self._webhooks: WebhookSender | None = None
        self.on_delta: Callable[[str, Event], None] | None = None
        """Also given what is not recorded; attached terminals get it in any case."""

    @property
    def running(self) -> int:
        return len(self._runs)

    async def run(self) -> None:
        """Runs until it is drained, or was idle for long enough. Raises TeamError if the store cannot be
        used at all.
        """
        self._loop = asyncio.get_running_loop()
        options = self.options
        await asyncio.to_thread(self._register)
        leases = LeaseKeeper(self.store, self.id, self._on_news, self._on_lost)
        commits = CommitThread(self.store)
        parts = RunnerParts(
            store=self.store,
            commits=commits,
            leases=leases,
            home=self._home,
            copies=await asyncio.to_thread(_clear_up, self._home / "state" / "running"),
            hold_s=options.hold_s,
            rules=self._rules,
            on_delta=self._take_delta,
        )
        await self._live.open()
        leases.start()
        threading.Thread(target=self._remove_old_clones, name="forge-old-clones", daemon=True).start()
        if options.webhooks:
            outbox = Outbox(self.store.database, options.webhooks, options.page)
            self.store.use_webhooks(outbox)
            self._webhooks = WebhookSender(outbox)
        rings = listen(self.store, self._ring_in_thread, (WATCH_CHANNEL,), self._heard_in_thread)
        self._idle_since = time.monotonic()
        dispatch = self._dispatch(parts)
        try:
            while not self._draining:
                self._rung.clear()
                await self._sweep()
                await self._ring_forgotten()
                await self._refresh_rules()
                if dispatch is None:
                    await self._claim(parts)
                await self._look_at_held()
                if self._is_idle() and await self._may_leave():
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(SWEEP_S, options.idle_s or SWEEP_S)):
                        await self._rung.wait()
            if dispatch is not None:
                await asyncio.to_thread(dispatch.close)
            await self._drain()
        finally:
            if dispatch is not None:
                await asyncio.to_thread(dispatch.close)
            rings.close()
            self._live.close()
            for run in list(self._runs.values()):
                run.lose(_ENDED)
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=10)
            if self._webhooks is not None:
                await self._webhooks.close()
            await asyncio.to_thread(commits.close)
            await asyncio.to_thread(leases.close)
            await asyncio.to_thread(shutil.rmtree, parts.copies, ignore_errors=True)
            with contextlib.suppress(TeamError):
                await asyncio.to_thread(self.store.runners.unregister, self.id)

    def _is_idle(self) -> bool:
        rested = time.monotonic() - self._idle_since
        return bool(self.options.idle_s) and rested > self.options.idle_s and not self._runs and not self._claims

    async def _may_leave(self) -> bool:
        """Says that it leaves, then looks for work once more. Whoever queues a session looks for a runner afterwards:
        one of the two sees the other."""
        self._leaving = True
        try:
            await asyncio.to_thread(self.store.runners.drain, self.id)
            has_work = await asyncio.to_thread(
                self.store.leases.has_work, self.options.labels, self.options.limits, self.options.projects
            )
            if not has_work and self._is_idle():
                return True
            await asyncio.to_thread(self.store.runners.drain, self.id, False)
        except StoreUnavailable as error:
            complaints.tell("the store cannot be asked", error)
        self._leaving = False
        self._idle_since = time.monotonic()
        self._next_sweep = 0.0  # a ring that came meanwhile was not heard
        self._rung.set()
        return False

    def drain(self) -> None:
        """The first time: no new work. The second time: what runs is interrupted."""
        if self._draining:
            self._interrupted.set()
        self._draining = True
        self._rung.set()

    # ---- taking sessions

    def _dispatch(self, parts: RunnerParts) -> DispatchThread | None:
        """Returns the dispatcher that brings sessions here with PostgreSQL, one job each."""
        if not isinstance(self.store.database, PostgresDatabase):
            return None
        room = asyncio.Semaphore(self.options.slots)

        async def attend(session_id: str) -> None:
            async with room:
                await asyncio.sleep(self._rests_until - time.monotonic())
                if (before := self._runs.get(session_id)) is not None:
                    if before.phase is not Phase.LEFT:
                        return  # a ring too many
                    await asyncio.wait({self._tasks[session_id]})
                if (task := await self._claim_one(parts, session_id)) is not None:
                    await asyncio.wait({task})

        return DispatchThread(self.store.database, self.options.labels, self.options.slots, attend)

    async def _ring_forgotten(self) -> None:
        """Looks for sessions that waited behind a limit after a slot became free; at most four times a second."""
        if not self._slot_is_free:
            return
        rest = self._rang + RULES_S - time.monotonic()
        if rest > 0:
            asyncio.get_running_loop().call_later(rest, self._rung.set)
            return
        self._rang, self._slot_is_free = time.monotonic(), False
        options = self.options
        try:
            await asyncio.to_thread(
                self.store.leases.ring_forgotten, options.labels, options.limits, 2 * options.slots, options.projects
            )
            if options.metrics.wanted:
                options.metrics.set_queue_length((await asyncio.to_thread(self.store.counts)).get("queued", 0))
        except StoreUnavailable as error:
            complaints.tell("the store cannot be asked", error)

    async def _sweep(self) -> None:
        """Checks every 5 seconds for what no notification reported."""
        now = time.monotonic()
        if now < self._next_sweep:
            return
        self._next_sweep = now + SWEEP_S
        self._slot_is_free = True
        self._news_of.add("")
        try:
            await asyncio.to_thread(check_version, self.store.database)
            await asyncio.to_thread(self.store.leases.shorten)
            await asyncio.to_thread(self.store.questions.expire)
            for said in await asyncio.to_thread(self.store.schedules.start_due):
                _log.warning("%s", said)
        except StoreUnavailable as error:
            complaints.tell("the store cannot be asked", error)
        except TeamError as error:
            if error.code != "STORE_SCHEMA":
                raise
            _log.error("%s This runner ends; its sessions go back to the queue.", error.message)
            self.drain()

    async def _refresh_rules(self) -> None:
        """The store's rules, after a ring: at most four times a second."""
        rest = self._rules_read + RULES_S - time.monotonic()
        if rest > 0:
            asyncio.get_running_loop().call_later(rest, self._rung.set)
            return
        self._rules_read = time.monotonic()
        try:
            await asyncio.to_thread(self._rules.refresh)
        except StoreUnavailable as error:
            complaints.tell("the store cannot be asked", error)

    async def _claim(self, parts: RunnerParts) -> None:
        while len(self._runs) < self.options.slots and await self._claim_one(parts) is not None:
            pass

    async def _claim_one(self, parts: RunnerParts, session_id: str = "") -> asyncio.Task[None] | None:
        """Claims a session; None if there is none or the store is unavailable. A session that is still leaving is
        skipped.
        """
        if self._draining or self._leaving or time.monotonic() < self._rests_until:
            return None
        self._claims += 1
        try:
            return await self._claim_now(parts, session_id)
        except StoreUnavailable as error:
            complaints.tell("the store cannot be asked", error)
            return None
        finally:
            self._claims -= 1

    async def _claim_now(self, parts: RunnerParts, session_id: str) -> asyncio.Task[None] | None:
        began = time.monotonic()
        lease = await asyncio.to_thread(
            self.store.leases.claim,
            self.id,
            self.options.labels,
            session_id=session_id,
            limits=self.options.limits,
            but=list(self._runs),
            projects=self.options.projects,
        )
        if lease is None:
            return None
        parts.leases.hold(lease.id, lease.epoch, began)
        if lease.epoch == 1:
            self.options.metrics.record_wait(lease.session.updated - lease.session.created)
        run = SessionRun(parts, lease)
        self._runs[lease.id] = run
        task = asyncio.get_running_loop().create_task(self._attend(run))
        self._tasks[lease.id] = task
        return task

    async def _attend(self, run: SessionRun) -> None:
        try:
            await run.run()
        finally:
            self._live.forget(run.id)
            self._runs.pop(run.id, None)
            self._tasks.pop(run.id, None)
            self._slot_is_free = True
            self._idle_since = time.monotonic()
            self._rung.set()
            self._uncollected += 1
            if self._uncollected >= COLLECT_AFTER:
                self._collect()
            elif not self._runs:
                asyncio.get_running_loop().call_later(COLLECT_S, self._collect_at_rest)
            if run.is_full:
                self._rests_until = time.monotonic() + FULL_REST_S
                asyncio.get_running_loop().call_later(FULL_REST_S, self._rung.set)
            if run.lost:
                _log.warning("session %s left this runner: %s", run.id[:12], run.lost)
                if run.lost != _ENDED:
                    self.options.metrics.count_lost_lease()

    def _collect_at_rest(self) -> None:
        if self._uncollected and not self._runs:
            gc.unfreeze()
            self._leaves_out = False
            self._collect()

    def _collect(self) -> None:
        self._uncollected = 0
        gc.collect()
        if not self._leaves_out:
            gc.freeze()
            self._leaves_out = True

    async def _look_at_held(self) -> None:
        """Tells sessions what changed in the store, between two renewals of their leases."""
        rang, self._news_of = self._news_of, set()
        asked = [each for each, run in self._runs.items() if run.takes_news() and ("" in rang or each in rang)]
        if not asked:
            return
        try:
            news = await asyncio.to_thread(self.store.leases.news, asked)
        except StoreUnavailable as error:
            complaints.tell("the store cannot be asked", error)
            return
        for session_id, (stop, arrivals, epoch) in news.items():
            run = self._runs.get(session_id)
            if run is None:
                continue
            if epoch > run.lease.epoch:  # a lower one was read before this runner took the session again
                run.lose("another runner has taken this session over")
            else:
                run.ring(stop=stop, arrivals=arrivals)

    # ---- attached terminals

    def _take_delta(self, session_id: str, event: Event) -> None:
        self._live.take(session_id, event)
        if self.on_delta is not None:
            self.on_delta(session_id, event)

    def _answer_form(self, session_id: str, answer: Mapping[str, Any], by: str, door: str) -> str:
        run = self._runs.get(session_id)
        return "the session is not here any more" if run is None else run.questions.answer_form(answer, by, door)

    # ---- from threads

    def _heard_in_thread(self, channel: str, what: str) -> None:
        """Handles the notice that somebody watches a session."""
        session_id, _, more = what.partition(" ")

        def tell() -> None:
            if session_id in self._runs:
                self._live.watch(session_id, whole=more == WHOLE)

        self._call_on_loop(tell)

    def _ring_in_thread(self, session_id: str) -> None:
        """Handles a notice about a session; one that is not here is ignored, because its next runner reads what has
        arrived.
        """

        def tell() -> None:
            self._news_of.add(session_id)
            self._rung.set()

        if not session_id or session_id in self._runs:
            self._call_on_loop(tell)
        if self._webhooks is not None:
            self._call_on_loop(self._webhooks.ring)

    def _on_news(self, session_id: str, stop: bool, arrivals: int) -> None:
        def tell() -> None:
            if (run := self._runs.get(session_id)) is not None:
                run.ring(stop=stop, arrivals=arrivals)

        self._call_on_loop(tell)

    def _on_lost(self, session_id: str) -> None:
        def tell() -> None:
            if (run := self._runs.get(session_id)) is not None:
                run.lose("another runner has taken this session over")

        self._call_on_loop(tell)

    def _call_on_loop(self, act: Callable[[], None]) -> None:
        """Does nothing once the loop is closed."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act)

    # ---- ending

    async def _drain(self) -> None:
        with contextlib.suppress(TeamError):
            await asyncio.to_thread(self.store.runners.drain, self.id)
        until = time.monotonic() + DRAIN_S
        while (self._runs or self._claims) and time.monotonic() < until and not self._interrupted.is_set():
            for run in list(self._runs.values()):
                run.drain()
                if not run.runs_something:
                    await run.hand_over()
            await asyncio.sleep(0.05)
        for run in list(self._runs.values()):
            await run.hand_over()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=10)

    def _remove_old_clones(self) -> None:
        with contextlib.suppress(Exception):  # the next runner that starts tries again
            remove_old_clones(self.store, self._home)

    def _register(self) -> None:
        self.store.runners.register(
            self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            slots=self.options.slots,
            labels=self.options.labels,
            version=__version__,
            offers={
                **self.options.offers,
                "limits": dict(self.options.limits),
                "projects": list(self.options.projects),
            },
        )


def _clear_up(place: Path) -> Path:
    """Removes what killed processes left. Returns a folder for this one."""
    remove_abandoned_probes()
    return own_folder(place)


def own_folder(place: Path) -> Path:
    """A folder of this process; those of processes that are gone are removed."""
    for folder in place.glob("*-*"):
        pid = folder.name.partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)
    folder = place / f"{os.getpid()}-{new_id()[:8]}"
    make_private_dir(folder)
    return folder
