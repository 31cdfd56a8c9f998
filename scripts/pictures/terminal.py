"""A session of the real `forge` on a pty, as SVG: one frame for each moment, played one after the other, or one alone.

`play(shop, forge)` types what a person would type and gives the screen at each moment; `animated` and `still` draw
them. The pictures have the colours of a dark terminal on light pages and on dark ones. Durations differ from run to
run, so each is drawn as the same one.
"""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import escape

import ptyprocess  # type: ignore[import-untyped]
import pyte

from pictures.shop import ASKED, MENDED, Shop

COLUMNS: Final = 108
ROWS: Final = 40
PATIENCE: Final = 90.0
"""Seconds until something counts as not happening."""

_CELL: Final = 8.2
_LINE: Final = 19
_SIZE: Final = 13.6
_MARGIN: Final = 18
_BAR: Final = 36
_FONT: Final = "ui-monospace, 'SF Mono', SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_INK: Final = "#d7dde5"
_PAPER: Final = "#11161d"
_COLOURS: Final = {
    "default": _INK,
    "black": "#5b6673",
    "red": "#ff8b82",
    "green": "#7ee08a",
    "brown": "#f0c564",
    "blue": "#7db7ff",
    "magenta": "#d8a5ff",
    "cyan": "#6fdbe6",
    "white": "#d7dde5",
}
"""By pyte's names; each has a contrast of at least 4.5 on the paper, black apart."""
_DIM: Final = "#98a3b0"
_DURATION: Final = re.compile(r"\(\d[\d.,]* m?s\)")


class Run(NamedTuple):
    """Characters of a row that look alike."""

    column: int
    text: str
    colour: str
    bold: bool
    italic: bool


class Frame(NamedTuple):
    name: str
    rows: tuple[tuple[Run, ...], ...]
    cursor: tuple[int, int] | None
    """Column and row."""


class _Screen(pyte.Screen):
    """Keeps faint text apart: pyte knows no faint, so it is kept as `blink`, which nobody writes."""

    def select_graphic_rendition(self, *attributes: int, **kind: Any) -> None:
        told: list[int] = []
        for place, one in enumerate(attributes):
            faint = one == 2 and not (place and attributes[place - 1] in (38, 48)) and 38 not in attributes[:place]
            told += [5] if faint else [22, 25] if one == 22 else [one]
        super().select_graphic_rendition(*told, **kind)


class _Session:
    def __init__(self, command: Sequence[str], shop: Shop, spawn: Callable[..., Any]) -> None:
        self.screen = _Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)
        self.process = spawn(list(command), cwd=str(shop.project), env=shop.environ, dimensions=(ROWS, COLUMNS))

    def read(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.process.fd], [], [], left)[0]:
                data = os.read(self.process.fd, 65536)
                self._stream.feed(re.sub(rb"\x1b\[\d* q", b"", data))  # pyte takes the cursor's shape for text

    def wait_for(self, line: str, *texts: str) -> None:
        """Until the screen ends with this line of input and the row below it, and shows the texts."""
        end = time.monotonic() + PATIENCE
        while not self._shows(line, texts):
            if time.monotonic() > end:
                shown = "\n".join(row.rstrip() for row in self.screen.display).rstrip()
                raise RuntimeError(f"the terminal does not show {(line, *texts)}; it shows:\n{shown}")
            self.read(0.02)

    def _shows(self, line: str, texts: Sequence[str]) -> bool:
        rows = [row.strip() for row in self.screen.display if row.strip()]
        return rows[-2:-1] == [line] and rows[-1].endswith("interactive") and all(map("\n".join(rows).count, texts))

    def type(self, text: str) -> None:
        self.process.write(text.encode())

    def frame(self, name: str) -> Frame:
        cursor = self.screen.cursor
        rows = tuple(_runs(self.screen.buffer[number], self.screen.columns) for number in range(ROWS))
        return Frame(name, rows, None if cursor.hidden else (cursor.x, cursor.y))

    def close(self) -> None:
        if self.process.isalive():
            self.process.kill(signal.SIGKILL)
        self.process.close(force=True)


def play(
    shop: Shop, command: Sequence[str], spawn: Callable[..., Any] = ptyprocess.PtyProcess.spawn
) -> dict[str, Frame]:
    """`command`: how `forge` is started. Raises RuntimeError, with the screen, when a moment does not come."""
    session = _Session([*command, "--model", "scripted:model.yaml"], shop, spawn)
    found: list[Frame] = []
    try:
        session.wait_for(">", "walls: ")
        found.append(session.frame("ready"))
        half = ASKED.index(".") + 1
        session.type(ASKED[:half])
        session.wait_for(f"> {ASKED[:half]}")
        found.append(session.frame("half"))
        session.type(ASKED[half:])
        session.wait_for(f"> {ASKED}")
        found.append(session.frame("typed"))
        session.type("\r")
        session.wait_for(">", "apply_patch: write", "? help)", "context ")
        found.append(session.frame("card"))
        session.read(0.6)  # a card that has just come takes no answer
        session.type("y")
        session.wait_for(">", MENDED, "/undo", "context ")
        found.append(session.frame("done"))
    finally:
        session.close()
    return {frame.name: frame for frame in found}


