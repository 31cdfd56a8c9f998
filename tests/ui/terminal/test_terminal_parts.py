"""The parts behind the terminal without one: blocks of a stream, forms, completion, history, what is loaded."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from golem_forge.events.bus import create_ui_event_bus
from golem_forge.tools.forms import MASK, derive_fields
from golem_forge.ui.headless import PlainAdapter
from golem_forge.ui.render.results import duration_text
from golem_forge.ui.terminal import create_event_cli_adapter
from golem_forge.ui.terminal import transcript as markdown
from golem_forge.ui.terminal.adapter import ExitConfirmation
from golem_forge.ui.terminal.forms import FormDialog
from golem_forge.ui.terminal.input_line import (
    MAX_HISTORY_LINES,
    CompletionSources,
    HistoryFile,
    candidates,
    holds_secret,
)
from golem_forge.ui.terminal.keyboard import SILENCE_S, KeyTiming
from golem_forge.ui.terminal.questions import FORM_EVENT, KeyMeaning, PendingQuestions
from golem_forge.ui.terminal.screen import _SECOND_KEY_S, ESCAPE_S
from golem_forge.ui.terminal.transcript import BlockStream, Transcript, render_markdown
from golem_forge.ui.terminal.tty import Activity


@given(st.lists(st.sampled_from(["a", "b c", "\n", "\n\n", "```", "~~~", "- x", "  y", "1. z", "    k"]), max_size=40))
def test_a_stream_gives_every_character_once_whatever_its_deltas_are(deltas: list[str]) -> None:
    stream = BlockStream()
    blocks = [block for delta in deltas for block in stream.feed(delta)]
    rest = stream.finish()
    given_out = "".join([*blocks, rest]).replace("\n", "")
    assert given_out.strip() == "".join(deltas).replace("\n", "").strip()
    whole = BlockStream()
    assert whole.feed("".join(deltas)) == blocks and whole.finish() == rest


def test_a_block_ends_at_a_blank_line_outside_a_fence_and_an_indented_line_belongs_to_it() -> None:
    stream = BlockStream()
    assert stream.feed("- one\n\n  more of one\n\n") == []
    assert stream.feed("Next") == ["- one\n\n  more of one"]
    assert stream.feed("\n\n```\ncode\n\nstill code\n") == ["Next"]
    assert stream.feed("```\n") == ["```\ncode\n\nstill code\n```"]
    assert stream.pending == ""


def test_markdown_shows_control_characters_and_addresses_of_links() -> None:
    shown = render_markdown("\x1b]0;owned\x07 [click](http://example.test/x)", 80, colour=True)
    assert "\\x1b]0;owned\\x07" in shown and "http://example.test/x" in shown
    assert "\x1b]" not in shown


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("<http://a.test/%1b]0;owned%07%1b[2J>", "\\x1b]0;owned\\x07\\x1b[2J"),
        ("<http://a.test/%E2%80%AEx>", "\\u202ex"),
        ("a &#x202e;b &rlm;c &#x200b;d", "a \\u202eb \\u200fc \\u200bd"),
        ("one &#13;two", "one \\x0dtwo"),
        ("![x&#x202e;](http://a.test/p.png)", "x&#x202e;"),
        ("`a &#27;` &#27;", "a &#27;"),
        ("<b>hi</b>\n\n<script>x</script>", "<script>x</script>"),
    ],
)
def test_nothing_that_markdown_spells_in_its_own_way_steers_the_terminal_or_hides(written: str, seen: str) -> None:
    for colour in (True, False):
        shown = render_markdown(written, 200, colour=colour)
        assert seen in shown
        assert not set(re.sub(r"\x1b\[[0-9;]*m", "", shown)) & set("\x1b\x07\r\u202e\u200f\u200b")


def test_a_numbered_list_keeps_its_dots_and_a_table_its_columns() -> None:
    table = "| name | size | state |\n|:-|-:|:-:|\n| alpha | 12 | ok |\n| 界 | 1234567 | longer |"
    lists = render_markdown("- one\n  - two\n\n9. nine\n10. ten and more", 14, colour=False)
    assert lists.split() and lists == " • one\n    • two\n\n  9. nine\n 10. ten and\n     more\n"
    rows = render_markdown(table, 60, colour=False).split("\n")
    assert rows[2:4] == [" alpha       12    ok", " 界     1234567  longer"]


def test_a_running_call_and_a_finished_one_say_their_time_alike() -> None:
    now = [0.0]
    activity = Activity(lambda: now[0])
    activity.started({"toolCallId": "c", "toolName": "t"})
    for seconds, said in ((0.3, "0.3 s"), (3.024, "3.0 s"), (59.6, "59.6 s"), (75.432, "75.4 s"), (125, "2 min 5 s")):
        now[0] = seconds
        assert activity.lines(waiting=True, streaming=False)[0][-1][1].strip() == said
        assert duration_text({"durationMs": seconds * 1000}) == ("300 ms" if seconds < 1 else said)
    assert duration_text({"durationMs": 999.6}) == "1.0 s" and duration_text({"durationMs": 7_384_000}) == "2 h 3 min"


def test_u25_esc_waits_for_the_rest_of_a_key_and_leaves_room_within_its_100_ms() -> None:
    assert ESCAPE_S + _SECOND_KEY_S <= 0.07


def test_a_block_too_large_to_lay_out_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "_markdown", None)  # nobody lays it out
    table = "a|b\n-|-\n" + "c|\x1bd\n" * 20_000
    shown = render_markdown(table, 80, colour=True)
    assert shown.count("c|\\x1bd\n") == 20_000


def test_each_line_of_a_long_code_block_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = BlockStream()
    looked: list[str] = []
    is_last = stream._is_last
    monkeypatch.setattr(stream, "_is_last", lambda line: (looked.append(line), is_last(line))[1])
    assert stream.feed("```\n") == []
    for number in range(20_000):
        assert stream.feed(f"x = {number}\n") == []
    assert [block.count("\n") for block in stream.feed("```\n")] == [20_001]
    assert len(looked) == 20_002


def test_a_message_that_was_streamed_is_not_shown_again_and_a_whole_replaces() -> None:
    put: list[str] = []
    transcript = Transcript(put.append, lambda: 60, colour=False)

    def stream(delta: str, **more: Any) -> None:
        transcript.take({"requestId": "r", "delta": delta, "done": False, "channel": "text", **more}, "")

    stream("Hello ")
    stream("", whole="Hello there.")
    stream(" Done.", done=True)
    transcript.message("Hello there. Done.", "")
    transcript.message("Something else", "")
    assert "".join(put).split() == ["Hello", "there.", "Done.", "Something", "else"]


def test_u17_a_form_starts_from_defaults_and_the_arguments_leave_out_what_is_empty() -> None:
    schema = {
        "type": "object",
        "required": ["branch"],
        "properties": {
            "branch": {"type": "string"},
            "remote": {"enum": ["origin", "upstream"], "default": "origin"},
            "force": {"type": "boolean", "default": False},
            "note": {"type": "string"},
        },
    }
    form = FormDialog(derive_fields(schema), {})
    shown = []
    for answer in ("main", "2", "", ""):
        shown.append(form.start)
        form.submit(answer)
    assert shown == ["", "origin", "no", ""]
    assert form.question is None and form.arguments == {"branch": "main", "remote": "upstream"}


def test_u18_nested_forms_go_back_field_by_field_and_keep_the_other_answers() -> None:
    schema = {
        "type": "object",
        "required": ["people", "target"],
        "properties": {
            "people": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                },
            },
            "target": {"oneOf": [{"type": "string", "title": "Name"}, {"type": "integer", "title": "Number"}]},
        },
    }
    form = FormDialog(derive_fields(schema), {})
    for answer in ("Ada", "x"):
        form.submit(answer)
    assert form.question is not None and form.question.error == "a number is needed"
    for answer in ("36", "yes", "Bob", "", "no", "Number", "7"):
        form.submit(answer)
    assert form.arguments == {"people": [{"name": "Ada", "age": 36}, {"name": "Bob"}], "target": 7}
    for _ in range(5):
        assert form.back()
    assert form.question is not None and form.question.label == "People 2 › Name" and form.start == "Bob"
    for answer in ("Eve", "", "no", "Name", "there"):
        form.submit(answer)
    assert form.arguments == {"people": [{"name": "Ada", "age": 36}, {"name": "Eve"}], "target": "there"}


KINDS = [
    {
        "type": "object",
        "required": ["kind", "path"],
        "properties": {"kind": {"const": kind}, "path": {"type": "string"}},
    }
    for kind in ("add", "delete")
]
CITIES = {"enum": ["Berlin, Germany", "Rome", "", 2, "2"]}


@table(
    "schema, value",
    [
        ({"type": "string"}, ""),
        ({"type": "array", "items": {"type": "string"}}, ["a", "", "b"]),
        ({"type": "array", "items": {"type": ["string", "null"]}}, ["a", None, "b"]),
        ({"type": "array", "items": {"type": "string"}}, []),
        ({"type": "array", "items": CITIES}, ["Berlin, Germany", "", "2", 2]),
        ({"type": "array", "items": CITIES}, []),
        (CITIES, ""),
        (CITIES, "2"),
        ({"oneOf": [{"const": "a", "title": "b"}, {"const": "b", "title": "a"}]}, "b"),
        ({"oneOf": KINDS}, {"kind": "delete", "path": "x"}),
        ({"anyOf": [{"const": "auto"}, {"type": "integer"}]}, "auto"),
    ],
)
def test_u8_an_edit_that_changes_nothing_sends_what_was_there(schema: dict[str, Any], value: Any) -> None:
    for required in ([], ["it"]):
        fields = derive_fields({"type": "object", "required": required, "properties": {"it": schema}})
        form = FormDialog(fields, {"it": value})
        for _ in range(6):
            if form.question is not None:
                form.submit(form.start)
        left_out = value == "" and not required
        assert form.arguments == ({} if left_out else {"it": value})


def test_u8_an_edit_can_empty_a_text_and_keeps_a_secret_that_is_not_shown() -> None:
    fields = derive_fields(
        {
            "type": "object",
            "required": ["content", "tags", "token"],
            "properties": {
                "content": {"type": "string"},
                "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
                "token": {"type": "string", "format": "password"},
            },
        }
    )
    form = FormDialog(fields, {"content": "x", "tags": ["a"], "token": MASK})
    for _ in range(3):
        form.submit("")
    assert form.question is None and form.arguments == {"content": "", "tags": []}


def test_choices_of_one_name_are_told_apart_by_number_and_a_number_is_json() -> None:
    choice = {"oneOf": KINDS}
    schema = {"type": "object", "required": ["it", "data"], "properties": {"it": choice, "data": {"type": "object"}}}
    form = FormDialog(derive_fields(schema), {})
    assert form.question is not None and form.question.hint == "one of Object, 2 (Object)"
    for answer in ("1", "x", '{"a": NaN}'):
        form.submit(answer)
    assert form.question is not None and form.question.error == "not JSON: NaN is not a JSON number"
    form.submit("{}")
    assert form.arguments == {"it": {"kind": "add", "path": "x"}, "data": {}}


def test_at_a_session_of_another_process_only_what_works_there_is_offered() -> None:
    known = CompletionSources(only_commands={"stop": "ends the session", "exit": "leaves it"})
    assert candidates("/", known) == (0, ["/stop", "/exit"])
    assert candidates("/com", known) == (0, [])
    assert candidates("/help ", known)[1] == []


def test_completion_never_raises_and_offers_each_thing_where_it_fits() -> None:
    def failing(_directory: str) -> list[str]:
        raise OSError("gone")

    known = CompletionSources(zone_listing=failing)
    known.set_tools([{"name": "help", "fields": []}, {"name": "mv", "fields": [{"name": "to", "type": "text"}]}])
    assert candidates("see /work/x", known) == (4, [])
    assert candidates("/he", known)[1] == ["/help"]
    assert candidates("/mv --", known)[1] == ["--to"]
    assert candidates("/mv --to x --", known)[1] == []
    assert candidates("/output ", known)[1] == []
    known.add_result("c1", "out-1")
    assert candidates("/output ", known)[1] == ["out-1"]
    assert candidates("/why ", known)[1] == ["c1"]
    assert candidates("/model ", known)[1] == candidates("/rules revoke ", known)[1] == []
    named = CompletionSources(model_names=lambda: ["openai:gpt", "openai:"], rule_ids=lambda: ["r1", "r2"])
    assert candidates("/model openai", named)[1] == ["openai:gpt", "openai:"]
    assert candidates("/rules revoke r1 ", named)[1] == ["r2"]
    assert candidates("/rules r", named)[1] == ["revoke"]
    assert candidates("", known) == (0, [])


def test_servers_and_their_prompts_are_completed() -> None:
    greet = {"name": "docs__greet", "fields": [{"name": "who", "type": "text"}]}
    known = CompletionSources(server_names=lambda: ["docs", "git"], prompts=lambda: [greet])
    known.set_tools([{"name": "docs__find", "fields": []}, {"name": "docs__greet", "fields": []}])
    assert candidates("/mc", known)[1] == ["/mcp"]
    assert candidates("/mcp ", known)[1] == ["reconnect"]
    assert candidates("/mcp reconnect ", known) == (15, ["docs", "git"])
    assert candidates("/mcp reconnect g", known)[1] == ["git"]
    assert candidates("/mcp reconnect git ", known)[1] == candidates("/mcp x ", known)[1] == []
    assert candidates("/docs__", known)[1] == ["/docs__find", "/docs__greet"]
    assert candidates("/help docs__g", known)[1] == ["docs__greet"]
    assert candidates("/Docs__Greet --", known)[1] == ["--who"]
    assert candidates("/tool docs__greet --", known)[1] == [], "a prompt is no tool"

    def failing() -> list[Any]:
        raise OSError("gone")

    broken = CompletionSources(server_names=failing, prompts=failing)
    assert candidates("/mcp reconnect ", broken)[1] == [] and candidates("/he", broken)[1] == ["/help"]


def test_completion_goes_on_inside_a_quote_that_is_open() -> None:
    """The quote is closed where what fits is complete; a name that holds it is not offered."""
    names = {"/work/": ["review.md", "my notes.md", "it's.md", "src/"]}
    known = CompletionSources(zone_listing=lambda directory: names.get(directory, []))
    modes = [{"value": "a b", "label": "a b"}, {"value": "c", "label": "c"}]
    known.set_tools(
        [
            {
                "name": "mv",
                "fields": [{"name": "to", "type": "text"}, {"name": "how", "type": "select", "options": modes}],
            }
        ]
    )
    for typed, words in {
        "/mv --to '/work/rev": ["/work/review.md'"],
        '/mv --to "/work/rev': ['/work/review.md"'],
        "/mv --to='/work/rev": ["/work/review.md'"],
        "/mv --to '/work/my n": ["/work/my notes.md'"],
        "/mv --to '/work/s": ["/work/src/"],
        "/mv --to '/work/it": [],
        "/mv --to '/work/": ["/work/review.md", "/work/my notes.md", "/work/src/"],
        '/mv --how "a': ['a b"'],
    }.items():
        start, offered = candidates(typed, known)
        assert (typed[:start], offered) == (typed[: max(typed.rfind("'"), typed.rfind('"')) + 1], words)
    assert candidates("/mv --to 'x' --h", known)[1] == ["--how"]


def test_history_keeps_the_last_thousand_and_lines_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "history").write_text("".join(f"line {number}\n" for number in range(MAX_HISTORY_LINES)))
    file = HistoryFile(tmp_path / "history")
    for number in range(MAX_HISTORY_LINES, MAX_HISTORY_LINES + 5):
        file.add(f"line {number}")
    file.add("two\nlines \\n with a backslash\\")
    lines = file.lines()
    assert len(lines) == MAX_HISTORY_LINES
    assert lines[0] == "line 6" and lines[-1] == "two\nlines \\n with a backslash\\"
    new = HistoryFile(tmp_path / "new" / "history")
    new.add("first")
    assert new.lines() == ["first"]
    blocked = HistoryFile(tmp_path)  # a directory: no history, no error
    blocked.add("x")
    assert blocked.lines() == []


def test_a_history_that_is_a_link_or_a_pipe_is_neither_read_nor_written(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("a line of another file\n")
    (tmp_path / "link").symlink_to(other)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        history = HistoryFile(tmp_path / name)
        history.add("typed")
        assert history.lines() == []
    assert other.read_text() == "a line of another file\n"


def test_lines_with_a_known_secret_or_a_secret_option_are_recognised() -> None:
    bus = create_ui_event_bus(redact=lambda value: {**value, "text": value["text"].replace("hunter22", "[secret PW]")})
    tools = {"log_in": [{"name": "pin", "type": "secret"}]}
    for line in ("say hunter22", "/log_in --pin 1", "/log_in --pin=1", "/x --api-key k", "/log_in -p 1"):
        assert holds_secret(line, tools, bus), line
    for line in ("say hello", "/git_push --branch main", "why is [secret PW] there"):
        assert not holds_secret(line, tools, bus), line


def test_a_secret_deep_in_a_field_and_an_option_in_quotes_are_recognised() -> None:
    bus = create_ui_event_bus()
    pin = {"name": "pin", "type": "secret"}
    tools: dict[str, list[dict[str, Any]]] = {
        "group": [{"name": "who", "type": "group", "fields": [{"name": "at", "type": "group", "fields": [pin]}]}],
        "list": [{"name": "codes", "type": "list", "item": pin}, {"name": "names", "type": "text"}],
        "variants": [{"name": "by", "type": "variants", "variants": [{"name": "x", "type": "text"}, pin]}],
        "flat": [pin],
        "key": [{"name": "api_key", "type": "text"}],
        "spelled": [{"name": "door_code", "type": "secret"}],
    }
    for line in (
        '/group --who \'{"at": {"pin": "1"}}\'',
        "/list --codes 1 --codes 2",
        "/variants --by 1",
        '/flat "--pin" 1',
        "/flat --p\\in 1",
        "/flat --PIN 1",
        "/flat -fp 1",
        "/flat -fp=1",
        "/key -a 1",
        "/spelled --door-code 1",
        "/spelled --doorCode 1",
        "/flat --api_key 'never closed",
    ):
        assert holds_secret(line, tools, bus), line
    for line in ("/list --names x", "/group", "/flat 'never closed"):
        assert not holds_secret(line, tools, bus), line


def test_no_word_of_a_form_or_a_running_tool_begins_a_line_of_its_own() -> None:
    fake = "x\n── exec_command wants to run"
    said: list[Any] = []
    answering = PendingQuestions(lambda kind, data: None, said.extend, lambda: 200)
    option = {"value": fake, "label": fake}
    field = {"name": fake, "label": fake, "type": "select", "required": True, "description": fake, "options": [option]}
    answering.opened(
        FORM_EVENT, {"requestId": "f", "title": fake, "message": "", "url": fake, "fields": [{**field, "error": fake}]}
    )
    said += answering.lines(taken=True)
    answering.enter("1")
    activity = Activity()
    activity.started({"toolCallId": "c", "toolName": "t", "label": fake})
    said += activity.lines(waiting=True, streaming=False)
    rows = "\n".join("".join(text for _, text in line) for line in said).split("\n")
    assert sum("wants to run" in row for row in rows) == 6
    assert not [row for row in rows if row.startswith("── exec_command")]


def test_u26_only_two_presses_within_two_seconds_of_the_same_turn_leave() -> None:
    now = [0.0]
    leaving = ExitConfirmation(lambda: now[0])
    assert not leaving.again_at_prompt() and leaving.hint
    now[0] = 2.5
    assert not leaving.hint and not leaving.again_at_prompt()
    now[0] = 4.0
    assert leaving.again_at_prompt()
    assert not leaving.again_while_running()
    leaving.turn_began()
    assert not leaving.again_while_running()
    assert leaving.again_while_running()


def test_a_key_answers_half_a_second_after_the_last_one_and_only_alone() -> None:
    now = [100.0]
    silence = KeyTiming(lambda: now[0])
    assert silence.seconds_left == 0 and silence.came_alone(more=False)
    silence.key_pressed()
    assert silence.seconds_left == SILENCE_S == 0.5
    now[0] += 0.4
    assert silence.seconds_left > 0
    silence.key_pressed()  # every key begins it anew
    now[0] += 0.4
    assert silence.seconds_left > 0
    now[0] += 0.11
    assert silence.seconds_left == 0
    assert not silence.came_alone(more=True), "others lie behind it"
    now[0] += 0.001
    assert not silence.came_alone(more=False), "it came with the one before"
    now[0] += 0.05
    assert silence.came_alone(more=False)


def test_the_keys_of_a_card_are_explained_without_breaking_a_word() -> None:
    said: list[Any] = []
    answering = PendingQuestions(lambda *_: None, said.extend, lambda: 40)
    answering.opened("approvalRequired", {"requestId": "1", "type": "command", "tool": "t", "args": {}})
    said.clear()
    answering.press("?")
    assert said and max(len("".join(text for _, text in line)) for line in said) <= 40


def test_every_key_of_a_card_is_an_answer_a_command_or_nothing() -> None:
    answering = PendingQuestions(lambda *_: None, lambda _: None, lambda: 80)
    choices = [{"id": "a", "label": "a", "scope": "always"}]
    card = {"requestId": "1", "type": "command", "tool": "t", "args": {}, "choices": choices}
    answering.opened("approvalRequired", card)
    keys = [*"ynqs15edw?x", "enter", "tab", "other"]
    meant = {key: answering.meaning(key) for key in keys}
    assert [key for key in keys if meant[key] is KeyMeaning.ANSWER] == ["y", "n", "q", "5", "enter"]
    assert [key for key in keys if meant[key] is KeyMeaning.COMMAND] == ["e", "d", "w", "?", "tab"]
    answering.press("e")
    answering.enter('{"a": 1}')
    assert [key for key in keys if answering.meaning(key) is KeyMeaning.ANSWER] == ["y"]
    answering.closed("1", lambda _: [])
    answering.opened("approvalRequired", {**card, "type": "trust", "choices": []})
    assert [key for key in keys if answering.meaning(key) is KeyMeaning.ANSWER] == ["y", "n", "q", "enter"]
    assert answering.meaning("e") is KeyMeaning.NONE


def test_u28_without_a_terminal_the_adapter_is_the_plain_one() -> None:
    bus = create_ui_event_bus()
    assert isinstance(create_event_cli_adapter(bus, output=io.StringIO(), input=io.StringIO()), PlainAdapter)
