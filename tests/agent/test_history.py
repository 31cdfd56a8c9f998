"""History in the journal: every message survives the process, whatever its size; restored it is what was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golem_forge.agent.history import History, compact, complete_results
from golem_forge.agent.model.interface import (
    AssistantMessage,
    Attachment,
    CallResult,
    Message,
    RequestedCall,
    ResultsMessage,
    UserMessage,
)
from golem_forge.core.decisions import Status
from golem_forge.events.index import SessionIndex
from golem_forge.events.journal import Journal
from golem_forge.events.journal_files import JournalError
from golem_forge.events.journal_records import MAX_RECORD_BYTES, PART_CHARS, join_records, read, split_record, verify
from golem_forge.events.redaction import Redactor

ATTACHED = Attachment(name="a.png", media_type="image/png", size=3, digest="ab" * 32)
ASKED = AssistantMessage(
    text="I look.",
    thinking="hm",
    calls=(RequestedCall(id="c1", name="read_file", args={"path": "a"}), RequestedCall(id="c2", name="x", args="{")),
    model="scripted:a",
    raw={"signature": "zzz", "blocks": [1, None, "ü"]},
)
ANSWERED = ResultsMessage(
    results=(
        CallResult(id="c1", name="read_file", status=Status.SUCCESS, text="one", output_handle="out_1"),
        CallResult(id="c2", name="x", status=Status.INPUT_INVALID, text="no"),
    ),
    note="told",
)
SAID: tuple[Message, ...] = (UserMessage(text="hello", attachments=(ATTACHED,)), ASKED, ANSWERED)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(tmp_path, "s1")


def restored(journal: Journal, worker_id: str = "w1") -> list[Message]:
    return History.restore(read(journal.path), worker_id).messages


def test_each_message_is_on_disk_when_add_returns(journal: Journal) -> None:
    history = History(journal, "w1")
    for count, message in enumerate(SAID, start=1):
        history.add(message)
        assert restored(journal) == list(SAID[:count])
    assert history.messages == list(SAID)


def test_workers_of_one_session_have_histories_of_their_own(journal: Journal) -> None:
    History(journal, "w1").add(UserMessage(text="one"))
    History(journal, "w2").add(UserMessage(text="two"))
    assert restored(journal, "w1") == [UserMessage(text="one")]
    assert restored(journal, "w2") == [UserMessage(text="two")]
    assert restored(journal, "w3") == []


def test_compaction_and_clear_replace_what_was_before(journal: Journal) -> None:
    history = History(journal, "w1", SAID)
    summary = UserMessage(text="what happened", kind="summary")
    history.replace_all([summary, *SAID[1:]])
    assert history.messages == restored(journal) == [summary, *SAID[1:]]
    history.clear()
    assert history.messages == restored(journal) == []
    history.add(SAID[0])
    assert restored(journal) == [SAID[0]]


def long_history(journal: Journal, count: int = 30) -> History:
    history = History(journal, "w1")
    for number in range(count):
        history.add(UserMessage(text=f"{number} " + "x" * 5_000))
    return history


def test_compaction_writes_what_is_new_and_refers_to_what_stays(journal: Journal) -> None:
    history = long_history(journal)
    summary = UserMessage(text="what happened", kind="summary")
    for _ in range(3):
        size, first, last = journal.path.stat().st_size, history.messages[0], history.messages[-10:]
        history.replace_all([first, summary, *last[:4], SAID[0], *last[5:]])
        assert journal.path.stat().st_size - size < 2_000
        assert restored(journal) == history.messages
        for number in range(12):
            history.add(UserMessage(text=f"more {number}"))
    assert restored(journal) == history.messages
    again = History.restore(read(journal.path), "w1", journal)
    again.replace_all(again.messages[-2:])
    assert restored(journal) == again.messages
    journal.close()
    assert verify(journal.path).ok


async def test_a_compacted_history_refers_to_every_message_that_it_keeps(journal: Journal) -> None:
    history = History(journal, "w1")
    for number in range(12):
        history.add(UserMessage(text=f"ask {number}"))
        calls = (RequestedCall(id=f"c{number}", name="read_file", args={}),)
        history.add(AssistantMessage(text="I look.", calls=calls))
        text = "short" if number % 2 else "long " * 2_000
        results = (CallResult(id=f"c{number}", name="read_file", status=Status.SUCCESS, text=text),)
        history.add(ResultsMessage(results=results))

    async def summarise(messages: list[Message]) -> str:
        return "They were read."

    for limit, used in ((30_000, 26_000), (10_000, 9_500)):  # outputs become handles, then old turns a summary
        compacted = await compact(
            history.messages, limit=limit, used=used, summarise=summarise, keep_output=lambda text: "out_1"
        )
        assert compacted is not None
        history.replace_all(compacted.messages)
        written = [each for each in read(journal.path) if each["type"] == "historySet"][-1]["messages"]
        roles = [each["role"] for each in written if "kept" not in each]
        assert roles in (["results"] * 4, ["user"]), "what was not changed is not written again"
        assert restored(journal) == history.messages


def test_histories_that_were_written_whole_are_read_as_before(journal: Journal) -> None:
    history = long_history(journal, 3)
    whole = [{"role": "user", "text": f"old {number}"} for number in range(4)]
    journal.append("historySet", {"workerId": "w1", "messages": whole})
    journal.flush()
    assert [getattr(each, "text", "") for each in restored(journal)] == ["old 0", "old 1", "old 2", "old 3"]
    journal.append(
        "historySet", {"workerId": "w1", "before": 4, "messages": [{"kept": [2, 9]}, {"kept": "?"}, whole[0]]}
    )
    journal.flush()
    lost = "[A message stood here that could not be read back.]"
    assert [getattr(each, "text", "") for each in restored(journal)] == [lost, "old 2", "old 3", lost, "old 0"]
    assert history.messages, "in memory it is what it was"


def test_after_a_write_that_failed_everything_is_written_again(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the disk refused may still be written later, and then the journal has one message more than the history."""
    history = long_history(journal, 3)

    def refuse(data: bytes) -> None:
        raise JournalError("no space")

    with monkeypatch.context() as full:
        full.setattr(journal._writer, "write", refuse)
        with pytest.raises(JournalError):
            history.add(UserMessage(text="lost"))
    history.replace_all([UserMessage(text="so far", kind="summary"), *history.messages[1:]])
    assert restored(journal) == history.messages


