"""TeamSession: a session of the team's store as pages see it, wherever it runs.

Its journal lines are copied, without those that hold host paths, to a file of this process; from there on it is read
as any journal. While a page looks, the store is looked at five times a second, and the runner sends the text as it
comes (`team/live.py`). What a page does becomes a row: an answer, a message, an interrupt; the person behind the page
is whoever the request guard found. A form with a secret field is answered to the runner itself and never becomes a row.

Threat: a page may ask for anything. What a person may do is checked by `PersonStore`, with every action.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from golem_forge.core.ids import new_id
from golem_forge.core.regex import regex
from golem_forge.core.text import one_line
from golem_forge.events.journal_records import parse_line
from golem_forge.events.serialization import Event
from golem_forge.storage.home import make_private_dir, replacing, touch_private
from golem_forge.team.database import TeamError
from golem_forge.team.live import LIVE_CHANNEL, LiveReceiver
from golem_forge.team.people import PersonStore
from golem_forge.team.question_table import has_secret
from golem_forge.team.rows import ENDED, OPEN, QuestionRow
from golem_forge.team.store import Store
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api import ApiRefusal
from golem_forge.ui.web.stream.watched_session import FollowedSession, SessionStatus, diff_for

PERSON: Final = "forge.person"
"""Key in the scope of a request: the store with the rights of the person behind it."""
_QUESTION_MARKS: Final = (b'"approvalRequired"', b'"formRequired"')
OUTPUT_HANDLE: Final = regex(r"out_[0-9a-f]{12}")
NO_OUTPUT: Final = "This session keeps no such output."
_MAX_ASKED: Final = 1000
_LINES: Final = 2000
_ENDING_COMMANDS: Final = frozenset({"/exit", "/quit", "/stop"})
_NO_COMMANDS: Final = "Commands act on the process that runs a session; a team's page takes /stop alone."
_MAX_EARLY: Final = 1000
_WANTED_S: Final = 5.0


class TeamSession(FollowedSession):
    def __init__(self, store: Store, place: Path, session_id: str, state: Path, channels: set[str]) -> None:
        """`place`: a private directory for the copy. `state`: of the Forge home. `channels`: what the server listens to
        (PostgreSQL)."""
        super().__init__(place, session_id)
        self.live = LiveReceiver(store, session_id, self._take_live, state)
        self._channels = channels
        self._early: deque[Event] = deque(maxlen=_MAX_EARLY)
        """Live text that came before the records it follows."""
        self._wanted_until = 0.0
        self._shown = 0
        """The number of the last record that pages were shown."""
        self._runner = ""
        self.state = SessionStatus.LIVE
        self.answerable = True
        self._store = store
        self._copied = 0
        self._asked: dict[str, Event] = {}
        """By id: the questions of its journal."""
        self._open: dict[str, QuestionRow] = {}
        self._prompt = new_id()
        make_private_dir(self._path.parent)
        touch_private(self._path)

    def open_questions(self) -> list[Event]:
        found = [self.question_event(row) for row in self._open.values()]
        return [*found, self._prompt_event()] if self.answerable else found

    def question_event(self, row: QuestionRow) -> Event:
        if (known := self._asked.get(row.id)) is not None:
            return Event(known.type, row.wire, None, known.seq, known.ts, self.id, known.worker_id)
        return self.event_of(row)

    @staticmethod
    def event_of(row: QuestionRow) -> Event:
        """Returns the question's event, without its number."""
        type = "approvalRequired" if row.kind == "approval" else "formRequired"
        ts = datetime.fromtimestamp(row.asked, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return Event(type, row.wire, None, 0, ts, row.session, "")

    def kept_output(self, who: PersonStore, handle: str) -> Path:
        """Returns a copy of a stored output; runs in a thread. Raises ApiRefusal (404) if there is none."""
        path = self._path.with_suffix("") / handle
        if OUTPUT_HANDLE.fullmatch(handle) is None:
            raise ApiRefusal(404, NO_OUTPUT)
        found = who.output(self.id, handle)
        if found is None:
            raise ApiRefusal(404, NO_OUTPUT)
        if not path.is_file():
            make_private_dir(path.parent)
            with replacing(path, durable=False) as file:  # whoever reads it at the same time reads all of it
                file.writelines(found[1])
        return path

    def remove(self) -> None:
        """Removes the local copy; the store keeps its content."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        shutil.rmtree(self._path.with_suffix(""), ignore_errors=True)

    async def _current_state(self) -> SessionStatus:
        row_state, lines = await run_in_thread(self._copy)
        for line in lines:
            self._note_question(line)
        if self._is_watched:
            await self._follow_runner()
        state = SessionStatus.CLOSED if row_state in ENDED else SessionStatus.LIVE
        self.answerable = state is SessionStatus.LIVE
        return state

    def _copy(self) -> tuple[str, list[bytes]]:
        """Copies the new lines into the file and returns the session's state and the lines; runs in a thread."""
        row = self._store.find(self.id)
        self._runner, state = row.runner, row.state
        new: list[bytes] = []
        while found := self._store.lines(self.id, self._copied, limit=_LINES, private=False):
            new += [line for _, line in found]
            with self._path.open("ab") as file:
                file.write(b"".join(line if line.endswith(b"\n") else line + b"\n" for _, line in found))
            self._copied = found[-1][0]
        self._open = {row.id: row for row in self._store.questions.rows(session=self.id)} if state not in ENDED else {}
        return state, new

    # ---- what is not recorded

    async def live_frames(self, after: int) -> tuple[list[dict[str, Any]], int]:
        """Returns unrecorded live text for a terminal that polls the API."""
        self._wanted_until = time.monotonic() + _WANTED_S
        if self._following is None or self._following.done():
            await self.arrive()
        return self.live.frames_after(after)

    @property
    def _is_watched(self) -> bool:
        return super()._is_watched or time.monotonic() < self._wanted_until

    async def _follow_runner(self) -> None:
        self._channels.add(LIVE_CHANNEL + self.id)
        await self.live.follow(self._runner)
        with contextlib.suppress(TeamError):
            await run_in_thread(self.live.watch)

    async def _leave_runner(self) -> None:
        self._channels.discard(LIVE_CHANNEL + self.id)
        self._early.clear()
        await self.live.close()

    async def _follow(self) -> None:
        try:
            await super()._follow()
        finally:
            await self._leave_runner()

    def _take_live(self, event: Event) -> None:
        """Shows live text only after the records that it follows; else an answer would stand above its question."""
        if event.seq <= self._shown:
            self.audience.take(event)
        else:
            self._early.append(event)

    def _show(self, event: Event) -> None:
        self._shown = event.seq
        self._show_early(event.seq - 1)
        if event.type == "message" and (event.wire.get("message") or {}).get("role") == "assistant":
            self.live.message(event)
        super()._show(event)

    async def _look(self) -> bool:
        there = await super()._look()
        self._shown = self.last_seq
        self._show_early(self.last_seq)
        return there

    def _show_early(self, until: int) -> None:
        while self._early and self._early[0].seq <= until:
            self.audience.take(self._early.popleft())

    def _note_question(self, line: bytes) -> None:
        if not any(mark in line[:200] for mark in _QUESTION_MARKS):
            return
        record = parse_line(line.rstrip(b"\n"))
        data = record.get("data") if record else None
        if record is None or not isinstance(data, dict) or not isinstance(data.get("requestId"), str):
            return
        if len(self._asked) >= _MAX_ASKED:
            del self._asked[next(iter(self._asked))]
        seq, ts = record.get("seq"), str(record.get("ts", ""))[:40]
        self._asked[data["requestId"]] = Event(
            str(record.get("event")), data, None, seq if isinstance(seq, int) else 0, ts, self.id,
            str(record.get("workerId", "")),
        )  # fmt: skip

    # ---- what a page does

    async def act_elsewhere(self, type: str, given: Mapping[str, Any], scope: Mapping[str, Any]) -> bool:
        who = scope[PERSON]
        assert isinstance(who, PersonStore)
        if type == "getDiff":
            self._show_diff(given)
            return True
        if type == "userInput":
            if given.get("attachments"):
                raise ApiRefusal(422, "A background session takes no files from this page.")
            text = str(given["content"])
            await run_in_thread(lambda: who.send(self.id, "message", {"text": text}))
            self._prompt_again()
        elif type in ("approvalResponse", "formResponse"):
            await self._answer(who, type, given)
        elif type == "interrupt":
            await run_in_thread(lambda: who.send(self.id, "interrupt", {}))
        elif type == "command" and str(given.get("text", "")).strip() in _ENDING_COMMANDS:
            await run_in_thread(lambda: who.stop(self.id))
        else:
            await run_in_thread(lambda: who.session(self.id, "send", type))
            raise ApiRefusal(422, _NO_COMMANDS)
        return True

    async def _answer(self, who: PersonStore, type: str, given: Mapping[str, Any]) -> None:
        row = await run_in_thread(lambda: who.find_question(str(given["requestId"])))
        if row.session != self.id:
            raise ApiRefusal(404, "No such question is open.")
        await run_in_thread(lambda: who.session(self.id, "answer", f"question {row.id}"))
        if type != ("approvalResponse" if row.kind == "approval" else "formResponse"):
            raise ApiRefusal(422, "This answer is not of the kind that the question asks for.")
        if row.kind == "form" and row.state == OPEN and given.get("values") and has_secret(row.wire):
            await self._answer_runner(who, row, given)
            return
        answer = {name: value for name, value in given.items() if name != "requestId"}
        await run_in_thread(lambda: who.answer(row.id, answer))

    async def _answer_runner(self, who: PersonStore, row: QuestionRow, given: Mapping[str, Any]) -> None:
        """Past the store, which keeps no secret. Refused (409) where the runner cannot be reached."""
        person = await run_in_thread(lambda: who.person)
        async with self._looking:
            await run_in_thread(self._copy)
            await self.live.follow(self._runner)
        try:
            if not self.live.can_answer:
                raise ApiRefusal(409, await run_in_thread(self._why_not_reached))
            problem = await self.live.answer_form(given, person.name, who.door)
        finally:
            if self._following is None or self._following.done():
                await self._leave_runner()
        if problem:
            raise ApiRefusal(422, f"The answer did not count: {problem}.")

    def _why_not_reached(self) -> str:
        """Says why the runner cannot be reached; runs in a thread."""
        host = next((each["host"] for each in self._store.runners.seen() if each["id"] == self._runner), "")
        if not host:
            return "This form asks for a secret, and no runner has the session now. Try again in half a minute."
        return (
            f"This form asks for a secret. The store keeps none, so only the machine of its runner can take it: type "
            f"`forge attach {self.id[:12]}` on {one_line(host)[:100]}, or decline it here."
        )

    def _show_diff(self, given: Mapping[str, Any]) -> None:
        row = self._open.get(str(given["requestId"]))
        shown = diff_for(None if row is None else self.question_event(row), str(given["path"]))
        if shown is None:
            raise ApiRefusal(404, "No open question changes this path.")
        self.audience.take(Event("diffContent", shown, None, 0, "", self.id, ""))

    def _prompt_event(self) -> Event:
        """A page sends what is typed as the answer to a prompt: one is always open."""
        return Event("inputPrompt", {"requestId": self._prompt, "prompt": ""}, None, 0, "", self.id, "")

    def _prompt_again(self) -> None:
        self.audience.take(Event("inputResolved", {"requestId": self._prompt}, None, 0, "", self.id, ""))
        self._prompt = new_id()
        self.audience.take(self._prompt_event())
