"""What the file tools share: the sandbox they work in, the consent of its zones, the `path` argument, the plan of a
tool that only reads, and the text of files as they read and show it.

`decode`, `looks_binary`, `media_type`: what the bytes of a file are. Every tool that shows text by line shows it as
`L12: text`, pages it and says where it stopped.

Diffs for approval are over virtual paths, made from the very bytes that are there and that will be written. They are
complete in what is written, always. What is replaced is shown line by line unless it is binary or too large; then a
line says so. Threat: comparing can take quadratic time, and a plan cannot be interrupted. Beyond a fixed amount of work
the differing middle is shown as one block: longer than it could be, and just as true.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from golem_forge.core.changes import LineChange, covers_all_changes, line_changes, unified_hunks
from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ConfigError, ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.lazy_module import pydantic, pydantic_core
from golem_forge.core.options import require
from golem_forge.core.regex import regex
from golem_forge.core.text import nearest_hint
from golem_forge.policy.containment import path_reasons, walls_reason
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import Target
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import native_tool
from golem_forge.tools.inputs import DeclaredParameter, ModelInput, PlainInput
from golem_forge.tools.tool import MAX_ARGUMENT_BYTES, NeedsApproval, Tool

if TYPE_CHECKING:
    from mimetypes import MimeTypes


ZoneApproval = Mapping[str, Mapping[str, Verdict | str]]
"""Zone name → `write` or `delete` → verdict."""
_VERBS = {"write": Verb.WRITE, "delete": Verb.DELETE}


@dataclass(frozen=True, slots=True)
class FileAccess:
    sandbox: Sandbox | None = None
    """None means the sandbox of each call's context."""
    overrides: Mapping[tuple[str, Verb], Verdict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fits = self.sandbox is None or isinstance(self.sandbox, Sandbox)
        require(fits, "sandbox", "made by open_sandbox([ZoneSpec(name='workspace', path='.')])", self.sandbox)

    def target(self, path: str, verb: Verb, ctx: ToolContext, *, follow_last: bool = True) -> Target:
        sandbox = self.sandbox or ctx.sandbox or Sandbox(has_block=False)
        return sandbox.target(path, verb, follow_last=follow_last)

    def effect(self, target: Target, ctx: ToolContext | None = None) -> Effect:
        """An override replaces the zone's consent, never its `blocked`, nor any mark. Without `ctx`: of reading."""
        effect = target.effect()
        said = self.overrides.get((target.zone.name, target.access)) if target.zone else None
        if said is not None and effect.zone_verdict is not Verdict.BLOCKED:
            effect = replace(effect, zone_verdict=said)
        if ctx is None or not ctx.contains or target.access is Verb.READ:
            return effect
        return replace(effect, leaves=tuple(self._leaves(target, said, ctx)))

    def _leaves(self, target: Target, said: Verdict | None, ctx: ToolContext) -> Iterator[str]:
        if self.sandbox is not None and self.sandbox is not ctx.sandbox:
            yield "its zones are not those of the session, so nothing is kept to undo it"
        elif ctx.walls is None:
            yield "nothing is kept here to undo it"
        elif ctx.coverage is None:
            report = ctx.walls.known_report
            yield walls_reason(report) if report is not None else "nobody knows whether there are full walls"
        else:
            if said is Verdict.ASK:
                yield f"its setting for {target.virtual} says ask"
            yield from path_reasons(target.zone, target.parts, target.access, ctx.coverage)


def checked_overrides(
    sandbox: Sandbox | None, zone_approval: ZoneApproval, called: str = "zone_approval"
) -> dict[tuple[str, Verb], Verdict]:
    """Raises ConfigError for a zone, a verb or a verdict that does not exist. `called`: the option's name."""
    overrides: dict[tuple[str, Verb], Verdict] = {}
    problems: list[str] = []
    given: Any = zone_approval
    if not isinstance(given, Mapping):
        raise ConfigError(f"{called}: must be a mapping, like {{'workspace': {{'write': 'ask'}}}}, not {given!r}")
    for zone, verdicts in given.items():
        if sandbox is not None and zone not in sandbox.zones:
            problems.append(f"{called}: no zone '{zone}'{_suggestion(zone, sandbox.zones)}")
        if not isinstance(verdicts, Mapping):
            problems.append(f"{called}.{zone}: must be a mapping of write and delete to verdicts")
            continue
        for verb, verdict in verdicts.items():
            if verb not in _VERBS:
                problems.append(f"{called}.{zone}: no '{verb}' there; only write and delete ask for consent")
            elif verdict not in tuple(Verdict):
                known = [each.value for each in Verdict]
                hint = _suggestion(str(verdict), known)
                problems.append(f"{called}.{zone}.{verb}: '{verdict}' is not a verdict{hint}")
            else:
                overrides[zone, _VERBS[verb]] = Verdict(verdict)
    if problems:
        raise ConfigError(*problems)
    return overrides


def _suggestion(word: str, known: Mapping[str, object] | list[str]) -> str:
    return nearest_hint(word, known, f". There are: {', '.join(sorted(known)) or 'none'}")


FilePlanner = Callable[[FileAccess, dict[str, Any], ToolContext], Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTool:
    """A native tool that works on files; `create` makes it for one sandbox."""

    name: str
    description: str
    label: str
    arguments: Callable[[], type[pydantic.BaseModel] | PlainInput]
    planner: FilePlanner
    always: Verb | None = None
    """The verb; None if it only reads."""
    category: str = "Files"
    aliases: Mapping[str, str] = field(default_factory=lambda: {"file_path": "path"})
    max_argument_bytes: int = MAX_ARGUMENT_BYTES

    def create(self, access: FileAccess, needs_approval: NeedsApproval | None = None) -> Tool:
        return native_tool(
            self.name,
            self.description,
            input_schema=self.arguments,
            planner=partial(self.planner, access),
            needs_approval=needs_approval,
            label=self.label,
            category=self.category,
            read_only=self.always is None,
            always=self.always,
            argument_aliases=self.aliases,
            max_argument_bytes=self.max_argument_bytes,
        )


def path_field(what: str, default: Any = ...) -> tuple[type[str], Any]:
    """Returns a field for pydantic's `create_model`; required unless `default` is given."""
    return str, pydantic.Field(default=default, description=_path_text(what))


def _path_text(what: str) -> str:
    return f"{what}: /<zone>/…, or relative to the default zone."


def path_arguments(name: str, what: str, default: Any = ...) -> Callable[[], PlainInput]:
    """The schema of a tool that takes a path and nothing else."""

    def build_model() -> ModelInput:
        return ModelInput(pydantic.create_model(name, path=path_field(what, default)))

    return lambda: PlainInput({"path": DeclaredParameter(str, default, _path_text(what))}, build_model)


def reading_plan(access: FileAccess, target: Target, run: Callable[[], Any]) -> Plan:
    return Plan(run=run, effects=(access.effect(target),), read_only=True, recheck=target.recheck, close=target.close)


SAMPLE_BYTES: Final = 8 * 1024
_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTROLS: Final = bytes(set(range(0x20)) - set(b"\t\n\v\f\r")) + b"\x7f"
_OCTET_STREAM: Final = "application/octet-stream"
_BINARY_EXTENSIONS: Final = frozenset(
    {".pdf", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".zip", ".gz", ".xz", ".7z", ".tar", ".so", ".dll"}
    | {".exe", ".bin", ".class", ".pyc", ".wasm", ".sqlite", ".mp3", ".mp4", ".woff2"}
)
_COMPRESSED: Final = {"gzip": "application/gzip", "xz": "application/x-xz", "bzip2": "application/x-bzip2"}
_TYPES_PYTHON_LACKS: Final = {
    ".7z": "application/x-7z-compressed",
    ".class": "application/java-vm",
    ".md": "text/markdown",
    ".sqlite": "application/vnd.sqlite3",
    ".toml": "application/toml",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


class Decoded(NamedTuple):
    text: str
    encoding: str
    lossy: bool
    """Some bytes were no text in this encoding and became U+FFFD."""


def decode(data: bytes) -> Decoded:
    """UTF-16 if it begins with that mark, else UTF-8; the mark itself is dropped."""
    encoding = "utf-16" if data.startswith(_UTF16) else "utf-8"
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return Decoded(data.decode(encoding), encoding, False)
    except UnicodeDecodeError:
        return Decoded(data.decode(encoding, "replace"), encoding, True)


def has_binary_name(name: str) -> bool:
    dot = name.rfind(".")
    return dot >= 0 and name[dot:].lower() in _BINARY_EXTENSIONS


def looks_binary(data: bytes) -> bool:
    """A NUL or over 10 % control characters at the beginning."""
    sample = data[:SAMPLE_BYTES]
    if sample.startswith(_UTF16):
        sample = sample.decode("utf-16", "ignore").encode()
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return b"\0" in sample or controls * 10 > len(sample)


def media_type(name: str, *, binary: bool) -> str:
    """Returns the media type by the name's suffix, unless the content contradicts it."""
    guessed, compression = _known_types().guess_type(name.replace(":", "_"))  # "data:…" would be read as a URL
    if compression:
        guessed = _COMPRESSED.get(compression, _OCTET_STREAM)
    if binary:
        return _OCTET_STREAM if guessed is None or guessed.startswith("text/") else guessed
    return guessed or "text/plain"


@cache
def _known_types() -> MimeTypes:
    """Python's own table alone: the machine's would make answers differ from one to the next."""
    from mimetypes import MimeTypes

    types = MimeTypes()
    for ending, name in _TYPES_PYTHON_LACKS.items():
        types.add_type(name, ending)
    return types


def utc_text(seconds: float) -> str:
    """Formats a time as `2026-03-01T12:00:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


_LINE_END: Final = regex(r"\r\n|\n|\r")
_COUNT_CHUNK: Final = 1 << 20
PAGE_BYTES: Final = 30 * 1024
"""Below the caller's 32 KiB, so that a page with its closing note is never cut in the middle."""


def split_lines(text: str) -> list[str]:
    """Lines with their ends. LF, CRLF and CR end a line, nothing else does; a final one begins no further line."""
    return list(io.StringIO(text, newline=""))


def count_lines(text: str) -> int:
    """Returns the number of lines that `split_lines` would give, without the list: short lines would take thirty times
    their space.
    """
    unended = 0 if not text or text[-1] in "\r\n" else 1
    return _count_line_ends(text, 0, len(text)) + unended


def lines_from_number(text: str, first: int, limit: int) -> list[str]:
    """Returns at most `limit` lines with their ends, from number `first` (counted from 1) on."""
    start = _start_of(text, first)
    lines: list[str] = []
    for end in _LINE_END.finditer(text, start):
        if len(lines) == limit:
            return lines
        lines.append(text[start : end.end()])
        start = end.end()
    if start < len(text) and len(lines) < limit:
        lines.append(text[start:])
    return lines


def _start_of(text: str, number: int) -> int:
    """Returns where a line begins. Whole chunks are skipped by counting; otherwise a page at the end of 12 MB of short
    lines would hold the interpreter for more than a second.
    """
    missing, position = number - 1, 0
    while missing and position < len(text):
        stop = min(len(text), position + _COUNT_CHUNK)
        if text[stop - 1] == "\r" and text[stop : stop + 1] == "\n":
            stop += 1
        ends = _count_line_ends(text, position, stop)
        if ends >= missing:
            return next(islice(_LINE_END.finditer(text, position, stop), missing - 1, None)).end()
        missing, position = missing - ends, stop
    return position


def _count_line_ends(text: str, start: int, stop: int) -> int:
    return text.count("\n", start, stop) + text.count("\r", start, stop) - text.count("\r\n", start, stop)


def strip_line_end(line: str) -> str:
    return line.rstrip("\r\n")


def first_line(offset: int, total: int) -> int:
    """The line an offset means: from the end if negative, at most back to the first. Refuses one past the end."""
    if offset > max(total, 1):
        lines = "1 line" if total == 1 else f"{total} lines"
        raise ToolFailed(f"offset {offset} is past the end ({lines})", code="PAST_THE_END")
    return offset if offset > 0 else max(1, total + 1 + offset)


def closing_note(first: int, last: int, total: int) -> str:
    """Returns the note that names the shown range; empty if everything was shown."""
    if first <= 1 and last >= total:
        return ""
    rest = f"; continue with offset={last + 1}" if last < total else ""
    return f"[lines {first}-{last} of {total}{rest}]"


def offset_field(what: str) -> tuple[Any, Any]:
    """The `offset` argument for pydantic's `create_model`: any whole number but 0."""

    def not_zero(value: int) -> int:
        if value == 0:
            raise pydantic_core.PydanticCustomError("not_zero", "must not be 0; the first line is 1, the last one -1")
        return value

    text = f"First line to {what}; negative counts from the end (-1 is the last line). Not 0."
    return Annotated[int, pydantic.AfterValidator(not_zero)], pydantic.Field(default=1, description=text)


COMPARE_LIMIT: Final = 16 * 1024 * 1024
"""Old content up to this size is compared; a larger one is replaced whole."""
DIFF_LIMIT: Final = 1024 * 1024
"""A longer diff is given up for the new content alone: nobody reads a megabyte of removed lines."""
_MAX_COMPARISONS: Final = 4_000_000


def unified_diff(
    path: str,
    old: bytes | None,
    new: bytes | None,
    *,
    changes: Sequence[LineChange] | None = None,
    moved_from: str = "",
) -> str:
    """Returns the diff at a virtual path; None stands for a missing file. Empty if nothing changes.

    A caller that knows which lines changed passes them (`changes`, in order) and saves the search; wrong ones are not
    used. `moved_from` is the path of the old content.
    """
    if old == new:
        return ""
    header = _header(path, old is not None, new is not None, moved_from)
    if old and looks_binary(old):
        return header + _replaced(f"{_described(old)} is binary", new)
    if old and len(old) > COMPARE_LIMIT:
        return header + _replaced(f"{_described(old)} is too large to show", new)
    if all(_ends_lines_by_crlf(side) for side in (old, new) if side):  # so none of its line ends changes
        old, new = _with_lf(old), _with_lf(new)
    old_lines, new_lines = _diff_lines(old), _diff_lines(new)
    if changes is None or not covers_all_changes(changes, old_lines, new_lines):
        changes = line_changes(old_lines, new_lines, most_comparisons=_MAX_COMPARISONS)
    text = header + "".join(unified_hunks(old_lines, new_lines, changes))
    if old and len(text) > DIFF_LIMIT:
        return header + _replaced(f"{_described(old)} is too large to show", new)
    return _escape_invalid_utf8(text)


def replaced_whole(path: str, old_size: int, new: bytes | None) -> str:
    """The same for an old content too large to be read."""
    return _header(path, True, new is not None) + _replaced(
        f"The old content ({old_size} bytes) is too large to show", new
    )


def replaced_secret(path: str, old_size: int, new: bytes | None) -> str:
    """The same for a secret old content: a write must not show it to a prompt, event or log."""
    return _header(path, True, new is not None) + _replaced(
        f"The old content ({old_size} bytes) is a secret and not shown", new
    )


def _header(path: str, had: bool, has: bool, moved_from: str = "") -> str:
    return f"--- {f'a{moved_from or path}' if had else '/dev/null'}\n+++ {f'b{path}' if has else '/dev/null'}\n"


def _described(old: bytes) -> str:
    return f"The old content ({len(old)} bytes, sha256 {hashlib.sha256(old).hexdigest()})"


def _replaced(why: str, new: bytes | None) -> str:
    what = "removed" if new is None else "replaced whole"
    lines = _diff_lines(_with_lf(new) if new and _ends_lines_by_crlf(new) else new)
    whole = [LineChange(0, 0, 0, len(lines))] if lines else []
    return _escape_invalid_utf8(f"# {why}; it is {what}.\n" + "".join(unified_hunks([], lines, whole)))


def _ends_lines_by_crlf(data: bytes) -> bool:
    return b"\n" in data and data.count(b"\r\n") == data.count(b"\n")


def _with_lf(data: bytes | None) -> bytes | None:
    return None if data is None else data.replace(b"\r\n", b"\n")


def _diff_lines(data: bytes | None) -> list[str]:
    """Split at LF only: a changed line end is a change that must be seen. Bytes that are no UTF-8 are kept apart."""
    return list(io.StringIO((data or b"").decode("utf-8", "surrogateescape"), newline="\n"))


def _escape_invalid_utf8(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
