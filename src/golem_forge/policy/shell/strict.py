"""The strict parser: takes a command text, gives its segments or says why it cannot read them.

It reads only the small part of shell grammar in which bash, sh and zsh cannot disagree: literal words joined by `&&`,
`||`, `;` and `|`. Everything else is `Opaque`. It is written by hand, without a grammar library: a parser that recovers
from errors would guess, and a guess here becomes a command that runs unasked.

`CommandWorld` is what the strict side asks of the sandbox: where a program is found and where a path leads. The caller
implements it over its zones and the walls' PATH. These are the only questions this package asks about the machine;
everything else in it is a pure function of text.
"""

from __future__ import annotations

import posixpath
import re
from typing import Literal, Protocol

from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex
from golem_forge.policy.shell.arguments import names

MAX_BYTES = 16 * 1024
MAX_SEGMENTS = 50

REDIRECTIONS = (">/dev/null", "1>/dev/null", "2>/dev/null", "2>&1", "</dev/null")

RESERVED = names(
    "! [[ ]] always case coproc do done elif else end esac fi for foreach function if in "
    "nocorrect repeat select then time until while"
)

UNREADABLE = {
    "<": "a redirection of input",
    ">": "a redirection of output",
    "(": "a subshell or function",
    ")": "a subshell or function",
    "{": "a group or brace expansion",
    "}": "a group or brace expansion",
    "$": "an expansion",
    "`": "a command substitution",
    "\\": "a backslash",
    "*": "a pattern",
    "?": "a pattern",
    "[": "a pattern",
    "]": "a pattern",
    "~": "a home directory",
    "^": "a pattern",
    "#": "a comment",
}

SHELLS = frozenset(prefix + shell for prefix in ("", "/bin/", "/usr/bin/") for shell in ("bash", "sh", "zsh"))

