"""The patch language: from text to operations, without looking at any file. Refuses with PatchInvalid only.

Line numbers are those of the text as given. A line of an Update that begins with a blank is a context line, even if it
reads like a marker: a patch may edit a file that holds patches. `padded=True` reads such lines as markers instead; the
planner tries that only when the first reading does not fit the files.

Patches inside shell commands: a script that is nothing but a call of `apply_patch` is a patch, not a command. Exactly
three forms are recognised; everything else stays a command. Threat: text before, after or between would be dropped
unseen.

Every error text begins by saying that nothing was changed. PatchInvalid depends on the patch's text alone, PatchFailed
on the files it met. The caller's own lines may be in these texts; a secret file's lines never are.
"""

from __future__ import annotations

import posixpath
import re
from typing import Final, NamedTuple

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.sandbox.errors import SandboxError

MAX_OPERATIONS: Final = 200
BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
END_OF_FILE: Final = "*** End of File"
_OPERATION: Final = regex(r"\*\*\* (Add File|Delete File|Update File):(?:[ \t]+(.*))?")
_MOVE: Final = regex(r"\*\*\* Move to:(?:[ \t]+(.*))?")
_HEADER: Final = regex(r"@@(?: (.*))?")
_NUMBERS: Final = regex(r"-\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?")
_HEREDOC_START: Final = regex(r"<<\s*(?:'(\w+)'|\"(\w+)\"|(\w+))")
_MAX_QUOTED: Final = 200
_LINE_MARKS: Final = frozenset(" +-")


class ChunkHeader(NamedTuple):
    number: int
    context: str
    """The line to search for; empty for a bare `@@`."""


class PatchLine(NamedTuple):
    mark: str
    text: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    headers: tuple[ChunkHeader, ...]
    lines: tuple[PatchLine, ...]
    at_end: bool
    """`*** End of File` follows: it must match there."""
    loose: int
    """How many empty lines without any mark stand at its end: context, or only space before what follows."""

    @property
    def number(self) -> int:
        return self.lines[0].number


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFile:
    number: int
    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFile:
    number: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFile:
    number: int
    path: str
    move_to: str | None
    move_number: int
    chunks: tuple[Chunk, ...]


Operation = AddFile | DeleteFile | UpdateFile


def parse_patch(text: str, *, padded: bool = False) -> tuple[Operation, ...]:
    lines = [line.rstrip("\r") for line in text.split("\n")]
    first, last = _unwrapped(lines, *_trimmed(lines, 0, len(lines) - 1))
    if first > last or lines[first].strip() != BEGIN:
        raise PatchInvalid(f"line {first + 1 if text.strip() else 1}: expected '{BEGIN}'")
    if first == last or lines[last].strip() != END:
        for number in range(first + 1, last):
            if lines[number].rstrip() == END:
                raise _after_the_end(lines, number)
        raise PatchInvalid(f"line {last + 2}: missing '{END}'")
    operations = _Parser(lines[:last], first + 1, padded).operations()
    if not operations:
        raise PatchInvalid("the patch has no operations")
    if len(operations) > MAX_OPERATIONS:
        raise PatchInvalid(f"the patch has {len(operations)} operations; the limit is {MAX_OPERATIONS}")
    return operations


def has_padded_markers(text: str) -> bool:
    """Whether the option `padded` makes a difference."""
    return any(
        line[:1] == " " and (_reads_as_marker(line.strip()) or _MOVE.fullmatch(line.strip()) is not None)
        for line in text.split("\n")
    )


def is_bare_patch(text: str) -> bool:
    """Whether a text is a patch with no command around it, right or wrong."""
    lines = text.split("\n")
    first, _ = _unwrapped(lines, *_trimmed(lines, 0, len(lines) - 1))
    return first < len(lines) and lines[first].strip() == BEGIN


def _trimmed(lines: list[str], first: int, last: int) -> tuple[int, int]:
    while first <= last and not lines[first].strip():
        first += 1
    while last >= first and not lines[last].strip():
        last -= 1
    return first, last


def _unwrapped(lines: list[str], first: int, last: int) -> tuple[int, int]:
    """Returns the range without `<<EOF` … `EOF` around it."""
    opening = _HEREDOC_START.fullmatch(lines[first].strip()) if first < last else None
    if opening and lines[last].strip() == opening[opening.lastindex or 0]:
        return _trimmed(lines, first + 1, last - 1)
    return first, last


