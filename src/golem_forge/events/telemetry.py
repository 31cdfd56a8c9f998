"""OpenTelemetry: sends what sessions do as spans and metrics to a collector.

`watch_session` listens to one session's bus and gives the function that ends it; `open_metrics` gives the instruments
of a runner. Both take the settings of `config.program` and do nothing where telemetry is off. One pipeline serves the
process: the loop only copies facts into a bounded queue; a thread of its own loads the library (half a second), makes
the spans (`session_spans`) and sends them. A full queue drops facts. `close_telemetry` sends what is left and gives up
after two seconds; the interpreter calls it when it ends.

Facts are a closed list of fields for each event type: without `content` no text of a person, a model or a tool is in
them. What is read is redacted as the bus redacts: also the names and ids that a model may have chosen.
Threat: a provider that is set for the whole process would also carry what other libraries (MCP, HTTP clients) record,
which nobody redacts; so ours is never set as the global one. A program around Forge that has set its own gets our
spans there.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from queue import Full, Queue
from threading import Event as ThreadEvent
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, Protocol

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.bus import ALL_EVENTS, EventBus
from golem_forge.events.serialization import Event

if TYPE_CHECKING:
    from golem_forge.events.session_spans import Instruments, SessionSpans, Tracing

CLOSE_S: Final = 2.0
"""The most that the end of a process waits for a collector."""
_LOAD_S: Final = 30.0
"""The most that the end of a session waits for the library to be loaded. On a busy machine that takes seconds, and
without it a short session would leave no trace."""
_RETRY_S: Final = 1.0
"""Seconds of the shutdown after which a collector that refused is not tried again; a running request goes on."""
_MOST_FACTS: Final = 10_000
_log = logging.getLogger(__name__)
logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
# It logs that a collector is away; where a program configured no logging, Python would print that.

_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "sessionStarted": ("worker", "model", "mode", "approvalMode", "resumed"),
    "workerUpdate": ("workerId", "name", "status", "depth", "parentId", "model"),
    "usageUpdated": ("workerId", "input", "output", "cached", "cost", "session"),
    "contextUsage": (),
    "contextCompacted": (),
    "toolStarted": ("toolCallId", "toolName", "caller", "parentCallId"),
    "toolResult": ("toolCallId", "toolName", "status", "durationMs", "decision", "truncated"),
    "approvalRequired": ("requestId", "toolCallId"),
    "approvalResolved": ("requestId", "approved", "by"),
    "formRequired": ("requestId",),
    "formResolved": ("requestId",),
    "status": ("code",),
    "command": (),
    "sessionEnd": ("reason",),
}
"""Event type → the fields that telemetry reads."""
_CONTENT: Final[Mapping[str, tuple[str, ...]]] = {
    "message": ("message",),
    "toolStarted": ("args",),
    "toolResult": ("args", "value", "error"),
    "workerUpdate": ("task",),
}
"""The fields that are read besides where the person wants contents."""
_STOPPED: Final = ("interrupted", "terminated")

_running_call: ContextVar[str] = ContextVar("forge_running_call", default="")
"""The call in whose task an event is emitted: it tells two calls of the same sub-worker apart."""


class TelemetrySettings(Protocol):
    """The person's settings (`OtelSettings` of `config.program`)."""

    @property
    def endpoint(self) -> str:
        """The configured endpoint; empty if there is none. The variables `OTEL_*` have priority."""

    @property
    def content(self) -> bool: ...

    @property
    def usable(self) -> bool:
        """Whether it is switched on and what it needs is installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """The part of an event that telemetry reads."""

    type: str
    at: int
    """Nanoseconds since 1970."""
    worker_id: str
    data: Mapping[str, Any]


def watch_session(bus: EventBus, settings: TelemetrySettings) -> Callable[[], None]:
    """Call it before the first event of a session; the function that it gives ends the session's spans."""
    if not settings.usable:
        return _nothing
    pipeline = _shared_pipeline(settings)
    watcher = _Watcher(pipeline, bus, content=settings.content)
    forget = bus.on(ALL_EVENTS, watcher.hear)

    def end() -> None:
        forget()
        pipeline.add(watcher.end)
        pipeline.loaded.wait(_LOAD_S)

    return end


class Metrics:
    """Instruments that a runner sets; without telemetry its methods do nothing."""

    def __init__(self, pipeline: Pipeline | None = None) -> None:
        self._pipeline = pipeline

    @property
    def wanted(self) -> bool:
        return self._pipeline is not None

    def set_queue_length(self, sessions: int) -> None:
        """Sets how many sessions wait for a runner."""
        self._add(lambda instruments: instruments.queue_length.set(sessions))

    def record_wait(self, seconds: float) -> None:
        """Records how long a session waited for its runner."""
        self._add(lambda instruments: instruments.queue_wait.record(seconds))

    def count_lost_lease(self) -> None:
        self._add(lambda instruments: instruments.leases_lost.add(1))

    def _add(self, use: Callable[[Instruments], object]) -> None:
        if self._pipeline is not None:
            self._pipeline.add(lambda tracing: use(tracing.instruments))


