"""The bus: one place where the runtime says what happened and UIs say what they want.

`emit` takes the name of an event with a mapping, or a typed object. Names of events and fields may be spelled as on the
wire (`toolStarted`, `toolCallId`) or in snake_case; handlers get the wire's. It refuses (ValueError) a name that is not
known, naming the nearest, data without a field that it cannot fill in, and a value that its field cannot hold. An
event of one's own is a subclass of `EventData`.
A recorded event goes to the recorder, and is committed, before any subscriber sees it. Delivery is synchronous, in
subscription order, on one thread, the loop's: an emit from another thread is queued onto the loop, an emit from inside
a handler is delivered after the current event, and a raising handler is logged while the others still run. A bus that
was made before its loop runs belongs to the first loop that uses it; until then to the first thread.

Threat: an action may hold a raw secret (a form's password, a tool's api key). The runtime needs it as it is, so
handlers subscribed to that action's own type get it raw; the journal, `*` handlers and queues get a redacted copy.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from threading import RLock, get_ident
from time import time
from typing import Any, Protocol

from golem_forge.core.options import must_be
from golem_forge.events.envelope import Event
from golem_forge.events.event_queue import EventQueue
from golem_forge.events.failures import described
from golem_forge.events.routes import ALL, Handler, Route, Subscription
from golem_forge.events.types import REGISTRY, EventData
from golem_forge.events.wire import checked, known_type

Recorder = Callable[[Event], int]
Conceal = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
_THREAD_UNKNOWN = -1

_log = logging.getLogger(__name__)


class Commands(Protocol):
    """Does what people ask for on a bus, until somebody else does it in its place."""

    def pause(self) -> None: ...

    def resume(self) -> None:
        """Nothing, once it is closed."""


class EventBus:
    def __init__(
        self,
        session_id: str = "",
        *,
        recorder: Recorder | None = None,
        commit: Callable[[], object] | None = None,
        redact: Callable[[Any], Any] | None = None,
    ) -> None:
        """`recorder` keeps an event and gives its number; `commit` makes everything kept so far survive a crash."""
        self.session_id = session_id
        self.seq = 0
        """The number of the last recorded event."""
        self._recorder = recorder
        self._commit = commit
        self._redact = self._own_redact = redact
        self._serves = False
        self.served = False
        """Whether a session has spoken here before."""
        self.commands: Commands | None = None
        """Who hears `command` and `manualToolInvoke`: each is done once."""
        self._subscriptions: list[Subscription] = []
        self._routes: dict[str, Route] = {}
        self._waiting: deque[tuple[Event, Event]] = deque()
        self._delivering = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._claim = RLock()
        self._from_elsewhere: deque[Callable[[], None]] = deque()
        """What other threads said while there is no loop to hand it to."""
        self._catching_up = False
        self.conceal: Conceal | None = None
        """(type, data) of an action → the same without what its reader alone may know, by whatever name."""
        self.runtime_ui: object | None = None
        """The one RuntimeUI of this bus (`create_runtime_ui`): the runtime asks with it, adapters attach to it."""
        if asyncio._get_running_loop() is not None:
            self.bind_loop()

    def bind_loop(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """From now on events are delivered on the thread that runs `loop` (default: the running loop, this thread)."""
        loop = loop or asyncio.get_running_loop()
        with self._claim:
            self._loop = loop
            self._thread = get_ident() if loop is asyncio._get_running_loop() else _THREAD_UNKNOWN
            while self._from_elsewhere:
                loop.call_soon_threadsafe(self._from_elsewhere.popleft())

    def record_with(self, recorder: Recorder, commit: Callable[[], object] | None = None, *, seq: int = 0) -> None:
        """Attaches the session's journal; `seq` is the number of the last event it already holds."""
        self._recorder, self._commit, self.seq = recorder, commit, seq

    def serve(self, session_id: str, redact: Callable[[Any], Any]) -> None:
        """A session speaks here from now on, its secrets replaced. RuntimeError: another one does already."""
        if self._serves:
            raise RuntimeError(
                "this bus already carries a session that runs; close that one, or give this one its own bus"
            )
        own = self._own_redact
        self._serves = self.served = True
        self.session_id = session_id
        self._redact = redact if own is None or own == redact else lambda value: redact(own(value))

    def release(self) -> None:
        """That session is over. Subscriptions stay, for whoever watches the next one."""
        self.stop_recording()
        self._serves, self.conceal = False, None

    def stop_recording(self) -> None:
        """The journal is gone; what is said from now on is only shown."""
        self._recorder = self._commit = None

    def on(self, type: str, handler: Handler) -> Callable[[], None]:
        """Calls `handler(event)` for every event of `type` (`*`: of any type); gives the function that ends it.

        `event.data` has the fields as attributes in snake_case, `event.wire` as a mapping by wire names.
        """
        type = type if type == ALL else known_type(type)
        if not callable(handler):
            raise TypeError(f"a bus handler is a function that takes an event, not {handler!r}")
        if inspect.iscoroutinefunction(handler):
            raise TypeError("a bus handler is a plain function; an async subscriber uses subscribe_queue()")
        subscription = Subscription(type, handler)
        self._subscriptions.append(subscription)
        self._routes.clear()
        return lambda: self._drop(lambda one: one is subscription)

    def listens(self, type: str) -> bool:
        """Whether somebody subscribed to this very type."""
        return any(one.type == type for one in self._subscriptions)

    def off(self, type: str) -> None:
        """Ends every subscription to exactly this type."""
        type = type if type == ALL else known_type(type)
        self._drop(lambda one: one.type == type)

    def clear(self) -> None:
        """Ends every subscription, and with them the RuntimeUI: it would never hear an answer."""
        self._drop(lambda one: True)
        self.runtime_ui = None

    def subscribe_queue(self, maxsize: int = 1024, type: str = ALL) -> EventQueue:
        """A queue of events for an async reader; call it on the loop that will read."""
        self.bind_loop()
        queue = EventQueue(maxsize, on_close=lambda: unsubscribe())
        unsubscribe = self.on(type, queue.put)
        return queue

    def emit(
        self, kind: str | EventData, data: Mapping[str, Any] | None = None, worker_id: str = "", source: str = ""
    ) -> None:
        """`source` names the UI that emits an action."""
        if isinstance(kind, str):
            route = self._routes.get(kind) or self._new_route(known_type(kind))
            typed = None
            if data is None:
                data = {}
            try:
                plain = route.fits(data) and len(data) == route.required
            except (KeyError, TypeError):
                plain = False
            if not plain:
                data = checked(REGISTRY[route.type], data)
        else:
            route = self._routes.get(kind.TYPE) or self._new_route(kind.TYPE)
            typed = kind
        if (self._loop is None or self._thread != get_ident()) and not self._mine():
            self._hand_over(partial(self.emit, kind, data, worker_id, source))
            return
        recorder = self._recorder
        if recorder is None and not route.targets:
            self.seq += route.recorded
            return
        event = shown = Event(route.type, data, typed, self.seq, time(), self.session_id, worker_id, source)
        if self._redact is not None or route.private or (route.action and self.conceal is not None):
            shown = self._redacted(event, route)
            if not route.action:
                event = shown
        if route.recorded:
            event.seq = shown.seq = self.seq = self.seq + 1 if recorder is None else self._record(shown)
        if route.targets:
            if self._delivering:
                self._waiting.append((event, shown))
            else:
                self._deliver(route, event, shown)

    def show(self, kind: str, make: Callable[[], Mapping[str, Any]], worker_id: str, seq: int) -> None:
        """Delivers what is in the journal already, as number `seq` (0: no journal, the bus counts).

        `make` gives the data, redacted, when somebody reads it.
        """
        if (self._loop is None or self._thread != get_ident()) and not self._mine():
            self._hand_over(partial(self.show, kind, make, worker_id, seq))
            return
        if not seq:
            seq = self.seq + 1
        if seq > self.seq:
            self.seq = seq
        if not self._subscriptions:
            return
        route = self._routes.get(kind) or self._new_route(kind)
        if route.targets:
            event = Event(kind, None, None, seq, time(), self.session_id, worker_id, "", make)
            if self._delivering:
                self._waiting.append((event, event))
            else:
                self._deliver(route, event, event)

    def replay(self, events: Iterable[Event]) -> None:
        """Shows recorded events again. Nothing is recorded, and nothing is done twice: an action reaches only handlers
        of `*`. Not from inside a handler."""
        if not self._mine():
            self._hand_over(partial(self.replay, list(events)))
            return
        if self._delivering:
            raise RuntimeError("a handler cannot replay events: it would be called by itself")
        for event in events:
            kind = REGISTRY.get(event.type)
            action = kind is not None and kind.ACTION
            heard = [one for one in self._subscriptions if one.type == ALL or not action]
            self._deliver(Route(event.type, kind, heard), event, event)

    def make_event(self, type: str, data: Mapping[str, Any], worker_id: str = "") -> Event:
        """The event as subscribers would see it, redacted, neither recorded nor delivered."""
        event = Event(type, data, None, self.seq, time(), self.session_id, worker_id)
        return self._redacted(event, self._routes.get(type) or self._new_route(type))

    def _deliver(self, route: Route, event: Event, shown: Event) -> None:
        self._delivering = True
        try:
            while True:
                if self._commit is not None:
                    self._commit_quietly()
                for target in route.targets:
                    if target.active:
                        try:
                            target.handler(shown if target.type == ALL else event)
                        except Exception as error:
                            self._log_failure(route, error)
                if not self._waiting:
                    return
                event, shown = self._waiting.popleft()
                route = self._routes.get(event.type) or self._new_route(event.type)
        finally:
            self._delivering = False

    def _mine(self) -> bool:
        """Whether this thread may record and deliver; a loop that runs here takes a bus that has none."""
        running = asyncio._get_running_loop()
        with self._claim:
            if running is not None and running is self._loop:
                self._thread = get_ident()
            elif running is not None and (self._loop is None or self._loop.is_closed()):
                self.bind_loop(running)
            elif self._thread == 0:
                self._thread = get_ident()
            mine = self._thread == get_ident()
        if mine and self._from_elsewhere and not self._catching_up:
            self._catching_up = True
            try:
                while self._from_elsewhere:
                    self._from_elsewhere.popleft()()
            finally:
                self._catching_up = False
        return mine

    def _hand_over(self, work: Callable[[], None]) -> None:
        """To the thread this bus belongs to."""
        with self._claim:
            if self._loop is None:
                self._from_elsewhere.append(work)
                return
            try:
                self._loop.call_soon_threadsafe(work)
            except RuntimeError:
                _log.warning("an event came after its loop was closed and was dropped")

    def _log_failure(self, route: Route, error: Exception) -> None:
        """An action's data may be a raw secret, and who fails over data often quotes it: then only where, not what."""
        told = described(error, quoting=not route.action)
        _log.error("a handler of %r failed: %s", route.type, told if self._redact is None else self._redact(told))

    def _commit_quietly(self) -> None:
        assert self._commit is not None
        try:
            self._commit()
        except Exception:
            _log.exception("recorded events could not be written")

    def _redacted(self, event: Event, route: Route) -> Event:
        wire = event.wire
        open_to_all = self._concealed(event) if route.action and self.conceal is not None else wire
        changed = self._redact(open_to_all) if self._redact is not None else open_to_all
        if route.private and changed.get("values"):
            changed = {**changed, "values": dict.fromkeys(changed["values"], "[not recorded]")}
        if changed is wire:
            return event
        return Event(event.type, changed, None, event.seq, event.ts, event.session_id, event.worker_id, event.source)

    def _concealed(self, event: Event) -> Mapping[str, Any]:
        assert self.conceal is not None
        try:
            return self.conceal(event.type, event.wire)
        except Exception as error:  # what was not looked through is shown to nobody
            _log.error("an action %r could not be looked through: %s", event.type, type(error).__name__)
            return {name: value if name.endswith("Id") else "[not recorded]" for name, value in event.wire.items()}

    def _record(self, event: Event) -> int:
        assert self._recorder is not None
        try:
            return self._recorder(event)
        except Exception:
            # The UI must still learn what happened, e.g. that the journal is unavailable. It is shown unnumbered;
            # no call can start meanwhile, because the journal refuses that on its own.
            _log.exception("event %r could not be recorded", event.type)
            return self.seq

    def _new_route(self, name: str) -> Route:
        route = Route(name, REGISTRY.get(name), self._subscriptions)
        if name in REGISTRY:  # an unknown name may come from outside: such are not kept
            self._routes[name] = route
        return route

    def _drop(self, unwanted: Callable[[Subscription], bool]) -> None:
        dropped = [one for one in self._subscriptions if unwanted(one)]
        self._subscriptions = [one for one in self._subscriptions if one not in dropped]
        self._routes.clear()
        for one in dropped:
            one.active = False
            owner = getattr(one.handler, "__self__", None)
            if isinstance(owner, EventQueue):
                owner.close()


UIEventBus = EventBus


def create_ui_event_bus(
    session_id: str = "",
    *,
    recorder: Recorder | None = None,
    commit: Callable[[], object] | None = None,
    redact: Callable[[Any], Any] | None = None,
) -> EventBus:
    must_be(isinstance(session_id, str), "create_ui_event_bus: session_id", "a text", session_id)
    return EventBus(session_id, recorder=recorder, commit=commit, redact=redact)
