"""The page shows hidden characters as the terminal does: `visible.js` and `core.text` agree on every code point.

Threat: a character that only one of the two escapes makes the same command look different in the two places.
"""

from __future__ import annotations

import sys
from functools import cache

from tests.ui.web.bench import Windows, browsing

from golem_forge.core.text import escape_control_chars, escape_control_chars_in_prose

pytestmark = browsing

_LINES = """async ([name, before, after, codes]) => {
  const show = (await import("/visible.js"))[name];
  const lines = [];
  const put = (code) => lines.push(before + String.fromCodePoint(code) + after);
  if (codes) codes.split(",").forEach((code) => put(Number(code)));
  else for (let code = 0; code <= 0x10ffff; code++) if (code !== 10) put(code);
  const shown = show(lines.join("\\n")).split("\\n");
  return [shown.length, lines.flatMap((line, at) => (line === shown[at] ? [] : [`${at} ${shown[at]}`])).join("\\n")];
}"""
"""Each code point on a line of its own; gives those lines that were changed, by place."""


def _every() -> list[int]:
    return [code for code in range(sys.maxunicode + 1) if code != 0x0A]


@cache
def _neighbours() -> list[int]:
    """Where pictures are, and some of everything else."""
    return [
        code
        for code in _every()
        if code < 0x3400 or 0xFE00 <= code < 0x10000 or 0x1F000 <= code < 0x1FB00 or code % 97 == 0
    ]


async def _agree(windows: Windows, show: object, name: str, before: str = "", after: str = "") -> list[str]:
    window = windows.opened[0] if windows.opened else await windows.with_modules()
    alone = not before and not after
    count, changed = await window.run(_LINES, [name, before, after, "" if alone else ",".join(map(str, _neighbours()))])
    lines = [f"{before}{chr(code)}{after}" for code in (_every() if alone else _neighbours())]
    shown = show("\n".join(lines)).split("\n")  # type: ignore[operator]
    expected = [f"{at} {shown[at]}" for at, line in enumerate(lines) if line != shown[at]]
    assert count == len(lines)
    odd = sorted(set(changed.split("\n")) ^ set(expected))
    assert odd[:5] == [], f"{len(odd)} differ"
    return expected


async def test_every_code_point_is_shown_alike(windows: Windows) -> None:
    changed = await _agree(windows, escape_control_chars, "visible")
    assert len(changed) > 6000, "surrogates and tags alone are more than this"


async def test_selectors_and_joiners_are_judged_by_their_neighbours(windows: Windows) -> None:
    await _agree(windows, escape_control_chars, "visible", after="\ufe0f")
    await _agree(windows, escape_control_chars, "visible", before="\ufe0f")
    await _agree(windows, escape_control_chars_in_prose, "visibleProse", before="\u2600\u200d")
    await _agree(windows, escape_control_chars_in_prose, "visibleProse", after="\u200d\u2600")


async def test_foreign_text_becomes_text_and_nothing_else(windows: Windows) -> None:
    window = await windows.with_modules()
    html, refused, attribute = await window.run(
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
