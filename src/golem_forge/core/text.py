"""Text for people and models: control characters, one line, closest names, paths, cuts, slash commands, tables. Pure.

`escape_control_chars` is for everything that is approved or named; `escape_control_chars_in_prose` for answers and
users' own text, where a joiner between two emoji makes them one picture. `shorten` keeps to a length that counts the
`…`, `clip` to one that does not; `shorten_middle` keeps both ends of a text, `head_and_tail` both ends of an output,
cut at lines. Tables have aligned columns, times in the local time zone, and amounts. No cell can break its line or
steer a screen.

`process_link` and `without_process_root` recognise paths that start again at the root on the way:
`/proc/self/root/etc/x` is `/etc/x`. They never ask the disk. Threat: code that judges or hides a path by its prefix is
misled by a prefix that leads back to the root, so all such code asks here first.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from golem_forge.core.regex import regex

if TYPE_CHECKING:
    from pathlib import Path


_UNSAFE = regex(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidi controls
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2028\u2029"  # characters without a shape
    "\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\ud800-\udfff"  # annotations, lone surrogates
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # formatting of hieroglyphs, shorthand, music
    "\ufe00-\ufe0e\U000e0000-\U000e0fff]"  # variation selectors, tags: any number of them is no wider than none
    # the last selector is common: it makes a picture of the symbol before it, or a key of what stands before U+20E3
    "|(?<![\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf\u2900-\u297f"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff])\ufe0f(?!\u20e3)"
)

_PICTURE = "\u2194-\u2199\u2600-\u27bf\u2b1b\u2b1c\U0001f000-\U0001faff"
_UNSAFE_IN_PROSE = regex(
    # a joiner stays only with a picture on both sides; a picture may carry its variation selector
    f"(?:(?<=[{_PICTURE}])|(?<=[{_PICTURE}]\ufe0f))(\u200d)(?=[{_PICTURE}])|{_UNSAFE.pattern}"
)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escape_control_chars(text: str) -> str:
    """Text that is safe to show: every character that could control a terminal or hide text is a visible escape;
    newline and tab stay. Threat: a tool argument or file name with ESC sequences, bidi overrides, zero-width or tag
    characters can make a prompt show something other than what will run, and a row of variation selectors can hold a
    whole program in what looks like an empty text."""
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_escape, text)


def escape_control_chars_in_prose(text: str) -> str:
    """`escape_control_chars`, but for the joiners inside emoji."""
    if text.isascii():
        return escape_control_chars(text)
    return _UNSAFE_IN_PROSE.sub(lambda match: match[1] or _escape(match), text)


def count_control_chars(text: str) -> int:
    """Returns how many characters `escape_control_chars` would replace."""
    return 0 if text.isascii() and text.isprintable() else len(_UNSAFE.findall(text))


_MIN_SIMILARITY: Final = 0.62
"""Above what two words of four and six letters reach by three common ones: `nope` is not `openai`."""


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """The closest known name, ignoring case and `-`/`_`; None if nothing is close."""
    import difflib

    folded: dict[str, str] = {}
    for name in sorted(known):
        folded.setdefault(name.lower().replace("-", "_"), name)
    wanted = word.lower().replace("-", "_")[:100]
    close = difflib.get_close_matches(wanted, folded, n=1, cutoff=_MIN_SIMILARITY)
    return folded[close[0]] if close else None


def nearest_hint(word: object, known: Iterable[str], otherwise: str = "") -> str:
    """The end of an error about an unknown name: `; did you mean 'x'?`, or `otherwise` if no known name is close."""
    close = closest_match(word, known) if isinstance(word, str) else None
    return f"; did you mean '{close}'?" if close else otherwise


def nearest_remark(word: str, known: Iterable[str]) -> str:
    """Returns ` (did you mean 'x'?)` for use inside a sentence; empty if no known name is close."""
    close = closest_match(word, known)
    return f" (did you mean '{close}'?)" if close else ""


def display_path(path: Path | str) -> str:
    """`~/src/app`: a host path as the person at this machine writes it, on one line and safe to print."""
    text, home = os.fspath(path), os.path.expanduser("~")
    if home != "/" and (text == home or text.startswith(home + "/")):
        text = "~" + text[len(home) :]
    return one_line(text)


def one_line(text: str) -> str:
    """Returns the text safe to print on a single line: line ends and tabs become blanks."""
    return escape_control_chars(text).replace("\n", " ").replace("\t", " ")


def display_name(name: str) -> str:
    """A name on one line, with nothing in it that steers a terminal or hides; line ends and tabs are escapes."""
    return escape_control_chars(name).replace("\n", "\\n").replace("\t", "\\t")


def shorten(text: str, most: int) -> str:
    """Returns at most `most` characters; the last is `…` if something was left out."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shorten_prose(text: str, most: int) -> str:
    """Like `shorten`, cut after a word; a word longer than half of `most` is cut itself."""
    if len(text) <= most:
        return text
    end = text.rfind(" ", most // 2, most)
    return f"{text[: most - 1 if end < 0 else end].rstrip(' ,;:')}…"


def duration(ms: float, decimals: int = 0) -> str:
    """`850 ms`, `75.4 s`, `4 min 5 s`, `1 h 2 min`. `decimals`: of milliseconds."""
    if ms < 999.5:
        return f"{ms:.{decimals}f} ms"
    if ms < 119_950:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def clip(text: str, most: int) -> str:
    """The first `most` characters, followed by `…` where there are more."""
    return text if len(text) <= most else f"{text[:most]}…"


def shorten_middle(text: str, most: int, joint: str) -> str:
    """The first and the last characters, `most` of them together."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}{joint}{text[-half:]}"


class TextSource(Protocol):
    """A readable UTF-8 text; `sandbox.process.launch.Capture` is one."""

    @property
    def size(self) -> int: ...
    def read(self, start: int = 0, end: int | None = None) -> bytes: ...
    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]: ...


class FixedText(NamedTuple):
    """A TextSource in memory."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        return self.data[start:end]

    def pieces(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        yield self.data[start:end]


_LINE_SLACK: Final = 1024


def head_and_tail(whole: TextSource, limit: int, handle: str = "") -> str:
    """Returns at most `limit` bytes, half head and half tail; between them a line says how much was left out and where
    the whole is.

    Only what is shown is kept; the middle streams through once, to be counted.
    """
    size, half = whole.size, limit // 2
    if size <= limit:
        return whole.read().decode("utf-8", "replace")
    head = _cut_tail(whole.read(0, half))
    tail = _cut_head(whole.read(size - half, size)[-half:]) if half else b""
    start, end = len(head), size - len(tail)
    lines, last = 0, b""
    for piece in whole.pieces(start, end):
        lines += piece.count(b"\n")
        last = piece[-1:] or last
    lines += last != b"\n"
    where = f"; whole output: read_output handle={handle}" if handle else ""
    joint = f"[… {lines} lines, {end - start} bytes left out{where}]"
    first = head.decode("utf-8", "replace").rstrip("\n")
    return f"{first}{chr(10) if first else ''}{joint}\n{tail.decode('utf-8', 'replace')}"


def _cut_tail(head: bytes) -> bytes:
    """Ends at a line end if one is near, else at a whole character."""
    newline = head.rfind(b"\n", max(0, len(head) - _LINE_SLACK))
    if newline >= 0:
        return head[: newline + 1]
    end = len(head)
    while end and head[end - 1] & 0xC0 == 0x80:
        end -= 1
    if end and head[end - 1] >= 0xC0:  # a lead byte: whole only if its continuation bytes are all there
        lead = head[end - 1]
        need = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        end = end - 1 if len(head) - (end - 1) < need else end - 1 + need
    return head[:end]


def _cut_head(tail: bytes) -> bytes:
    """Begins after a line end if one is near, else at a whole character."""
    newline = tail.find(b"\n", 0, _LINE_SLACK)
    if 0 <= newline < len(tail) - 1:
        return tail[newline + 1 :]
    start = 0
    while start < len(tail) and tail[start] & 0xC0 == 0x80:
        start += 1
    return tail[start:]


SLASH_COMMANDS: Final = (
    "help", "tools", "tool", "t", "model", "clear", "status", "config", "exit", "rules", "why", "mcp", "sessions",
    "plan", "output", "trace", "rate", "keep", "web", "resume", "compact", "cost", "export", "changes", "undo", "redo",
    "rewind", "ports", "publish", "unpublish", "mode",
)  # fmt: skip
"""Forge's own; each wins over a tool of its name, in any case."""


def slash_command(tool: str) -> str:
    """Returns how a user types a tool's name. Threat: a tool with the name of a command; a hint that says `/exit` runs
    the tool would make the user leave.
    """
    return f"/tool {tool}" if tool.lower() in SLASH_COMMANDS else f"/{tool}"


_OWN_PROCESS_NAMES: Final = frozenset({"self", "thread-self"})
"""Names in /proc of the process that reads the path. A process given by its number may have another root."""


class ProcessLink(NamedTuple):
    """An absolute path divided at the last link of a process that it goes through."""

    name: str
    """`root` or `cwd`."""
    rest: str
    """The rest of the path as it is written; may be empty."""
    own: bool
    """Whether every link on the way is one of the process that reads the path, whichever that is."""


def process_link(path: str) -> ProcessLink | None:
    """`/proc/<process>/root` or `/proc/<process>/cwd`, also of a thread; None: the path goes through neither."""
    if not path.startswith("/") or "proc" not in path:
        return None
    found: ProcessLink | None = None
    parts: list[str] = []
    names = path.split("/")
    for index, name in enumerate(names):
        if name in ("", "."):
            continue
        if name == "..":
            del parts[-1:]  # that of the root is the root
            continue
        parts.append(name)
        of_process = len(parts) == 3 or (len(parts) == 5 and parts[2] == "task")
        if name in ("root", "cwd") and parts[0] == "proc" and of_process:
            own = parts[1] in _OWN_PROCESS_NAMES and (found is None or found.own)
            found = ProcessLink(name, "/".join(names[index + 1 :]).lstrip("/"), own)
            if name == "cwd":  # what it leads to is not known here, so nothing after it can be
                return found
            parts.clear()
    return found


def without_process_root(path: str) -> str:
    """The path that is meant, from the root on; unchanged where it is not reached through a process."""
    link = process_link(path)
    return f"/{link.rest}" if link is not None and link.name == "root" else path


def leads_to_root(prefix: str) -> bool:
    """Whether a path goes on from the root behind this one: `/.`, `/usr/..`, `/proc/self/root`."""
    return posixpath.normpath(without_process_root(prefix)).strip("/") in ("", ".")


GAP: Final = "  "


def columns(rows: Iterable[Sequence[str]], indent: str = "") -> str:
    """Rows with each column as wide as its widest cell; the last one is as long as it is."""
    table = [[one_line(cell) for cell in row] for row in rows]
    count = max(map(len, table), default=0)
    widths = [max((len(row[at]) for row in table if at < len(row)), default=0) for at in range(count)]
    return "\n".join(
        (indent + GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))).rstrip()
        for row in table
    )


def local_time(ts: str, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """The journal writes UTC; people read their own clock."""
    try:
        return datetime.fromisoformat(ts).astimezone().strftime(form)
    except ValueError:
        return ts


def local_minute(ts: str) -> str:
    return local_time(ts, "%Y-%m-%d %H:%M")


COST_UNKNOWN: Final = "cost unknown"
_LOCAL: Final = "local"


def cost_text(dollars: Any, prices: Any = "") -> str:
    """`$0.0123`; `local` where the models ran on this machine; `cost unknown`. `prices`: where the prices come from."""
    if type(dollars) not in (int, float) or not isfinite(dollars):
        return COST_UNKNOWN
    if prices == _LOCAL and dollars == 0:
        return _LOCAL
    return f"${dollars:.2f}" if dollars >= 10 or dollars == 0 else f"${dollars:.4f}"
