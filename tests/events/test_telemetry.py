"""What a bus says becomes spans and measurements; where telemetry is off, nothing is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.deadlines import PATIENCE

from golem_forge.config.program import OtelSettings
from golem_forge.events import session_spans, telemetry
from golem_forge.events.bus import EventBus
from golem_forge.events.session_spans import MOST_CONTENT, Tracing


@dataclass
class Seen:
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    @property
    def spans(self) -> dict[str, Any]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def values(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []
        return [
            getattr(point, "value", getattr(point, "sum", None))
            for metric in metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """The pipeline keeps in memory instead of sending."""
    made = Seen(InMemorySpanExporter(), InMemoryMetricReader())
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(made.exporter))
    meters = MeterProvider([made.reader], shutdown_on_exit=False)
    tracing = Tracing(tracers.get_tracer("test"), meters.get_meter("test"))
    monkeypatch.setattr(session_spans, "open_tracing", lambda endpoint, exporters: (tracing, []))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    yield made
    telemetry.close_telemetry()


def call(bus: EventBus, id: str, tool: str, worker: str = "root", **more: Any) -> None:
    bus.emit("toolStarted", {"toolCallId": id, "toolName": tool, **more}, worker)


def result(bus: EventBus, id: str, tool: str, worker: str = "root", **more: Any) -> None:
    bus.emit("toolResult", {"toolCallId": id, "toolName": tool, "status": "success", **more}, worker)


def update(bus: EventBus, worker: str, name: str, status: str, parent: str = "", **more: Any) -> None:
    data = {"workerId": worker, "name": name, "status": status, "model": "anthropic:m", **more}
    bus.emit("workerUpdate", data | ({"parentId": parent, "depth": 1} if parent else {}), worker)


def usage(bus: EventBus, worker: str = "root") -> None:
    sums = {"input": 5, "output": 2, "cached": 0, "cost": None}
    bus.emit("usageUpdated", {"requestId": "r", "workerId": worker, **sums, "session": sums}, worker)


def parent(spans: dict[str, Any], name: str) -> str:
    above = spans[name].parent
    return next((other for other, span in spans.items() if above and span.context.span_id == above.span_id), "")


def test_two_calls_of_one_sub_worker_keep_their_own_runs(seen: Seen) -> None:
    bus = EventBus("s")
    end = telemetry.watch_session(bus, OtelSettings())
    update(bus, "root", "main", "running")
    tasks = [copy_context(), copy_context()]
    for number, task in enumerate(tasks):
        task.run(call, bus, f"call-{number}", "helper")
    for number in (1, 0):  # the second is the quicker one
        tasks[number].run(update, bus, f"worker-{number}", "helper", "running", "root")
        tasks[number].run(update, bus, f"worker-{number}", "helper", "complete", "root")
        tasks[number].run(result, bus, f"call-{number}", "helper")
    call(bus, "outer", "outer")
    call(bus, "inner", "inner", parentCallId="outer")
    result(bus, "inner", "inner")
    result(bus, "outer", "outer")
    end()
    telemetry.close_telemetry(PATIENCE)
    finished = seen.exporter.get_finished_spans()
    calls = {s.attributes["gen_ai.tool.call.id"]: s for s in finished if "gen_ai.tool.call.id" in s.attributes}
    runs = {s.attributes["gen_ai.agent.id"]: s for s in finished if "gen_ai.agent.id" in s.attributes}
    for number in (0, 1):
        assert runs[f"worker-{number}"].parent.span_id == calls[f"call-{number}"].context.span_id
    assert calls["inner"].parent.span_id == calls["outer"].context.span_id
    assert runs["root"].attributes["forge.status"] == "interrupted", "a turn that was under way at the end"
    assert runs["root"].attributes["gen_ai.provider.name"] == "anthropic"


def test_questions_waits_and_what_a_runner_sets_are_measured(seen: Seen) -> None:
    bus, metrics = EventBus("s"), telemetry.open_metrics(OtelSettings())
    end = telemetry.watch_session(bus, OtelSettings())
    for number in range(3):
        bus.emit("approvalRequired", {"requestId": f"q{number}", "type": "tool_call", "toolCallId": f"c{number}"})
    bus.emit("approvalResolved", {"requestId": "q0", "approved": False, "by": "terminal"})
    bus.emit("approvalResolved", {"requestId": "unknown", "approved": True})
    result(bus, "c0", "write_file", status="approval_denied")
    metrics.set_queue_length(7)
    metrics.record_wait(1.5)
    metrics.count_lost_lease()
    telemetry.close_telemetry(PATIENCE)
    assert seen.values("forge.questions.open") == [2]
    assert (seen.values("forge.queue.length"), seen.values("forge.queue.wait")) == ([7], [1.5])
    assert seen.values("forge.leases.lost") == [1] and seen.values("forge.tool.calls") == [1]
    waited = seen.spans["execute_tool write_file"].attributes
    assert waited["forge.approval.by"] == "terminal" and waited["forge.approval.wait"] >= 0
    end()


def test_what_is_open_at_the_end_counts_no_longer(seen: Seen) -> None:
    bus = EventBus("s")
    end = telemetry.watch_session(bus, OtelSettings())
    bus.emit("approvalRequired", {"requestId": "q", "type": "tool_call"})
    call(bus, "c", "exec_command")
    end()
    call(bus, "later", "exec_command")
    telemetry.close_telemetry(PATIENCE)
    assert seen.values("forge.questions.open") == [0]
    assert seen.spans["execute_tool exec_command"].attributes["error.type"] == "interrupted"
    assert set(seen.spans) == {"session", "execute_tool exec_command"}


def test_a_session_that_could_not_start_has_no_span(seen: Seen) -> None:
    bus = EventBus("s")
    end = telemetry.watch_session(bus, OtelSettings())
    bus.emit("approvalRequired", {"requestId": "q", "type": "trust"})
    end()
    telemetry.close_telemetry(PATIENCE)
    assert seen.spans == {}


def test_events_that_are_shown_again_count_once(seen: Seen) -> None:
    bus, heard = EventBus("s"), list[Any]()
    end = telemetry.watch_session(bus, OtelSettings())
    bus.on("*", heard.append)
    call(bus, "c", "read_file")
    result(bus, "c", "read_file")
    bus.replay(list(heard))
    end()
    telemetry.close_telemetry(PATIENCE)
    assert seen.values("forge.tool.calls") == [1]


def test_requests_that_fail_are_told_from_those_that_were_answered(seen: Seen) -> None:
    bus = EventBus("s")
    end = telemetry.watch_session(bus, OtelSettings())
    update(bus, "root", "main", "running")
    usage(bus)  # paid for, and then it broke off
    bus.emit("status", {"type": "warning", "message": "again", "code": "MODEL_RETRY"}, "root")
    usage(bus)
    bus.emit("contextUsage", {"tokensUsed": 5, "tokenLimit": 10, "exceeded": False}, "root")
    update(bus, "root", "main", "complete")
    update(bus, "root", "main", "running")
    update(bus, "root", "main", "error", task="over the limit")
    bus.emit("status", {"type": "error", "message": "over the limit", "code": "limit"}, "root")
    end()
    telemetry.close_telemetry(PATIENCE)
    finished = seen.exporter.get_finished_spans()
    assert [s.status.is_ok for s in finished if s.name == "chat m"] == [False, True], "and none for the second turn"
    assert [s.attributes["forge.status"] for s in finished if s.name == "invoke_agent main"] == ["completed", "limit"]
    assert all("over the limit" not in str(s.to_json()) for s in finished)


@pytest.mark.parametrize("content", [False, True])
def test_hostile_names_and_long_values_are_bounded(seen: Seen, content: bool) -> None:
    bus = EventBus("s")
    end = telemetry.watch_session(bus, OtelSettings(content=content))
    call(bus, "c", "read_file", args={"path": "p" * 100_000, "odd": "\ud800"})
    result(bus, "c", "read_file", value={"kind": "text", "content": "v" * 100_000}, error="e" * 100_000)
    result(bus, "n", "\ud800" * 5000, status="tool_not_found")
    end()
    telemetry.close_telemetry(PATIENCE)
    for span in seen.exporter.get_finished_spans():
        assert len(span.name) < 300
        for name, value in span.attributes.items():
            assert len(str(value).encode()) <= 4 * MOST_CONTENT, name
    made = seen.spans["execute_tool read_file"].attributes
    assert ("gen_ai.tool.call.arguments" in made, "gen_ai.tool.call.result" in made) == (content, content)


def test_where_it_is_off_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(telemetry, "Pipeline", None)
    bus = EventBus("s")
    telemetry.watch_session(bus, OtelSettings())()
    telemetry.open_metrics(OtelSettings()).set_queue_length(1)
    assert bus._subscriptions == []


ON: dict[str, tuple[dict[str, str], bool, str]] = {
    "an address": ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1"}, True, ""),
    "of spans alone": ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://h:1"}, True, ""),
    "an exporter": ({"OTEL_TRACES_EXPORTER": "otlp"}, True, ""),
    "switched off": ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1", "OTEL_SDK_DISABLED": "TRUE"}, False, ""),
    "none of both": (
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "h", "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
        False,
        "",
    ),
    "none": ({"OTEL_TRACES_EXPORTER": "none"}, False, ""),
    "empty": ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False, ""),
    "another exporter": ({"OTEL_TRACES_EXPORTER": "zipkin"}, False, "OTEL_TRACES_EXPORTER: Forge sends by otlp alone"),
    "another protocol": (
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        False,
        "OTEL_EXPORTER_OTLP_PROTOCOL: Forge speaks http/protobuf, not 'grpc'",
    ),
}


@pytest.mark.parametrize("case", ON)
def test_the_standard_variables_switch_it_on(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    variables, usable, problem = ON[case]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = OtelSettings()
    assert (
        settings.usable is usable and settings.problem.startswith(problem) and bool(settings.problem) is bool(problem)
    )
