"""Turns the facts of a session into spans and measurements. Loaded by `telemetry`, on its thread, when it is used.

    session
      invoke_agent WORKER        a turn of the root worker
        chat MODEL               a request to its model
        execute_tool TOOL        a call
          invoke_agent WORKER    a sub-worker, below the call that asked for it
          execute_tool TOOL      what a tool called

Names and attributes follow the semantic conventions for generative AI; what those do not know begins with `forge.`.

No event says when a request begins. It begins where its worker last finished something else: the start of the turn, the
last result, the last answer. Whether it failed is known from the next event of its worker, so a span waits for that
before it ends, with the time that it had.
Threat: the name of a tool that does not exist is a text of the model; it counts as content.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from golem_forge._version import __version__
from golem_forge.core.json import valid_unicode
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import clip

if TYPE_CHECKING:
    from golem_forge.events.telemetry import Fact

MOST_CONTENT: Final = 16_384
"""Maximum characters of one attribute."""
_MOST_NAME: Final = 200
_MOST_OPEN: Final = 10_000
_PROVIDERS: Final = {"google": "gcp.gemini"}
"""Provider names that differ between Forge and the conventions."""
_REQUEST_FAILED: Final = frozenset({"MODEL_RETRY", "MODEL_FALLBACK"})
_MODEL_FAILED: Final = "model_unavailable"
_NANO: Final = 1_000_000_000
_SCOPE: Final = "golem_forge"


class Instruments:
    def __init__(self, meter: Meter) -> None:
        self.calls = meter.create_counter("forge.tool.calls", "{call}", "Tool calls, by status")
        self.questions = meter.create_up_down_counter(
            "forge.questions.open", "{question}", "Questions that wait for a person"
        )
        self.tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of a request to a model")
        self.durations = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", "Duration of a request to a model"
        )
        self.queue_length = meter.create_gauge("forge.queue.length", "{session}", "Sessions that wait for a runner")
        self.queue_wait = meter.create_histogram("forge.queue.wait", "s", "How long a session waited for a runner")
        self.leases_lost = meter.create_counter("forge.leases.lost", "{lease}", "Leases that a runner lost")


class Tracing:
    """The tracer and instruments for the spans of every session."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self.tracer = tracer
        self.instruments = Instruments(meter)

    def session(self, session_id: str, since: int, parent: Mapping[str, str]) -> SessionSpans:
        """`parent`: W3C trace context of what the session belongs to; empty: of nothing."""
        context = TraceContextTextMapPropagator().extract(parent) if parent else Context()
        return SessionSpans(self, session_id, since, context)


@dataclass(slots=True)
class _OpenSpan:
    span: Span
    context: Context
    """The context for spans below this one."""


@dataclass(slots=True)
class _AgentSpan:
    open: _OpenSpan
    name: str
    model: str
    since: int
    """The earliest start of its next request."""
    request: _EndedRequest | None = None
    """A request whose outcome the next event tells."""
    request_failed: bool = False
    """Whether the last request failed."""
    ended: int = 0
    """The end of the turn; the span waits for the event that gives the reason."""


@dataclass(slots=True)
class _EndedRequest:
    span: Span
    at: int


@dataclass(slots=True)
class _CallSpan:
    open: _OpenSpan
    tool: str
    has_worker: bool = False


