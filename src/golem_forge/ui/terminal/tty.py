"""The terminal device: styled lines as ANSI text, the terminal's modes, sys.stdout while the screen is drawn, pictures.

A style is a meaning (`ok`, `dim`, `title`) or a look (`bold red`); without colour (`NO_COLOR`, a dumb terminal) only
the text is given. `safe_text` escapes text that comes straight from a model or a tool.
`TerminalModes` restores the modes on return, exception, exit and SIGTERM; only `kill -9` cannot be caught. It leaves a
signal handler that others set alone.
While the screen is drawn, what other code prints appears above it in whole lines, from any thread, escaped.

The lines around the input: running calls with time, progress and last output above it, the status line below it. The
status line has worker, model, context use and cost. Fed by events; gives styled lines whenever the screen is drawn.

`picture_protocol` tells from the environment whether a terminal speaks kitty's protocol, iTerm2's or sixel; empty:
none. It asks the terminal nothing, because an answer would arrive as if it were typed. Inside a multiplexer (tmux,
screen) the answer is none. `picture_sequence` takes the bytes of a picture and returns what is written for it, or an
empty text where it cannot be shown: a format that needs Pillow (extra `pictures`) without Pillow, too many pixels, too
many bytes. Threat: whoever made the picture chose its bytes. Nothing but base64 or sixels made here reaches the
terminal, so no byte of the picture can be a control character; what is larger than the bounds is not decoded.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import io
import logging
import os
import signal
import sys
import termios
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from types import FrameType
from typing import Any, Final, TextIO

from golem_forge.core.images import MAX_PIXELS, image_size
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import cost_text, duration, escape_control_chars, escape_control_chars_in_prose
from golem_forge.events.serialization import Event
from golem_forge.ui.render.lines import fit_width, one_line, width_of

_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_STEP_S: Final = 0.1
_TAIL_CHARS: Final = 2000
_TAIL_LINES: Final = 3
_MAX_SHOWN: Final = 6


@dataclass(slots=True, kw_only=True)
class _RunningCall:
    name: str
    since: float
    progress: str = ""
    tail: str = ""


class Activity:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: dict[str, _RunningCall] = {}
        self._since: float | None = None

    @property
    def busy(self) -> bool:
        return bool(self._calls) or self._since is not None

    @property
    def calls(self) -> int:
        return len(self._calls)

    def turn_began(self) -> None:
        if self._since is None:
            self._since = self._clock()

    def turn_ended(self) -> None:
        self._since = None

    def started(self, data: Mapping[str, Any], worker: str = "") -> None:
        """`worker`: the name of the sub-worker that calls."""
        tool = str(data.get("label") or data["toolName"])
        name = f"{worker} │ {tool}" if worker else tool
        self._calls[str(data["toolCallId"])] = _RunningCall(name=one_line(name), since=self._clock())

    def progressed(self, data: Mapping[str, Any]) -> None:
        if call := self._calls.get(str(data["toolCallId"])):
            done, total, message = data["progress"], data.get("total"), data.get("message")
            call.progress = f" · {100 * done / total:.0f} %" if total else f" · {done:g}"
            if message:
                call.progress += f" · {safe_text(str(message)).splitlines()[0][:100]}"

    def add_output(self, data: Mapping[str, Any]) -> None:
        if call := self._calls.get(str(data["toolCallId"])):
            whole = data.get("whole")
            call.tail = (str(whole) if whole is not None else call.tail + str(data["delta"]))[-_TAIL_CHARS:]

    def ended(self, call_id: str) -> None:
        self._calls.pop(call_id, None)

    def clear(self) -> None:
        self._calls.clear()
        self._since = None

    def lines(self, *, waiting: bool, streaming: bool) -> list[StyledLine]:
        """`waiting`: a person is asked, so nothing spins; `streaming`: the text itself shows that it goes on."""
        now = self._clock()
        mark = "·" if waiting else _SPINNER[int(now / _STEP_S) % len(_SPINNER)]
        lines: list[StyledLine] = []
        for call in list(self._calls.values())[:_MAX_SHOWN]:
            lines.append(
                [("cyan", f"{mark} "), ("", call.name), ("dim", f"  {_elapsed(now - call.since)}{call.progress}")]
            )
            # Of each line what a carriage return left of it.
            tail = [line.rsplit("\r", 1)[-1] for line in call.tail.replace("\r\n", "\n").split("\n") if line.strip()]
            lines += [[("dim", f"  │ {safe_text(line)}")] for line in tail[-_TAIL_LINES:]]
        if len(self._calls) > _MAX_SHOWN:
            lines.append([("dim", f"  and {len(self._calls) - _MAX_SHOWN} more")])
        if not lines and self._since is not None and not waiting and not streaming:
            lines.append([("cyan", f"{mark} "), ("dim", f"working  {_elapsed(now - self._since)} · Esc interrupts")])
        return lines


def _elapsed(seconds: float) -> str:
    """Seconds from the first moment on: a number that goes on must not change its unit."""
    return f"{seconds:.1f} s" if seconds < 1 else duration(1000 * seconds)


class StatusLine:
    def __init__(self) -> None:
        self._worker = self._model = self._root = self._context = self._cost = self._mode = ""

    def take(self, event: Event) -> None:
        wire = event.wire
        if event.type == "sessionStarted":
            self._root = event.worker_id
            self._worker, self._model = (one_line(wire.get(name) or "") for name in ("worker", "model"))
            self._mode = one_line(wire.get("approvalMode") or "")
        elif event.type == "status" and wire.get("mode"):
            self._mode = one_line(wire["mode"])
        elif event.type == "contextUsage" and wire["tokenLimit"] and event.worker_id in (self._root, ""):
            self._context = f"context {100 * wire['tokensUsed'] / wire['tokenLimit']:.0f} %"
        elif event.type == "usageUpdated":
            sums = wire["session"]
            self._cost = cost_text(sums["cost"], sums.get("prices")) if sums.get("cost") is not None else ""

    def lines(self, width: int, hint: str = "") -> list[StyledLine]:
        """One row: what does not fit is left out, the model first, the worker, the mode and the hint never."""
        parts = [self._worker, self._model, self._context, self._cost, self._mode, hint]
        text = ""
        for left_out in (None, 1, 3, 2):
            if left_out is not None:
                parts[left_out] = ""
            text = " · ".join(part for part in parts if part)
            if width_of(text) < width:
                return [[("dim", text)]] if text else []
        return [[("dim", fit_width(text, width - 1).rstrip())]] if text else []


StyledLine = Sequence[tuple[str, str]]

_CODES: Final = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "reverse": "7",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_MEANINGS: Final = {
    "ok": "green",
    "fail": "red",
    "warn": "yellow",
    "add": "green",
    "del": "red",
    "title": "bold",
    "code": "cyan",
    "user": "bold",
    "thinking": "dim italic",
    "choice": "cyan",
    "keyword": "blue",
    "string": "green",
    "number": "cyan",
    "low": "green",
    "medium": "blue",
    "high": "yellow",
    "critical": "bold red",
}
_SHAPES: Final = frozenset({"bold", "dim", "italic", "reverse"})


def colour_wanted() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"


def ansi(lines: Iterable[StyledLine], *, colour: bool) -> str:
    def styled(style: str, text: str) -> str:
        codes = ";".join(_CODES[word] for word in _style_words(style)) if colour else ""
        return f"\x1b[{codes}m{text}\x1b[0m" if codes else text

    return "".join("".join(styled(*span) for span in line) + "\n" for line in lines)


def toolkit_style(style: str) -> str:
    """Returns the style in prompt_toolkit's notation."""
    return " ".join(word if word in _SHAPES else f"fg:ansi{word}" for word in _style_words(style))


