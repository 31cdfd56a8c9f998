"""What a session says of its own accord about user tools: sequences that could be one, and a word on how good one is.

The journals of the last weeks are looked through off the loop when the session starts, its own after each turn of the
root worker. A sequence is shown (`toolSuggested`) and told to the model of a worker that can make tools, once per
session; one for which a tool was made, or that the person dismissed, never. Nothing here can fail or hold up a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from golem_forge.core.errors import ForgeError
from golem_forge.custom.making.create_tool import NAME as CREATE
from golem_forge.tools.threads import TooManyThreads, run_in_thread
from golem_forge.workers.history import History
from golem_forge.workers.messages import UserMessage
from golem_forge.workers.user_tools import workshop_of

if TYPE_CHECKING:
    from golem_forge.custom.suggestions.kept import Session
    from golem_forge.custom.suggestions.reading import JournalTail, TurnReader
    from golem_forge.custom.suggestions.suggestion import Suggestion
    from golem_forge.events.envelope import Event
    from golem_forge.workers.station import Station
    from golem_forge.workers.tree import SessionTree

MOST_OFFERED: Final = 5
"""In one session: more would be noise."""
_WAIT_S: Final = 0.25
"""So long at most something waits for a look that is not finished; it is used when it is."""
_log = logging.getLogger(__name__)


class Suggesting:
    """The session's part; opened by `suggesting_in`."""

    def __init__(self, tree: SessionTree) -> None:
        self._tree = tree
        self._shop = workshop_of(tree)
        self._redactor = tree.redactor
        """As it was when the look began: the session's learns on while a thread uses this one."""
        self._past: tuple[Session, ...] | None = None
        self._own = _OwnTurns(tree)
        self._found: tuple[Suggestion, ...] = ()
        self._looking: asyncio.Future[tuple[Suggestion, ...]] | None = None
        self._waited = False
        """The first request may wait for the first look; no other does."""
        self._shown: set[str] = set()
        self._told: set[str] = set()
        self._rating_offered: set[str] = set()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._forget: Callable[[], None] = tree.bus.on("toolResult", self._on_result)

    async def aclose(self) -> None:
        self._closed = True
        self._forget()
        if self._looking is not None:
            self._looking.cancel()

    # ---- sequences

    def begin(self, station: Station) -> None:
        """A worker took its place. A session without a journal knows only what others left."""
        if CREATE in station.catalog and self._looking is None and self._past is None:
            self._start_look()

    async def before_request(self, station: Station, history: History) -> None:
        """Between two requests of this worker's model: a note may be added to its history here and nowhere else."""
        if CREATE not in station.catalog:
            return
        if not self._waited:
            self._waited = True
            await self._settle()
        self._take_in()
        for suggestion in self._fitting(station):
            if suggestion.key in self._told:
                continue
            self._show(station, suggestion)
            self._told.add(suggestion.key)
            from golem_forge.custom.suggestions.wording import line_for_model

            try:
                history.add(UserMessage(text=line_for_model(suggestion), kind="note"))
            except ForgeError as error:  # the journal refuses; the turn will say so where it matters
                _log.warning("a suggestion was not told: %s", error.message)
                return
            self._shop.suggested.add(suggestion)

    async def after_turn(self, station: Station) -> None:
        if CREATE not in station.catalog:
            return
        self._take_in()
        if self._looking is None:
            self._start_look()
        await self._settle()
        self._take_in()
        for suggestion in self._fitting(station):
            self._show(station, suggestion)

    def _fitting(self, station: Station) -> list[Suggestion]:
        """Of tools that this worker has, since another's (or another program's) are not its business."""
        if not self._found:
            return []
        there = set(station.catalog.names())
        fitting = [each for each in self._found if there.issuperset(each.tools)]
        new = [each for each in fitting if each.key not in self._shown][: max(0, MOST_OFFERED - len(self._shown))]
        return [each for each in fitting if each.key in self._shown or each in new]

    def _show(self, station: Station, suggestion: Suggestion) -> None:
        if suggestion.key not in self._shown:
            self._shown.add(suggestion.key)
            station.emit("toolSuggested", suggestion.event())

    def _start_look(self) -> None:
        self._redactor = self._tree.redactor.copy()
        with contextlib.suppress(TooManyThreads):
            self._looking = run_in_thread(self._look)

    async def _settle(self) -> None:
        if self._looking is not None:
            await asyncio.wait({self._looking}, timeout=_WAIT_S)

    def _take_in(self) -> None:
        """The result of a look that is finished."""
        if self._looking is None or not self._looking.done():
            return
        look, self._looking = self._looking, None
        if look.cancelled():
            return
        if (error := look.exception()) is not None:
            _log.warning("no suggestions: %s", type(error).__name__)
            return
        self._found = look.result()
        self._shown |= self._own.suggested_before
        self._told |= self._own.suggested_before

    def _look(self) -> tuple[Suggestion, ...]:
        """On a thread, one at a time; with a book of its own, since the session's belongs to the loop."""
        from golem_forge.custom.book import Book
        from golem_forge.custom.suggestions.kept import recent
        from golem_forge.custom.suggestions.looking import look

        own = self._own.read_on()
        if self._past is None:
            self._past = recent(self._tree.home, without=self._tree.id)
        elif own is None:
            return self._found
        book = Book(self._tree.home)
        try:
            return look(
                self._tree.home,
                book,
                (*(own or ()), *self._past),
                native=self._shop.native,
                redact=self._redactor.value,
            )
        finally:
            book.close()

    # ---- ratings

    def _on_result(self, event: Event) -> None:
        name = str(event.wire.get("toolName", ""))
        if name in self._shop.registry.entries and name not in self._rating_offered:
            # The book hears of this run right after whoever watches: the third one is counted then.
            self._loop.call_soon(self._offer_rating, name, event.worker_id)

    def _offer_rating(self, name: str, worker_id: str) -> None:
        if self._closed:  # the run was the session's last; its journal takes nothing any more
            return
        if name not in self._rating_offered and self._shop.book.offers_rating(name):
            self._rating_offered.add(name)
            message = f"rate it: /rate {name} good|bad [note]"
            self._tree.bus.emit("status", {"type": "info", "message": message}, worker_id)


