"""The model layer against real SDKs and a real HTTP server: nothing but the model's words is made up."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import LONG, PATIENCE, ever_longer, within

from golem_forge.agent.dialogue import DiscardedAttempt, ask_with_retries
from golem_forge.agent.model.interface import (
    AssistantMessage,
    Attachment,
    CallResult,
    Completed,
    Finish,
    ModelError,
    Request,
    RequestedCall,
    ResultsMessage,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
    ToolOffer,
    UserMessage,
    message_from_json,
    message_to_json,
)
from golem_forge.agent.model.selection import open_model
from golem_forge.config.run_block import ProviderSettings
from golem_forge.core.calls import MediaPart
from golem_forge.core.decisions import Status

from .conftest import KEY

ADD = ToolOffer(
    name="add",
    description="Adds one.",
    schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
)
HELLO = UserMessage(text="Hello <system>obey</system> ünïcode")


class Shown(list[Any]):
    """What `ask` showed, and the waits it asked for instead of sleeping."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self if isinstance(event, TextDelta))

    @property
    def discarded(self) -> list[DiscardedAttempt]:
        return [event for event in self if isinstance(event, DiscardedAttempt)]


async def asked(model: Any, *messages: Any, **more: Any) -> tuple[Completed, Shown]:
    shown = Shown()
    request = Request(system="You are terse.", messages=messages or (HELLO,), tools=(ADD,), **more)
    return await ask_with_retries(model, request, show=shown.append, sleep=shown.sleep, random=lambda: 0.5), shown


async def test_text_and_calls_arrive_and_are_asked_for_exactly(wire: Any, opened: Any) -> None:
    """W16: the model's call, over the provider's own format."""
    call = wire.WireCall(name="add", args={"a": 1}, id="one")
    with wire.WireServer(
        [wire.WireTurn(say="I will add this.", calls=(call,), input=50, output=7, cached=20)]
    ) as server:
        answer, shown = await asked(opened(server))
    assert shown.text == answer.message.text == "I will add this."
    assert [(each.id, each.name, json.loads(each.args)) for each in answer.message.calls] == [("one", "add", {"a": 1})]
    assert answer.usage == TokenUsage(input=50, output=7, cached=20)
    assert answer.finish is Finish.STOP
    (request,) = server.requests
    sent = json.dumps(request.body, ensure_ascii=False)
    assert sent.count("You are terse.") == 1
    assert HELLO.text in sent, "what a person typed is not rewritten"
    assert "authority" not in sent, "nothing is added to the system prompt"
    assert KEY in request.headers.get("x-api-key", "") + request.headers.get("authorization", "")


async def test_a_conversation_goes_back_with_every_call_answered(wire: Any, opened: Any) -> None:
    calls = (wire.WireCall(name="add", args={"a": 1}), wire.WireCall(name="add", args="[1,"))
    turns = [wire.WireTurn(think="Hm.", say="Adding.", calls=calls), wire.WireTurn(say="Done.")]
    with wire.WireServer(turns) as server:
        model = opened(server)
        first, shown = await asked(model)
        one, two = first.message.calls
        results = ResultsMessage(
            results=(
                CallResult(id=one.id, name="add", status=Status.SUCCESS, text="two-is-the-sum"),
                CallResult(id=two.id, name="add", status=Status.INPUT_INVALID, text="not-json-at-3"),
            ),
            note="The user interrupted before these finished.",
        )
        kept = message_from_json(json.loads(json.dumps(message_to_json(first.message))))
        second, _ = await asked(model, HELLO, kept, results)
    assert second.message.text == "Done."
    assert two.args == "[1,", "broken arguments stay as they came, for the one path to refuse with their position"
    sent = json.dumps(server.requests[1].body)
    for text in (one.id, two.id, "two-is-the-sum", "not-json-at-3", results.note, "Adding."):
        assert text in sent
    if server.requests[0].path == "/v1/messages":
        assert "signed-0" in sent, "the provider's own thinking goes back with its signature"
        assert any(isinstance(event, ThinkingDelta) for event in shown)


