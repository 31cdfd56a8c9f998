"""Pictures in a terminal that can show them: kitty's protocol, iTerm2's, sixel. Everywhere else nothing is written.

`picture_protocol` tells from the environment which one a terminal speaks; empty: none. It asks the terminal nothing,
because an answer would arrive as if it were typed. Inside a multiplexer (tmux, screen) the answer is none.
`picture_sequence` takes the bytes of a picture and returns what is written for it, or an empty text where it cannot be
shown: a format that needs Pillow (extra `pictures`) without Pillow, too many pixels, too many bytes.

Threat: whoever made the picture chose its bytes. Nothing but base64 or sixels made here reaches the terminal, so no
byte of the picture can be a control character; what is larger than the bounds is not decoded.
"""

from __future__ import annotations

import io
import logging
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any, Final

from golem_forge.core.images import MAX_PIXELS, image_size

_log = logging.getLogger(__name__)
KITTY: Final = "kitty"
ITERM: Final = "iterm2"
SIXEL: Final = "sixel"
_KITTY_TERMS: Final = ("xterm-kitty", "xterm-ghostty")
_ITERM_PROGRAMS: Final = ("iTerm.app", "WezTerm")
_SIXEL_TERMS: Final = ("foot", "foot-extra", "mlterm", "yaft-256color")
_MULTIPLEXERS: Final = ("screen", "tmux")
_MAX_BYTES: Final = 4_000_000
"""Of what is written; more would hold up everything else on a slow line."""
_CELL: Final = (10, 20)
"""Pixels of a character, width and height, as most terminals have it; the terminal fits the picture into the cells."""
_MOST_COLUMNS: Final = 60
_MOST_ROWS: Final = 20
_CHUNK: Final = 4_096
_COLOURS: Final = 64
_BAND: Final = 6
"""Rows of pixels that one line of sixels has."""


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
