"""Display hints in a terminal: Markdown is laid out, code is highlighted, and neither can forge the screen."""

from __future__ import annotations

import pytest

from golem_forge.ui.render.markup import MAX_MARKUP, code_lines, markdown_lines

DOCUMENT = """# Report

Two **bold** words, `code` and [a page](https://example.com/x).

- one
- two
  1. inner

> quoted

| file | lines |
|---|---|
| a.py | 12 |

```python
def f():
    return "x"  # why
```
"""


def texts(rows: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for _, text in row).rstrip() for row in rows]


def test_markdown_is_laid_out() -> None:
    rows = markdown_lines(DOCUMENT)
    assert texts(rows) == [
        "Report",
        "",
        "Two bold words, code and a page (https://example.com/x).",
        "",
        "• one",
        "• two",
        "  1. inner",
        "",
        "▎ quoted",
        "▎",
        "file  lines",
        "────  ─────",
        "a.py  12",
        "",
        "  def f():",
        '      return "x"  # why',
    ]
    assert ("title", "Report") in rows[0] and ("title", "bold") in rows[2] and ("code", "code") in rows[2]


def test_code_has_its_words_in_styles_of_their_own() -> None:
    first, second = code_lines('def f():\n    return "x" + 12  # why\n', "python")
    assert ("keyword", "def") in first
    assert ("string", '"x"') in second and ("number", "12") in second and ("dim", "# why") in second
    assert code_lines("x", "no such language") == code_lines("x") == [[("code", "x")]]


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "a&#x1b;[2J", "[x](<http://x/\x1b[2J>)", "```\n\x1b[2J\n```", "<b>\u202e</b>"]
)
def test_no_text_reaches_the_screen_unescaped(text: str) -> None:
    for rows in (markdown_lines(text), code_lines(text, "python")):
        assert not [each for each in "".join(texts(rows)) if ord(each) < 32 or each == "\u202e"]


def test_a_text_that_is_too_large_is_shown_as_it_is() -> None:
    large = "# x\n" * (MAX_MARKUP // 4 + 1)
    assert texts(markdown_lines(large))[0] == "# x"
    assert texts(markdown_lines("> " * 3000 + "deep"))
