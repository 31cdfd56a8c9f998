"""LeaseKeeper: renews the leases of a runner's sessions, every 5 seconds, on a thread with its own connection.

A lease lasts 15 seconds by the database's clock. The runner trusts itself for less: `deadline` is 10 seconds after the
last renewal began, by this machine's monotonic clock. After every renewal the watchdog of the process trees gets a
beat; without one for 15 seconds it ends them.

`on_news(session, stop, arrivals)` and `on_lost(session)` are called on the thread.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Final

from golem_forge.sandbox.process.tree import watchdog
from golem_forge.team.database import complaints
from golem_forge.team.store import LEASE_S, Store

RENEW_S: Final = 5.0
TRUST_S: Final = 10.0
_RETRY_S: Final = 1.0
_log = logging.getLogger(__name__)


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
                found = self._store.renew(self._runner, held)
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

    def _beat(self) -> None:
        watchdog.beat(max(1, math.ceil(LEASE_S)))