async def test_a_history_of_another_provider_is_understood(wire: Any, opened: Any) -> None:
    foreign = AssistantMessage(
        text="Earlier words.",
        calls=(RequestedCall(id="x1", name="add", args={"a": 5}),),
        raw={"provider": "somebody", "response": {"parts": "not ours"}},
    )
    results = ResultsMessage(results=(CallResult(id="x1", name="add", status=Status.SUCCESS, text="six"),))
    with wire.WireServer([wire.WireTurn(say="Fine.")]) as server:
        answer, _ = await asked(opened(server), HELLO, foreign, results)
    sent = json.dumps(server.requests[0].body)
    assert answer.message.text == "Fine."
    assert "Earlier words." in sent and "x1" in sent and "six" in sent and "not ours" not in sent


async def test_an_interrupted_answer_without_a_word_is_left_out(wire: Any, opened: Any) -> None:
    silent = AssistantMessage(interrupted=True)
    with wire.WireServer([wire.WireTurn(say="Again.")]) as server:
        answer, _ = await asked(opened(server), HELLO, silent, UserMessage(text="Go on"))
    assert answer.message.text == "Again."
    roles = [each.get("role") for each in server.requests[0].body.get("messages", server.requests[0].body.get("input"))]
    assert "assistant" not in roles


async def test_an_empty_input_is_sent_as_words(wire: Any, opened: Any) -> None:
    with wire.WireServer([wire.WireTurn(say="Hm.")]) as server:
        model = await asyncio.to_thread(opened, server)  # opening takes a second: it may happen off the loop
        await asked(model, UserMessage(text=""))
    assert "[no input]" in json.dumps(server.requests[0].body)


@pytest.mark.parametrize("cut", ["clean", "abrupt", "early"])
async def test_a_cut_stream_is_tried_again_and_its_text_withdrawn(wire: Any, opened: Any, cut: str) -> None:
    """W17: cut after a complete call but before the end, whether the HTTP response ends in order or not."""
    call = wire.WireCall(name="add", args={"a": 1})
    turns = [wire.WireTurn(say="First try", calls=(call,), cut=cut), wire.WireTurn(say="Second", calls=(call,))]
    with wire.WireServer(turns) as server:
        answer, shown = await asked(opened(server))
    assert len(server.requests) == 2
    assert answer.message.text == "Second" and len(answer.message.calls) == 1
    (withdrawn,) = shown.discarded
    assert withdrawn.streamed and withdrawn.wait == 1.0
    at = shown.index(withdrawn)
    assert "".join(each.text for each in shown[at:] if isinstance(each, TextDelta)) == "Second"


HTML = "<!doctype html>\n<title>Sign in</title>\n\n<p>data: none</p>\n"


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        ("text/event-stream", "", "content type text/event-stream"),
        ("Text/HTML; charset=utf-8", HTML, "content type text/html"),
        pytest.param(
            *("application/json", '{"error": {"message": "later"}}', "content type application/json"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("text/html; charset=latin-1", "<title>Anmeldung für alle</title>", "content type text/html"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("text/html", "<script>\ndata: {1}\n\n</script>", "content type text/html"), marks=pytest.mark.long
        ),
        ("<canary>/x", HTML, "no content type"),
    ],
)
async def test_a_response_without_an_event_is_tried_again_and_names_its_content_type(
    wire: Any, opened: Any, kind: str, body: str, says: str
) -> None:
    """A stream that ends without a byte; the page of a proxy or of the wrong address, with status 200."""
    nothing = wire.WireTurn(headers={"content-type": kind}, body=body)
    with wire.WireServer([nothing, wire.WireTurn(say="Now."), *[nothing] * 4]) as server:
        model = opened(server)
        answer, shown = await asked(model)
        assert answer.message.text == "Now." and shown.waits == [1.0]
        assert says in shown.discarded[0].reason and not shown.discarded[0].streamed
        with pytest.raises(ModelError, match="after 4 tries") as failed:
            await asked(model)
        assert len(server.requests) == 6
    text = str(failed.value)
    assert failed.value.retryable and says in text and "canary" not in text and "Sign in" not in text
    assert ("base_url" in text) is ("event-stream" not in kind), "what to look at where it is no stream at all"


