"""Git commands that only read: takes the words after `git`, tells whether each of them is in the table.

Threat: git can write files, start programs and look outside the repository by options alone, and by settings of the
repository. The options are answered here, by an allow list. The settings are answered by the walls: what is proven here
is proven only where every zone is read-only and there is no network (`SegmentProof.needs_closed_zones`), and it is
started with `reading_environment`, which takes from git what a variable can take from it.

Threat: a repository holds files under names that the person closed, in commits as well as in the work tree, where the
walls hide them. So `started_git` writes the command in words that leave secret names out, and takes an operand without
a path for a commit only, because the id of a file says nothing of its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.policy.shell import readonly_table as table
from golem_forge.policy.shell.readonly_table import GitOperands, GitRow, GitShows

_COUNT = regex(r"-[0-9]+")
_NUMBERED = regex(r"-[A-Za-z][0-9]+%?(/[0-9]+%?)?")
_MAGIC = (":(", ":!", ":^", ":/", "::")
_STAGED = regex(r":(?:[0-3]:)?")
_RANGE = regex(r"(\.{2,3})")
_IS_COMMIT = regex(r"(?:HEAD|@|)|.*(?:[~^][0-9]*|\^[!@]|\^-[0-9]*|\^\{commit\})", re.DOTALL)
_HEX = regex(r"[0-9A-Fa-f]{4,64}")
_GLOB = frozenset("*?[\\")


@dataclass(slots=True)
class GitReading:
    """A parsed git command. `why` says why it is not proven to only read; empty if it is proven."""

    why: str = ""
    row: GitRow | None = None
    """None if the subcommand is not in the table of reading subcommands."""
    option: str = ""
    """The first option that is in no list; operands may be another reason."""
    directories: list[str] = field(default_factory=list)
    """The values of `-C`, each to be entered from the one before it."""
    names: list[str] = field(default_factory=list)
    """Operands that may be paths or revisions."""
    paths: list[str] = field(default_factory=list)
    """Operands after `--`."""
    inserts_at: int = 0
    """The index in the words, `git` included, where options of the subcommand begin."""
    flags: set[str] = field(default_factory=set)
    ranges: list[str] = field(default_factory=list)
    """The values of `-L`."""
    layout: list[tuple[str, bool]] = field(default_factory=list)
    """The words from there to `--`, and whether each is one of `names`."""
    ends_names: bool = False
    """A `--` stands there: what is before it is no path."""

    @property
    def shows_content(self) -> bool:
        row = self.row
        if row is None or row.shows is GitShows.NAMES:
            return False
        return not row.showing or bool(self.flags & row.showing)

    @property
    def leaves_out(self) -> bool:
        """Whether the command is told to leave files with secret names out."""
        return self.shows_content and self.row is not None and self.row.shows in (GitShows.WALK, GitShows.TREES)

    @property
    def inner_paths(self) -> list[str]:
        """Paths that are part of a word: `HEAD:path`, and `path` of `-L 1,5:path`, from the working directory."""
        found = [path for word in self.names if (path := path_in_commit(word)) is not None]
        return [*found, *(f"./{text.rpartition(':')[2]}" for text in self.ranges if self.leaves_out)]


def read_git(arguments: tuple[str, ...]) -> GitReading:
    found = GitReading()
    index = 0
    while index < len(arguments) and arguments[index].startswith("-") and arguments[index:] != ("--version",):
        word = arguments[index]
        index += 1
        if word == "-C" and index < len(arguments) and arguments[index][:1] not in ("", "-"):
            found.directories.append(arguments[index])
            index += 1
        elif word not in table.GIT_SWITCHES:
            found.why, found.option = f"'git {word}' is not known to only read", word
            return found
    length = next((size for size in (2, 1) if arguments[index : index + size] in table.GIT_TABLE), 0)
    if not length:
        named = " ".join(("git", *arguments[index : index + 1]))
        found.why = f"'{named}' is not known to only read"
        return found
    subcommand, rest = arguments[index : index + length], arguments[index + length :]
    found.row = table.GIT_TABLE[subcommand]
    found.inserts_at, found.ends_names = 1 + index + length, "--" in rest
    _ArgumentReader(found.row, " ".join(("git", *subcommand)), found).read(rest)
    return found


def path_in_commit(word: str) -> str | None:
    """The path of `REV:path`, `:path` and `:N:path`, as git splits them; None: it has none."""
    if staged := _STAGED.match(word):
        return word[staged.end() :]
    depth = 0
    for place, letter in enumerate(word):
        depth += (letter == "{") - (letter == "}")
        if letter == ":" and depth <= 0:
            return word[place + 1 :]
    return None


def secret_leak_reason(reading: GitReading, is_path: Callable[[str], bool]) -> str:
    """Why what the person closed could come out of this command; empty if it cannot. `is_path`: there is one."""
    row = reading.row
    if row is None:
        return ""
    for word in (*reading.names, *reading.paths):
        if word.startswith(_MAGIC) or (word.startswith(":") and (word in reading.paths or not row.objects)):
            return f"'{word}' may name any path of the repository"
    if not reading.shows_content:
        return ""
    if "--follow" in reading.flags:
        return "'git log --follow' shows the content that a file had under other names"
    for word in reading.names if row.objects else ():
        if word == "-":
            return "'-' is not a revision"
        if path_in_commit(word) is not None and row.content:
            return f"'{word}' has names that are not those of the work tree"
        if _HEX.fullmatch(word) and not reading.ends_names and is_path(word):
            return f"'{word}' may be a revision and a path"
    return ""


def started_git(words: tuple[str, ...], reading: GitReading, is_path: Callable[[str], bool]) -> tuple[str, ...]:
    """The words as they are started once they are proven: no diff driver, no text conversion, no secret names."""
    row = reading.row
    if row is None:
        return words
    start = (*words[: reading.inserts_at], *(table.NO_EXTERNAL_PROGRAMS if row.diffs else ()))
    rest = words[reading.inserts_at :]
    if not reading.shows_content:
        return (*start, *rest)
    if reading.ranges and reading.leaves_out:  # takes no paths, and would follow the lines into other files
        before = tuple(word for word, _ in reading.layout)
        return (*start, *before, "--no-renames", *rest[len(before) :])
    kept: list[str] = []
    paths: list[str] = []
    for word, is_name in reading.layout:
        if is_name and reading.leaves_out and not reading.ends_names and (is_path(word) or _GLOB & set(word)):
            paths.append(word)
        else:
            kept.append(_as_commit(word, row) if is_name and row.objects else word)
    if not reading.leaves_out:
        return (*start, *kept, *rest[len(kept) :])
    paths.extend(reading.paths)
    walks = table.EVERY_COMMIT if not paths and row.switches.issuperset(table.EVERY_COMMIT) else ()
    return (*start, *walks, *kept, "--", *paths, *table.EXCLUDED_SECRETS)


def _as_commit(word: str, row: GitRow) -> str:
    if path_in_commit(word) is not None or (word.endswith("^{tree}") and not row.content):
        return word
    negated = "^" if word.startswith("^") else ""
    sides = _RANGE.split(word.removeprefix("^"))
    sides[::2] = [side if _IS_COMMIT.fullmatch(side) else f"{side}^{{commit}}" for side in sides[::2]]
    return negated + "".join(sides)


class _ArgumentReader:
    """The arguments of one subcommand. Every word that begins with `-` must be in its row, wherever it stands: a word
    that is taken for a value here and for an option by git, or after a `--` that git took for a value, is none."""

    def __init__(self, row: GitRow, subcommand: str, found: GitReading) -> None:
        self.row = row
        self.subcommand = subcommand
        self.found = found

    def read(self, arguments: tuple[str, ...]) -> None:
        words = iter(arguments)
        for word in words:
            if word == "--":
                self.found.paths.extend(words)
            elif word.startswith("-") and word != "-":
                self._option(word, words)
            else:
                self.found.names.append(word)
                self.found.layout.append((word, True))
        for path in self.found.paths:
            if path.startswith("-"):
                self._refuse(path)
        if self.row.operands is GitOperands.PATTERN and not self.found.flags & self.row.pattern_flags:
            first = next((place for place, (_, is_name) in enumerate(self.found.layout) if is_name), None)
            if first is None and self.found.paths:  # git takes the first of them for the pattern
                self._refuse(self.found.paths[0])
            elif first is not None:
                self.found.layout[first] = (self.found.layout[first][0], False)
            del self.found.names[:1]
        given = [*self.found.names, *self.found.paths]
        is_list = self.row.operands is not GitOperands.LISTED or self.found.flags & self.row.listing
        if given and (self.row.operands is GitOperands.NONE or not is_list):
            self._refuse(given[0])
        if self.row.required and not self.found.flags & self.row.required:
            self._refuse(given[0] if given else "")

    def _option(self, word: str, words: Iterator[str]) -> None:
        row = self.row
        self.found.layout.append((word, False))
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        known = flag in row.glued or (flag in row.switches and not equals) or (flag in row.valued and bool(equals))
        if "%G" in value:  # starts the program that checks signatures
            self._refuse(word)
        elif known:
            self.found.flags.add(flag)
        elif flag in row.valued:
            self.found.flags.add(flag)
            self._value_of(flag, word, words)
        elif word.startswith("--"):
            self._refuse(word)
        elif word[:2] in row.valued:
            self.found.flags.add(word[:2])
            if word[:2] == "-L":
                self.found.ranges.append(word[2:])
        elif word[:2] in row.numbered and _NUMBERED.fullmatch(word):  # `-U3`, `-M90%`
            self.found.flags.add(word[:2])
        elif not ((row.counted and _COUNT.fullmatch(word)) or (row.clusters and self._cluster(word, words))):
            self._refuse(word)

    def _value_of(self, flag: str, word: str, words: Iterator[str]) -> bool:
        """Takes the next word for the value of the flag; it must not look like an option."""
        value = next(words, "-")
        self.found.layout.append((value, False))
        if flag == "-L":
            self.found.ranges.append(value)
        if value.startswith("-"):
            self._refuse(word)
        return not value.startswith("-")

    def _cluster(self, word: str, words: Iterator[str]) -> bool:
        """`-sb`, `-rn`, `-inA3`: letters of the row, of which the last may take a value."""
        for place, letter in enumerate(word[1:], 1):
            flag = f"-{letter}"
            self.found.flags.add(flag)
            if flag in self.row.valued:
                return place < len(word) - 1 or self._value_of(flag, word, words)
            if f"-{word[place:]}" in self.row.switches:  # `-suno`
                return True
            if flag not in self.row.switches:
                return False
        return True

    def _refuse(self, word: str) -> None:
        self.found.why = self.found.why or f"'{self.subcommand} {word}' is not known to only read"
        if word.startswith("-"):
            self.found.option = self.found.option or word