class _OwnTurns:
    """This session's turns, from its journal as far as it is written. Used on one thread at a time."""

    def __init__(self, tree: SessionTree) -> None:
        self._id = tree.id
        self._path = tree.journal.path if tree.journal is not None else None
        self._tail: JournalTail | None = None
        self._turns: TurnReader | None = None
        self._last: object = None
        self.suggested_before: frozenset[str] = frozenset()
        """What the session had been told before it was resumed."""

    def read_on(self) -> tuple[Session, ...] | None:
        """The session as far as its turns are over; None: as before."""
        from golem_forge.custom.suggestions.kept import Session

        turns = self._more()
        segments = turns.answered() if turns is not None else ()
        last = (len(segments), segments[-1][-1].call) if segments else None
        if last == self._last:
            return None
        self._last = last
        return (Session(self._id, segments),)

    def _more(self) -> TurnReader | None:
        if self._path is None:
            return None
        from golem_forge.custom.suggestions.reading import JournalTail, TurnReader
        from golem_forge.custom.suggestions.suggestion import key_of_event

        first = self._turns is None
        self._tail, self._turns = self._tail or JournalTail(self._path), self._turns or TurnReader()
        with contextlib.suppress(OSError):
            for record in self._tail.records():
                self._turns.add(record)
        if first:
            self.suggested_before = frozenset(key_of_event(sequence) for sequence in self._turns.suggested)
        return self._turns


def suggesting_in(tree: SessionTree) -> Suggesting:
    return tree.parts.get(Suggesting, lambda: Suggesting(tree))