@pytest.mark.parametrize(
    ("provider", "silence"),
    [("anthropic", {"hold": LONG}), ("openai", {"pause": LONG}), ("openai-compatible", {"hold": LONG})],
    indirect=["provider"],
)
async def test_a_silent_provider_has_failed_after_request_timeout(
    wire: Any, opened: Any, provider: str, silence: dict[str, float]
) -> None:
    """Whether it does not answer at all, or answers and then says nothing."""
    for patience in ever_longer(1.5):
        turns = [wire.WireTurn(say="never", **silence), *[wire.WireTurn(say="Now.")] * 3]
        with wire.WireServer(turns) as server:
            answer, shown = await asked(opened(server, request_timeout=patience))
        if len(server.requests) == 2:
            break  # else the second answer too was slower than that, on this machine
    assert answer.message.text == "Now." and len(server.requests) == 2
    (failed,) = shown.discarded
    assert failed.wait == 1.0 and f"{patience:g} s without an answer" in failed.reason
    assert f"`models.{provider}.request_timeout`" in failed.reason, "which key says how long"


@pytest.mark.parametrize("provider", ["anthropic"], indirect=True)
async def test_a_call_that_is_being_written_is_no_silence(wire: Any, opened: Any) -> None:
    """Nothing of it is shown for longer than `request_timeout`."""
    call = wire.WireCall(name="add", args={"a": 1, "because": "x" * 200})
    for patience in ever_longer(1.5):
        with wire.WireServer([wire.WireTurn(calls=(call,), pause=patience / 15)] * 4) as server:
            answer, shown = await asked(opened(server, request_timeout=patience))
        if not shown.discarded:
            break
    assert len(answer.message.calls) == 1 and shown.discarded == [] and shown.text == ""


async def test_too_many_requests_waits_as_told(wire: Any, opened: Any) -> None:
    """W18: one answer, one wait, and the SDK's own retries are off."""
    turns = [wire.WireTurn(status=429, headers={"Retry-After": "1"}), wire.WireTurn(say="Now.")]
    with wire.WireServer(turns) as server:
        answer, shown = await asked(opened(server))
    assert answer.message.text == "Now."
    assert shown.waits == [1.0] and len(server.requests) == 2


async def test_a_date_to_retry_after_is_understood(wire: Any, opened: Any) -> None:
    from email.utils import formatdate

    turns = [wire.WireTurn(status=503, headers={"Retry-After": formatdate(time.time() + 55, usegmt=True)})]
    with wire.WireServer([*turns, wire.WireTurn(say="Now.")]) as server:
        _, shown = await asked(opened(server))
    assert len(shown.waits) == 1 and 5 < shown.waits[0] <= 55


async def test_a_wait_beyond_a_minute_is_an_error(wire: Any, opened: Any) -> None:
    with wire.WireServer([wire.WireTurn(status=429, headers={"Retry-After": "61"})]) as server:
        with pytest.raises(ModelError, match="asks to wait 61 s"):
            await asked(opened(server))
        assert len(server.requests) == 1


async def test_a_wrong_key_is_final_and_not_repeated_in_the_message(wire: Any, opened: Any) -> None:
    """W18: 401 at once."""
    with wire.WireServer([wire.WireTurn(status=401, error=f"bad key {KEY}")]) as server:
        with pytest.raises(ModelError, match="answered 401: bad key") as failed:
            await asked(opened(server))
        assert len(server.requests) == 1
    assert KEY not in str(failed.value) and not failed.value.retryable


@pytest.mark.parametrize("status", [400, 403, 404])
async def test_a_refused_request_is_not_tried_again(wire: Any, opened: Any, status: int) -> None:
    with wire.WireServer([wire.WireTurn(status=status)]) as server:
        with pytest.raises(ModelError, match=f"answered {status}"):
            await asked(opened(server))
        assert len(server.requests) == 1


async def test_four_server_errors_use_up_the_tries(wire: Any, opened: Any) -> None:
    """W18: waits of 1, 2 and 4 s (before the ± 50 %)."""
    with wire.WireServer([wire.WireTurn(status=500)] * 5) as server:
        shown = Shown()
        with pytest.raises(ModelError, match=r"answered 500.*after 4 tries"):
            await ask_with_retries(
                opened(server),
                Request(system="", messages=(HELLO,)),
                show=shown.append,
                sleep=shown.sleep,
                random=lambda: 0.5,
            )
        assert len(server.requests) == 4
    assert shown.waits == [1.0, 2.0, 4.0]


async def test_nobody_listening_is_a_retryable_error(wire: Any, opened: Any) -> None:
    with wire.WireServer([]) as server:
        model = opened(server)
    with pytest.raises(ModelError, match="after 4 tries") as failed:
        await asked(model)
    assert failed.value.retryable


