"""Which key does what: in the input line, in a reply, and at a question that one key answers.

Esc and Ctrl+C are bound non-eagerly: Esc waits a moment for the rest of an Alt sequence, so Alt+b stays a word
movement. A question's keys never come from a paste or out of a word: such text goes to the draft (keyboard.py). Every
key counts as typing, so that a second press of the key that answered one card does not answer the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from golem_forge.ui.terminal.answering import Meaning, Stage

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindings

    from golem_forge.ui.terminal.screen import Screen


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

    @keys.add("c-l", filter=Condition(lambda: screen.content.stage is not Stage.NOTHING))
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
        if keyboard.pressed(meaning, text) or meaning is Meaning.NONE:
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
        if keyboard.pressed(Meaning.COMMAND, ""):
            actions.show_question()

    @keys.add(Keys.CPRResponse)
    def _(event: Any) -> None:
        """The terminal's own words are no answer, and neither is what comes with them."""
        keyboard.pasted("")

    @keys.add(Keys.BracketedPaste)
    def _(event: Any) -> None:
        keyboard.pasted(event.data.replace("\r\n", "\n").replace("\r", "\n"))

    return keys
