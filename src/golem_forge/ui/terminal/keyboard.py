"""Who has the keyboard: the input line, a reply, or a question that one key answers.

Threat: a key that was on its way before a card was drawn, a paste, or a burst of keys (a paste from a terminal that
does not mark them) must not answer it. So a question gets the keyboard only once it is on the screen and nobody is
typing, what was typed till then goes to the draft, and keys that come together count as none. Only a form that the
person asked for has it at once.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from golem_forge.ui.terminal.answering import Stage

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.buffer import Buffer

_TYPING_S: Final = 0.5
"""Who pressed a key so short ago is writing a line and has not yet seen the card."""
_TOGETHER_S: Final = 0.01


class Keyboard:
    def __init__(self, *, draft: Buffer, reply: Buffer, stage: Callable[[], Stage]) -> None:
        self.app: Application[None]
        self.keys: Any
        """The window that takes single keys. Both are set when the layout is made."""
        self.start: Callable[[], str] = lambda: ""
        """What stands in the line of the question in front."""
        self.draw_again: Callable[[], bool] = lambda: False
        """Draws the question anew if something was printed below it; True: it did."""
        self.fresh = False
        """The reply is still what stood there to begin with: typing replaces it, moving in it keeps it."""
        self._draft = draft
        self._reply = reply
        self._stage = stage
        self._armed = False
        self._due: asyncio.TimerHandle | None = None
        self._drawn_again = False
        self._typed_at = 0.0
        self._key_at = 0.0
        reply.on_text_changed += lambda _: self._touched()
        reply.on_cursor_position_changed += lambda _: self._touched()

    @property
    def asking(self) -> bool:
        """Whether a question has the keyboard."""
        return self._armed

    # ---- questions come and go

    def question_changed(self) -> None:
        """Another question is in front, or none: the keyboard is the draft's until the new one is on the screen."""
        self.stop()
        self._drawn_again = False
        self._reply.reset()  # what was typed for the last question, maybe a secret, is not to be seen at the next
        if self._armed:
            self._armed = False
            self.app.layout.focus(self._draft)
        self.app.invalidate()

    def question_wanted(self) -> None:
        """The person asked for the form in front. A single key that sends it still waits as every other does."""
        self.question_changed()
        if self._stage() is Stage.LINE:
            self._armed = True
            self._take(self.start())

    def take_what_was_typed(self) -> None:
        """The draft was meant for the line of the question in front."""
        ahead = self._draft.text
        if ahead and self._armed:
            self._draft.reset()
            self._reply.text = ahead
            self._reply.cursor_position = len(ahead)

    def stage_changed(self) -> None:
        """The same question goes on with another key or line."""
        if self._armed:
            self._take(self.start())
        self.app.invalidate()

    def was_drawn(self) -> None:
        """The screen shows what there is now."""
        if self._due is None and not self._armed and self._stage() is not Stage.NOTHING:
            self._arm_when_quiet()

    def stop(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _arm_when_quiet(self) -> None:
        self._due = None
        wait = self._typed_at + _TYPING_S - time.monotonic()
        if wait > 0:
            self._due = asyncio.get_running_loop().call_later(wait, self._arm_when_quiet)
            return
        if self._stage() is Stage.NOTHING:
            return
        typed_at = self._typed_at
        self._drain()
        if self._typed_at != typed_at:
            self._arm_when_quiet()
            return
        if not self._drawn_again and self.draw_again():
            self._drawn_again = True  # once: a flood of output must not keep the question from being asked
            return
        self._armed = True
        self._take(self.start())
        self.app.invalidate()

    def _take(self, start: str) -> None:
        from prompt_toolkit.document import Document

        if self._stage() is Stage.LINE:
            self._reply.reset(Document(start, len(start)))
            self.fresh = bool(start)
            self.app.layout.focus(self._reply)
        elif self._stage() is Stage.KEY:
            self._reply.reset()
            self.app.layout.focus(self.keys)

    def _drain(self) -> None:
        """What lies in the terminal's own buffer was typed before: it belongs to the draft."""
        app = self.app
        if not app.is_running or app.context is None:
            return

        def feed() -> None:
            app.key_processor.feed_multiple(app.input.read_keys())
            app.key_processor.process_keys()

        if select.select([app.input.fileno()], [], [], 0)[0]:
            app.context.copy().run(feed)
            self._typed_at = time.monotonic()

    # ---- keys

    def typed(self) -> None:
        self._typed_at = time.monotonic()

    def lone_key(self) -> bool:
        """Whether the key at hand came alone."""
        now = time.monotonic()
        together = now - self._key_at < _TOGETHER_S or bool(self.app.key_processor.input_queue)
        self._key_at = now
        return not together

    def _touched(self) -> None:
        self.fresh = False
