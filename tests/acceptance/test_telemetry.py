"""OpenTelemetry: a session's spans and metrics reach a collector, without contents unless the person wants them, and a
collector that is away costs nothing but itself."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from tests.acceptance.conftest import FORGE, Ran
from tests.deadlines import LONG, PATIENCE, within
from tests.ready import ReadyForge
from tests.team.background import Program

from golem_forge.storage.home import ForgeHome

Desks = Callable[..., Any]
CANARY = "canary-5b1f0e77c2"
TEXT = "the words of the file"


class Collector:
    """Takes OTLP over HTTP as a collector does, and keeps every byte."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        taken = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                taken.bodies.append((self.path, body))
                taken.headers.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def everything(self) -> bytes:
        return b"\n".join(body for _, body in self.bodies)

    @property
    def spans(self) -> list[Any]:
        requests = [ExportTraceServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/traces"]
        found = [
            span for each in requests for group in each.resource_spans for at in group.scope_spans for span in at.spans
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    @property
    def metrics(self) -> dict[str, list[Any]]:
        """Name → the data points that came last."""
        found: dict[str, list[Any]] = {}
        for path, body in self.bodies:
            if path == "/v1/metrics":
                for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for metric in (metric for at in group.scope_metrics for metric in at.metrics):
                        found[metric.name] = list(getattr(metric, metric.WhichOneof("data")).data_points)
        return found

    def tree(self) -> list[Any]:
        """`[name, [children]]`, in the order in which they began."""
        ids = {span.span_id for span in self.spans}

        def below(parent: bytes | None) -> list[Any]:
            own = (s for s in self.spans if (s.parent_span_id == parent if parent else s.parent_span_id not in ids))
            return [[span.name, below(span.span_id)] if below(span.span_id) else span.name for span in own]

        return below(None)

    def only(self, name: str) -> Any:
        [span] = [span for span in self.spans if span.name == name]
        return span


def attributes(of: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def run(desk: Any, *words: str, **environ: str) -> Ran:
    """As a process of its own: what its end does is part of it."""
    done = subprocess.run(
        [FORGE, *words], cwd=desk.root, env=desk.environ | environ, capture_output=True, text=True, timeout=PATIENCE
    )
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def front(name: str, toolsets: str) -> str:
    return f"---\nname: {name}\ntoolsets: {toolsets}\nsandbox: {{zones: [{{name: workspace}}]}}\n---\nDo it.\n"


def crew() -> dict[str, str]:
    """A worker that reads, asks a helper, and is denied a file."""
    usage = {"input": 120, "output": 30, "cached": 100}
    turns = {
        "main": [
            {"calls": [{"tool": "read_file", "args": {"path": "/workspace/a.txt"}, "id": "call_1"}], "usage": usage},
            {"calls": [{"tool": "helper", "args": {"input": f"Look for {CANARY} please"}}]},
            {"calls": [{"tool": "write_file", "args": {"path": "/workspace/b.txt", "content": TEXT}}]},
            {"calls": [{"tool": "no_such_tool_of_mine", "args": {}}]},
            {"calls": [{"tool": CANARY, "args": {CANARY: CANARY}, "id": CANARY}], "think": CANARY},
            {"say": "All is done."},
        ],
        "helper": [
            {"calls": [{"tool": "list_files", "args": {"path": "/workspace"}}]},
            {"say": "Nothing there."},
        ],
    }
    return {
        "forge.yaml": (
            "model: scripted:s.yaml\npricing: {'scripted:s.yaml': {input: 1, output: 2}}\n"
            "approval: {tools: {helper: preApproved}}\n"
        ),
        "main.worker": front("main", "{filesystem: , workers: {allow: [helper]}}"),
        "helper.worker": front("helper", "{filesystem: }"),
        "s.yaml": json.dumps({"workers": turns}),
        "a.txt": f"{TEXT} {CANARY}\n",
    }


def test_a_run_becomes_a_tree_of_spans_without_contents(desk: Desks, collector: Collector) -> None:
    place = desk(crew(), SERVICE_API_TOKEN=CANARY)
    place.trust()
    ran = run(
        place,
        "run",
        "Read the file, please.",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.address,
        OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer of-the-collector",
        OTEL_RESOURCE_ATTRIBUTES="team=blue",
    )
    assert (ran.code, ran.out) == (0, "All is done.\n"), ran.err
    assert collector.tree() == [
        [
            "session main",
            [
                [
                    "invoke_agent main",
                    [
                        "chat s.yaml",
                        "execute_tool read_file",
                        "chat s.yaml",
                        [
                            "execute_tool helper",
                            [
                                [
                                    "invoke_agent helper",
                                    ["chat s.yaml", "execute_tool list_files", "chat s.yaml"],
                                ]
                            ],
                        ],
                        "chat s.yaml",
                        "execute_tool write_file",
                        "chat s.yaml",
                        "execute_tool",
                        "chat s.yaml",
                        "execute_tool",
                        "chat s.yaml",
                    ],
                ]
            ],
        ]
    ]
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in collector.spans)
    assert len({span.trace_id for span in collector.spans}) == 1

    [session_id] = [path.stem for path in place.journals]
    session = attributes(collector.only("session main"))
    assert (session["gen_ai.conversation.id"], session["forge.status"]) == (session_id, "completed")
    turn = attributes(collector.only("invoke_agent main"))
    assert turn["gen_ai.operation.name"] == "invoke_agent" and turn["forge.status"] == "completed"
    assert (turn["gen_ai.agent.name"], turn["gen_ai.request.model"]) == ("main", "s.yaml")
    chat = next(span for span in collector.spans if span.name == "chat s.yaml")
    asked = attributes(chat)
    assert chat.kind == chat.SPAN_KIND_CLIENT
    assert {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "s.yaml",
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 30,
        "gen_ai.usage.cache_read.input_tokens": 100,
        "forge.worker": "main",
        "forge.cost_usd": pytest.approx((120 + 2 * 30) / 1_000_000),
    }.items() <= asked.items()
    call = attributes(collector.only("execute_tool read_file"))
    assert {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "read_file",
        "gen_ai.tool.call.id": "call_1",
        "forge.status": "success",
        "forge.verdict": "preApproved",
        "forge.risk": "low",
        "forge.worker": "main",
    }.items() <= call.items()
    denied = collector.only("execute_tool write_file")
    assert (
        attributes(denied)["error.type"] == "approval_denied" and denied.status.code == denied.status.STATUS_CODE_ERROR
    )
    unknown = [attributes(span) for span in collector.spans if span.name == "execute_tool"]
    assert [each["forge.status"] for each in unknown] == ["tool_not_found"] * 2
    assert not any("gen_ai.tool.name" in each for each in unknown), "the model made these names up"
    names = {name for span in collector.spans for name in attributes(span) if name.startswith("gen_ai.")}
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    assert names <= known, "every name is one of the conventions"

    counted = {(attributes(p)["forge.status"], p.as_int) for p in collector.metrics["forge.tool.calls"]}
    assert counted == {("success", 1), ("approval_denied", 1), ("tool_not_found", 2)}
    assert len(collector.metrics["forge.tool.calls"]) == 5
    tokens = collector.metrics[gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE]
    assert {attributes(p)["gen_ai.token.type"] for p in tokens} == {"input", "output"}
    assert gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION in collector.metrics

    assert all(each["authorization"] == "Bearer of-the-collector" for each in collector.headers)
    sent = collector.everything
    assert b"golem-forge" in sent and b"team" in sent
    for text in (CANARY, TEXT, "Read the file", "All is done", "no_such_tool", "Look for", str(place.root), "a.txt"):
        assert text.encode() not in sent, text
    assert b"of-the-collector" not in place.kept_bytes()


def test_contents_are_the_persons_word_and_go_redacted(desk: Desks, collector: Collector) -> None:
    place = desk(crew(), SERVICE_API_TOKEN=CANARY, OTEL_EXPORTER_OTLP_ENDPOINT=collector.address)
    place.trust()
    ForgeHome(place.home).config.write_text("otel: {content: true}\n")
    assert place.forge("run", f"Read {CANARY}, please.").code == 0
    call = attributes(collector.only("execute_tool read_file"))
    assert json.loads(call["gen_ai.tool.call.arguments"])["path"] == "/workspace/a.txt"
    assert TEXT in call["gen_ai.tool.call.result"] and "[secret SERVICE_API_TOKEN]" in call["gen_ai.tool.call.result"]
    turn = attributes(collector.only("invoke_agent main"))
    [said] = json.loads(turn["gen_ai.input.messages"])
    assert said == {"role": "user", "parts": [{"type": "text", "content": "Read [secret SERVICE_API_TOKEN], please."}]}
    assert json.loads(turn["gen_ai.output.messages"])[0]["parts"][0]["content"] == "All is done."
    unknown = [attributes(span)["gen_ai.tool.name"] for span in collector.spans if span.name == "execute_tool"]
    assert unknown == ["no_such_tool_of_mine", "[secret SERVICE_API_TOKEN]"]
    assert CANARY.encode() not in collector.everything
    assert str(place.root).encode() not in collector.everything


@pytest.mark.parametrize("trusted", [True, False])
def test_a_project_can_neither_switch_it_on_nor_ask_for_contents(
    desk: Desks, collector: Collector, trusted: bool
) -> None:
    files = crew()
    files["forge.yaml"] += f"otel: {{endpoint: '{collector.address}', content: true}}\n"
    place = desk(files)
    if trusted:
        place.trust()
    ran = place.forge("run", "Go.")
    assert ran.code == 0 and collector.bodies == []
    assert "forge.yaml:4: otel is ignored: only your own config.yaml or the command line can say it." in ran.err
    assert place.forge("run", "Go.", OTEL_EXPORTER_OTLP_ENDPOINT=collector.address).code == 0
    assert collector.spans and b"a.txt" not in collector.everything


def test_the_persons_own_file_says_where_to(desk: Desks, collector: Collector) -> None:
    place = desk(crew())
    place.trust()
    ForgeHome(place.home).config.write_text(f"otel: {{endpoint: {collector.address}}}\n")
    assert place.forge("call", "list_files", "--path", "/workspace", OTEL_METRICS_EXPORTER="none").code == 0
    assert collector.tree() == [["session", ["execute_tool list_files"]]]
    assert collector.metrics == {}
    before = len(collector.bodies)
    assert place.forge("call", "list_files", "--path", "/workspace", OTEL_SDK_DISABLED="true").code == 0
    assert len(collector.bodies) == before


def test_a_failing_model_is_a_failed_request(desk: Desks, collector: Collector) -> None:
    turns = [{"fail": {"status": 503, "retry_after": 0}}, {"fail": {"status": 401}}]
    files = {"forge.yaml": "model: scripted:s.yaml\n", "main.worker": front("main", "{filesystem: }")}
    place = desk(files | {"s.yaml": json.dumps({"turns": turns})})
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    ran = place.forge("run", "Go.", OTEL_EXPORTER_OTLP_ENDPOINT=collector.address, TRACEPARENT=parent)
    assert ran.code == 5
    assert collector.tree() == [["session main", [["invoke_agent main", ["chat s.yaml", "chat s.yaml"]]]]]
    spans = {span.name: span for span in collector.spans}
    assert all(span.status.code == span.status.STATUS_CODE_ERROR for span in spans.values())
    assert attributes(spans["invoke_agent main"])["error.type"] == "model_unavailable"
    assert spans["session main"].trace_id.hex() == parent.split("-")[1], "it belongs to what started it"


def test_a_collector_that_is_away_costs_two_seconds_at_most(desk: Desks) -> None:
    place = desk(crew())
    place.trust()
    began = time.monotonic()
    plain = place.forge("run", "Go.")
    usual = time.monotonic() - began
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        port = silent.getsockname()[1]
        for address in ("http://127.0.0.1:9", f"http://127.0.0.1:{port}"):
            with within(2 + 2 * usual):  # and not the minutes of a request
                given = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_EXPORTER_OTLP_TIMEOUT": str(4 * LONG)}
                ran = place.forge("run", "Go.", **given)
            assert (ran.code, ran.out) == (plain.code, plain.out)
            assert "Traceback" not in ran.err and "opentelemetry" not in ran.err.lower()


EMBEDDED = """
import asyncio, sys
from golem_forge import WorkerRuntime
{before}
async def main():
    async with WorkerRuntime("main.worker") as runtime:
        print(runtime.notices)
        await runtime.run("Go.")
asyncio.run(main())
print("golem_forge.events.telemetry" in sys.modules)
{after}
"""


def embedded(place: Any, collector: Collector, *, before: str, after: str = "") -> str:
    place.write(**{"program.py": EMBEDDED.format(before=before, after=after)})
    environ = place.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}
    ran = place.ready.program("program.py", cwd=place.root, env=environ)
    assert ran.returncode == 0, ran.stderr
    return str(ran.stdout)


def test_a_missing_extra_is_one_line_and_nothing_is_loaded(desk: Desks, collector: Collector) -> None:
    place = desk(crew())
    place.trust()
    missing = """
sys.modules["opentelemetry.sdk"] = None  # as if it were not installed
sys.modules.pop("golem_forge.events.telemetry", None)
"""
    notice, loaded = embedded(place, collector, before=missing).splitlines()
    wanted = "OTEL_EXPORTER_OTLP_ENDPOINT asks for OpenTelemetry, which is not installed: pip install"
    assert wanted in notice and "golem-forge[otel]" in notice
    assert loaded == "False" and collector.bodies == []


def test_an_embedded_session_belongs_to_the_program_around_it(desk: Desks, collector: Collector) -> None:
    place = desk(crew())
    place.trust()
    around = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
around = trace.get_tracer("mine").start_as_current_span("request of mine")
around.__enter__()
"""
    embedded(place, collector, before=around, after="around.__exit__(None, None, None)")
    [[whole, [[session, [[turn, _]]]]]] = collector.tree()
    assert (whole, session, turn) == ("request of mine", "session main", "invoke_agent main")


def test_a_runner_tells_how_long_its_queue_is_and_how_long_a_session_waited(
    tmp_path: Path, collector: Collector, ready_forge: ReadyForge
) -> None:
    made = Program(tmp_path / "shop", tmp_path / "home", ready=ready_forge, tools=False)
    try:
        session = made.queue()
        made.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.address
        assert made.start_runner("--idle", "1").wait(timeout=PATIENCE) == 0
        assert made.store().find(session).state == "finished"
    finally:
        made.close()
    [length] = collector.metrics["forge.queue.length"]
    assert length.as_int == 0
    [waited] = collector.metrics["forge.queue.wait"]
    assert waited.count == 1 and waited.sum > 0
    assert "session main" in [span.name for span in collector.spans]
