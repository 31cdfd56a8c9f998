"""The rows of the live part, from top to bottom: what goes on, the question, its reply, what is queued, the input line.

`screen_layout` takes the screen and gives prompt_toolkit's layout with the input line focused, and the window that
takes the single keys of a question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from golem_forge.ui.rendering.lines import one_line
from golem_forge.ui.terminal.answering import Stage
from golem_forge.ui.terminal.bindings import answer_bindings, input_bindings, key_bindings
from golem_forge.ui.terminal.palette import Line, toolkit_style

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.layout import Layout, Window

    from golem_forge.ui.terminal.screen import Screen

_MOST_INPUT_ROWS: Final = 8
_ROWS_BELOW: Final = 6
"""Kept free below what goes on."""


def screen_layout(screen: Screen) -> tuple[Layout, Window]:
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.layout import ConditionalContainer, FormattedTextControl, HSplit, Layout, Window
    from prompt_toolkit.widgets import SearchToolbar

    content = screen.content
    search = SearchToolbar(backward_search_prompt="search: ", forward_search_prompt="search: ")
    draft, reply = _draft(screen, search), _reply(screen)
    question = FormattedTextControl(
        lambda: _fragments(screen, content.question_lines()),
        focusable=True,
        show_cursor=False,
        key_bindings=key_bindings(screen),
    )
    keys = Window(question, wrap_lines=True, dont_extend_height=True)

    def shown(lines: Callable[[], list[Line]]) -> Any:
        control = FormattedTextControl(lambda: _fragments(screen, lines()))
        return ConditionalContainer(
            Window(control, wrap_lines=True, dont_extend_height=True), Condition(lambda: bool(lines()))
        )

    rows = [
        shown(lambda: _live(screen)),
        ConditionalContainer(keys, Condition(lambda: content.stage is not Stage.NOTHING)),
        ConditionalContainer(reply, Condition(lambda: content.stage is Stage.LINE)),
        shown(content.queued_lines),
        draft,
        search,
        shown(lambda: _offers(screen)),
        shown(content.foot_lines),
    ]
    return Layout(HSplit(rows), focused_element=draft), keys


def _draft(screen: Screen, search: Any) -> Window:
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
        height=Dimension(min=1, max=_MOST_INPUT_ROWS),
        get_line_prefix=lambda line, wrapped: _prefix(screen, line, wrapped),
    )


def _reply(screen: Screen) -> Window:
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.layout import BufferControl, Dimension, Window
    from prompt_toolkit.layout.processors import ConditionalProcessor, PasswordProcessor

    unseen = ConditionalProcessor(PasswordProcessor("•"), Condition(lambda: screen.content.secret))
    return Window(
        BufferControl(screen.reply, input_processors=[unseen], key_bindings=answer_bindings(screen)),
        wrap_lines=True,
        dont_extend_height=True,
        height=Dimension(min=1, max=_MOST_INPUT_ROWS),
        style=lambda: "reverse" if screen.keyboard.fresh and screen.colour else "",
        get_line_prefix=lambda line, wrapped: [("", "? " if not (line or wrapped) else "  ")],
    )


def _live(screen: Screen) -> list[Line]:
    columns, rows = screen.size
    taken = _ROWS_BELOW + screen.draft.text.count("\n") + len(screen.content.question_lines())
    return screen.content.live_lines(columns, max(rows - taken, 2))


def _prefix(screen: Screen, line: int, wrapped: int) -> StyleAndTextTuples:
    prompt = screen.content.prompt
    return [("bold" if screen.colour else "", prompt)] if not (line or wrapped) else [("", " " * min(len(prompt), 4))]


def _offers(screen: Screen) -> list[Line]:
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


def _fragments(screen: Screen, lines: Iterable[Line]) -> StyleAndTextTuples:
    fragments: StyleAndTextTuples = []
    for number, line in enumerate(lines):
        if number:
            fragments.append(("", "\n"))
        fragments += [(toolkit_style(style) if screen.colour else "", text) for style, text in line]
    return fragments
