"""The page shows hidden characters as the terminal does: `visible.js` and `core.text` agree on every code point.

Threat: a character that only one of the two escapes makes the same command look different in the two places.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.ui.web.bench import Window, browsing

from golem_forge.core.text import escape_control_chars, escape_control_chars_in_prose

pytestmark = browsing

Spans = list[tuple[int, int, int]]
"""Of code points: from, up to, and how far apart."""

_EVERY: Spans = [(0, sys.maxunicode + 1, 1)]
_USED: Spans = [(0, 0x40000, 1), (0x40000, 0xE0000, 97), (0xE0000, 0xE1000, 1), (0xE1000, sys.maxunicode + 1, 97)]
"""Nobody has been given the others yet."""
_NEIGHBOURS: Spans = [
    *((0, 0x3400, 1), (0x3400, 0xFE00, 97), (0xFE00, 0x10000, 1)),
    *((0x10000, 0x1F000, 97), (0x1F000, 0x1FB00, 1), (0x1FB00, sys.maxunicode + 1, 97)),
]
"""Where pictures are, and some of everything else."""

_LINES = """async ([name, before, after, spans]) => {
  const show = (await import("/visible.js"))[name];
  const lines = [];
  for (const [from, to, step] of spans)
    for (let code = from; code < to; code += step)
      if (code !== 10) lines.push(before + String.fromCodePoint(code) + after);
  const shown = show(lines.join("\\n")).split("\\n");
  return [shown.length, lines.flatMap((line, at) => (line === shown[at] ? [] : [`${at} ${shown[at]}`])).join("\\n")];
}"""
"""Each code point on a line of its own; gives those lines that were changed, by place."""


async def _agree(
    functions: Window, show: Callable[[str], str], name: str, spans: Spans, before: str = "", after: str = ""
) -> list[str]:
    count, changed = await functions.run(_LINES, [name, before, after, spans])
    lines = [f"{before}{chr(code)}{after}" for span in spans for code in range(*span) if code != 0x0A]
    shown = show("\n".join(lines)).split("\n")
    expected = [f"{at} {shown[at]}" for at, line in enumerate(lines) if line != shown[at]]
    assert count == len(lines)
    odd = sorted(set(changed.split("\n")) ^ set(expected))
    assert odd[:5] == [], f"{len(odd)} differ"
    return expected


async def test_every_code_point_is_shown_alike(functions: Window, is_long: bool) -> None:
    changed = await _agree(functions, escape_control_chars, "visible", _EVERY if is_long else _USED)
    assert len(changed) > 2000, "surrogates alone are more than this"


async def test_selectors_and_joiners_are_judged_by_their_neighbours(functions: Window) -> None:
    for before, after in (("", "\ufe0f"), ("\ufe0f", "")):
        await _agree(functions, escape_control_chars, "visible", _NEIGHBOURS, before, after)
    for before, after in (("\u2600\u200d", ""), ("", "\u200d\u2600")):
        await _agree(functions, escape_control_chars_in_prose, "visibleProse", _NEIGHBOURS, before, after)


async def test_foreign_text_becomes_text_and_nothing_else(functions: Window) -> None:
    html, refused, attribute = await functions.run(
        """async (evil) => {
          const { h } = await import("/dom.js");
          const tried = [];
          for (const name of ["onclick", "ONLOAD", "style", "srcdoc"])
            try { h("p", { [name]: evil }); } catch (error) { tried.push(name); }
          const node = h("p", { title: evil }, evil, null, [evil], 5);
          return [node.innerHTML, tried, node.getAttribute("title")];
        }""",
        "<img src=x onerror=alert(1)>\u202e",
    )
    assert html == "&lt;img src=x onerror=alert(1)&gt;\\u202e" * 2 + "5"
    assert refused == ["onclick", "ONLOAD", "style", "srcdoc"]
    assert attribute.endswith("\\u202e")