def _style_words(style: str) -> list[str]:
    return [word for part in style.split() for word in _MEANINGS.get(part, part).split() if word in _CODES]


def safe_text(text: str) -> str:
    return escape_control_chars(text.replace("\r\n", "\n").expandtabs(4))


def safe_prose(text: str) -> str:
    """`safe_text` for answers and the person's own words: emoji stay whole."""
    return escape_control_chars_in_prose(text.replace("\r\n", "\n").expandtabs(4))


_END_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_RESET_SEQUENCE: Final = b"\x1b[0m\x1b[?25h\x1b[?2004l\x1b[?7h"
"""Resets attributes, shows the cursor, and sets paste marks and wrapping to normal."""


class TerminalModes:
    def __init__(self, input_fd: int, output_fd: int) -> None:
        """Saves the modes of both ends as they are now."""
        self._output_fd = output_fd
        self._saved: dict[int, list[Any]] = {}
        self._owner = os.getpid()
        self._restored = False
        self._signals: dict[int, Any] = {}
        for fd in (input_fd, output_fd):
            with contextlib.suppress(termios.error, OSError):
                self._saved[fd] = termios.tcgetattr(fd)
        atexit.register(self.restore)
        if threading.current_thread() is threading.main_thread():
            for number in _END_SIGNALS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._signals[number] = signal.signal(number, self._ended_by)

    def restore(self) -> None:
        """Restores the terminal; safe to call any number of times. A forked child never changes its
        parent's terminal.
        """
        if self._restored or os.getpid() != self._owner:
            return
        self._restored = True
        with contextlib.suppress(OSError):
            os.write(self._output_fd, _RESET_SEQUENCE)
        for fd, modes in self._saved.items():
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(fd, termios.TCSADRAIN, modes)
        atexit.unregister(self.restore)
        with contextlib.suppress(ValueError):  # not the main thread: the handlers stay, and find nothing to do
            for number, handler in self._signals.items():
                if signal.getsignal(number) == self._ended_by:
                    signal.signal(number, handler)

    def _ended_by(self, number: int, _frame: FrameType | None) -> None:
        self.restore()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


