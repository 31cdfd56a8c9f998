"""The words of a typed line, each with the place of its first character.

`'…'` is literal, `"…"` knows `\\"` and `\\\\`, elsewhere a backslash takes the next character as it is. Refuses
(CommandError) a quote that is not closed and a backslash with nothing behind it.
"""

from __future__ import annotations

from golem_forge.tools.binding import Token


class CommandError(ValueError):
    """What is wrong with a typed command, in words for the person who typed it."""


def tokenize(line: str, start: int = 0) -> list[Token]:
    """The words from `start` on; positions count from the beginning of the line."""
    tokens: list[Token] = []
    at = start
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        text, end = _word(line, at)
        tokens.append(Token(text, at))
        at = end
    return tokens


def _word(line: str, at: int) -> tuple[str, int]:
    """One word and the place behind it; quoted and bare parts that touch are one word."""
    parts: list[str] = []
    while at < len(line) and not line[at].isspace():
        character = line[at]
        if character == "'":
            text, at = _single(line, at)
        elif character == '"':
            text, at = _double(line, at)
        elif character == "\\":
            if at + 1 == len(line):
                raise CommandError("Trailing backslash at end of input")
            text, at = line[at + 1], at + 2
        else:
            text, at = character, at + 1
        parts.append(text)
    return "".join(parts), at


def _single(line: str, at: int) -> tuple[str, int]:
    end = line.find("'", at + 1)
    if end < 0:
        raise CommandError(f"Unclosed single quote at position {at}")
    return line[at + 1 : end], end + 1


def _double(line: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    place = at + 1
    while place < len(line):
        character = line[place]
        if character == '"':
            return "".join(parts), place + 1
        if character == "\\" and line[place + 1 : place + 2] in ('"', "\\"):
            place += 1
            character = line[place]
        parts.append(character)
        place += 1
    raise CommandError(f"Unclosed double quote at position {at}")
