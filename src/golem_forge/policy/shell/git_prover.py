"""Git commands that only read: takes the words after `git`, tells whether each of them is in the table.

Threat: git can write files, start programs and look outside the repository by options alone, and by settings of the
repository. The options are answered here, by an allow list. The settings are answered by the walls: what is proven here
is proven only where every zone is read-only and there is no network (`SegmentProof.needs_closed_zones`), and it is
started with `reading_git_environment`, which takes from git what a variable can take from it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .git_table import GIT_SWITCHES, GIT_TABLE, KEPT_FROM_RUNNING, GitOperands, GitRow

_COUNT = re.compile(r"-[0-9]+")
_NUMBERED = re.compile(r"-[A-Za-z][0-9]+%?(/[0-9]+%?)?")


@dataclass(frozen=True, slots=True)
class GitReading:
    """One git command; `why` says why it is not known to only read, and is empty if it is."""

    why: str
    row: GitRow | None = None
    """None: not a reading subcommand."""
    option: str = ""
    """The first option that is in no list; operands may be another reason."""
    directories: tuple[str, ...] = ()
    """The values of `-C`, each to be entered from the one before it."""
    names: tuple[str, ...] = ()
    """Operands that may be paths, or revisions."""
    paths: tuple[str, ...] = ()
    """Operands after `--`."""
    inserts_at: int = 0
    """The index in the words, `git` included, where options of the subcommand begin."""


def read_git(arguments: tuple[str, ...]) -> GitReading:
    directories: list[str] = []
    index = 0
    while index < len(arguments) and arguments[index].startswith("-") and arguments[index:] != ("--version",):
        word = arguments[index]
        index += 1
        if word == "-C" and index < len(arguments) and arguments[index][:1] not in ("", "-"):
            directories.append(arguments[index])
            index += 1
        elif word not in GIT_SWITCHES:
            why = f"'git {word}' is not known to only read"
            return GitReading(why, option=word, directories=tuple(directories))
    length = next((size for size in (2, 1) if arguments[index : index + size] in GIT_TABLE), 0)
    if not length:
        named = " ".join(("git", *arguments[index : index + 1]))
        return GitReading(f"'{named}' is not known to only read", directories=tuple(directories))
    row = GIT_TABLE[arguments[index : index + length]]
    subcommand = " ".join(("git", *arguments[index : index + length]))
    rest = arguments[index + length :]
    reader = _Reader(row, subcommand)
    reader.read(rest)
    return GitReading(
        reader.why,
        row,
        reader.option,
        tuple(directories),
        tuple(reader.names),
        tuple(reader.paths),
        1 + index + length,
    )


def kept_from_running(words: tuple[str, ...]) -> tuple[str, ...]:
    """A command's words with git told to start no diff driver and no text conversion; other commands as they are."""
    if posixpath.basename(words[0]) != "git":
        return words
    reading = read_git(words[1:])
    if reading.row is None or not reading.row.diffs:
        return words
    return (*words[: reading.inserts_at], *KEPT_FROM_RUNNING, *words[reading.inserts_at :])


class _Reader:
    """The arguments of one subcommand. Every word that begins with `-` must be in its row, wherever it stands: a word
    that is taken for a value here and for an option by git, or after a `--` that git took for a value, is none."""

    def __init__(self, row: GitRow, subcommand: str) -> None:
        self.row = row
        self.subcommand = subcommand
        self.why = ""
        self.option = ""
        self.flags: set[str] = set()
        self.names: list[str] = []
        self.paths: list[str] = []

    def read(self, arguments: tuple[str, ...]) -> None:
        words = iter(arguments)
        for word in words:
            if word == "--":
                self.paths.extend(words)
            elif word.startswith("-") and word != "-":
                self._option(word, words)
            else:
                self.names.append(word)
        for path in self.paths:
            if path.startswith("-"):
                self._refuse(path)
        if self.row.operands is GitOperands.PATTERN and not self.flags & self.row.pattern_flags:
            self.names = self.names[1:]
        given = [*self.names, *self.paths]
        is_list = self.row.operands is not GitOperands.LISTED or self.flags & self.row.listing
        if given and (self.row.operands is GitOperands.NONE or not is_list):
            self._refuse(given[0])

    def _option(self, word: str, words: Iterator[str]) -> None:
        row = self.row
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        known = flag in row.glued or (flag in row.switches and not equals) or (flag in row.valued and bool(equals))
        if "%G" in value:  # starts the program that checks signatures
            self._refuse(word)
        elif known:
            self.flags.add(flag)
        elif flag in row.valued:
            self.flags.add(flag)
            if next(words, "-").startswith("-"):
                self._refuse(word)
        elif word.startswith("--"):
            self._refuse(word)
        elif word[:2] in row.valued:
            self.flags.add(word[:2])
        elif not (self._is_number(word) or (row.clusters and self._cluster(word, words))):
            self._refuse(word)

    def _is_number(self, word: str) -> bool:
        """`-5`, `-U3`, `-M90%`"""
        row = self.row
        counts = row.counted and _COUNT.fullmatch(word)
        return bool(counts or (word[:2] in row.numbered and _NUMBERED.fullmatch(word)))

    def _cluster(self, word: str, words: Iterator[str]) -> bool:
        """`-sb`, `-rn`, `-inA3`: letters of the row, of which the last may take a value."""
        for place, letter in enumerate(word[1:], 1):
            flag = f"-{letter}"
            self.flags.add(flag)
            if flag in self.row.valued:
                return place < len(word) - 1 or not next(words, "-").startswith("-")
            if f"-{word[place:]}" in self.row.switches:  # `-suno`
                return True
            if flag not in self.row.switches:
                return False
        return True

    def _refuse(self, word: str) -> None:
        self.why = self.why or f"'{self.subcommand} {word}' is not known to only read"
        if word.startswith("-"):
            self.option = self.option or word
