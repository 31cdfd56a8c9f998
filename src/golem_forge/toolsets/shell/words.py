"""From the text of one command to its words, with the position of whatever needs a real shell.

Takes quotes and backslashes as every shell does and expands nothing: `$VAR`, `~` and `*` are passed as they are.
Refuses (input_invalid) operators, substitutions and unclosed quotes, because nobody is there to carry them out.
"""

from __future__ import annotations

from typing import Final

from golem_forge.tools.validation import InputInvalid

_BLANKS: Final = " \t"
_OPERATORS: Final = "|&;<>()\n`"
_SUBSTITUTIONS: Final = ("$(", "${")
_ESCAPED_IN_QUOTES: Final = '"\\$`'


def split_words(text: str) -> tuple[str, ...]:
    words: list[str] = []
    position = 0
    while position < len(text):
        if text[position] in _BLANKS:
            position += 1
            continue
        word, position = _word(text, position)
        words.append(word)
    return tuple(words)


def _word(text: str, position: int) -> tuple[str, int]:
    parts: list[str] = []
    while position < len(text) and (char := text[position]) not in _BLANKS:
        if char == "'":
            end = _closing(text, position)
            parts.append(text[position + 1 : end])
            position = end + 1
        elif char == '"':
            part, position = _double_quoted(text, position)
            parts.append(part)
        elif char == "\\":
            parts.append(_escaped(text, position))
            position += 2
        else:
            _refuse_operator(text, position, _OPERATORS)
            parts.append(char)
            position += 1
    return "".join(parts), position


def _double_quoted(text: str, start: int) -> tuple[str, int]:
    """(what stands between the quotes, the position after the closing one)"""
    parts: list[str] = []
    position = start + 1
    while position < len(text) and (char := text[position]) != '"':
        if char == "\\" and text[position + 1 : position + 2] and text[position + 1] in _ESCAPED_IN_QUOTES:
            parts.append(text[position + 1])
            position += 2
            continue
        _refuse_operator(text, position, "`")
        parts.append(char)
        position += 1
    if position >= len(text):
        raise _unclosed('"', start)
    return "".join(parts), position + 1


def _closing(text: str, start: int) -> int:
    end = text.find("'", start + 1)
    if end < 0:
        raise _unclosed("'", start)
    return end


def _escaped(text: str, position: int) -> str:
    following = text[position + 1 : position + 2]
    if not following:
        raise InputInvalid(f"shell: the backslash at position {position} ends the command.")
    if following == "\n":
        _refuse_operator(text, position + 1, _OPERATORS)
    return following


def _refuse_operator(text: str, position: int, operators: str) -> None:
    found = next((each for each in _SUBSTITUTIONS if text.startswith(each, position)), "")
    if not found and text[position] in operators:
        found = text[position]
    if found:
        shown = "\\n" if found == "\n" else found
        raise InputInvalid(f"shell runs one program; '{shown}' at position {position} needs exec_command.")


def _unclosed(mark: str, position: int) -> InputInvalid:
    return InputInvalid(f"shell: the quote {mark} at position {position} is not closed.")
