"""The live part of the terminal: activity, the question, the input line; everything else scrolls above it.

A prompt_toolkit application in the normal screen: the screen, its layout from top to bottom, its key bindings, and the
two protocols that the adapter implements (`ScreenContent` to draw, `ScreenActions` to call). prompt_toolkit is imported
inside functions. Finished text is put above with `print_above`. The input line keeps its draft while a question has the
keyboard; keyboard.py decides when that is.
Esc and Ctrl+C are bound non-eagerly: Esc waits a moment for the rest of an Alt sequence. Threat: a question's keys
never come from a paste or out of a word; such text goes to the draft. Every key counts as typing, so a second press of
the key that answered one card does not answer the next one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

from golem_forge.ui.render.lines import one_line
from golem_forge.ui.terminal.keyboard import Keyboard
from golem_forge.ui.terminal.questions import AnswerStage, KeyMeaning
from golem_forge.ui.terminal.tty import StyledLine, ansi, toolkit_style

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.layout import Layout, Window

ESCAPE_S: Final = 0.05
"""How long the terminal may take to send the rest of a sequence that began with Esc."""
_SECOND_KEY_S: Final = 0.01
"""More for the second key of a binding, once that is over: Alt+Enter comes in one piece. Esc must not wait twice."""
_TICK_S: Final = 0.1
_RESIZE_DELAY_S: Final = 0.15


class Screen:
    def __init__(
        self,
        content: ScreenContent,
        actions: ScreenActions,
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

    def say(self, lines: Iterable[StyledLine]) -> None:
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
            self._resize_due = asyncio.get_running_loop().call_later(_RESIZE_DELAY_S, self.actions.resized)
        self._width = size.columns

    def _after_render(self) -> None:
        self._drawn.set()
        if not self._above:
            self.keyboard.was_drawn()


_MAX_INPUT_ROWS: Final = 8
_ROWS_BELOW: Final = 6
"""Kept free below what goes on."""


def screen_layout(screen: Screen) -> tuple[Layout, Window]:
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.layout import ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
    from prompt_toolkit.widgets import SearchToolbar

    content = screen.content
    search = SearchToolbar(backward_search_prompt="search: ", forward_search_prompt="search: ")
    draft, reply = _draft_window(screen, search), _reply_window(screen)
    question = FormattedTextControl(
        lambda: _fragments(screen, content.question_lines()),
        focusable=True,
        show_cursor=False,
        key_bindings=key_bindings(screen),
    )
    keys = Window(question, wrap_lines=True, dont_extend_height=True)

    def shown(lines: Callable[[], list[StyledLine]]) -> Any:
        control = FormattedTextControl(lambda: _fragments(screen, lines()))
        return ConditionalContainer(
            Window(control, wrap_lines=True, dont_extend_height=True), Condition(lambda: bool(lines()))
        )

    rows = [
        shown(lambda: _live_lines(screen)),
        ConditionalContainer(keys, Condition(lambda: content.stage is not AnswerStage.NOTHING)),
        ConditionalContainer(reply, Condition(lambda: content.stage is AnswerStage.LINE)),
        shown(content.queued_lines),
        draft,
        search,
        shown(lambda: _offer_lines(screen)),
        shown(content.foot_lines),
    ]
    return Layout(HSplit(rows), focused_element=draft), keys


def _draft_window(screen: Screen, search: Any) -> Window:
    from prompt_toolkit.layout import BufferControl, Dimension, Window

    return Window(
        BufferControl(
            screen.draft,
            search_buffer_control=search.control,
            key_bindings=input_bindings(screen),
            preview_search=True,
        ),
        wrap_lines=True,
        dont_extend_height=True,
        height=Dimension(min=1, max=_MAX_INPUT_ROWS),
        get_line_prefix=lambda line, wrapped: _line_prefix(screen, line, wrapped),
    )


def _reply_window(screen: Screen) -> Window:
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.layout import BufferControl, Dimension, Window
    from prompt_toolkit.layout.processors import ConditionalProcessor, PasswordProcessor

    unseen = ConditionalProcessor(PasswordProcessor("•"), Condition(lambda: screen.content.secret))
    return Window(
        BufferControl(screen.reply, input_processors=[unseen], key_bindings=answer_bindings(screen)),
        wrap_lines=True,
        dont_extend_height=True,
        height=Dimension(min=1, max=_MAX_INPUT_ROWS),
        style=lambda: "reverse" if screen.keyboard.fresh and screen.colour else "",
        get_line_prefix=lambda line, wrapped: [("", "? " if not (line or wrapped) else "  ")],
    )


def _live_lines(screen: Screen) -> list[StyledLine]:
    columns, rows = screen.size
    taken = _ROWS_BELOW + screen.draft.text.count("\n") + len(screen.content.question_lines())
    return screen.content.live_lines(columns, max(rows - taken, 2))


def _line_prefix(screen: Screen, line: int, wrapped: int) -> StyleAndTextTuples:
    prompt = screen.content.prompt
    return [("bold" if screen.colour else "", prompt)] if not (line or wrapped) else [("", " " * min(len(prompt), 4))]


def _offer_lines(screen: Screen) -> list[StyledLine]:
    if not screen.offers:
        return []
    shown: list[str] = []
    room, used = screen.width * 3 - 12, 0
    for offer in map(one_line, screen.offers):  # names of files, among others
        used += len(offer) + 2
        if used > room:
            shown.append(f"… {len(screen.offers) - len(shown)} more")
            break
        shown.append(offer)
    return [[("dim", "  ".join(shown))]]


def _fragments(screen: Screen, lines: Iterable[StyledLine]) -> StyleAndTextTuples:
    fragments: StyleAndTextTuples = []
    for number, line in enumerate(lines):
        if number:
            fragments.append(("", "\n"))
        fragments += [(toolkit_style(style) if screen.colour else "", text) for style, text in line]
    return fragments


def input_bindings(screen: Screen) -> KeyBindings:
    from prompt_toolkit.filters import Condition, is_searching
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys

    keys = KeyBindings()
    running = Condition(lambda: screen.content.running) & ~is_searching
    draft, actions = screen.draft, screen.actions

    @keys.add("enter", filter=~is_searching)
    def _(event: Any) -> None:
        screen.offers.clear()
        if screen.keyboard.held and not screen.keyboard.deliberate:  # it belongs to what was typed at the question
            if not screen.keyboard.came_alone:
                draft.insert_text("\n")
        elif actions.line(draft.text):
            draft.reset()

    @keys.add("escape", "enter")
    def _(event: Any) -> None:
        draft.insert_text("\n")

    @keys.add("escape", filter=running)
    def _(event: Any) -> None:
        actions.escape()

    @keys.add("c-c", filter=~is_searching)
    def _(event: Any) -> None:
        actions.control_c()

    @keys.add("c-d", filter=Condition(lambda: not draft.text))
    def _(event: Any) -> None:
        actions.end_of_input()

    @keys.add("tab", filter=~is_searching)
    def _(event: Any) -> None:
        _complete(screen)

    @keys.add("c-l", filter=Condition(lambda: screen.content.stage is not AnswerStage.NOTHING))
    def _(event: Any) -> None:
        actions.show_question()

    @keys.add(Keys.Any, filter=~is_searching)
    def _(event: Any) -> None:
        draft.insert_text(event.data * event.arg)

    return keys


def _complete(screen: Screen) -> None:
    draft = screen.draft
    before = draft.document.text_before_cursor
    start, words = screen.actions.complete(before)
    typed = before[start:]
    if not words:
        screen.offers.clear()
        return
    common = words[0]
    for word in words[1:]:
        length = min(len(common), len(word))
        same = next((at for at in range(length) if common[at].lower() != word[at].lower()), length)
        common = common[:same]
    if len(words) == 1 and not common.endswith(("/", "=", ":")):
        common += " "
    if len(common) > len(typed):
        draft.delete_before_cursor(len(typed))
        draft.insert_text(common)
    if len(words) > 1:
        screen.offers[:] = words


def answer_bindings(screen: Screen) -> KeyBindings:
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys

    keys = KeyBindings()
    reply, actions = screen.reply, screen.actions

    @keys.add("enter")
    def _(event: Any) -> None:
        actions.answer(reply.text)

    @keys.add("escape", "enter", filter=Condition(lambda: screen.content.multiline))
    def _(event: Any) -> None:
        reply.insert_text("\n")

    @keys.add("escape")
    def _(event: Any) -> None:
        actions.escape()

    @keys.add("c-c")
    def _(event: Any) -> None:
        actions.control_c()

    @keys.add("c-l")
    def _(event: Any) -> None:
        actions.show_question()

    @keys.add("c-d")
    @keys.add("c-r")
    @keys.add("c-s")
    @keys.add("tab")
    def _(event: Any) -> None:
        """Nothing: these belong to the input line."""

    @keys.add(Keys.Any)
    @keys.add(Keys.BracketedPaste)
    def _(event: Any) -> None:
        if screen.keyboard.fresh:
            reply.reset()
        reply.insert_text(event.data.replace("\r\n", "\n").replace("\r", "\n") * event.arg)

    return keys


def key_bindings(screen: Screen) -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys

    keys = KeyBindings()
    keyboard, actions = screen.keyboard, screen.actions

    def press(key: str, text: str = "") -> None:
        meaning = actions.meaning(key)
        if keyboard.pressed(meaning, text) or meaning is KeyMeaning.NONE:
            actions.key(key)

    @keys.add(Keys.Any)
    def _(event: Any) -> None:
        data = event.key_sequence[0].data
        plain = len(data) == 1 and data.isprintable()
        press(data if plain else "other", data if plain else "")

    @keys.add("enter")
    def _(event: Any) -> None:
        press("enter")

    @keys.add("tab")
    def _(event: Any) -> None:
        press("tab")

    @keys.add("escape")
    def _(event: Any) -> None:
        actions.escape()

    @keys.add("escape", Keys.Any)
    @keys.add("c-d")
    def _(event: Any) -> None:
        press("other")

    @keys.add("c-c")
    def _(event: Any) -> None:
        actions.control_c()

    @keys.add("c-l")
    def _(event: Any) -> None:
        if keyboard.pressed(KeyMeaning.COMMAND, ""):
            actions.show_question()

    @keys.add(Keys.CPRResponse)
    def _(event: Any) -> None:
        """The terminal's own words are no answer, and neither is what comes with them."""
        keyboard.pasted("")

    @keys.add(Keys.BracketedPaste)
    def _(event: Any) -> None:
        keyboard.pasted(event.data.replace("\r\n", "\n").replace("\r", "\n"))

    return keys


class ScreenActions(Protocol):
    """What the person did."""

    def line(self, text: str) -> bool: ...
    def meaning(self, key: str) -> KeyMeaning:
        """Whether a key would answer the question in front."""
        ...

    def key(self, key: str) -> None: ...
    def answer(self, text: str) -> None: ...
    def escape(self) -> None: ...
    def control_c(self) -> None: ...
    def end_of_input(self) -> None: ...
    def complete(self, before: str) -> tuple[int, list[str]]: ...
    def show_question(self) -> None:
        """Draws the question in front again, whole."""
        ...

    def resized(self) -> None: ...


class ScreenContent(Protocol):
    """What is to be seen."""

    @property
    def stage(self) -> AnswerStage: ...
    @property
    def running(self) -> bool: ...
    @property
    def moving(self) -> bool:
        """Whether something spins or counts."""
        ...

    @property
    def prompt(self) -> str: ...
    @property
    def secret(self) -> bool: ...
    @property
    def multiline(self) -> bool: ...
    def live_lines(self, width: int, rows: int) -> list[StyledLine]: ...
    def question_lines(self) -> list[StyledLine]: ...
    def queued_lines(self) -> list[StyledLine]: ...
    def foot_lines(self) -> list[StyledLine]: ...