def open_metrics(settings: TelemetrySettings) -> Metrics:
    return Metrics(_shared_pipeline(settings) if settings.usable else None)


def close_telemetry(limit: float = CLOSE_S) -> None:
    """Sends what is left, for `limit` seconds at most. What is recorded afterwards opens another pipeline."""
    global _pipeline
    with _pipeline_lock:
        pipeline, _pipeline = _pipeline, None
    if pipeline is not None:
        pipeline.close(limit)


def _nothing() -> None:
    return None


class _Watcher:
    """Reads the events of one session on the loop; everything else happens on the pipeline's thread."""

    def __init__(self, pipeline: Pipeline, bus: EventBus, *, content: bool) -> None:
        self._pipeline = pipeline
        self._bus = bus
        self._content = content
        self._seq = bus.seq
        self._session_id = bus.session_id
        self._since = time.time_ns()
        self._parent = _parent_context()
        self._spans: SessionSpans | None = None

    def hear(self, event: Event) -> None:
        fields = _FACTS.get(event.type)
        more = _CONTENT.get(event.type, ()) if self._content else ()
        if (fields is None and not more) or event.seq <= self._seq:  # an earlier number: it is shown again
            return
        self._seq = event.seq
        wire = event.wire
        read = {name: wire[name] for name in (*(fields or ()), *more) if name in wire}
        data = dict(self._bus.make_event(event.type, read).wire) if read else {}
        if event.type == "toolStarted":
            _running_call.set(data["toolCallId"])
        elif event.type == "workerUpdate":
            data["callId"] = _running_call.get()
            data["stopped"] = wire.get("task") if wire.get("task") in _STOPPED else ""
        fact = Fact(type=event.type, at=time.time_ns(), worker_id=event.worker_id, data=data)
        self._pipeline.add(lambda tracing: self._take(tracing, fact))

    def _take(self, tracing: Tracing, fact: Fact) -> None:
        if self._spans is None:
            self._spans = tracing.session(self._session_id, self._since, self._parent)
        self._spans.take(fact)

    def end(self, tracing: Tracing) -> None:
        if self._spans is not None:
            self._spans.end(time.time_ns())


def _parent_context() -> Mapping[str, str]:
    """Returns the trace context of a session: the current span of the embedding program, else the
    variable TRACEPARENT.
    """
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        if carrier:
            return carrier
    named = {name: os.environ.get(name.upper(), "") for name in ("traceparent", "tracestate")}
    return {name: value for name, value in named.items() if value}


Work = Callable[["Tracing"], object]


class Pipeline:
    """The thread that makes and sends; it starts with the first session and loads the library itself."""

    def __init__(self, settings: TelemetrySettings) -> None:
        self._endpoint = settings.endpoint
        self._queue: Queue[Work] = Queue(_MOST_FACTS)
        self._exporters: list[Any] = []
        self.loaded = ThreadEvent()
        """Set once it can send, or cannot. The end of a session that was quicker than the loading waits for it: an
        interpreter that ends starts no more threads, which the library needs."""
        self._closing = ThreadEvent()
        self._closed = ThreadEvent()
        self.process = os.getpid()
        Thread(target=self._run, name="forge-telemetry", daemon=True).start()

    def add(self, work: Work) -> None:
        if self._closed.is_set():
            return
        try:
            self._queue.put_nowait(work)
        except Full:
            return  # a session never waits for its telemetry

    def close(self, limit: float) -> None:
        end = time.monotonic() + limit
        self._closing.set()
        self.add(lambda tracing: None)  # wakes the thread, which then sees that it is to end
        if not self._closed.wait(min(_RETRY_S, limit)):
            for exporter in tuple(self._exporters):
                exporter.shutdown()
            self._closed.wait(max(0.0, end - time.monotonic()))

    def _run(self) -> None:
        try:
            from golem_forge.events.session_spans import open_tracing

            tracing, shutdowns = open_tracing(self._endpoint, self._exporters)
        except Exception as error:  # a variable with a value that the library refuses; the session goes on
            _log.warning("telemetry could not start (%s): check the variables OTEL_*", type(error).__name__)
            self.loaded.set()
            self._closed.set()
            return
        self.loaded.set()
        while not (self._closing.is_set() and self._queue.empty()):
            work = self._queue.get()
            try:
                work(tracing)
            except Exception:  # telemetry ends neither itself nor a session
                _log.debug("an event could not be told to OpenTelemetry")
        for shutdown in shutdowns:
            shutdown()
        self._closed.set()


_pipeline: Pipeline | None = None
_pipeline_lock = Lock()


def _shared_pipeline(settings: TelemetrySettings) -> Pipeline:
    global _pipeline
    with _pipeline_lock:
        if _pipeline is None or _pipeline.process != os.getpid():  # a fork has no threads
            _pipeline = Pipeline(settings)
            atexit.unregister(close_telemetry)
            atexit.register(close_telemetry)
        return _pipeline
