"""`forge tools stats`: how the person's own tools are used, and which are not. Nothing retires by itself."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import columns, complain, parser, print_json
from golem_forge.cli.tools.telling import NO_SUCH_TOOL, look_at_shop, refused, wrong_use

if TYPE_CHECKING:
    from collections.abc import Mapping

    from golem_forge.custom.book.statistics import ToolStatistics, Usage
    from golem_forge.custom.book.totals import Totals
    from golem_forge.custom.workshop import Workshop

HELP: Final = """usage: forge tools stats [NAME…] [--json]
       forge tools stats --unused AGE [--json]

  (nothing)  all your tools: who made them, how far they came, how much they are reused; then each with its calls
  NAME       one tool, also one that is gone, with its versions and what people said of it
  --unused   tools that were not run for so long (90d, 12h, 2w) or never; retired ones are left out

The success rate is over calls that ran. Time saved is an estimate, only for tools made from a suggestion: what the
calls it replaces took, less what it takes, times its calls.
Exit: 0 done, 2 usage, 4 no such tool."""

_HEAD: Final = ("NAME", "CALLS", "SUCCESS", "MEDIAN", "TOTAL", "LAST USED", "RATED")
_WIDEST: Final = 100
_MOST_BARS: Final = 10
_DIGEST: Final = len("sha256:") + 12
_NEVER: Final = "never"


def run_stats(words: list[str]) -> int:
    reader = parser("tools stats", HELP)
    reader.add_argument("names", metavar="NAME", nargs="*")
    reader.add_argument("--unused", metavar="AGE")
    reader.add_argument("--json", action="store_true")
    asked = reader.parse_args(words)
    names = list(dict.fromkeys(asked.names))
    if asked.unused is not None:
        if names:
            return wrong_use("stats", "--unused looks at all tools: name none")
        return _unused(asked.unused, as_json=asked.json)
    shop = look_at_shop()
    return _some(shop, names, as_json=asked.json) if names else _all(shop, as_json=asked.json)


def _unused(age: str, *, as_json: bool) -> int:
    from golem_forge.core.errors import ForgeError
    from golem_forge.custom.book.statistics import parse_age, unused

    try:
        seconds = parse_age(age)
    except ForgeError as error:
        return refused("stats", error)
    shop = look_at_shop()
    found = unused(shop.book, shop.registry.entries, seconds)
    if as_json:
        print_json({"unused": [each.to_json() for each in found]})
    elif found:
        print(columns([("NAME", "LAST USED"), *((each.name, _when(each.last_used)) for each in found)]))
        print("\n`forge tools retire NAME` switches one off; nothing retires by itself.")
    else:
        complain("tools stats", f"every tool of yours was run within {age}.")
    return 0


def _all(shop: Workshop, *, as_json: bool) -> int:
    from golem_forge.custom.overview import overview

    sums, every = overview(shop)
    if as_json:
        print_json({"totals": sums.to_json(), "tools": [each.to_json() for each in every]})
        return 0
    print(columns(_totals(sums)))
    if every:
        print("\n" + _table(every))
        if bars := _chart(every):
            print("\ncalls\n" + "\n".join(bars))
    return 0


def _some(shop: Workshop, names: list[str], *, as_json: bool) -> int:
    from golem_forge.core.nearest import nearest
    from golem_forge.custom.book.statistics import statistics

    known = {*shop.registry.entries, *(each.name for each in statistics(shop.book))}
    for name in names:
        if name not in known and shop.registry.look(name) is None:
            close = nearest(name, known)
            hint = f" (did you mean '{close}'?)" if close else ""
            complain("tools stats", f"no tool '{name}' of yours{hint}, and none was ever called.")
            return NO_SUCH_TOOL
    found = statistics(shop.book, names)
    if as_json:
        notes = {each.name: list(shop.book.ratings(each.name).notes) for each in found}
        print_json({"tools": [each.to_json() | {"notes": notes[each.name]} for each in found]})
        return 0
    print("\n\n".join(_one(shop, each) for each in found))
    return 0


def _totals(sums: Totals) -> list[tuple[str, str]]:
    made, refresh = sums.creations, sums.refresh
    of = ", ".join(
        f"{count} {word} ({_share(count / made.made)})"
        for word, count in (("built", made.built), ("tested", made.tested), ("activated", made.activated))
        if made.made
    )
    rows = [
        ("tools", _counted(sums.tools, sums.by_state)),
        ("made by", _counts(sums.by_author) or "nobody yet"),
        ("creations", f"{made.made}" + (f", of which {of}" if of else "")),
        ("reuse", _reuse(sums.reuse)),
    ]
    if sums.saved_ms is not None:
        rows.append(("time saved", f"{_time(sums.saved_ms)} (an estimate)"))
    if refresh.p50_ms is not None and refresh.p95_ms is not None:
        rows.append(("refresh", f"p50 {refresh.p50_ms:.2f} ms, p95 {refresh.p95_ms:.2f} ms of {refresh.count}"))
    return rows


def _reuse(share: float | None) -> str:
    return "no active tool yet" if share is None else f"{_share(share)} of active tools, in at least 2 sessions"


def _table(every: tuple[ToolStatistics, ...]) -> str:
    return columns([_HEAD, *((each.name, *_usage(each.usage), _rated(each)) for each in every)])


def _usage(usage: Usage) -> tuple[str, ...]:
    rate, median = usage.success_rate, usage.median_ms
    return (
        str(usage.calls),
        "-" if rate is None else _share(rate),
        "-" if median is None else _time(median),
        _time(usage.total_ms),
        _when(usage.last_used),
    )


def _one(shop: Workshop, tool: ToolStatistics) -> str:
    usage = tool.usage
    calls, rate, median, total, last = _usage(usage)
    rows = [
        ("calls", calls + (f" ({_counts(usage.statuses)})" if usage.statuses else "")),
        ("success", rate),
        ("time", f"median {median}, total {total}"),
        ("last used", last),
        ("rated", _rated(tool)),
    ]
    if tool.saved_ms is not None:
        rows.append(("time saved", f"{_time(tool.saved_ms)} (an estimate)"))
    rows += [("", f"“{note}”") for note in shop.book.ratings(tool.name).notes]
    text = f"{tool.name}\n{columns(rows, indent='  ')}"
    if len(tool.by_digest) > 1:
        versions = ((digest[:_DIGEST], *_usage(of)) for digest, of in tool.by_digest.items())
        text += "\n" + columns([("VERSION", *_HEAD[1:-1]), *versions], indent="  ")
    return text


def _chart(every: tuple[ToolStatistics, ...]) -> list[str]:
    from golem_forge.custom.book.totals import BLOCKS, PLAIN, chart

    rows = [(each.name, float(each.usage.calls)) for each in every if each.usage.calls]
    busiest = sorted(rows, key=lambda row: -row[1])[:_MOST_BARS]
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
        marks = BLOCKS
    except (UnicodeEncodeError, LookupError):
        marks = PLAIN
    return chart(busiest, _width(), marks=marks)


def _width() -> int:
    import os

    try:
        return min(os.get_terminal_size(sys.stdout.fileno()).columns, _WIDEST)
    except (OSError, ValueError):
        return 80


def _counted(count: int, parts: Mapping[str, int]) -> str:
    inner = _counts(parts)
    return f"{count} ({inner})" if inner else str(count)


def _counts(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in parts.items())


def _rated(tool: ToolStatistics) -> str:
    return f"{tool.good} good, {tool.bad} bad" if tool.good or tool.bad else "-"


def _share(part: float) -> str:
    return f"{part * 100:.0f} %"


def _time(ms: float) -> str:
    size = abs(ms)
    if size < 1_000:
        return f"{ms:.0f} ms"
    if size < 120_000:
        return f"{ms / 1_000:.1f} s"
    return f"{ms / 60_000:.1f} min" if size < 7_200_000 else f"{ms / 3_600_000:.1f} h"


def _when(ts: str) -> str:
    if not ts:
        return _NEVER
    from golem_forge.cli.log.states import local_time

    return local_time(ts)
