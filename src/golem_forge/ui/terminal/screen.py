"""The live part of the terminal: activity, the question, the input line; everything else scrolls above it.

A prompt_toolkit application in the normal screen: the screen, its layout from top to bottom, its key bindings. It draws
what the adapter says and calls it for what the person does. It is loaded with the adapter, for a terminal alone:
prompt_toolkit is heavy. Finished text is put above with `print_above`. The input line keeps its draft while a question
has the keyboard; keyboard.py decides when that is.
Esc and Ctrl+C are bound non-eagerly: Esc waits a moment for the rest of an Alt sequence. Threat: a question's keys
never come from a paste or out of a word; such text goes to the draft. Every key counts as typing, so a second press of
the key that answered one card does not answer the next one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.processors import ConditionalProcessor, PasswordProcessor
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.widgets import SearchToolbar

from golem_forge.core.regex import regex
from golem_forge.ui.render.lines import one_line, width_of
from golem_forge.ui.terminal.keyboard import Keyboard
from golem_forge.ui.terminal.questions import AnswerStage, KeyMeaning
from golem_forge.ui.terminal.tty import StyledLine, ansi, toolkit_style

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.layout.screen import Screen as DrawnScreen

    from golem_forge.ui.terminal.adapter import TerminalAdapter
    from golem_forge.ui.terminal.input_line import Menu

ESCAPE_S: Final = 0.05
"""Seconds that the terminal may take to send the rest of a sequence that began with Esc."""
_SECOND_KEY_S: Final = 0.01
"""Further seconds for the second key of a binding: Alt+Enter comes in one piece, and Esc must not wait twice."""
_TICK_S: Final = 0.1
_REFLOWS: Final = not os.environ.get("XTERM_VERSION") and not os.environ.get("TERM", "").startswith(("linux", "rxvt"))
"""Whether the terminal breaks the lines it shows anew when it becomes narrower."""
_COUNTS_CLEARED_ENDS: Final = "TMUX" in os.environ or os.environ.get("TERM", "").startswith(("tmux", "screen"))
"""Whether it then counts the end of a row that was cleared as part of it. tmux does."""
_RESIZE_DELAY_S: Final = 0.15


class Screen:
    def __init__(
        self,
        adapter: TerminalAdapter,
        *,
        input: TextIO,
        output: TextIO,
        colour: bool,
        history: Iterable[str],
        menu: Menu,
    ) -> None:

        self.adapter = adapter
        self.colour = colour
        self.offers: list[str] = []
        """What Tab found, shown until the next key."""
        self.menu = menu
        self.draft = Buffer(history=InMemoryHistory(list(history)), multiline=True)
        self.reply = Buffer(multiline=True)
        self._pasted: dict[str, str] = {}
        """What stands in the draft for a long pasted text → that text."""
        self.keyboard = Keyboard(draft=self.draft, reply=self.reply, stage=lambda: adapter.stage)
        self.printed = 0
        """How often something was put above."""
        self._drawn = asyncio.Event()
        self._above: list[tuple[str, str]] = []
        self._tail = PrintedTail()
        self._width = 0
        self._drawn_size = (0, 0)
        self._resize_due: asyncio.TimerHandle | None = None
        self._height = 0
        self._used: list[int] = []
        """How wide each row of the live part was at most, since it was last cleared as a whole."""
        self._tasks: list[asyncio.Task[Any]] = []
        self._output = Vt100_Output.from_pty(output, term=os.environ.get("TERM"))
        self._output.enable_cpr = False  # asking where the cursor is costs time, and some terminals never answer
        layout, self.keyboard.keys = screen_layout(self)
        self.app: Application[None] = Application(
            layout=layout,
            input=create_input(input),
            output=self._output,
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
            key_bindings=leaving_bindings(self),
            erase_when_done=True,
            enable_page_navigation_bindings=False,
            mouse_support=False,
            terminal_size_polling_interval=None,  # it misses a change in its first half second: see _tick
        )
        self.keyboard.app = self.app
        self.keyboard.whole_draft = lambda: self.whole_draft
        self.app._on_resize = self._resized  # type: ignore[method-assign]
        self.app.key_processor.before_key_press += lambda _: self._key_came()
        self.app.ttimeoutlen = ESCAPE_S
        self.app.timeoutlen = _SECOND_KEY_S
        self.app.before_render += lambda _: self._before_render()
        self.app.after_render += lambda _: self._after_render()
        self.draft.on_text_changed += lambda _: self._draft_changed()
        self.draft.on_cursor_position_changed += lambda _: self._draft_changed()
        self.draft.on_text_insert += lambda _: self.menu.typed(self.draft.document.text_before_cursor)

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
            self.adapter.request_exit()

    async def _tick(self) -> None:
        """Draws what moves, and everything anew where the size changed and no signal said so."""
        moved = False
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                if self.app.is_running and self._drawn_size != self.size:
                    self._resized()
            except OSError:  # the terminal is gone
                self.adapter.request_exit()
                return
            moves = self.adapter.moving
            if moves or moved:  # once more after the last movement: what is over disappears
                self.app.invalidate()
            moved = moves

    def _key_came(self) -> None:
        self.keyboard.key_came()
        self.adapter.key_came()

    # ---- the input line

    @property
    def whole_draft(self) -> str:
        """The draft with the pasted texts in their places."""
        text = self.draft.text
        for mark, pasted in self._pasted.items():
            text = text.replace(mark, pasted, 1)
        return text

    def paste(self, text: str) -> None:
        """A long text stands in the line as one mark, and is sent whole."""
        if len(text) > _MAX_PASTED or text.count("\n") >= _MAX_INPUT_ROWS:
            mark = base = f"[pasted {len(text):,} characters]"
            while self._pasted.get(mark, text) != text or mark in self.draft.text:
                mark = f"{base[:-1]}, {len(self._pasted) + 1}]"
            self._pasted[mark] = text
            text = mark
        self.draft.insert_text(text)

    def clear_draft(self) -> None:
        self.draft.reset()
        self.clear_marks()

    def clear_marks(self) -> None:
        """Clears pasted texts, offers and the menu of a draft that is gone."""
        self._pasted.clear()
        self.offers.clear()
        self.menu.close()

    def _draft_changed(self) -> None:
        """A menu opens when something is typed, not when a line of the history comes back."""
        self.offers.clear()
        if self.menu.is_open:
            self.menu.typed(self.draft.document.text_before_cursor)

    @property
    def menu_shown(self) -> bool:
        return self.menu.is_open and self.app.layout.has_focus(self.draft)

    def take_from_menu(self) -> None:
        replaced, text = self.menu.taken()
        self.draft.delete_before_cursor(replaced)
        self.draft.insert_text(text)
        self.menu.close()

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

    def draw_now(self) -> None:
        """Draws before it returns, for output ahead of long work on this thread."""
        self._flush_above()
        self.app._redraw()

    def say(self, lines: Iterable[StyledLine], key: str = "") -> None:
        """`key`: what it is about, so that it can be folded."""
        self.print_above(ansi(lines, colour=self.colour), key)

    def fold(self, key: str, lines: Iterable[StyledLine]) -> None:
        """These lines in the place of all that was said about `key`, where that is still on the screen; else below. A
        question that was the last thing there stays so."""
        self._flush_above()
        text = ansi(lines, colour=self.colour)
        rows = self._tail.rows_to_fold(key, self.size)
        if not rows:
            self.print_above(text, key)
            return
        again = self._tail.cut(key)
        if self.app.is_running:
            self.app.renderer.erase()
        # Row by row: tmux takes "erase from the upper left corner" for "clear the screen", and keeps what stood in
        # that place in its history, where it is read twice.
        self._output.write_raw(f"\x1b[{rows}A\r" + "\x1b[2K\x1b[B" * rows + f"\x1b[{rows}A")
        self._above = [(text, key), *again]
        self._flush_above()

    def can_fold(self, key: str) -> bool:
        self._flush_above()
        return self._tail.rows_to_fold(key, self.size) > 0

    def clear_screen(self) -> None:
        self.app.renderer.clear()
        self._tail.forget()

    def print_above(self, text: str, key: str = "") -> None:
        """Finished text; what is said in one go is written in one go."""
        if not text:
            return
        self.printed += 1
        self._above.append((text, key))
        if len(self._above) == 1:
            try:
                asyncio.get_running_loop().call_soon(self._flush_above)
            except RuntimeError:  # no loop runs here
                self._flush_above()

    def print_picture(self, sequence: str) -> None:
        """A picture, for a terminal that shows them. What stands above it is no longer folded: how many rows the
        picture takes is known to the terminal alone."""
        self._flush_above()
        if self.app.is_running:
            self.app.renderer.erase()
        self._output.write_raw(sequence.replace("\n", "\r\n"))
        self._output.flush()
        self._tail.forget()
        if self.app.is_running:
            self.app.invalidate()

    def _flush_above(self) -> None:
        pieces, self._above = self._above, []
        text = "".join(piece for piece, _ in pieces)
        if not text:
            return
        for piece, key in pieces:
            self._tail.add(piece, key, self.size)
        if self.app.is_running:
            self.app.renderer.erase()
        self._output.write_raw(text.replace("\n", "\r\n"))
        self._output.flush()
        if self.app.is_running:
            self.app.invalidate()

    def _before_render(self) -> None:
        """The renderer never gives rows back by itself, and it does not say that the width changed."""
        size = self._output.get_size()
        self._drawn_size = size.columns, size.rows
        if self.app.renderer._last_screen is None:
            self._used = []
        height = self.app.layout.container.preferred_height(size.columns, size.rows).preferred
        if height < self._height:
            self.app.renderer.erase()
        self._height = height
        self._tail.drawn(size.rows - height)
        if self._width and size.columns != self._width:
            self._erase_reflowed()
            if self._resize_due is not None:
                self._resize_due.cancel()
            self._resize_due = asyncio.get_running_loop().call_later(_RESIZE_DELAY_S, self.adapter.show_question)
            self._tail.forget()
        self._width = size.columns

    def _resized(self) -> None:
        self._erase_reflowed()
        self.app.renderer.erase(leave_alternate_screen=False)
        self.app._redraw()

    def _erase_reflowed(self) -> None:
        """Takes the live part away where the window became narrower: most terminals break its rows anew, so it begins
        further up than the renderer thinks."""
        renderer, columns = self.app.renderer, self.width
        drawn, cursor = renderer._last_screen, renderer._cursor_pos
        if drawn is None or not self._width or columns >= self._width or not _REFLOWS:
            return
        widths = _row_widths(drawn)[: cursor.y]
        further = sum(-(-max(width, 1) // columns) - 1 for width in widths) + cursor.x // columns
        # Row by row: a terminal may keep what is cleared from the first row on as if it had been scrolled away.
        self._output.write_raw("\r\x1b[J" + "\x1b[A\x1b[2K" * (cursor.y + further))
        self._output.flush()
        renderer.reset(leave_alternate_screen=False)

    def _clear_rests(self) -> bool:
        """Draws the live part anew where a row above the cursor became shorter. True: it did. A terminal that counts
        the cleared end would later break a row in two that `_erase_reflowed` takes for one."""
        renderer = self.app.renderer
        if renderer._last_screen is None or not _COUNTS_CLEARED_ENDS:
            return False
        widths = _row_widths(renderer._last_screen)
        self._used = [max(pair) for pair in zip_longest(widths, self._used, fillvalue=0)]
        above = slice(renderer._cursor_pos.y)
        if widths[above] == self._used[above]:
            return False
        renderer.erase(leave_alternate_screen=False)
        self.app._redraw()
        return True

    def _after_render(self) -> None:
        self._drawn.set()
        if self._clear_rests():
            return
        if not self._above:
            self.keyboard.was_drawn()


def _row_widths(drawn: DrawnScreen) -> list[int]:
    """Columns of each row up to its last character that is seen."""
    rows = (drawn.data_buffer[row] for row in range(drawn.height))
    return [max((at for at, cell in row.items() if cell.char.strip()), default=-1) + 1 for row in rows]


_ESCAPES: Final = regex(r"\x1b\[[0-9;]*m")
_TOO_MANY: Final = 10_000


class PrintedTail:
    """Tracks the last printed blocks, and how many of their rows are certainly still visible above the live part.

    The terminal does not say where the cursor is. So this counts what is certain: each row printed pushes the live part
    down, and it can never be lower than its height leaves room for.
    """

    def __init__(self) -> None:
        self._blocks: list[tuple[str, str, int]] = []
        """(text, key, rows)."""
        self._certain = 0
        self._size = (0, 0)

    def forget(self) -> None:
        """The screen was cleared, or its width changed and the terminal broke its lines anew."""
        self._blocks, self._certain = [], 0

    def drawn(self, room: int) -> None:
        """The live part was drawn, with so many rows above it at most."""
        self._certain = min(self._certain, max(room, 0))

    def add(self, text: str, key: str, size: tuple[int, int]) -> None:
        columns, rows = self._size = size
        lines = text.removesuffix("\n").split("\n")
        taken = sum(_rows_taken(line, columns) for line in lines)
        if not text.endswith("\n"):
            taken = _TOO_MANY  # the next piece goes on in the same row
        self._blocks.append((text, key, taken))
        self._certain = min(self._certain + (taken if taken < _TOO_MANY else len(lines) - 1), rows - 1)
        while len(self._blocks) > 1 and sum(block[2] for block in self._blocks[1:]) >= rows:
            del self._blocks[0]

    def rows_to_fold(self, key: str, size: tuple[int, int]) -> int:
        """The rows from the first block about `key` to the end; 0: there is none, or it is not all on the screen."""
        first = self._first(key)
        rows = 0 if first is None else sum(block[2] for block in self._blocks[first:])
        return rows if rows <= self._certain and size == self._size else 0

    def cut(self, key: str) -> list[tuple[str, str]]:
        """Takes the blocks from there on out; gives those about something else, to be printed again."""
        first = self._first(key)
        cut, self._blocks = self._blocks[first:], self._blocks[:first]
        self._certain -= sum(block[2] for block in cut)
        return [(text, about) for text, about, _ in cut if about != key]

    def _first(self, key: str) -> int | None:
        return next((at for at, block in enumerate(self._blocks) if block[1] == key), None)


def _rows_taken(line: str, columns: int) -> int:
    """Returns how many rows of the terminal a printed line takes; too many if a wide character may wrap, since the
    number is then unknown.
    """
    plain = _ESCAPES.sub("", line)
    if plain.isascii() and plain.isprintable():
        return max(-(-len(plain) // max(columns, 1)), 1)
    return 1 if width_of(plain) <= columns and "\t" not in plain and "\r" not in plain else _TOO_MANY


_MAX_INPUT_ROWS: Final = 8
_MAX_PASTED: Final = 800
"""A longer text would hide the line it is pasted into."""
_ROWS_BELOW: Final = 6
"""Rows kept free below the running output."""


def screen_layout(screen: Screen) -> tuple[Layout, Window]:

    adapter = screen.adapter
    search = SearchToolbar(backward_search_prompt="search: ", forward_search_prompt="search: ")
    draft, reply = _input_windows(screen, search)
    question = FormattedTextControl(
        lambda: _fragments(screen, adapter.question_lines()),
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
        ConditionalContainer(keys, Condition(lambda: adapter.stage is not AnswerStage.NOTHING)),
        ConditionalContainer(reply, Condition(lambda: adapter.stage is AnswerStage.LINE)),
        shown(adapter.queued_lines),
        draft,
        search,
        shown(lambda: screen.menu.lines(screen.width, screen.size[1] // 3) if screen.menu_shown else []),
        shown(lambda: _offer_lines(screen)),
        shown(adapter.foot_lines),
    ]
    return Layout(HSplit(rows), focused_element=draft), keys


def _input_windows(screen: Screen, search: Any) -> tuple[Window, Window]:
    """Returns the windows for the draft and for a reply."""

    def prefix(line: int, wrapped: int) -> StyleAndTextTuples:
        prompt = screen.adapter.prompt
        if line or wrapped:
            return [("", " " * min(len(prompt), 4))]
        return [("bold" if screen.colour else "", prompt)]

    draft = BufferControl(
        screen.draft, search_buffer_control=search.control, key_bindings=input_bindings(screen), preview_search=True
    )
    hidden = ConditionalProcessor(PasswordProcessor("•"), Condition(lambda: screen.adapter.secret))
    reply = BufferControl(screen.reply, input_processors=[hidden], key_bindings=answer_bindings(screen))
    shape: dict[str, Any] = {
        "wrap_lines": True,
        "dont_extend_height": True,
        "height": Dimension(min=1, max=_MAX_INPUT_ROWS),
    }
    return (
        Window(draft, get_line_prefix=prefix, **shape),
        Window(
            reply,
            style=lambda: "reverse" if screen.keyboard.fresh and screen.colour else "",
            get_line_prefix=lambda line, wrapped: [("", "  " if line or wrapped else "? ")],
            **shape,
        ),
    )


def _live_lines(screen: Screen) -> list[StyledLine]:
    columns, rows = screen.size
    taken = _ROWS_BELOW + screen.draft.text.count("\n") + len(screen.adapter.question_lines())
    return screen.adapter.live_lines(columns, max(rows - taken, 2))


def _offer_lines(screen: Screen) -> list[StyledLine]:
    shown: list[str] = []
    room, used = screen.width * 3 - 12, 0
    for offer in map(one_line, screen.offers):  # names of files, among others
        used += len(offer) + 2
        if used > room:
            shown.append(f"… {len(screen.offers) - len(shown)} more")
            break
        shown.append(offer)
    return [[("dim", "  ".join(shown))]] if shown else []


def _fragments(screen: Screen, lines: Iterable[StyledLine]) -> StyleAndTextTuples:
    fragments: StyleAndTextTuples = []
    for number, line in enumerate(lines):
        if number:
            fragments.append(("", "\n"))
        fragments += [(toolkit_style(style) if screen.colour else "", text) for style, text in line]
    return fragments


def input_bindings(screen: Screen) -> KeyBindings:

    keys = KeyBindings()
    draft, adapter = screen.draft, screen.adapter
    running = Condition(lambda: adapter.running) & ~is_searching
    asked = Condition(lambda: adapter.stage is not AnswerStage.NOTHING)
    menu = Condition(lambda: screen.menu_shown) & ~is_searching

    @keys.add("enter", filter=~is_searching)
    def _(event: Any) -> None:
        screen.offers.clear()
        if screen.keyboard.writing and not draft.text.strip():
            screen.keyboard.line_left()
        elif screen.menu.offers and not screen.menu.is_complete:
            screen.take_from_menu()
        elif screen.keyboard.held and not screen.keyboard.deliberate:  # it belongs to what was typed at the question
            if not screen.keyboard.came_alone:
                draft.insert_text("\n")
        elif adapter.line(screen.whole_draft):
            screen.clear_draft()
            screen.keyboard.line_left()

    keys.add("escape", "enter")(lambda _: draft.insert_text("\n"))
    for key, step in (("up", -1), ("c-p", -1), ("down", 1), ("c-n", 1)):
        keys.add(key, filter=menu)(lambda _, step=step: screen.menu.move(step))
    keys.add("escape", filter=menu & ~running)(lambda _: screen.menu.close())
    keys.add("escape", filter=running)(lambda _: adapter.escape())
    keys.add("c-c", filter=~is_searching)(lambda _: adapter.control_c())
    keys.add("c-d", filter=Condition(lambda: not draft.text))(lambda _: adapter.request_exit())
    keys.add("tab", filter=~is_searching)(lambda _: _complete(screen))
    keys.add("c-l", filter=asked)(lambda _: adapter.show_question())
    keys.add("c-l", filter=~asked)(lambda _: screen.clear_screen())
    keys.add("c-u", filter=~is_searching)(lambda event: _clear_whole(screen, event.app.clipboard))
    keys.add(Keys.BracketedPaste, filter=~is_searching)(lambda event: screen.paste(_line_ends(event.data)))
    keys.add("s-tab", filter=asked)(lambda _: screen.keyboard.line_left())
    keys.add("s-tab", filter=~asked & ~is_searching)(lambda _: adapter.next_mode())
    keys.add("c-o")(lambda _: adapter.show_folded())
    keys.add(Keys.Any, filter=~is_searching)(lambda event: draft.insert_text(event.data * event.arg))
    return keys


def _clear_whole(screen: Screen, clipboard: Any) -> None:
    """Every line of the draft, wherever the cursor is: a question waits for that. Ctrl+Y brings it back."""
    if screen.draft.text:
        clipboard.set_text(screen.whole_draft)
        screen.draft.text = ""  # the history stays at hand
    screen.clear_marks()


def _complete(screen: Screen) -> None:
    """Extends the word as far as all that fit agree; Tab again, or after an arrow key, takes what the menu has."""
    draft = screen.draft
    if screen.menu.moved or (screen.menu.offers and screen.offers):
        screen.take_from_menu()
        return
    before = draft.document.text_before_cursor
    start, words = screen.adapter.complete(before)
    typed = before[start:]
    if not words:
        screen.offers.clear()
        if screen.menu.offers:
            screen.take_from_menu()
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


def leaving_bindings(screen: Screen) -> KeyBindings:
    """Ctrl+] at any time, where the session goes on without this terminal."""

    keys = KeyBindings()
    attached = Condition(lambda: screen.adapter.is_attached)
    keys.add("c-]", filter=attached, eager=True)(lambda _: screen.adapter.request_exit())
    return keys


def answer_bindings(screen: Screen) -> KeyBindings:

    keys = KeyBindings()
    reply, adapter = screen.reply, screen.adapter

    keys.add("enter")(lambda _: adapter.answer(reply.text))
    multiline = Condition(lambda: adapter.multiline)
    keys.add("escape", "enter", filter=multiline)(lambda _: reply.insert_text("\n"))
    keys.add("escape")(lambda _: adapter.escape())
    keys.add("c-c")(lambda _: adapter.control_c())
    keys.add("c-l")(lambda _: adapter.show_question())
    for key in ("tab", "c-s", "c-r", "c-d"):  # these belong to the input line
        keys.add(key)(lambda _: None)

    @keys.add(Keys.Any)
    @keys.add(Keys.BracketedPaste)
    def _(event: Any) -> None:
        if screen.keyboard.fresh:
            reply.reset()
        reply.insert_text(_line_ends(event.data) * event.arg)

    return keys


def key_bindings(screen: Screen) -> KeyBindings:

    keys = KeyBindings()
    keyboard, adapter = screen.keyboard, screen.adapter

    def press(key: str, text: str = "") -> None:
        meaning = adapter.meaning(key)
        if keyboard.pressed(meaning, text) or meaning is KeyMeaning.NONE:
            adapter.key(key)

    @keys.add(Keys.Any)
    def _(event: Any) -> None:
        data = event.key_sequence[0].data
        plain = len(data) == 1 and data.isprintable()
        press(data if plain else "other", data if plain else "")

    keys.add("enter")(lambda _: press("enter"))
    keys.add("tab")(lambda _: press("tab"))
    keys.add("escape")(lambda _: adapter.escape())
    keys.add("c-d")(lambda _: press("other"))
    keys.add("escape", Keys.Any)(lambda _: press("other"))
    keys.add("c-c")(lambda _: adapter.control_c())

    @keys.add("c-l")
    def _(event: Any) -> None:
        if keyboard.pressed(KeyMeaning.COMMAND, ""):
            adapter.show_question()

    @keys.add("s-tab")
    def _(event: Any) -> None:
        if keyboard.pressed(KeyMeaning.COMMAND, ""):
            keyboard.to_the_line()

    @keys.add("c-o")
    def _(event: Any) -> None:
        if keyboard.pressed(KeyMeaning.COMMAND, ""):
            adapter.show_folded()

    # What the terminal itself reports is no answer, and neither is what comes with it.
    keys.add(Keys.CPRResponse)(lambda _: keyboard.pasted(""))
    keys.add(Keys.BracketedPaste)(lambda event: keyboard.pasted(_line_ends(event.data)))
    return keys


def _line_ends(pasted: str) -> str:
    return pasted.replace("\r\n", "\n").replace("\r", "\n")
