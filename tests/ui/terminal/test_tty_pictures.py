"""Which terminals are sent pictures, and what."""

from __future__ import annotations

import io
import re
from base64 import b64decode
from typing import Any

import pytest

from golem_forge.ui.terminal.tty import picture_protocol, picture_sequence

XTERM = {"TERM": "xterm-256color"}


@pytest.mark.parametrize(
    ("environ", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        (XTERM | {"KITTY_WINDOW_ID": "1"}, "kitty"),
        (XTERM | {"TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        (XTERM | {"LC_TERMINAL": "iTerm2"}, "iterm2"),
        ({"TERM": "foot"}, "sixel"),
        (XTERM, ""),
        ({}, ""),
        ({"TERM": "dumb", "KITTY_WINDOW_ID": "1"}, ""),
        ({"TERM": "tmux-256color", "TERM_PROGRAM": "iTerm.app"}, ""),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/x"}, ""),
    ],
)
def test_a_terminal_is_known_by_its_environment(environ: dict[str, str], protocol: str) -> None:
    assert picture_protocol(environ) == protocol


def drawn(form: str, size: tuple[int, int] = (64, 48)) -> bytes:
    images: Any = pytest.importorskip("PIL.Image")
    written = io.BytesIO()
    picture = images.new("RGB", size, "red")
    picture.putpixel((0, 0), (0, 0, 255))
    picture.save(written, form)
    return written.getvalue()


def test_each_protocol_carries_the_picture_and_no_other_control_character() -> None:
    png, jpeg = drawn("PNG"), drawn("JPEG")
    sent = picture_sequence("kitty", png, 80)
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", sent)
    assert b64decode("".join(piece for _, piece in pieces)) == png
    assert pieces[0][0] == "a=T,f=100,q=2,c=7,r=3,m=0" and sent.endswith("\n")
    large = picture_sequence("kitty", drawn("BMP", (2, 2)) + png, 80)
    assert large == "", "what has no size that can be told is not shown"
    many = re.findall(r"m=(\d);", picture_sequence("kitty", png + bytes(9000), 80))
    assert many == ["1", "1", "0"], "in pieces, the last one says so"
    assert "f=100" in picture_sequence("kitty", jpeg, 80), "made a PNG"
    sent = picture_sequence("iterm2", jpeg, 80)
    found = re.fullmatch(r"\x1b\]1337;File=inline=1;size=(\d+);width=7;height=3;[^:]*:([^\x07]*)\x07\n", sent)
    assert found is not None and b64decode(found[2]) == jpeg and int(found[1]) == len(jpeg)
    sent = picture_sequence("sixel", png, 80)
    assert re.fullmatch(r"\x1bPq\"1;1;64;48[#;0-9!$?-~-]*\x1b\\\n", sent), sent[:80]
    assert sent.count("-") == 8, "six rows of pixels in a line"


def test_a_picture_stays_on_the_page_and_what_is_too_large_is_not_shown() -> None:
    assert "c=60,r=2," in picture_sequence("kitty", drawn("PNG", (4000, 250)), 200)
    assert "c=2,r=20," in picture_sequence("kitty", drawn("PNG", (100, 2000)), 200)
    assert "c=8,r=3," in picture_sequence("kitty", drawn("PNG", (800, 600)), 10)
    bomb = drawn("PNG")[:16] + (60_000).to_bytes(4) + (60_000).to_bytes(4) + drawn("PNG")[24:]
    for protocol in ("kitty", "iterm2", "sixel"):
        assert picture_sequence(protocol, bomb, 80) == ""
        assert picture_sequence(protocol, b"no picture", 80) == ""
    assert picture_sequence("sixel", drawn("PNG")[:60], 80) == "", "broken after its header"
