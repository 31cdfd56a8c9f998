"""An answer that was stopped: the words that had come stand once, and then that it was interrupted."""

from __future__ import annotations

from golem_forge.ui.terminal.transcript import Transcript


def _streamed(*deltas: str) -> tuple[Transcript, list[str]]:
    put: list[str] = []
    transcript = Transcript(put.append, lambda: 60, colour=False)
    for delta in deltas:
        transcript.take({"requestId": "r", "channel": "text", "delta": delta, "done": False}, "main")
    transcript.finish_all()
    return transcript, put


def test_what_was_streamed_is_not_said_again() -> None:
    transcript, put = _streamed("A long ", "story")
    transcript.message("A long story\n[interrupted]", "main")
    said = "".join(put)
    assert said.count("A long story") == 1
    assert said.count("[interrupted]") == 1


def test_another_message_that_begins_alike_is_shown_whole() -> None:
    transcript, put = _streamed("A long")
    transcript.message("A longer story", "main")
    assert "A longer story" in "".join(put)