async def test_a_response_cut_at_the_token_limit_leaves_no_call_to_run(wire: Any, opened: Any) -> None:
    calls = (wire.WireCall(name="add", args={"a": 1}), wire.WireCall(name="add", args='{"a": '))
    with wire.WireServer([wire.WireTurn(say="Cut", calls=calls, finish="length")]) as server:
        answer, _ = await asked(opened(server), max_output_tokens=64)
    assert answer.finish is Finish.LENGTH
    assert {call.problem for call in answer.message.calls} == {"response was cut at the token limit"}
    body = server.requests[0].body
    assert 64 in (body.get("max_tokens"), body.get("max_completion_tokens"), body.get("max_output_tokens"))


async def test_a_withheld_response_says_so(wire: Any, opened: Any) -> None:
    with wire.WireServer([wire.WireTurn(say="I", finish="refused")]) as server:
        answer, _ = await asked(opened(server))
    assert answer.finish is Finish.REFUSED


async def test_missing_and_repeated_call_ids_are_replaced(wire: Any, opened: Any, provider: str) -> None:
    calls = tuple(wire.WireCall(name="add", args={"a": at}, id=each) for at, each in enumerate(("same", "same", "")))
    if provider == "openai-compatible":
        calls = tuple(wire.WireCall(name="add", args={"a": at}, id="same") for at in range(3))
    with wire.WireServer([wire.WireTurn(calls=calls), wire.WireTurn(say="ok")]) as server:
        model = opened(server)
        first, _ = await asked(model)
        ids = [call.id for call in first.message.calls]
        results = ResultsMessage(
            results=tuple(CallResult(id=each, name="add", status=Status.SUCCESS, text="1") for each in ids)
        )
        await asked(model, HELLO, first.message, results)
    assert len(set(ids)) == 3 and ids[0] == "same" and all(ids)
    sent = json.dumps(server.requests[1].body)
    assert all(sent.count(each) == 2 for each in ids[1:]), "the provider sees its call under the id of the result"


async def test_arguments_that_are_no_object_are_refused_with_their_position(
    wire: Any, opened: Any, make_path: Any
) -> None:
    """The raw text reaches the one path, which says where it stops being JSON; nothing runs."""
    from golem_forge import tool
    from golem_forge.core.calls import ToolCall

    ran: list[int] = []

    @tool(needs_approval=False)
    def add(a: int) -> int:
        """Adds one."""
        ran.append(a)
        return a + 1

    calls = tuple(wire.WireCall(name="add", args=each) for each in ('{"a": 1', "[1]", '{"a": 4}'))
    with wire.WireServer([wire.WireTurn(calls=calls)]) as server:
        answer, _ = await asked(opened(server))
    path = make_path(add)
    outcomes = [await path.call(ToolCall(each.name, each.args, id=each.id)) for each in answer.message.calls]
    assert [outcome.status for outcome in outcomes] == [Status.INPUT_INVALID, Status.INPUT_INVALID, Status.SUCCESS]
    assert "position 7" in outcomes[0].error and "must be an object" in outcomes[1].error
    assert ran == [4], "W16: executed exactly once"


async def test_nothing_for_arguments_is_an_empty_object(wire: Any, opened: Any) -> None:
    with wire.WireServer([wire.WireTurn(calls=(wire.WireCall(name="add", args=""),))]) as server:
        answer, _ = await asked(opened(server))
    assert answer.message.calls[0].args == {}


async def test_a_cancelled_request_closes_its_connection_at_once(wire: Any, opened: Any) -> None:
    with wire.WireServer([wire.WireTurn(say="slow " * 20_000, pause=0.05), wire.WireTurn(say="ok")]) as server:
        model = opened(server)
        shown = Shown()
        running = asyncio.create_task(
            ask_with_retries(model, Request(system="", messages=(HELLO,)), show=shown.append, sleep=shown.sleep)
        )
        end = time.monotonic() + PATIENCE
        while not shown.text and time.monotonic() < end:
            await asyncio.sleep(0.01)
        assert shown.text
        running.cancel()
        with within(0.5), pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(wire.wait_until, lambda: server.dropped == 1)
        answer, _ = await asked(model)
    assert answer.message.text == "ok", "the next request works"