SECONDS: Final = {"ready": 0.8, "half": 0.5, "typed": 0.8, "card": 7.0, "done": 6.0}
"""How long each moment is shown."""


def animated(frames: dict[str, Frame], rest: str = "card") -> str:
    """Played for ever; whoever wants no motion, or cannot play it, sees the frame `rest`."""
    whole = sum(SECONDS[name] for name in frames)
    begins = [0.0]
    for name in frames:
        begins.append(begins[-1] + SECONDS[name] / whole * 100)
    rules = [f".frame {{ visibility: hidden }} .{rest} {{ visibility: visible }}"]
    rules.append("@media (prefers-reduced-motion: no-preference) {")
    for name, (begin, end) in zip(frames, pairwise(begins), strict=True):
        hidden, shown = "visibility: hidden", "visibility: visible"
        steps = [f"0% {{ {shown if begin == 0 else hidden} }}", f"{begin:.2f}% {{ {shown} }}"]
        steps += [f"{end:.2f}% {{ {hidden} }}", f"100% {{ {hidden} }}"]
        if end > 99.9:
            steps[2:] = [f"100% {{ {shown} }}"]
        rules.append(f"@keyframes {name} {{ {' '.join(dict.fromkeys(steps))} }}")
        rules.append(f".{name} {{ animation: {name} {whole:.1f}s step-end infinite }}")
    rules.append("}")
    said = "a question, a command that only reads, a card with the change as a diff, the answer"
    return _svg(list(frames.values()), f"A session in the terminal: {said}", rules)


def still(frame: Frame) -> str:
    return _svg([frame], "A card in the terminal: the change as a diff, why Forge asks, and the keys that answer", [])


def _runs(cells: Any, columns: int) -> tuple[Run, ...]:
    def look(column: int) -> tuple[str, bool, bool]:
        cell = cells[column]
        colour = cell.bg if cell.reverse and cell.bg != "default" else cell.fg
        named = _COLOURS.get(colour.removeprefix("bright"))
        plain = named or (f"#{colour}" if re.fullmatch("[0-9a-f]{6}", colour) else _INK)
        return _DIM if cell.blink and plain == _INK else plain, cell.bold, cell.italics

    found: list[Run] = []
    for (colour, bold, italic), group in groupby(range(columns), look):
        places = list(group)
        text = "".join(cells[place].data for place in places)
        if text.strip():
            lead = len(text) - len(text.lstrip())
            steady = _DURATION.sub("(20 ms)", text.strip())
            found.append(Run(places[0] + lead, steady, colour, bold, italic))
    return tuple(found)


def _svg(frames: list[Frame], title: str, rules: list[str]) -> str:
    used = max(number for frame in frames for number, row in enumerate(frame.rows) if row) + 1
    width, height = round(COLUMNS * _CELL + 2 * _MARGIN), _BAR + used * _LINE + _MARGIN
    colours = sorted({run.colour for frame in frames for row in frame.rows for run in row})
    names = {colour: f"c{number}" for number, colour in enumerate(colours)}
    known = dict.fromkeys(row for frame in frames for row in frame.rows if row)
    rows = {row: f"r{number}" for number, row in enumerate(known)}
    style = [
        f"text {{ font: {_SIZE}px {_FONT}; white-space: pre; fill: {_INK} }}",
        ".b { font-weight: 700 } .i { font-style: italic }",
        *(f".{name} {{ fill: {colour} }}" for colour, name in names.items()),
        *rules,
    ]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' role="img">',
        f"<title>{escape(title)}</title>",
        "<style>",
        *style,
        "</style>",
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10" fill="{_PAPER}" stroke="#39434f"/>',
        f'<path d="M.5 {_BAR - 8}h{width - 1}" stroke="#232b35"/>',
        *(f'<circle cx="{20 + 18 * n}" cy="14" r="5" fill="#39434f"/>' for n in range(3)),
        f'<text x="{width / 2:g}" y="19" text-anchor="middle" style="fill:{_DIM}">~/shop</text>',
        "<defs>",
        *(f'<g id="{name}">{"".join(_text(run, names) for run in row)}</g>' for row, name in rows.items()),
        "</defs>",
    ]
    for frame in frames:
        lines.append(f'<g class="frame {frame.name}">' if len(frames) > 1 else "<g>")
        lines += [
            f'<use href="#{rows[row]}" y="{_BAR + number * _LINE}"/>' for number, row in enumerate(frame.rows) if row
        ]
        if frame.cursor:
            column, row_number = frame.cursor
            x, y = _MARGIN + column * _CELL, _BAR + row_number * _LINE + 2
            lines.append(f'<rect x="{x:.1f}" y="{y}" width="{_CELL}" height="{_LINE - 3}" fill="{_INK}" opacity=".6"/>')
        lines.append("</g>")
    return "\n".join([*lines, "</svg>"]) + "\n"


def _text(run: Run, names: dict[str, str]) -> str:
    classes = " ".join([names[run.colour], *(["b"] if run.bold else []), *(["i"] if run.italic else [])])
    place = f'x="{_MARGIN + run.column * _CELL:.1f}" y="{_LINE - 5}" textLength="{len(run.text) * _CELL:.1f}"'
    return f'<text class="{classes}" {place}>{escape(run.text)}</text>'
