"""Two drawings as SVG, each light and dark in one file: the path of a call, and the benchmarks beside the peers.

`path()` has the steps of docs/concepts/path.md. `plot(record)` has the rows of benchmarks/record.json that `GROUPS`
names, as shares of Forge's own figure: a figure belongs to a machine and a moment, a share to one run. It refuses a
record that lacks one of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import escape

_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
_MONO: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_LIGHT: Final = {
    "paper": "#ffffff",
    "edge": "#d0d7de",
    "ink": "#1f2933",
    "faint": "#57636f",
    "box": "#f3f6fa",
    "ours": "#0a6b4f",
    "theirs": "#a34a00",
    "stop": "#b3261e",
    "ask": "#fff4d6",
    "askedge": "#b98a00",
}
_DARK: Final = {
    "paper": "#11161d",
    "edge": "#39434f",
    "ink": "#e3e8ee",
    "faint": "#9fabb8",
    "box": "#1c242e",
    "ours": "#5fd6ab",
    "theirs": "#f2a65a",
    "stop": "#ff8b82",
    "ask": "#33290d",
    "askedge": "#d9ac2e",
}


class Step(NamedTuple):
    name: str
    does: tuple[str, str]
    ends: tuple[str, ...] = ()
    """What the call can end with here."""


STEPS: Final = (
    Step("resolve", ("find the tool", "by its name"), ("tool_not_found",)),
    Step("validate", ("check arguments", "by the schema"), ("input_invalid",)),
    Step("plan", ("say what the call", "would touch"), ("sandbox_denied",)),
    Step("judge", ("zones, rules and", "the tool's word"), ("policy_denied",)),
    Step("approve", ("where it must,", "a person answers"), ("approval_denied",)),
    Step("journal", ("write the call", "to disk first")),
    Step("run", ("inside walls,", "with a deadline"), ("timeout", "interrupted", "execution_failed")),
    Step("bound", ("cut a long result,", "keep the whole")),
    Step("record", ("write down", "how it ended")),
)
CALLERS: Final = ("a model", "you", "a program", "an MCP client", "another tool")

_WIDE, _HIGH, _GAP = 132, 72, 22


def path() -> str:
    width, height = 940, 424
    first, second = 72, 246
    parts = [_line(24, 34, "Every call takes the same path", "title")]
    middle = first + _HIGH / 2
    parts.append(_box(24, first - 14, 118, _HIGH + 28, "caller"))
    for number, caller in enumerate(CALLERS):
        parts.append(_line(83, first + 7 + 17 * number, caller, "small middle"))
    upper, lower = STEPS[:5], STEPS[5:]
    begin = 24 + 118 + _GAP
    for number, step in enumerate(upper):
        x = begin + number * (_WIDE + _GAP)
        parts += [_arrow(f"M{x - _GAP + 3} {middle}h{_GAP - 9}"), *_step(step, x, first)]
    end = begin + 5 * (_WIDE + _GAP) - _GAP
    under = second - 32
    parts.append(_arrow(f"M{end + 3} {middle}h9v{under - middle:g}H{begin + _WIDE / 2:g}v{second - under - 6}"))
    middle = second + _HIGH / 2
    for number, step in enumerate(lower):
        x = begin + number * (_WIDE + _GAP)
        parts += [*_step(step, x, second)]
        parts.append(_arrow(f"M{x + _WIDE + 3} {middle}h{_GAP - 9}"))
    x = begin + 4 * (_WIDE + _GAP)
    parts += [_box(x, second, _WIDE, _HIGH, "caller"), _line(x + _WIDE / 2, second + 29, "outcome", "name middle")]
    parts.append(_line(x + _WIDE / 2, second + 50, "one for each call", "small middle"))
    parts.append(
        _line(
            24,
            height - 20,
            "Red: what a call can end with at this step. What cannot be written to the journal does not run.",
            "small",
        )
    )
    title = "The path of a call: " + ", ".join(step.name for step in STEPS)
    return _svg(width, height, title, parts)


def _step(step: Step, x: float, y: float) -> list[str]:
    middle = x + _WIDE / 2
    parts = [_box(x, y, _WIDE, _HIGH, "ask" if step.name == "approve" else "step")]
    parts.append(_line(middle, y + 24, step.name, "name middle"))
    parts += [_line(middle, y + 43 + 15 * number, text, "small middle") for number, text in enumerate(step.does)]
    parts += [_line(middle, y + _HIGH + 19 + 16 * n, end, "stop middle") for n, end in enumerate(step.ends)]
    return parts


GROUPS: Final = {
    "one async call, journal off (µs)": "One call of a tool",
    "one async call, journal on (µs)": "The same, kept by the journal",
    "one turn of 50, policy and journal on (µs)": "One turn of an agent",
    "define 1,000 tools, every schema asked for (ms)": "1,000 tools with their schemas",
    "tools/list of a server with 1,000 tools (ms)": "An MCP server lists 1,000 tools",
    "forge to its prompt (ms)": "From the start to the prompt",
    "memory of an idle forge session (MB)": "Memory of an idle session",
    "memory of forge mcp serve, 10 tools (MB)": "Memory of an MCP server",
}
"""Rows of the record → what the plot calls them."""
LEFT_OUT: Final = ("python -q",)
"""No peer: it stands in the record for scale."""
_TICKS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def plot(record: Mapping[str, Any]) -> str:
    rows = {name: [row for row in record["rows"] if row["name"] == name] for name in GROUPS}
    if missing := [name for name, found in rows.items() if not found]:
        raise ValueError(
            f"the record has no row {missing[0]!r}: measure all topics again with `make bench BENCH_ARGS=--record`"
        )
    width, left, right = 940, 452, 886
    low, high = math.log(0.08), math.log(100)

    def place(share: float) -> float:
        return left + (math.log(min(max(share, 0.08), 100)) - low) / (high - low) * (right - left)

    parts: list[str] = [_line(24, 34, "Beside other libraries: Forge = 1", "title")]
    said = "The time or memory that each needs where Forge needs 1. One run on one machine; logarithmic scale."
    parts.append(_line(24, 56, said, "small"))
    y, body = 96.0, []
    for name, found in rows.items():
        shown = sorted((row for row in found if row["peer_name"] not in LEFT_OUT), key=lambda row: float(row["peer"]))
        body.append(_line(24, y + 4, GROUPS[name], "label"))
        for row in shown:
            share = row["peer"] / row["ours"]
            kind = "ours" if share > 1 else "theirs"
            begin, end = place(1), place(share)
            body.append(_line(left - 10, y + 4, row["peer_name"].partition(",")[0], "small end"))
            body.append(f'<path class="{kind}" d="M{begin:.1f} {y:g}H{end:.1f}"/>')
            body.append(f'<circle class="{kind}" cx="{end:.1f}" cy="{y:g}" r="5"/>')
            side, anchor = (end + 11, "") if share > 1 else (end - 11, " end")
            body.append(_line(side, y + 4, _share(share), f"value{anchor}"))
            y += 22
        y += 10
    bottom = y - 8
    for tick in _TICKS:
        strong = " one" if tick == 1 else ""
        parts.append(f'<path class="grid{strong}" d="M{place(tick):.1f} 80V{bottom:g}"/>')
        parts.append(_line(place(tick), bottom + 18, f"{tick:g}", "small middle"))
    parts += body
    versions = record["versions"]
    told = ", ".join(f"{name} {versions[name]}" for name in versions if name != "golem-forge")
    parts.append(f'<circle class="ours" cx="29" cy="{bottom + 41:g}" r="5"/>')
    parts.append(_line(41, bottom + 45, "the other needs more than Forge", "small"))
    parts.append(f'<circle class="theirs" cx="291" cy="{bottom + 41:g}" r="5"/>')
    parts.append(_line(303, bottom + 45, "the other needs less, or as much", "small"))
    said = "None of them judges, approves, bounds or records a call. FunctionToolset checks the arguments and calls."
    parts += [_line(24, bottom + 70, said, "small"), _line(24, bottom + 91, told, "tiny")]
    return _svg(
        width,
        round(bottom + 109),
        "Benchmarks: the time or memory that other libraries need where Forge needs 1",
        parts,
    )


def _share(share: float) -> str:
    return f"{share:.0f}" if share >= 10 else f"{share:.1f}" if share >= 0.95 else f"{share:.2f}"


def _line(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="9"/>'


def _arrow(line: str) -> str:
    return f'<path class="arrow" d="{line}" marker-end="url(#head)"/>'


def _svg(width: int, height: int, title: str, parts: list[str]) -> str:
    def colours(told: Mapping[str, str]) -> str:
        return " ".join(f"--{name}: {value};" for name, value in told.items())

    style = f"""\
