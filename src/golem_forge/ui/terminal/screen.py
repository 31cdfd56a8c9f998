"""The live part of the terminal: what goes on, the question, the input line; everything else scrolls above it.

A prompt_toolkit application in the normal screen. It calls `Actions`, draws what `Content` gives (layout.py), and puts
finished text above itself with `print_above`. The input line keeps its draft while a question has the keyboard, and
keyboard.py decides when that is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TextIO

from golem_forge.ui.terminal.keyboard import Keyboard
from golem_forge.ui.terminal.layout import screen_layout
from golem_forge.ui.terminal.palette import Line, ansi
from golem_forge.ui.terminal.roles import Actions, Content

if TYPE_CHECKING:
    from prompt_toolkit.application import Application

ESCAPE_S: Final = 0.05
"""How long the terminal may take to send the rest of a sequence that began with Esc."""
_SECOND_KEY_S: Final = 0.01
"""More for the second key of a binding, once that is over: Alt+Enter comes in one piece. Esc must not wait twice."""
_TICK_S: Final = 0.1
_SETTLED_S: Final = 0.15


class Screen:
    def __init__(
        self,
        content: Content,
        actions: Actions,
        *,
        input: TextIO,
        output: TextIO,
        colour: bool,
        remembered: Iterable[str],
    ) -> None:
        from prompt_toolkit.application import Application
        from prompt_toolkit.buffer import Buffer
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.input import create_input
        from prompt_toolkit.output.color_depth import ColorDepth
        from prompt_toolkit.output.vt100 import Vt100_Output

        self.content = content
        self.actions = actions
        self.colour = colour
        self.offers: list[str] = []
        """What Tab found, shown until the next key."""
        self.draft = Buffer(history=InMemoryHistory(list(remembered)), multiline=True)
        self.reply = Buffer(multiline=True)
        self.keyboard = Keyboard(draft=self.draft, reply=self.reply, stage=lambda: content.stage)
        self.printed = 0
        """How often something was put above."""
        self._drawn = asyncio.Event()
        self._above: list[str] = []
        self._width = 0
        self._resize_due: asyncio.TimerHandle | None = None
        self._height = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._output = Vt100_Output.from_pty(output, term=os.environ.get("TERM"))
        self._output.enable_cpr = False  # asking where the cursor is costs time, and some terminals never answer
        layout, self.keyboard.keys = screen_layout(self)
        self.app: Application[None] = Application(
            layout=layout,
            input=create_input(input),
            output=self._output,
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
            erase_when_done=True,
            enable_page_navigation_bindings=False,
            mouse_support=False,
        )
        self.keyboard.app = self.app
        self.app.key_processor.before_key_press += lambda _: self.keyboard.key_came()
        self.app.ttimeoutlen = ESCAPE_S
        self.app.timeoutlen = _SECOND_KEY_S
        self.app.before_render += lambda _: self._before_render()
        self.app.after_render += lambda _: self._after_render()
        self.draft.on_text_changed += lambda _: self.offers.clear()

    # ---- life

    async def start(self) -> None:
        """Returns once the input line is on the screen."""
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._tick())]
        drawn = asyncio.create_task(self._drawn.wait())
        await asyncio.wait({drawn, self._tasks[0]}, return_when=asyncio.FIRST_COMPLETED)
        drawn.cancel()

    async def stop(self) -> None:
        self._flush_above()
        if self.app.is_running:
            self.app.exit()
        self.keyboard.stop()
        if self._resize_due is not None:
            self._resize_due.cancel()
        if self._tasks:
            self._tasks[1].cancel()
            await asyncio.wait(self._tasks, timeout=2)

    async def _run(self) -> None:
        try:
            await self.app.run_async(handle_sigint=False, set_exception_handler=False)
        except (EOFError, OSError):  # the terminal is gone
            self.actions.end_of_input()

    async def _tick(self) -> None:
        moved = False
        while True:
            await asyncio.sleep(_TICK_S)
            moves = self.content.moving
            if moves or moved:  # once more after the last movement: what is over disappears
                self.app.invalidate()
            moved = moves

    # ---- drawing

    @property
    def size(self) -> tuple[int, int]:
        """(columns, rows)."""
        size = self._output.get_size()
        return size.columns, size.rows

    @property
    def width(self) -> int:
        return self.size[0]

    def redraw(self) -> None:
        self.app.invalidate()

    def say(self, lines: Iterable[Line]) -> None:
        self.print_above(ansi(lines, colour=self.colour))

    def print_above(self, text: str) -> None:
        """Finished text; what is said in one go is written in one go."""
        if not text:
            return
        self.printed += 1
        if not self._above:
            try:
                asyncio.get_running_loop().call_soon(self._flush_above)
            except RuntimeError:
                self._above.append(text)
                self._flush_above()
                return
        self._above.append(text)

    def _flush_above(self) -> None:
        text, self._above = "".join(self._above), []
        if not text:
            return
        if self.app.is_running:
            self.app.renderer.erase()
        self._output.write_raw(text.replace("\n", "\r\n"))
        self._output.flush()
        if self.app.is_running:
            self.app.invalidate()

    def _before_render(self) -> None:
        """The renderer never gives rows back by itself, and it does not say that the width changed."""
        size = self._output.get_size()
        height = self.app.layout.container.preferred_height(size.columns, size.rows).preferred
        if height < self._height:
            self.app.renderer.erase()
        self._height = height
        if self._width and size.columns != self._width:
            if self._resize_due is not None:
                self._resize_due.cancel()
            self._resize_due = asyncio.get_running_loop().call_later(_SETTLED_S, self.actions.resized)
        self._width = size.columns

    def _after_render(self) -> None:
        self._drawn.set()
        if not self._above:
            self.keyboard.was_drawn()
