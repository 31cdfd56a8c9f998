"""A person at a terminal of 80 × 24 reads what an agent does: ten calls on one screen, a card in twelve lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

CART = "def cents(price):\n    return int(price * 100)\n\n\nprint(cents(19.99))\n"
SCRIPT = """\
turns:
  - say: I look around.
    calls:
      - {tool: list_dir, args: {path: .}}
      - {tool: read_file, args: {path: cart.py}}
      - {tool: read_file, args: {path: cart.py, offset: 2, limit: 1}}
      - {tool: grep_files, args: {pattern: cents, mode: lines}}
      - {tool: grep_files, args: {pattern: "now[h]ere"}}
      - {tool: exec_command, args: {cmd: "ls -la"}}
      - {tool: exec_command, args: {cmd: "wc -l cart.py"}}
      - {tool: file_info, args: {path: cart.py}}
      - {tool: read_file, args: {path: gone.py}}
      - {tool: list_files, args: {path: .}}
  - say: It must round.
    calls:
      - tool: apply_patch
        args:
          input: |
            *** Begin Patch
            *** Update File: cart.py
            @@
             def cents(price):
            -    return int(price * 100)
            +    return round(price * 100)
            *** End Patch
  - say: Done.
  - calls: [{tool: write_file, args: {path: cart.py, content: SAME}}]
  - say: Nothing to do.
  - calls: [{tool: write_file, args: {path: src/shop/cart.py, content: SAME}}]
""".replace("SAME", repr(CART.replace("return int", "return round")).replace("'", '"'))


@pytest.fixture
def place(desk: Callable[..., Any]) -> Any:
    made = desk({"cart.py": CART, "words.yaml": SCRIPT})
    made.know_walls()
    return made


def test_ten_calls_fit_on_the_screen_and_a_card_takes_twelve_lines(place: Any, terminal: Callable[..., Any]) -> None:
    screen = terminal(place, "--model", "scripted:words.yaml", "--approval", "interactive", size=(80, 24))
    screen.wait_for("walls:")
    # tmux keeps what an erasure from the upper left corner takes away: the first lines would be there twice
    assert re.search(rb"\x1b\[\d+A\r\x1b\[2K", screen.raw), "the line of the start was folded"
    assert not re.search(rb"\x1b\[\d+A\r\x1b\[J", screen.raw)
    screen.enter("Fix it")
    screen.wait_for("(y once", anywhere=False)
    rows = screen.text.split("\n")
    card = next(at for at, row in enumerate(rows) if row.startswith("── Apply patch"))
    calls = rows[rows.index("I look around.") : card]
    for shown in (
        "✓ list_dir . - 2 entries",
        "✓ read_file cart.py - 5 lines",
        "✓ read_file cart.py:2-2 - 1 line",
        '✓ grep_files "now[h]ere" - nothing found',
        "✓ exec_command ls -la - exit 0",
        "✓ exec_command wc -l cart.py - exit 0",
        "✗ read_file gone.py - ",
        "✓ file_info cart.py - file, 68 bytes (",
    ):
        assert sum(row.startswith(shown) for row in calls) == 1, (shown, calls)
    assert "  /workspace/cart.py:1: def cents(price):" in calls
    assert not any(word in "\n".join(calls) for word in ("offset", "limit", "engine", "truncated", "yield_time", "▸"))
    assert len(calls) <= 22, "\n".join(calls)
    end = card_end(rows, card)
    assert "│ /workspace/cart.py +1 −1" in rows[card:end] and "  Writing in /workspace asks." in rows[card:end]
    screen.send("d")
    screen.wait_for("what the choices remember", anywhere=False)
    assert "\\n" not in screen.visible and "*** Begin" not in screen.visible
    screen.settle(0.6)  # keys that come together answer nothing
    screen.send("y")
    screen.wait_for("Done.")
    screen.enter("Again")
    screen.wait_for("│ no change")
    screen.wait_for("(y once", anywhere=False)
    screen.settle(0.6)
    screen.send("y")
    screen.wait_for("Nothing to do.")
    place.write(**{"src/shop/cart.py": CART})
    screen.enter("And in a directory")
    screen.wait_for("write this file")
    screen.wait_for("(y once", anywhere=False)
    rows = screen.text.split("\n")
    card = max(at for at, row in enumerate(rows) if row.startswith("── Write file"))
    end = card_end(rows, card)
    assert any(row.endswith("remembered.yaml: write this file") for row in rows[card:end]), rows[card:end]


def card_end(rows: list[str], card: int) -> int:
    """The row of the keys, at most twelve rows from where the card begins."""
    end = next(at for at, row in enumerate(rows) if at > card and row.startswith("(y once"))
    assert end - card + 1 <= 12, rows[card : end + 1]
    return end


@pytest.mark.parametrize("how", [pytest.param("TERM=dumb", marks=pytest.mark.long), "--plain"])
def test_a_conversation_line_by_line_has_no_escape_and_no_spinner(
    place: Any, terminal: Callable[..., Any], how: str
) -> None:
    plain, term = ((), "dumb") if how == "TERM=dumb" else (("--plain",), "xterm-256color")
    words = ("run", "--model", "scripted:words.yaml", "--approval", "interactive", *plain)
    screen = terminal(place, *words, size=(80, 24), TERM=term)
    screen.wait_for("walls:")
    screen.wait_for(re.compile(r"(?m)^> $|^>$"))
    screen.settle(0.6)  # what is typed before a question does not count
    screen.enter("Fix it")
    screen.wait_for("✓ exec_command wc -l cart.py - exit 0")
    screen.wait_for("Approve? [y/N]")
    screen.settle(0.6)
    screen.enter("y")
    screen.wait_for("✓ apply_patch /workspace/cart.py +1 −1")
    screen.wait_for("Done.")
    screen.wait_for("changed 1 file (+1 −1)")
    screen.settle(0.6)
    screen.enter("/exit")
    screen.wait_end()
    assert b"\x1b" not in screen.raw and "⠋" not in screen.text
    assert "return round" in (place.root / "cart.py").read_text()