class StdoutProxy(io.TextIOBase):
    def __init__(self, original: TextIO, put: Callable[[str], None], loop: asyncio.AbstractEventLoop) -> None:
        self._original = original
        self._put = put
        self._loop = loop
        self._rest = ""

    def write(self, text: str) -> int:
        whole, separator, self._rest = (self._rest + text).rpartition("\n")
        if separator:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is drawn any more
                self._loop.call_soon_threadsafe(self._put, safe_text(whole) + "\n")
        return len(text)

    def fileno(self) -> int:
        return self._original.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._original.encoding

    def isatty(self) -> bool:
        return self._original.isatty()

    @property
    def rest(self) -> str:
        """The text that has no line end yet."""
        return safe_text(self._rest)


@contextlib.contextmanager
def redirect_standard_streams(put: Callable[[str], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    originals = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    proxies = {name: StdoutProxy(original, put, loop) for name, original in originals.items()}
    sys.stdout, sys.stderr = proxies.values()
    try:
        yield
    finally:
        for name, proxy in proxies.items():
            if getattr(sys, name) is proxy:  # nobody else replaced it meanwhile
                setattr(sys, name, originals[name])
            if proxy.rest:
                put(proxy.rest + "\n")


_log = logging.getLogger(__name__)
KITTY: Final = "kitty"
ITERM: Final = "iterm2"
SIXEL: Final = "sixel"
_KITTY_TERMS: Final = ("xterm-kitty", "xterm-ghostty")
_ITERM_PROGRAMS: Final = ("iTerm.app", "WezTerm")
_SIXEL_TERMS: Final = ("foot", "foot-extra", "mlterm", "yaft-256color")
_MULTIPLEXERS: Final = ("screen", "tmux")
_MAX_BYTES: Final = 4_000_000
"""Maximum bytes of a picture; more would block everything else on a slow line."""
_CELL: Final = (10, 20)
"""Pixels of a character, width and height, as most terminals have it; the terminal fits the picture into the cells."""
_MOST_COLUMNS: Final = 60
_MOST_ROWS: Final = 20
_CHUNK: Final = 4_096
_COLOURS: Final = 64
_BAND: Final = 6
"""Pixel rows in one line of sixels."""


def picture_protocol(environ: Mapping[str, str]) -> str:
    term = environ.get("TERM", "")
    if environ.get("TMUX") or environ.get("STY") or term.startswith(_MULTIPLEXERS) or term in ("", "dumb"):
        return ""
    if term in _KITTY_TERMS or environ.get("KITTY_WINDOW_ID"):
        return KITTY
    if environ.get("TERM_PROGRAM") in _ITERM_PROGRAMS or environ.get("LC_TERMINAL") == "iTerm2":
        return ITERM
    return SIXEL if term in _SIXEL_TERMS or term.endswith("-sixel") else ""


def picture_sequence(protocol: str, data: bytes, columns: int) -> str:
    """`columns`: the width of the terminal. Ends where the next line begins."""
    width, height = image_size(data)
    if not protocol or not width or width * height > MAX_PIXELS or len(data) > _MAX_BYTES:
        return ""
    cells = _cells(width, height, columns)
    if protocol == ITERM:
        written = b64encode(data).decode()
        said = f"inline=1;size={len(data)};width={cells[0]};height={cells[1]};preserveAspectRatio=1"
        return f"\x1b]1337;File={said}:{written}\x07\n"
    if protocol == KITTY:
        png = data if data.startswith(b"\x89PNG") else _as_png(data)
        return "".join(_kitty_pieces(png, cells)) + "\n" if png else ""
    return _sixels(data, cells)


def _cells(width: int, height: int, columns: int) -> tuple[int, int]:
    """(columns, rows) that a picture takes: never larger than it is, and never more than a third of a page."""
    most = max(1, min(_MOST_COLUMNS, columns - 2, ceil(width / _CELL[0])))
    rows = max(1, round(most * _CELL[0] * height / width / _CELL[1]))
    if rows <= _MOST_ROWS:
        return most, rows
    return max(1, round(_MOST_ROWS * _CELL[1] * width / height / _CELL[0])), _MOST_ROWS


def _kitty_pieces(png: bytes, cells: tuple[int, int]) -> Iterator[str]:
    """`q=2`: the terminal answers nothing, neither that it worked nor that it failed."""
    written = b64encode(png).decode()
    pieces = [written[at : at + _CHUNK] for at in range(0, len(written), _CHUNK)]
    for at, piece in enumerate(pieces):
        first = f"a=T,f=100,q=2,c={cells[0]},r={cells[1]}," if at == 0 else ""
        yield f"\x1b_G{first}m={int(at < len(pieces) - 1)};{piece}\x1b\\"


def _as_png(data: bytes) -> bytes:
    """Empty: Pillow is not there, or cannot read it."""
    picture = _opened(data)
    if picture is None:
        return b""
    written = io.BytesIO()
    picture.save(written, "PNG")
    return written.getvalue() if written.tell() <= _MAX_BYTES else b""


def _opened(data: bytes) -> Any:
    """The first frame, without transparency; None: Pillow is not there, or cannot read it."""
    try:
        from PIL import Image

        with Image.open(io.BytesIO(data)) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                return None
            seen = opened.convert("RGBA")
            ground = Image.new("RGBA", seen.size, "white")
            return Image.alpha_composite(ground, seen).convert("RGB")
    except ImportError:
        return None
    except Exception as error:  # whatever a library raises for bytes of a stranger
        _log.warning("a picture cannot be shown (%s)", type(error).__name__)
        return None


def _sixels(data: bytes, cells: tuple[int, int]) -> str:
    picture = _opened(data)
    if picture is None:
        return ""
    picture.thumbnail((cells[0] * _CELL[0], cells[1] * _CELL[1]))
    indexed = picture.quantize(_COLOURS)
    palette: Sequence[int] = indexed.getpalette()[: _COLOURS * 3]
    width, height, pixels = indexed.width, indexed.height, indexed.tobytes()
    parts = [f'\x1bPq"1;1;{width};{height}']
    for colour in range(len(palette) // 3):
        red, green, blue = (round(value * 100 / 255) for value in palette[3 * colour : 3 * colour + 3])
        parts.append(f"#{colour};2;{red};{green};{blue}")
    for top in range(0, height, _BAND):
        rows = [pixels[y * width : (y + 1) * width] for y in range(top, min(top + _BAND, height))]
        lines = (f"#{colour}{_sixel_line(rows, colour)}" for colour in sorted(set(b"".join(rows))))
        parts.append("$".join(lines) + "-")
    return "".join(parts) + "\x1b\\\n"


def _sixel_line(rows: Sequence[bytes], colour: int) -> str:
    """One colour of up to six rows of pixels: a character for each column, repetitions counted."""
    bits = [sum((row[x] == colour) << at for at, row in enumerate(rows)) for x in range(len(rows[0]))]
    written, at = [], 0
    while at < len(bits):
        end = at
        while end < len(bits) and bits[end] == bits[at]:
            end += 1
        sign = chr(63 + bits[at])
        written.append(sign * (end - at) if end - at < 4 else f"!{end - at}{sign}")
        at = end
    return "".join(written)
