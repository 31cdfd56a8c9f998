"""The bus: the runtime says here what happened, and UIs say what they want.

`emit` takes the name of an event with a mapping, or a typed object. Names of events and fields may be spelled as on the
wire (`toolStarted`, `toolCallId`) or in snake_case; handlers get the wire's. It raises ValueError for an unknown name
(with the closest known one), for a missing field that it cannot fill in, and for a value that its field cannot hold. A
custom event is a subclass of `EventData`.

A recorded event goes to the recorder, and is committed, before any subscriber sees it. Delivery is synchronous, in
subscription order, on one thread, the loop's: an emit from another thread is queued onto the loop, an emit from inside
a handler is delivered after the current event, and a raising handler is logged while the others still run. A bus that
was made before its loop runs belongs to the first loop that uses it; until then to the first thread.

`EventQueue` is for a subscriber that reads at its own pace, e.g. a browser's socket. It holds at most `maxsize` events.
Adjacent `streaming` or `toolOutput` deltas of one id that still wait are merged; nothing else is dropped. A reader that
overflows is disconnected: it gets what is queued, then `Disconnected` with the number to resume after.

Threat: an action may hold a raw secret (a form's password, a tool's API key). The runtime needs it, so handlers
subscribed to that action's own type get it raw; the journal, `*` handlers and queues get a redacted copy.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from threading import RLock, get_ident
from time import time
from typing import Any, Final, Protocol

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.options import require
from golem_forge.events.model import REGISTRY, EventData, check_fields, make_quick_check, wire_type_name
from golem_forge.events.serialization import Event

EventHandler = Callable[[Event], object]
ALL_EVENTS: Final = "*"


@dataclass(slots=True, eq=False)
class Subscription:
    type: str
    handler: EventHandler
    active: bool = True
    """False after unsubscribing; an event that is being delivered then skips it."""


class Route:
    __slots__ = ("action", "fits", "private", "recorded", "required", "targets", "type")

    def __init__(self, name: str, kind: type[EventData] | None, subscriptions: Iterable[Subscription]) -> None:
        self.type = name
        self.recorded = kind is None or kind.RECORDED
        self.action = kind is not None and kind.ACTION
        self.private = name == "formResponse"
        """A form may ask for a password under any name: what was typed is for the runtime alone."""
        self.fits: Callable[[Any], bool] = (lambda _: True) if kind is None else make_quick_check(kind)
        """Whether every required field holds what it may, at a glance. KeyError: one is missing."""
        self.required = 0 if kind is None else len(kind.REQUIRED)
        self.targets = tuple(one for one in subscriptions if one.type == name or one.type == ALL_EVENTS)


EventRecorder = Callable[[Event], int]
ConcealAction = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
_THREAD_UNKNOWN = -1

_log = logging.getLogger(__name__)


class CommandHandler(Protocol):
    """Does what people ask for on a bus, until another handler takes over."""

    def pause(self) -> None: ...

    def resume(self) -> None:
        """Does nothing if the handler is closed."""


class EventBus:
    def __init__(
        self,
        session_id: str = "",
        *,
        recorder: EventRecorder | None = None,
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
        self.commands: CommandHandler | None = None
        """Who hears `command` and `manualToolInvoke`: each is done once."""
        self._subscriptions: list[Subscription] = []
        self._routes: dict[str, Route] = {}
        self._waiting: deque[tuple[Event, Event]] = deque()
        self._delivering = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._claim = RLock()
        self._pending_from_threads: deque[Callable[[], None]] = deque()
        """What other threads said while there is no loop to hand it to."""
        self._catching_up = False
        self.conceal: ConcealAction | None = None
        """(type, data) of an action → the same without what its reader alone may know, by whatever name."""
        self.runtime_ui: object | None = None
        """The one RuntimeUI of this bus (`create_runtime_ui`): the runtime asks with it, adapters attach to it."""
        if asyncio._get_running_loop() is not None:
            self.bind_loop()

    def bind_loop(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Delivers events from now on on the thread that runs `loop` (default: the running loop, this thread)."""
        loop = loop or asyncio.get_running_loop()
        with self._claim:
            self._loop = loop
            self._thread = get_ident() if loop is asyncio._get_running_loop() else _THREAD_UNKNOWN
            while self._pending_from_threads:
                loop.call_soon_threadsafe(self._pending_from_threads.popleft())

    def record_with(self, recorder: EventRecorder, commit: Callable[[], object] | None = None, *, seq: int = 0) -> None:
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
        """The session is over. Subscriptions stay, for whoever watches the next one."""
        self.stop_recording()
        self._serves, self.conceal = False, None

    def stop_recording(self) -> None:
        """The journal is gone; what is said from now on is only shown."""
        self._recorder = self._commit = None

    def on(self, type: str, handler: EventHandler) -> Callable[[], None]:
        """Calls `handler(event)` for every event of `type` (`*`: of any type); gives the function that ends it.

        `event.data` has the fields as attributes in snake_case, `event.wire` as a mapping by wire names.
        """
        type = type if type == ALL_EVENTS else wire_type_name(type)
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
        type = type if type == ALL_EVENTS else wire_type_name(type)
        self._drop(lambda one: one.type == type)

    def clear(self) -> None:
        """Ends every subscription, and with them the RuntimeUI: it would never hear an answer."""
        self._drop(lambda one: True)
        self.runtime_ui = None

    def subscribe_queue(self, maxsize: int = 1024, type: str = ALL_EVENTS) -> EventQueue:
        """A queue of events for an async reader; call it on the loop that will read."""
        self.bind_loop()
        queue = EventQueue(maxsize, on_close=lambda: unsubscribe())
        unsubscribe = self.on(type, queue.put)
        return queue

    def emit(
        self, kind: str | EventData, data: Mapping[str, Any] | None = None, worker_id: str = "", source: str = ""
    ) -> None:
        """Emits an event to all subscribers. `source` names the UI that emits an action."""
        if isinstance(kind, str):
            route = self._routes.get(kind) or self._new_route(wire_type_name(kind))
            typed = None
            if data is None:
                data = {}
            try:
                plain = route.fits(data) and len(data) == route.required
            except (KeyError, TypeError):
                plain = False
            if not plain:
                data = check_fields(REGISTRY[route.type], data)
        else:
            route = self._routes.get(kind.TYPE) or self._new_route(kind.TYPE)
            typed = kind
        if (self._loop is None or self._thread != get_ident()) and not self._on_own_thread():
            self._run_on_own_thread(partial(self.emit, kind, data, worker_id, source))
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
            self._hand_out(route, event, shown)

    def show(self, kind: str, make: Callable[[], Mapping[str, Any]], worker_id: str, seq: int) -> None:
        """Delivers what is in the journal already, as number `seq` (0: no journal, the bus counts).

        `make` gives the data, redacted, when somebody reads it.
        """
        if (self._loop is None or self._thread != get_ident()) and not self._on_own_thread():
            self._run_on_own_thread(partial(self.show, kind, make, worker_id, seq))
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
            self._hand_out(route, event, event)

    def replay(self, events: Iterable[Event]) -> None:
        """Shows recorded events again. Nothing is recorded, and nothing is done twice: an action reaches only handlers
        of `*`. Not from inside a handler."""
        if not self._on_own_thread():
            self._run_on_own_thread(partial(self.replay, list(events)))
            return
        if self._delivering:
            raise RuntimeError("a handler cannot replay events: it would be called by itself")
        for event in events:
            kind = REGISTRY.get(event.type)
            action = kind is not None and kind.ACTION
            heard = [one for one in self._subscriptions if one.type == ALL_EVENTS or not action]
            self._deliver(Route(event.type, kind, heard), event, event)

    def make_event(self, type: str, data: Mapping[str, Any], worker_id: str = "") -> Event:
        """The event as subscribers would see it, redacted, neither recorded nor delivered."""
        event = Event(type, data, None, self.seq, time(), self.session_id, worker_id)
        return self._redacted(event, self._routes.get(type) or self._new_route(type))

    def _hand_out(self, route: Route, event: Event, shown: Event) -> None:
        if self._delivering:
            self._waiting.append((event, shown))
        else:
            self._deliver(route, event, shown)

    def _deliver(self, route: Route, event: Event, shown: Event) -> None:
        self._delivering = True
        try:
            while True:
                if self._commit is not None:
                    try:
                        self._commit()
                    except Exception:
                        _log.exception("recorded events could not be written")
                for target in route.targets:
                    if target.active:
                        try:
                            target.handler(shown if target.type == ALL_EVENTS else event)
                        except Exception as error:
                            self._log_failure(route, error)
                if not self._waiting:
                    return
                event, shown = self._waiting.popleft()
                route = self._routes.get(event.type) or self._new_route(event.type)
        finally:
            self._delivering = False

    def _on_own_thread(self) -> bool:
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
        if mine and self._pending_from_threads and not self._catching_up:
            self._catching_up = True
            try:
                while self._pending_from_threads:
                    self._pending_from_threads.popleft()()
            finally:
                self._catching_up = False
        return mine

    def _run_on_own_thread(self, work: Callable[[], None]) -> None:
        with self._claim:
            if self._loop is None:
                self._pending_from_threads.append(work)
                return
            try:
                self._loop.call_soon_threadsafe(work)
            except RuntimeError:
                _log.warning("an event came after its loop was closed and was dropped")

    def _log_failure(self, route: Route, error: Exception) -> None:
        """An action's data may be a raw secret, and errors often quote it: then only the place is logged."""
        text = describe_failure(error, quoting=not route.action)
        _log.error("a handler of %r failed: %s", route.type, text if self._redact is None else self._redact(text))

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
    recorder: EventRecorder | None = None,
    commit: Callable[[], object] | None = None,
    redact: Callable[[Any], Any] | None = None,
) -> EventBus:
    require(isinstance(session_id, str), "create_ui_event_bus: session_id", "a text", session_id)
    return EventBus(session_id, recorder=recorder, commit=commit, redact=redact)


