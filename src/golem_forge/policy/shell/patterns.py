"""Token patterns of command rules: takes a pattern and a command, tells whether the one matches the other.

Two kinds, never swapped. What lets a command run is matched strictly: parsed words, and a program that is what its
name says. What asks or blocks is matched leniently: by basename, in every command the detector found.
"""

from __future__ import annotations

import posixpath

from .git_prover import read_git
from .lenient import Found, FoundCommand, program_name
from .prover import same_program
from .strict import Segment
from .world import CommandWorld

Token = str | tuple[str, ...]
Pattern = tuple[Token, ...]


def matches_strict(pattern: Pattern, segment: Segment, world: CommandWorld, places: tuple[str, ...]) -> bool:
    """Are the segment's leading words the pattern? `places` are its working directories (`segment_places`)."""
    if not pattern or len(segment.words) < len(pattern):
        return False
    if not all(_is_system_shell(shell, world) for shell in segment.shells):
        return False
    if not any(_is_program(name, segment.words[0], world, places) for name in _choices(pattern[0])):
        return False
    return all(word in _choices(token) for token, word in zip(pattern[1:], segment.words[1:], strict=False))


def matches_prefix(pattern: Pattern, segment: Segment, world: CommandWorld, places: tuple[str, ...]) -> bool:
    """As `matches_strict`, for a rule that lets commands run whose further words nobody has seen.

    Threat: `git log --output=FILE` writes and `git diff --ext-diff` runs what a repository names. Whoever allowed
    `git log` meant reading, so of git's reading subcommands only the options that are known to read are covered.
    """
    if not matches_strict(pattern, segment, world, places):
        return False
    is_whole = len(segment.words) == len(pattern)
    return is_whole or posixpath.basename(segment.words[0]) != "git" or not read_git(segment.words[1:]).option


def matches_exact(pattern: Pattern, segment: Segment, world: CommandWorld, places: tuple[str, ...]) -> bool:
    """Are the segment's words the pattern, all of them?"""
    return len(segment.words) == len(pattern) and matches_strict(pattern, segment, world, places)


def matches_lenient(pattern: Pattern, found: Found) -> bool:
    """Does any command in the text begin with the pattern, options between its tokens skipped?"""
    return any(_begins_with(pattern, command) for command in found.blockable)


def matches_lenient_exact(pattern: Pattern, found: Found) -> bool:
    """Is any command in the text the pattern, word for word, its program by basename?"""
    return any(
        len(command.words) == len(pattern)
        and bool(pattern)
        and _names_program(pattern[0], command)
        and all(word in _choices(token) for token, word in zip(pattern[1:], command.words[1:], strict=True))
        for command in found.blockable
    )


def _choices(token: Token) -> tuple[str, ...]:
    return (token,) if isinstance(token, str) else token


def _is_system_shell(shell: str, world: CommandWorld) -> bool:
    program = world.program(shell)
    return program is not None and program.system and not program.zone


def _is_program(name: str, word: str, world: CommandWorld, places: tuple[str, ...]) -> bool:
    if "/" in name:
        return _is_same_file(name, word, world, places)
    return word == name or same_program(word, name, world)


def _is_same_file(name: str, word: str, world: CommandWorld, places: tuple[str, ...]) -> bool:
    """Does `word`, a path, lead from every possible directory to the file that the rule names?"""
    if not name.startswith("/") or "/" not in word or not places:
        return False
    for place in places:
        wanted, given = world.operand(name, place), world.operand(word, place)
        if wanted.kind == "inside" and given.kind == "inside":
            if wanted.virtual != given.virtual:
                return False
        elif not (word.startswith("/") and _is_same_outside(name, word, world)):
            return False
    return True


def _is_same_outside(name: str, word: str, world: CommandWorld) -> bool:
    if posixpath.basename(name) != posixpath.basename(word):
        return False  # one file may be many programs, told apart by name
    wanted, given = world.program(name), world.program(word)
    return wanted is not None and given is not None and not given.zone and wanted.path == given.path


def _begins_with(pattern: Pattern, command: FoundCommand) -> bool:
    if not pattern or not command.words or not _names_program(pattern[0], command):
        return False
    words = command.words
    places = {1}  # where the next token may stand
    for token in pattern[1:]:
        choices = _choices(token)
        places = {index + 1 for index in _skipping_options(words, places) if words[index] in choices}
    return bool(places)


def _skipping_options(words: tuple[str, ...], places: set[int]) -> set[int]:
    """Every place reachable by skipping options, each with or without the one word after it."""
    reached: set[int] = set()
    waiting = list(places)
    while waiting:
        index = waiting.pop()
        if index in reached or index >= len(words):
            continue
        reached.add(index)
        if words[index].startswith("-"):
            waiting += [index + 1, index + 2]
    return reached


def _names_program(token: Token, command: FoundCommand) -> bool:
    return any(program_name(name) in (command.program, program_name(command.words[0])) for name in _choices(token))
