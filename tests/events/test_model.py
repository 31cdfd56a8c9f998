"""Every event of ui.md §2: the names on the wire, and Python → JSON → Python unchanged (case 3)."""

from __future__ import annotations

import json
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_forge.core import decisions
from golem_forge.events.model import REGISTRY, Interrupt, StatusEvent, ToolStarted, allowed_values, from_wire, to_wire
from golem_forge.events.serialization import Event

# `?` marks an optional field. Written out by hand: this is the contract with every UI.
WIRE = {
    "sessionStarted": "worker model mode approvalMode zones resumed",
    "message": "message",
    "streaming": "requestId delta done channel discarded? whole?",
    "status": "type message code? mode?",
    "toolStarted": "toolCallId toolName label? args caller workerId? parentCallId?",
    "toolProgress": "toolCallId progress total? message?",
    "toolOutput": "toolCallId stream delta whole?",
    "toolResult": "toolCallId toolName args status value? error? durationMs decision truncated outputHandle? denials? "
    "protectedCreated? leftovers? media?",
    "workerUpdate": "workerId name task status parentId? depth model? tools?",
    "approvalRequired": "requestId toolCallId? type description tool args payload diff? effects segments? risk "
    "riskReasons why choices fingerprint argsKey previouslyDenied waiting changed? modelNote? warnings workerPath "
    "expiresAt? fields? caller?",
    "approvalResolved": "requestId approved by choice? edited reason?",
    "formRequired": "requestId source title message fields url? workerPath accept? decline?",
    "formResolved": "requestId action",
    "inputPrompt": "requestId prompt",
    "inputResolved": "requestId",
    "manualToolsAvailable": "tools",
    "diffSummary": "requestId summaries",
    "diffContent": "requestId path original? modified isNew",
    "filesChanged": "callId tool turn files count added removed logHash undoes? problem? remade? reached? undoable?",
    "hookRan": "hook on status durationMs toolCallId? exitCode? line? verdict? reason? told?",
    "reviewed": "reviewer answer reason? toolCallId? durationMs",
    "rewound": "turn message conversation files",
    "planUpdated": "explanation? plan",
    "contextUsage": "tokensUsed tokenLimit exceeded",
    "contextCompacted": "before after",
    "usageUpdated": "requestId workerId input output cached cost session worker?",
    "catalogChanged": "added changed removed diagnostics",
    "mcpStatus": "server state error? retryAt? tools",
    "toolSuggested": "sequence occurrences parameters",
    "wallsReport": "level guarantees missing cause? fix? exits?",
    "serviceReached": "toolCallId target last?",
    "credentialUsed": "toolCallId variable host method path",
    "sessionEnd": "reason message?",
    "runResult": "success status response partial? usage error? warning?",
    "userInput": "requestId content attachments?",
    "approvalResponse": "requestId approved choice? args? reason? stop? remember?",
    "formResponse": "requestId action values?",
    "manualToolInvoke": "toolName args requestId?",
    "command": "requestId text",
    "interrupt": "reason? workerId?",
    "getDiff": "requestId path",
}


def test_the_statuses_and_risks_of_events_are_those_of_calls() -> None:
    allowed = allowed_values(REGISTRY["toolResult"])["status"].passes
    assert allowed == frozenset(decisions.Status)
    assert allowed_values(REGISTRY["approvalRequired"])["risk"].passes == frozenset(decisions.Risk)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def test_the_registry_holds_exactly_the_events_of_the_spec() -> None:
    assert set(REGISTRY) == set(WIRE)


@pytest.mark.parametrize("name", WIRE)
def test_case_3_names_and_optional_fields_on_the_wire(name: str) -> None:
    fields = WIRE[name].split()
    kind = REGISTRY[name]
    assert {field.wire for field in kind.FIELDS} == {field.rstrip("?") for field in fields}
    assert {field for field in fields if not field.endswith("?")} == kind.REQUIRED