_MAX_MERGED_CHARS: Final = 16_384
"""Merging stops here, so that a slow reader costs bounded memory and no long string is copied over and over."""
_MERGE_KEYS: Final = {"streaming": ("requestId", "channel"), "toolOutput": ("toolCallId", "stream")}


class Disconnected(Exception):
    """The reader was too slow. Every recorded event after `seq` has to be read from the journal."""

    stated_name = "Disconnected"

    def __init__(self, seq: int) -> None:
        super().__init__(f"this subscriber fell behind and was disconnected; resume after event {seq}")
        self.seq = seq


class EventQueue:
    def __init__(self, maxsize: int, on_close: Callable[[], None]) -> None:
        self._events: deque[Event] = deque()
        self._maxsize = maxsize
        self._on_close = on_close
        self._wake: asyncio.Future[None] | None = None
        self._last_seq = 0
        self.closed = False
        self.overflowed = False

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> None:
        """Adds an event; called by the bus on the loop's thread."""
        if self.closed:
            return
        if event.type in _MERGE_KEYS and self._events:
            merged = _merged(self._events[-1], event)
            if merged is not None:
                self._events[-1] = merged
                return
        if len(self._events) >= self._maxsize:
            self.overflowed = True
            self.close()
            return
        self._events.append(event)
        self._notify()

    async def get(self) -> Event:
        """The next event. `Disconnected` after an overflow, `StopAsyncIteration` once closed and empty."""
        while not self._events:
            if self.overflowed:
                raise Disconnected(self._last_seq)
            if self.closed:
                raise StopAsyncIteration
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        event = self._events.popleft()
        self._last_seq = event.seq
        return event

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._on_close()
            self._notify()

    def __aiter__(self) -> EventQueue:
        return self

    async def __anext__(self) -> Event:
        return await self.get()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def _merged(waiting: Event, new: Event) -> Event | None:
    if waiting.type != new.type:
        return None
    old, more = waiting.wire, new.wire
    if any(old.get(key) != more.get(key) for key in _MERGE_KEYS[new.type]) or waiting.worker_id != new.worker_id:
        return None
    if old.get("done") or any(part.get(key) is not None for part in (old, more) for key in ("whole", "discarded")):
        return None
    delta = old["delta"] + more["delta"]
    if len(delta) > _MAX_MERGED_CHARS:
        return None
    return Event(new.type, {**more, "delta": delta}, None, new.seq, new.ts, new.session_id, new.worker_id)


_MAX_FRAMES: Final = 20
_MAX_ERROR_CHARS: Final = 500


def describe_failure(error: BaseException, *, quoting: bool) -> str:
    """`quoting`: whether the error's own words may be shown."""
    places = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)[-_MAX_FRAMES:]))
    said = _error_text(error) if quoting else ""
    return f"{type(error).__name__}{said and ': ' + said}\n{places}".rstrip()


def _error_text(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception:
        return "(it cannot be shown)"
    return said if len(said) <= _MAX_ERROR_CHARS else f"({len(said)} characters)"