def _after_the_end(lines: list[str], end: int) -> PatchInvalid:
    number = next((at for at in range(end + 1, len(lines)) if lines[at].strip()), end + 1)
    return PatchInvalid(f"line {number + 1}: nothing may follow '{END}'")


def _reads_as_marker(stripped: str) -> bool:
    return stripped == END_OF_FILE or _OPERATION.fullmatch(stripped) is not None


class _Parser:
    def __init__(self, lines: list[str], start: int, padded: bool) -> None:
        self._lines = lines
        self._at = start
        self._padded = padded

    def operations(self) -> tuple[Operation, ...]:
        found: list[Operation] = []
        while True:
            while self._more() and not self._lines[self._at].strip():
                self._at += 1
            if not self._more():
                return tuple(found)
            found.append(self._operation())

    def _operation(self) -> Operation:
        number, line = self._at + 1, self._lines[self._at].strip()
        if line == END:
            raise _after_the_end([*self._lines, END], self._at)
        marker = _OPERATION.fullmatch(line)
        if marker is None:
            names = "(Add File, Delete File, Update File)"
            raise PatchInvalid(f"line {number}: '{line[:_MAX_QUOTED]}' is not an operation {names}")
        path = self._path(marker[2])
        self._at += 1
        if marker[1] == "Delete File":
            return DeleteFile(number=number, path=path)
        if marker[1] == "Update File":
            return self._update(number, path)
        start = self._at
        while self._more() and self._lines[self._at].startswith("+"):
            self._at += 1
        return AddFile(number=number, path=path, lines=tuple(line[1:] for line in self._lines[start : self._at]))

    def _path(self, written: str | None) -> str:
        if not written:
            raise PatchInvalid(f"line {self._at + 1}: empty path")
        return written

    def _update(self, number: int, path: str) -> UpdateFile:
        move_to, move_number = None, 0
        if self._more() and (move := self._move()):
            move_to, move_number = self._path(move[1]), self._at + 1
            self._at += 1
        chunks: list[Chunk] = []
        while self._skip_space_between_chunks() and not self._at_marker():
            chunks.append(self._chunk(path, first=not chunks))
        if not chunks and move_to is None:
            raise PatchInvalid(f"line {number}: Update of '{path}' has no changes")
        return UpdateFile(number=number, path=path, move_to=move_to, move_number=move_number, chunks=tuple(chunks))

    def _move(self) -> re.Match[str] | None:
        line = self._lines[self._at]
        return None if line[:1] == " " and not self._padded else _MOVE.fullmatch(line.strip())

    def _chunk(self, path: str, *, first: bool) -> Chunk:
        start = self._at
        headers: list[ChunkHeader] = []
        while self._more() and (header := self._header()):
            headers.append(header)
            self._at += 1
        if not first and not headers:
            raise PatchInvalid(f"line {start + 1}: a second chunk needs '@@'")
        lines: list[PatchLine] = []
        while self._more() and not self._at_marker() and not self._header():
            lines.append(self._line())
            self._at += 1
        if not lines:
            raise PatchInvalid(f"line {start + 1}: Update of '{path}' has no changes")
        at_end = self._more() and self._lines[self._at].strip() == END_OF_FILE
        loose = 0
        while loose < len(lines) and not self._lines[self._at - 1 - loose]:
            loose += 1
        if at_end:
            self._at += 1
        elif (
            loose
            and not (self._more() and self._header() is not None)
            and all(line.mark == "+" for line in lines[:-loose])
        ):
            lines, loose = lines[:-loose] or lines, 0  # an insertion, then empty lines before the next operation
        return Chunk(headers=tuple(headers), lines=tuple(lines), at_end=at_end, loose=loose)

    def _header(self) -> ChunkHeader | None:
        line = self._lines[self._at]
        header = _HEADER.fullmatch("@@" if line.rstrip() == "@@" else line)
        if header is None:
            return None
        context = header[1] or ""
        if numbers := _NUMBERS.match(context):
            context = context[numbers.end() :]
        return ChunkHeader(self._at + 1, context if context.strip() else "")

    def _line(self) -> PatchLine:
        line = self._lines[self._at]
        if not line:
            return PatchLine(" ", "", self._at + 1)
        if line[0] not in _LINE_MARKS:
            raise PatchInvalid(f"line {self._at + 1}: a line must start with ' ', '+' or '-'")
        return PatchLine(line[0], line[1:], self._at + 1)

    def _at_marker(self) -> bool:
        line = self._lines[self._at]
        if line[:1] in _LINE_MARKS:
            return self._padded and line[0] == " " and _reads_as_marker(line.strip())
        return line.strip().startswith("***")

    def _skip_space_between_chunks(self) -> bool:
        """Empty lines before a header, a marker or the end; elsewhere an empty line is context."""
        start = self._at
        while self._more() and not self._lines[self._at]:
            self._at += 1
        if self._more() and not self._header() and not self._at_marker():
            self._at = start
        return self._more()

    def _more(self) -> bool:
        return self._at < len(self._lines)