svg {{ {colours(_LIGHT)} }}
@media (prefers-color-scheme: dark) {{ svg {{ {colours(_DARK)} }} }}
text {{ font: 13px {_FONT}; fill: var(--ink) }}
.title {{ font-size: 19px; font-weight: 650 }} .name {{ font-size: 15px; font-weight: 650 }}
.label, .value {{ font-weight: 600 }} .value {{ stroke: var(--paper); stroke-width: 4; paint-order: stroke }}
.small, .tiny {{ font-size: 12.5px; fill: var(--faint) }}
.tiny {{ font-size: 11.5px }} .stop {{ font: 12px {_MONO}; fill: var(--stop) }}
.middle {{ text-anchor: middle }} .end {{ text-anchor: end }}
.paper {{ fill: var(--paper); stroke: var(--edge) }} .step {{ fill: var(--box); stroke: var(--edge) }}
.caller {{ fill: none; stroke: var(--edge); stroke-dasharray: 4 3 }} .ask {{ fill: var(--ask); stroke: var(--askedge) }}
.arrow {{ fill: none; stroke: var(--faint); stroke-width: 1.6 }} .head {{ fill: var(--faint) }}
.grid {{ stroke: var(--edge); stroke-width: 1 }} .one {{ stroke: var(--ink); stroke-width: 1.4 }}
path.ours {{ stroke: var(--ours); stroke-width: 3 }} circle.ours {{ fill: var(--ours) }}
path.theirs {{ stroke: var(--theirs); stroke-width: 3 }} circle.theirs {{ fill: var(--theirs) }}"""
    head = '<marker id="head" viewBox="0 0 8 8" refX="3" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{style}\n</style>",
        f'<defs>{head}<path class="head" d="M0 0l8 4-8 4z"/></marker></defs>',
        f'<rect class="paper" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