class SessionSpans:
    def __init__(self, tracing: Tracing, session_id: str, since: int, parent: Context) -> None:
        self._tracer = tracing.tracer
        self._measure = tracing.instruments
        self._id = session_id
        self._since = since
        self._parent = parent
        self._root: _OpenSpan | None = None
        self._model = ""
        self._agents: dict[str, _AgentSpan] = {}
        """By worker id."""
        self._calls: dict[str, _CallSpan] = {}
        """Those that run, by id."""
        self._questions: dict[str, tuple[str, int]] = {}
        """Open ones: the call that waits, and since when."""
        self._answers: dict[str, tuple[float, str]] = {}
        """Call → seconds that it waited for an answer, and who gave it."""
        self._input = ""
        """What the person said last, with contents only."""

    def take(self, fact: Fact) -> None:
        self._settle(fact)
        if handle := getattr(self, f"_on_{fact.type}", None):
            handle(fact)

    def end(self, at: int) -> None:
        """Ends all open spans, innermost first."""
        for agent in tuple(self._agents.values()):
            self._end_request(agent, failed=False)
            if agent.ended:
                self._end_turn(agent, "error")
        for call in reversed(tuple(self._calls.values())):
            self._fail(call.open.span, "interrupted")
            call.open.span.end(at)
        for agent in reversed(tuple(self._agents.values())):
            self._fail(agent.open.span, "interrupted")
            agent.open.span.end(at)
        if self._questions:
            self._measure.questions.add(-len(self._questions))
        if self._root is not None:
            self._root.span.end(at)
        self._agents, self._calls, self._questions = {}, {}, {}

    # ---- events, by their type

    def _on_sessionStarted(self, fact: Fact) -> None:
        data, span = fact.data, self._session.span
        self._model = data["model"]
        span.update_name(f"session {_name(data['worker'])}")
        span.set_attributes(
            {
                "gen_ai.agent.name": _name(data["worker"]),
                "forge.worker": _name(data["worker"]),
                "forge.mode": data["mode"],
                "forge.approval.mode": data["approvalMode"],
                "forge.session.resumed": data["resumed"],
            }
        )

    def _on_sessionEnd(self, fact: Fact) -> None:
        self._session.span.set_attribute("forge.status", fact.data["reason"])
        if fact.data["reason"] == "error":
            self._fail(self._session.span, "error")

    def _on_workerUpdate(self, fact: Fact) -> None:
        data = fact.data
        agent = self._agents.get(data["workerId"])
        if data["status"] == "running":
            if agent is None:
                self._start_turn(fact)
            else:  # it goes on with another model
                agent.model = data.get("model") or agent.model
        elif agent is not None and data["status"] in ("complete", "error"):
            agent.ended = fact.at
            if data["status"] == "complete":
                agent.open.span.set_attribute("forge.status", "completed")
                self._end_turn(agent)
            elif data["stopped"] or data.get("parentId"):  # of the root worker's turn a status says why
                self._end_turn(agent, data["stopped"] or "error")

    def _on_message(self, fact: Fact) -> None:
        """Sets the input and output attributes; messages arrive only if contents are exported."""
        message = fact.data["message"]
        role, text = message["role"], str(message["content"])
        agent = self._agents.get(fact.worker_id)
        if role == "user":  # comes before its turn
            self._input = text
        elif agent is not None:
            agent.open.span.set_attribute("gen_ai.output.messages", _messages(role, text))

    def _on_usageUpdated(self, fact: Fact) -> None:
        data = fact.data
        agent = self._agents.get(data["workerId"])
        if agent is not None:
            agent.request = self._request(agent, fact.at, data)
            agent.since = fact.at
        else:  # a command asked for it, between two turns
            self._request(None, fact.at, data).span.end(fact.at)
        if (cost := data["session"].get("cost")) is not None:
            self._session.span.set_attribute("forge.cost_usd", cost)

    def _on_toolStarted(self, fact: Fact) -> None:
        data = fact.data
        if len(self._calls) < _MOST_OPEN:
            opened = self._start_call(fact, fact.at)
            self._calls[data["toolCallId"]] = _CallSpan(opened, data["toolName"])
        self._mark(fact)

    def _on_toolResult(self, fact: Fact) -> None:
        data = fact.data
        status, exists = data["status"], data["status"] != "tool_not_found"
        call = self._calls.pop(data["toolCallId"], None)
        opened = call.open if call else self._start_call(fact, fact.at - int(data["durationMs"] * 1_000_000))
        span = opened.span
        span.set_attribute("forge.status", status)
        if decision := data.get("decision"):
            answered = {"forge.verdict": decision["verdict"], "forge.risk": decision["risk"]}
            span.set_attributes(answered | {"forge.answered_by": decision["answeredBy"]})
        if answer := self._answers.pop(data["toolCallId"], None):
            span.set_attributes({"forge.approval.wait": answer[0], "forge.approval.by": _name(answer[1])})
        if data.get("value") is not None:
            span.set_attribute("gen_ai.tool.call.result", _json(data["value"]))
        if status != "success":
            self._fail(span, status, data.get("error", ""))
        span.end(fact.at)
        counted = {"forge.status": status} | ({"gen_ai.tool.name": _name(data["toolName"])} if exists else {})
        self._measure.calls.add(1, counted)
        self._mark(fact)

    def _on_approvalRequired(self, fact: Fact) -> None:
        if len(self._questions) < _MOST_OPEN and fact.data["requestId"] not in self._questions:
            self._questions[fact.data["requestId"]] = (fact.data.get("toolCallId") or "", fact.at)
            self._measure.questions.add(1)

    def _on_approvalResolved(self, fact: Fact) -> None:
        asked = self._questions.pop(fact.data["requestId"], None)
        if asked is not None:
            self._measure.questions.add(-1)
            if asked[0] and len(self._answers) < _MOST_OPEN:
                self._answers[asked[0]] = ((fact.at - asked[1]) / _NANO, str(fact.data.get("by") or ""))
        self._mark(fact)

    _on_formRequired = _on_approvalRequired
    _on_formResolved = _on_approvalResolved

    def _on_contextCompacted(self, fact: Fact) -> None:
        self._mark(fact)

    def _on_command(self, fact: Fact) -> None:
        self._since = fact.at

    # ---- spans

    @property
    def _session(self) -> _OpenSpan:
        """Returns the session's span. It is made with the first event, so a session that could not start has none."""
        if self._root is None:
            attributes = {"gen_ai.conversation.id": self._id}
            self._root = self._start("session", self._parent, self._since, attributes)
        return self._root

    def _start(
        self, name: str, parent: Context, at: int, attributes: dict[str, Any], kind: SpanKind = SpanKind.INTERNAL
    ) -> _OpenSpan:
        span = self._tracer.start_span(name, parent, kind, attributes, start_time=at)
        return _OpenSpan(span, set_span_in_context(span, parent))

    def _start_turn(self, fact: Fact) -> None:
        data = fact.data
        name = _name(data["name"])
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": name,
            "gen_ai.agent.id": data["workerId"],
            "gen_ai.conversation.id": self._id,
            "forge.worker": name,
            "forge.depth": data["depth"],
        }
        model = data.get("model") or self._model
        attributes |= _model_attributes(model)
        if given := data.get("task") if data.get("parentId") else self._input:
            attributes["gen_ai.input.messages"] = _messages("user", given)
        opened = self._start(f"invoke_agent {name}", self._above_worker(fact), fact.at, attributes)
        self._agents[data["workerId"]] = _AgentSpan(opened, name, model, fact.at)

    def _above_worker(self, fact: Fact) -> Context:
        """The call that asked for a sub-worker: the one that runs in its task, else the first of its name."""
        data = fact.data
        if not data.get("parentId"):
            return self._session.context
        named = (self._calls.get(data["callId"]), *self._calls.values())
        for call in named:
            if call is not None and call.tool == data["name"] and not call.has_worker:
                call.has_worker = True
                return call.open.context
        above = self._agents.get(data["parentId"])
        return above.open.context if above else self._session.context

    def _start_call(self, fact: Fact, at: int) -> _OpenSpan:
        data = fact.data
        exists = data.get("status") != "tool_not_found"
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.call.id": _name(data["toolCallId"]),
            "gen_ai.tool.type": "function",
        }
        if exists or "args" in data:  # with contents
            attributes["gen_ai.tool.name"] = _name(data["toolName"])
        if data.get("caller"):
            attributes["forge.caller"] = data["caller"]
        if "args" in data:
            attributes["gen_ai.tool.call.arguments"] = _json(data["args"])
        agent = self._agents.get(fact.worker_id)
        if agent is not None:
            attributes["forge.worker"] = agent.name
        above = self._calls.get(data.get("parentCallId") or "")
        parent = above.open if above else agent.open if agent else self._session
        name = f"execute_tool {_name(data['toolName'])}" if exists else "execute_tool"
        return self._start(name, parent.context, at, attributes)

    def _request(self, agent: _AgentSpan | None, at: int, usage: Mapping[str, Any]) -> _EndedRequest:
        """A request that ended at `at`; without usage: it failed before anybody counted."""
        model = agent.model if agent else self._model
        about = {"gen_ai.operation.name": "chat", **_model_attributes(model)}
        parent, since = (agent.open, agent.since) if agent else (self._session, self._since)
        opened = self._start(f"chat {_model_name(model)}", parent.context, since, dict(about), SpanKind.CLIENT)
        span = opened.span
        span.set_attribute("gen_ai.conversation.id", self._id)
        if agent is not None:
            span.set_attribute("forge.worker", agent.name)
        if usage:
            span.set_attributes(
                {
                    "gen_ai.usage.input_tokens": usage["input"],
                    "gen_ai.usage.output_tokens": usage["output"],
                    "gen_ai.usage.cache_read.input_tokens": usage["cached"],
                }
            )
            if usage["cost"] is not None:
                span.set_attribute("forge.cost_usd", usage["cost"])
            for kind in ("input", "output"):
                self._measure.tokens.record(usage[kind], {**about, "gen_ai.token.type": kind})
        self._measure.durations.record((at - since) / _NANO, about)
        return _EndedRequest(span, at)

    # ---- ends

    def _settle(self, fact: Fact) -> None:
        """Ends what waited for this event to know how it ended."""
        agent = self._agents.get(fact.worker_id)
        if agent is None:
            return
        code = str(fact.data.get("code") or "") if fact.type == "status" else ""
        retried = code in _REQUEST_FAILED
        failed = retried or (fact.type == "workerUpdate" and fact.data["status"] == "error")
        if agent.request is None and (retried or (agent.ended and code == _MODEL_FAILED and not agent.request_failed)):
            agent.request, failed = self._request(agent, agent.ended or fact.at, {}), True
        self._end_request(agent, failed=failed)
        if retried:
            agent.since, agent.request_failed = fact.at, False
        if agent.ended:
            self._end_turn(agent, code or "error")

    def _end_request(self, agent: _AgentSpan, *, failed: bool) -> None:
        if agent.request is not None:
            if failed:
                self._fail(agent.request.span, "model_error")
            agent.request.span.end(agent.request.at)
            agent.request, agent.request_failed = None, failed

    def _end_turn(self, agent: _AgentSpan, failed_as: str = "") -> None:
        if failed_as:
            self._fail(agent.open.span, failed_as)
        agent.open.span.end(agent.ended)
        self._agents = {id: each for id, each in self._agents.items() if each is not agent}

    def _mark(self, fact: Fact) -> None:
        """Its worker finished something: the next request begins after it."""
        if agent := self._agents.get(fact.worker_id):
            agent.since = fact.at

    def _fail(self, span: Span, status: str, text: str = "") -> None:
        span.set_attributes({"forge.status": status, "error.type": status})
        span.set_status(Status(StatusCode.ERROR, clip(valid_unicode(text), MOST_CONTENT) or None))