@given(drawn=st.lists(json_values, min_size=1, max_size=5), left_out=st.lists(st.booleans(), min_size=1, max_size=5))
@settings(max_examples=settings.default.max_examples // 3)  # each is one of every kind of event
def test_case_3_python_to_json_to_python_unchanged(drawn: list[Any], left_out: list[bool]) -> None:
    any_values, any_left_out = cycle(drawn), cycle(left_out)
    for name, kind in REGISTRY.items():
        present = [field for field in kind.FIELDS if field.required or not next(any_left_out)]
        assert_comes_back(name, {field.attribute: next(any_values) for field in present})


def assert_comes_back(name: str, values: dict[str, Any]) -> None:
    kind = REGISTRY[name]
    original = kind(**values)
    event = Event(name, None, original, 7, 1_700_000_000.25, "s1", "w1")
    text = event.to_json()
    back = Event.from_json(text)
    assert back.data == original
    assert back == event
    wire = json.loads(text)
    assert list(wire) == ["type", "seq", "ts", "sessionId", "workerId", "data"]
    assert wire["ts"] == "2023-11-14T22:13:20.250Z"
    optional_and_none = {f.wire for f in kind.FIELDS if not f.required and getattr(original, f.attribute) is None}
    assert set(wire["data"]) == {field.wire for field in kind.FIELDS} - optional_and_none


@pytest.mark.parametrize("name", [name for name in WIRE if REGISTRY[name].REQUIRED])
def test_a_missing_required_field_is_named(name: str) -> None:
    kind = REGISTRY[name]
    for missing in kind.REQUIRED:
        wire = {field: None for field in kind.REQUIRED if field != missing}
        with pytest.raises(ValueError, match=f"'{name}'.*'{missing}'"):
            from_wire(name, wire)


def test_a_required_field_may_be_null_and_stays_on_the_wire() -> None:
    wire = {"requestId": "r", "workerId": "w", "input": 1, "output": 2, "cached": 0, "cost": None, "session": {}}
    assert to_wire(from_wire("usageUpdated", wire)) == wire


def test_unknown_fields_are_ignored_and_unknown_types_keep_their_data() -> None:
    assert from_wire("interrupt", {"reason": "x", "later": 1}) == Interrupt(reason="x")
    event = Event.from_json('{"type":"fromTheFuture","seq":3,"ts":"t","data":{"a":1},"extra":true}')
    assert event.data == {"a": 1}
    assert (event.seq, event.session_id) == (3, "")
    with pytest.raises(ValueError, match="unknown event type 'fromTheFuture'"):
        from_wire("fromTheFuture", {})


@pytest.mark.parametrize("text", ["[]", "7", "{}", '{"type":"status"}', '{"type":1,"data":{}}', "{"])
def test_what_is_no_envelope_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  json's own error is one of them
        Event.from_json(text)


def test_data_is_frozen_and_refuses_what_it_does_not_have() -> None:
    started = ToolStarted(tool_call_id="c", tool_name="t", args={}, caller="llm")
    assert started.label is None
    with pytest.raises(AttributeError, match="cannot be changed"):
        started.tool_name = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del started.tool_name
    with pytest.raises(TypeError, match="no field 'colour'"):
        StatusEvent(type="info", message="m", colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'toolName' is missing"):
        ToolStarted(tool_call_id="c", args={}, caller="llm")  # type: ignore[call-arg]


def test_only_three_events_are_not_recorded() -> None:
    assert {name for name, kind in REGISTRY.items() if not kind.RECORDED} == {"streaming", "toolOutput", "toolProgress"}


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), b"\xff\xfe", "\ud800", 10**400, 10**5000, object(), {1, 2}, {("a", 1): {None: 2}}],
    ids=["nan", "inf", "bytes", "surrogate", "10^400", "10^5000", "object", "set", "odd keys"],
)
def test_values_that_json_cannot_hold_never_crash_an_envelope(value: object) -> None:
    text = Event("message", {"message": {"content": value}}, None, 1, 0.0).to_json()
    assert "content" in Event.from_json(text).wire["message"]
    text.encode()


def test_a_cycle_never_crashes_an_envelope() -> None:
    loop: dict[str, object] = {}
    loop["self"] = loop
    assert Event.from_json(Event("message", {"message": loop}, None, 1, 0.0).to_json()).type == "message"