_CONTROL = regex(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ASSIGNMENT = regex(r"[^\W\d]\w*\+?=")  # names in any script: zsh takes them
_NETWORK_REDIRECTION = regex(r"[<>&|]{1,3} *['\"]?/dev/(?:tcp|udp)/")  # bash opens a connection
_PLAIN = regex(r"[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*")


@dataclass(frozen=True, slots=True)
class Segment:
    """One simple command; `joined_by` is the operator before it, `shells` what it was unwrapped from."""

    words: tuple[str, ...]
    joined_by: str = ""
    shells: tuple[str, ...] = field(default=(), compare=False)
    redirections: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Parsed:
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    reason: str
    position: int


class _UnreadableError(Exception):
    """Raised with (reason, position) for text that the strict parser refuses."""


def parse_strict(text: str) -> Parsed | Opaque:
    if control := _CONTROL.search(text):
        return Opaque("a newline" if control[0] == "\n" else "a control character", control.start())
    if len(text.encode()) > MAX_BYTES:
        return Opaque(f"more than {MAX_BYTES} bytes", MAX_BYTES)
    try:
        segments = _Scanner(text).segments()
    except _UnreadableError as unreadable:
        return Opaque(*unreadable.args)
    # Only a text that is nothing but the wrapped shell is unwrapped: beside other segments its `cd`
    # would seem to move them too.
    words = segments[0].words
    if len(segments) == 1 and len(words) == 3 and words[0] in SHELLS and words[1] in ("-c", "-lc"):
        shell, flag, script = words
        inner = parse_strict(script)
        if isinstance(inner, Opaque):
            return Opaque(f"in {shell} {flag}: {inner.reason}", inner.position)
        return Parsed(tuple(replace(part, shells=(shell, *part.shells)) for part in inner.segments))
    return Parsed(tuple(segments))


def canonical_text(text: str) -> str:
    """The one spelling of a command for its fingerprint; a text that cannot be read stays as it is."""
    parsed = parse_strict(text)
    return text if isinstance(parsed, Opaque) else render(parsed)


def render(parsed: Parsed) -> str:
    parts: list[str] = []
    for segment in parsed.segments:
        if segment.joined_by:
            parts.append(segment.joined_by)
        # A quoted command name would be opaque, and a parsed one never needs quotes.
        parts.append(segment.words[0])
        parts.extend(quote(word) for word in segment.words[1:])
        parts.extend(segment.redirections)
    return " ".join(parts)


def quote(word: str) -> str:
    """`word` as one shell word that the strict parser reads back unchanged."""
    if _PLAIN.fullmatch(word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.words: list[str] = []
        self.redirections: list[str] = []
        self.joined_by = ""
        self.done: list[Segment] = []

    def segments(self) -> list[Segment]:
        text = self.text
        while self.position < len(text):
            char = text[self.position]
            if char == " ":
                self.position += 1
            elif text.startswith(("&&", "||"), self.position):
                self.close_segment(text[self.position : self.position + 2])
            elif char in ";|":
                self.close_segment(char)
            elif char == "&":
                raise _UnreadableError("a background command", self.position)
            elif not self.read_redirection():
                self.words.append(self.read_word())
        self.close_segment("")
        return self.done

    def close_segment(self, operator: str) -> None:
        if not self.words:
            raise _UnreadableError("an empty segment", self.position)
        self.done.append(Segment(tuple(self.words), self.joined_by, redirections=tuple(self.redirections)))
        if len(self.done) > MAX_SEGMENTS:
            raise _UnreadableError(f"more than {MAX_SEGMENTS} segments", self.position)
        self.words = []
        self.redirections = []
        self.joined_by = operator
        self.position += len(operator)

    def read_redirection(self) -> bool:
        for redirection in REDIRECTIONS:
            end = self.position + len(redirection)
            if self.text.startswith(redirection, self.position) and self.text[end : end + 1] in ("", *" ;|&"):
                self.position = end
                self.redirections.append(redirection)
                return True
        return False

    def read_word(self) -> str:
        text, start = self.text, self.position
        parts: list[str] = []
        quoted = False
        while self.position < len(text) and text[self.position] not in " ;|&":
            char = text[self.position]
            if char in "'\"":
                parts.append(self.read_quoted(char))
                quoted = True
            elif char in UNREADABLE and not self.is_revision(char, start):
                connects = char in "<>" and _NETWORK_REDIRECTION.match(text, self.position)
                reason = "a network connection by the shell" if connects else UNREADABLE[char]
                raise _UnreadableError(reason, self.position)
            else:
                parts.append(char)
                self.position += 1
        word = "".join(parts)
        if text[start] == "=":
            raise _UnreadableError("a word starting with =", start)
        if not self.words:
            self.check_command_name(word, quoted, start)
        return word

    def is_revision(self, char: str, start: int) -> bool:
        """`HEAD~1` and `main^`, as words of git: after a letter or digit no shell expands these. Anywhere else they may
        be a home directory or a pattern (`x=~`, `^x`), and mean nothing that a proof could need."""
        before = self.text[self.position - 1]
        is_git = bool(self.words) and posixpath.basename(self.words[0]) == "git"
        return is_git and char in "~^" and self.position > start and (before.isalnum() or before in "_@~^")

    def read_quoted(self, mark: str) -> str:
        start = self.position
        end = self.text.find(mark, start + 1)
        if end < 0:
            raise _UnreadableError("an unclosed quote", start)
        content = self.text[start + 1 : end]
        if mark == '"' and (special := re.search(r"[$`\\]", content)):
            raise _UnreadableError(UNREADABLE[special[0]], start + 1 + special.start())
        self.position = end + 1
        return content

    def check_command_name(self, word: str, quoted: bool, start: int) -> None:
        if quoted:
            raise _UnreadableError("a quoted command name", start)
        if word in RESERVED:
            raise _UnreadableError(f"the reserved word {word}", start)
        if word.startswith("-"):
            # zsh reads `- cmd` as `cmd`; no program is called so
            raise _UnreadableError("a command name that starts with -", start)
        if _ASSIGNMENT.match(word):
            raise _UnreadableError("an assignment", start)


OperandKind = Literal["inside", "outside", "bad"]


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A program file: its real path, and whose directory it lies in."""

    path: str
    system: bool
    zone: bool
    shipped: bool = False  # the ripgrep that Forge brings along
    script: bool = False  # no binary: what it starts in turn is found by name


@dataclass(frozen=True, slots=True)
class Operand:
    """The target of a path operand: inside a zone, outside every zone, or unusable (`bad`)."""

    kind: OperandKind
    virtual: str
    real: str = ""
    secret: bool = False
    directory: bool = False
    outer: str = ""  # as the program names it, where the worker's zone begins deeper
    exists: bool = True


class CommandWorld(Protocol):
    def program(self, name: str) -> ProgramFile | None:
        """A bare name as the walls' PATH finds it; an absolute path as itself. `path` is the real path."""

    def operand(self, path: str, cwd: str) -> Operand:
        """`path` as a process whose working directory is the virtual directory `cwd` would reach it."""

    def scan_complete(self, virtual: str, *, hidden: bool = True) -> bool:
        """Whether the walls have scanned this whole directory and hide every secret in it. Without `hidden`, names that
        begin with a dot do not count.
        """

    def work_tree(self, place: str) -> str | None:
        """The virtual directory whose repository git finds from `place`; the zone's without one. None: the repository's
        settings say that its files are elsewhere, or nobody can tell."""

    def has_read_rules(self) -> bool:
        """Whether a rule asks about or blocks reading somewhere in the zones."""