def _name(text: object) -> str:
    return clip(valid_unicode(str(text)), _MOST_NAME)


def _model_name(model: str) -> str:
    return _name(model.partition(":")[2] or model)


def _model_attributes(model: str) -> dict[str, Any]:
    provider = model.partition(":")[0] if ":" in model else ""
    attributes = {"gen_ai.request.model": _model_name(model)} if model else {}
    return attributes | ({"gen_ai.provider.name": _PROVIDERS.get(provider, _name(provider))} if provider else {})


def _json(value: object) -> str:
    return clip(valid_unicode(json.dumps(value, ensure_ascii=False, default=str)), MOST_CONTENT)


def _messages(role: str, text: str) -> str:
    """Formats a message as the conventions do."""
    parts = [{"type": "text", "content": clip(valid_unicode(text), MOST_CONTENT)}]
    return json.dumps([{"role": role, "parts": parts}], ensure_ascii=False)


def open_tracing(endpoint: str, exporters: list[Any]) -> tuple[Tracing, list[Callable[[], object]]]:
    """`exporters` gets those that were made; the functions send what is left and close them."""
    shutdowns: list[Callable[[], object]] = []
    tracers, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
    if not isinstance(tracers, TracerProvider):
        tracers = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        if _exports("OTEL_TRACES_EXPORTER"):
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            spans = OTLPSpanExporter(endpoint=_address(endpoint, "TRACES"))
            tracers.add_span_processor(BatchSpanProcessor(spans))
            exporters.append(spans)
        shutdowns.append(tracers.shutdown)
    if not isinstance(meters, MeterProvider):
        readers = []
        if _exports("OTEL_METRICS_EXPORTER"):
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            points = OTLPMetricExporter(endpoint=_address(endpoint, "METRICS"))
            readers.append(PeriodicExportingMetricReader(points))
            exporters.append(points)
        meters = MeterProvider(metric_readers=readers, resource=_resource(), shutdown_on_exit=False)
        shutdowns.append(meters.shutdown)
    tracer, meter = tracers.get_tracer(_SCOPE, __version__), meters.get_meter(_SCOPE, __version__)
    return Tracing(tracer, meter), shutdowns


def _exports(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() != "none"


def _address(endpoint: str, signal: str) -> str | None:
    """Returns the address for a signal; None if the library reads it from its own environment variables, which have
    priority.
    """
    if not endpoint or any(os.environ.get(f"OTEL_EXPORTER_OTLP_{each}ENDPOINT") for each in ("", f"{signal}_")):
        return None
    return f"{endpoint.rstrip('/')}/v1/{signal.lower()}"


def _resource() -> Any:
    own = {"service.name": "golem-forge", "service.version": __version__}
    return Resource.create({**own, **OTELResourceDetector().detect().attributes})