BARE_PATCH: Final = "This is a patch; call apply_patch with it as input."

_BLANK: Final = r"[ \t]"
_CD: Final = (
    rf"cd{_BLANK}+(?:'(?P<single>[^'\n]+)'|\"(?P<double>[^\"$`\\!\n]+)\"|(?P<plain>[\w./@%+=:,][\w./@%+=:,-]*))"
    rf"{_BLANK}*&&{_BLANK}*"
)
_DELIMITER: Final = r"(?:'(?P<word>\w+)'|\"(?P<word2>\w+)\"|(?P<unquoted>\w+))"
_HEREDOC_COMMAND: Final = regex(
    rf"\s*(?:{_CD})?apply_patch{_BLANK}*<<{_BLANK}*{_DELIMITER}{_BLANK}*\r?\n(?P<rest>.*)",
    re.DOTALL,
)
_QUOTED_COMMAND: Final = regex(rf"\s*apply_patch{_BLANK}+'(?P<patch>(?:[^']|'\\'')*)'\s*")
_PATH_LINE: Final = regex(r"(\s*\*\*\* (?:Add File|Delete File|Update File|Move to):[ \t]+)(.*?)(\s*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchCommand:
    patch: str
    directory: str
    """The directory that its paths are relative to; empty means where the command would have run."""


def split_patch_command(cmd: str) -> PatchCommand | None:
    if quoted := _QUOTED_COMMAND.fullmatch(cmd):
        return PatchCommand(patch=quoted["patch"].replace("'\\''", "'"), directory="")
    heredoc = _HEREDOC_COMMAND.fullmatch(cmd)
    if heredoc is None:
        return None
    word = heredoc["word"] or heredoc["word2"] or heredoc["unquoted"]
    lines = heredoc["rest"].split("\n")
    end = next((at for at, line in enumerate(lines) if line.rstrip("\r") == word), None)
    if end is None or any(line.strip() for line in lines[end + 1 :]):
        return None
    patch = "\n".join((*lines[:end], ""))
    if heredoc["unquoted"] and re.search(r"[$`\\]", patch):  # the shell would expand these
        return None
    directory = heredoc["single"] or heredoc["double"] or heredoc["plain"] or ""
    return None if directory.startswith("-") else PatchCommand(patch=patch, directory=directory)


def rebase_patch(patch: str, directory: str) -> str:
    """Returns the patch with its relative paths below `directory`; absolute ones stay. Text that is no patch is
    unchanged.

    A line that only might be a marker is changed too: it then fits no file, rather than the wrong one.
    """
    if directory in ("", "."):
        return patch
    try:
        operations = parse_patch(patch)
    except PatchInvalid:
        return patch
    numbers = {operation.number for operation in operations}
    numbers |= {operation.move_number for operation in operations if isinstance(operation, UpdateFile)}
    lines = patch.split("\n")
    for at, line in enumerate(lines):
        if at + 1 in numbers or has_padded_markers(line):
            marker = _PATH_LINE.fullmatch(line)
            if marker is not None:
                lines[at] = marker[1] + posixpath.join(directory, marker[2]) + marker[3]
    return "\n".join(lines)


NOTHING_CHANGED: Final = "Patch not applied; nothing was changed."


class PatchInvalid(ForgeError):
    """Raised for text that is not in the grammar; `problem` begins with the patch's line number if there is one."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{NOTHING_CHANGED}\n{problem}", status=Status.INPUT_INVALID, code="PATCH_INVALID")


class PatchFailed(ForgeError):
    """Raised for a valid patch that does not fit the files."""

    def __init__(self, problem: str, code: str = "PATCH_FAILED") -> None:
        super().__init__(f"{NOTHING_CHANGED}\n{problem}", code=code)


def patch_refused(error: SandboxError) -> SandboxError:
    return SandboxError(error.code, f"{NOTHING_CHANGED}\n{error.message}", path=error.path, status=error.status)