def test_without_a_journal_it_is_just_a_list() -> None:
    history = History(None, "w1")
    history.add(SAID[0])
    history.replace_all(SAID)
    assert history.messages == list(SAID)


@pytest.mark.parametrize(
    "size", [PART_CHARS - 200, pytest.param(PART_CHARS + 1, marks=pytest.mark.long), 2 * PART_CHARS + 1]
)
def test_a_message_longer_than_a_line_may_be_survives(journal: Journal, size: int) -> None:
    text = ('"\\ü' * size)[:size]
    message = AssistantMessage(text="short", raw={"big": text})
    history = History(journal, "w1")
    history.add(message)
    history.add(SAID[0])
    assert restored(journal) == [message, SAID[0]]
    journal.close()
    assert verify(journal.path).ok
    assert max(map(len, journal.path.read_bytes().splitlines())) < 4 * PART_CHARS, (
        "no line is longer than the index reads"
    )


def test_a_row_of_parts_that_a_crash_cut_is_no_message(journal: Journal) -> None:
    history = History(journal, "w1")
    history.add(SAID[0])
    history.add(UserMessage(text="x" * (3 * PART_CHARS)))
    journal.release()
    lines = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(b"".join(lines[:-1]))
    assert restored(journal) == [SAID[0]]


def test_what_is_too_long_for_any_record_leaves_a_mark() -> None:
    (body,) = split_record("history", b'{"message":"' + b"x" * MAX_RECORD_BYTES + b'"}')
    assert "tooLong" in body and len(body) < 200
    record: dict[str, Any] = {"type": "history", "workerId": "w1", "tooLong": "…"}
    (mark,) = History.restore([record], "w1").messages
    assert isinstance(mark, UserMessage) and mark.kind == "note" and "could not be read" in mark.text


def test_joined_gives_other_records_as_they_are() -> None:
    records = [{"type": "note", "text": "a"}, {"type": "part", "of": "x", "part": 2, "parts": 2, "text": "}"}]
    assert list(join_records(records)) == records[:1]


def test_secrets_are_not_in_what_comes_back(tmp_path: Path) -> None:
    redactor = Redactor()
    redactor.add_secret("CANARY_KEY", "canary-4711-value")
    journal = Journal.create(tmp_path, "s2", redact=redactor.value)
    history = History(journal, "w1")
    history.add(UserMessage(text="use canary-4711-value " + "y" * PART_CHARS))
    history.add(AssistantMessage(calls=(RequestedCall(id="c", name="t", args={"q": "canary-4711-value"}),)))
    assert b"canary-4711" not in journal.path.read_bytes()
    first, second = restored(journal)
    assert isinstance(first, UserMessage) and first.text.startswith("use [secret CANARY_KEY] y")
    assert isinstance(second, AssistantMessage) and second.calls[0].args == {"q": "[secret CANARY_KEY]"}


def test_the_index_knows_how_a_conversation_began(journal: Journal, tmp_path: Path) -> None:
    history = History(journal, "w1")
    history.add(UserMessage(text="  Fix\nthe   tests " + "x" * 500))
    history.add(UserMessage(text="later"))
    (session,) = SessionIndex(tmp_path).sessions()
    assert session.input.startswith("Fix the tests xxx") and len(session.input) == 200


# Protocol completion (workers.md §6)


def lost(call: RequestedCall) -> CallResult:
    return CallResult(id=call.id, name=call.name, status=Status.INTERRUPTED, text="lost")


def test_a_whole_history_stays_what_it_is() -> None:
    assert complete_results(SAID, lost) == list(SAID)
    assert complete_results([], lost) == []


def test_calls_without_results_get_them_in_order() -> None:
    *_, results = complete_results(SAID[:2], lost, note="stopped")
    assert isinstance(results, ResultsMessage) and results.note == "stopped"
    assert [(each.id, each.text) for each in results.results] == [("c1", "lost"), ("c2", "lost")]


def test_missing_doubled_and_swapped_results_become_one_each() -> None:
    one, two = ANSWERED.results
    for given in [
        (two,),
        (two, one),
        (one, one, two),
        (one, two, CallResult(id="zz", name="t", status=Status.SUCCESS, text="")),
    ]:
        _, _, results = complete_results([*SAID[:2], ResultsMessage(results=given)], lost)
        assert isinstance(results, ResultsMessage)
        assert [each.id for each in results.results] == ["c1", "c2"]
        assert results.results[1] == two


def test_results_without_calls_are_left_out() -> None:
    assert complete_results([SAID[0], ANSWERED, SAID[0]], lost) == [SAID[0], SAID[0]]
    middle = complete_results([ASKED, SAID[0], ANSWERED], lost)
    assert [type(each) for each in middle] == [AssistantMessage, ResultsMessage, UserMessage]