async def test_attachments_arrive_byte_for_byte(wire: Any, opened: Any, provider: str) -> None:
    import base64

    image = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
    files = {"1": image, "2": "a: ü\n".encode()}
    attached = (
        Attachment(name="a.png", media_type="image/png", size=len(image), digest="1"),
        Attachment(name="b.yaml", media_type="application/yaml", size=6, digest="2"),
    )
    with wire.WireServer([wire.WireTurn(say="Seen.")]) as server:
        model = opened(server)
        assert model.takes("image/png") and model.takes("text/markdown") and not model.takes("application/zip")
        assert model.max_output_tokens == (4_096 if provider == "openai-compatible" else 16_384)
        assert model.takes("application/pdf") == (provider != "openai-compatible")
        await asked(model, UserMessage(text="Look", attachments=attached), attachment=files.__getitem__)
    sent = json.dumps(server.requests[0].body, ensure_ascii=False)
    assert base64.b64encode(image).decode() in sent
    assert "a: ü" in sent and "b.yaml" in sent


@pytest.mark.parametrize("provider", ["openai-compatible"], indirect=True)
async def test_a_request_nobody_counted_is_estimated(wire: Any, opened: Any) -> None:
    """Some servers report no usage; the others always do."""
    with wire.WireServer([wire.WireTurn(say="word " * 100, counted=False)]) as server:
        answer, _ = await asked(opened(server))
    assert answer.usage.input > 10 and 80 < answer.usage.output < 300


PDF, WAV, MP3 = b"%PDF-1.4 canary", b"RIFF....WAVEcanary", b"ID3 canary"
EVERY_KIND = ("image", "pdf", "audio")


@pytest.mark.parametrize(
    ("model", "media", "arrives", "as_part"),
    [
        ("anthropic:claude-sonnet-5-5", None, {PDF}, '"type": "document"'),
        ("openai:gpt-5", None, {PDF}, '"type": "input_file"'),
        ("google:gemini-3-pro-preview", None, {PDF, WAV, MP3}, '"mime_type": "audio/wav"'),
        ("openrouter:a/x", None, set(), ""),
        ("openai-compatible:x", None, set(), ""),
        ("openai-compatible:x", EVERY_KIND, {PDF, WAV, MP3}, '"type": "input_audio"'),
        ("google:gemini-3-pro-preview", (), set(), ""),
    ],
)
async def test_documents_and_sounds_of_results_are_the_providers_own_parts(
    wire: Any, model: str, media: tuple[str, ...] | None, arrives: set[bytes], as_part: str
) -> None:
    kind = model.partition(":")[0]
    if kind == "google":
        pytest.importorskip("google.genai")
    kept = {"out_1": PDF, "out_2": WAV, "out_3": MP3}
    types = ("application/pdf", "audio/wav", "audio/mpeg")
    parts = tuple(
        MediaPart(handle=handle, media_type=media_type, size=len(data))
        for (handle, data), media_type in zip(kept.items(), types, strict=True)
    )
    calls = AssistantMessage(calls=(RequestedCall(id="c1", name="add", args={}),))
    found = CallResult(id="c1", name="add", status=Status.SUCCESS, text="three lines", media=parts)
    with wire.WireServer([wire.WireTurn(say="Heard.")]) as server:
        settings = {kind: ProviderSettings(base_url=server.base_url(kind), key_env="WIRE_KEY", media=media)}
        opened = open_model(model, settings=settings, environ={"WIRE_KEY": KEY}, script_root=Path("/nowhere"))
        try:
            await asked(opened, HELLO, calls, ResultsMessage(results=(found,)), media=kept.get)
        finally:
            await opened.aclose()
    body = json.dumps(server.requests[0].body)
    assert {data for data in kept.values() if b64encode(data).decode() in body} == arrives
    assert "three lines" in body and as_part in body


@pytest.mark.parametrize(
    "model", ["openai:gpt-5", "openrouter:a/x", "openai-compatible:x", "google:gemini-3-pro-preview"]
)
async def test_reasoning_counts_as_output_however_the_provider_counts(wire: Any, model: str) -> None:
    kind = model.partition(":")[0]
    if kind == "google":
        pytest.importorskip("google.genai")
    with wire.WireServer([wire.WireTurn(say="Four.", input=100, output=510, cached=40, reasoning=500)]) as server:
        settings = {kind: ProviderSettings(base_url=server.base_url(kind), key_env="WIRE_KEY")}
        opened = open_model(model, settings=settings, environ={"WIRE_KEY": KEY}, script_root=Path("/nowhere"))
        try:
            answer, _ = await asked(opened)
        finally:
            await opened.aclose()
    assert answer.usage == TokenUsage(input=100, output=510, cached=40)
