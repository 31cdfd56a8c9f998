"""`forge tools stats` and `forge tools suggest`: how a person's own tools are used, and which calls could become a
tool.

No tool retires by itself. A suggestion is a sequence of calls that agents made again and again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from golem_forge.agent.session_state import known_secrets
from golem_forge.cli.command import FAILED, NOT_FOUND, declare, fail, parser, print_error, print_json, read_args
from golem_forge.cli.tools.workshop import load_workshop, print_refusal, print_usage_error
from golem_forge.core.errors import ForgeError
from golem_forge.core.text import columns, local_time, nearest_remark
from golem_forge.usertools.call_sequences import recent_sessions
from golem_forge.usertools.overview import usage_overview
from golem_forge.usertools.store.statistics import (
    BLOCKS,
    PLAIN_BLOCKS,
    ToolStats,
    ToolTotals,
    ToolUsage,
    bar_chart,
    parse_age,
    tool_statistics,
    unused_tools,
)
from golem_forge.usertools.suggestions import (
    Suggestion,
    dismiss_sequence,
    dismissed_keys,
    find_suggestions,
    lines_for_person,
    undismiss_sequence,
)
from golem_forge.usertools.workshop import Workshop

STATS_HELP: Final = """usage: forge tools stats [NAME…] [--json]
       forge tools stats --unused AGE [--json]

  (nothing)  all user tools: who made them, how many are active, how often they are reused; then each with its calls
  NAME       one tool, also a deleted one, with its versions and its ratings
  --unused   tools that nobody ran for that long (90d, 12h, 2w) or ever; without retired ones

The success rate counts only calls that ran. Time saved is an estimate, only for tools made from a suggestion: the time
from the first to the last call that the tool replaces, with the model's requests and your answers between them, less
the time of the tool, times its calls.
Exit: 0 done, 2 usage, 4 no such tool."""

_COLUMNS: Final = ("NAME", "CALLS", "SUCCESS", "MEDIAN", "TOTAL", "LAST USED", "RATED")
_WIDEST: Final = 100
_MOST_BARS: Final = 10
_DIGEST: Final = len("sha256:") + 12


def run_stats(words: list[str]) -> int:
    asked = read_args("tools stats", STATS_HELP, words, "names:NAME*", "--unused AGE", "--json")
    names = list(dict.fromkeys(asked.names))
    if asked.unused is not None:
        if names:
            return print_usage_error("stats", "--unused looks at all tools: leave out NAME")
        return _print_unused(asked.unused, as_json=asked.json)
    workshop = load_workshop()
    return _print_some(workshop, names, as_json=asked.json) if names else _print_all(workshop, as_json=asked.json)


def _print_unused(age: str, *, as_json: bool) -> int:
    try:
        seconds = parse_age(age)
    except ForgeError as error:
        return print_refusal("stats", error)
    workshop = load_workshop()
    found = unused_tools(workshop.store, workshop.registry.entries, seconds)
    if as_json:
        print_json({"unused": [each.to_json() for each in found]})
    elif found:
        print(columns([("NAME", "LAST USED"), *((each.name, _last_used(each.last_used)) for each in found)]))
        print("\n`forge tools retire NAME` switches one off; nothing retires by itself.")
    else:
        print_error("tools stats", f"every user tool was run within {age}.")
    return 0


def _print_all(workshop: Workshop, *, as_json: bool) -> int:
    sums, every = usage_overview(workshop)
    if as_json:
        print_json({"totals": sums.to_json(), "tools": [each.to_json() for each in every]})
        return 0
    print(columns(_totals(sums)))
    if every:
        rows = ((each.name, *_usage(each.usage), _rated(each)) for each in every)
        print("\n" + columns([_COLUMNS, *rows]))
        if bars := _chart(every):
            print("\ncalls\n" + "\n".join(bars))
    return 0


def _print_some(workshop: Workshop, names: list[str], *, as_json: bool) -> int:
    known = {*workshop.registry.entries, *(each.name for each in tool_statistics(workshop.store))}
    for name in names:
        if name not in known and workshop.registry.lookup(name) is None:
            hint = nearest_remark(name, known)
            return fail("tools stats", f"no user tool '{name}'{hint}, and none was ever called.", NOT_FOUND)
    found = tool_statistics(workshop.store, names)
    if as_json:
        notes = {each.name: list(workshop.store.ratings(each.name).notes) for each in found}
        print_json({"tools": [each.to_json() | {"notes": notes[each.name]} for each in found]})
        return 0
    print("\n\n".join(_tool_text(workshop, each) for each in found))
    return 0


def _totals(sums: ToolTotals) -> list[tuple[str, str]]:
    made, refresh = sums.creations, sums.refresh
    of = ", ".join(
        f"{count} {word} ({_share(count / made.made)})"
        for word, count in (("built", made.built), ("tested", made.tested), ("activated", made.activated))
        if made.made
    )
    reuse = "no active tool yet"
    if sums.reuse is not None:
        reuse = f"{_share(sums.reuse)} of active tools, in at least 2 sessions"
    rows = [
        ("tools", f"{sums.tools} ({states})" if (states := _counts(sums.by_state)) else str(sums.tools)),
        ("made by", _counts(sums.by_author) or "nobody yet"),
        ("creations", f"{made.made}" + (f", of which {of}" if of else "")),
        ("reuse", reuse),
    ]
    if sums.saved_ms is not None:
        rows.append(("time saved", f"{_time(sums.saved_ms)} (an estimate)"))
    if refresh.p50_ms is not None and refresh.p95_ms is not None:
        rows.append(("refresh", f"p50 {refresh.p50_ms:.2f} ms, p95 {refresh.p95_ms:.2f} ms of {refresh.count}"))
    return rows


def _usage(usage: ToolUsage) -> tuple[str, ...]:
    rate, median = usage.success_rate, usage.median_ms
    return (
        str(usage.calls),
        "-" if rate is None else _share(rate),
        "-" if median is None else _time(median),
        _time(usage.total_ms),
        _last_used(usage.last_used),
    )


def _tool_text(workshop: Workshop, tool: ToolStats) -> str:
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
    rows += [("", f"“{note}”") for note in workshop.store.ratings(tool.name).notes]
    text = f"{tool.name}\n{columns(rows, indent='  ')}"
    if len(tool.by_digest) > 1:
        versions = ((digest[:_DIGEST], *_usage(of)) for digest, of in tool.by_digest.items())
        text += "\n" + columns([("VERSION", *_COLUMNS[1:-1]), *versions], indent="  ")
    return text


def _chart(every: tuple[ToolStats, ...]) -> list[str]:
    rows = [(each.name, float(each.usage.calls)) for each in every if each.usage.calls]
    busiest = sorted(rows, key=lambda row: -row[1])[:_MOST_BARS]
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
        marks = BLOCKS
    except (UnicodeEncodeError, LookupError):
        marks = PLAIN_BLOCKS
    try:
        width = min(os.get_terminal_size(sys.stdout.fileno()).columns, _WIDEST)
    except (OSError, ValueError):
        width = 80
    return bar_chart(busiest, width, marks=marks)


def _counts(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in parts.items())


def _rated(tool: ToolStats) -> str:
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


def _last_used(ts: str) -> str:
    return local_time(ts) if ts else "never"


SUGGEST_HELP: Final = """usage: forge tools suggest [--json]
       forge tools suggest --dismiss KEY | --restore KEY

Lists sequences of 2 to 6 calls that models made with the same tools and arguments, at least 3 times in at least 2
sessions of the last 30 days. A value that differed becomes a parameter. A session whose worker can make tools offers
each sequence once to the model; Forge asks you before it makes a tool.

  --dismiss  never suggest this sequence again
  --restore  suggest it again after all
  --json     for programs; `parameters` is what create_custom_tool takes

Nothing is run. Redacted values never appear.
Exit: 0 done, 1 it could not be saved, 2 usage, 4 no such suggestion."""


def run_suggest(words: list[str]) -> int:
    reader = declare(parser("tools suggest", SUGGEST_HELP), "--json")
    declare(reader.add_mutually_exclusive_group(), "--dismiss KEY", "--restore KEY")
    asked = reader.parse_args(words)
    if asked.json and (asked.dismiss or asked.restore):
        return print_usage_error("suggest", "--json goes with the list only")
    workshop = load_workshop()
    if asked.restore is not None:
        return _restore(workshop, asked.restore)
    found = suggestions(workshop)
    if asked.dismiss is not None:
        return _dismiss(workshop, asked.dismiss, found)
    if asked.json:
        print_json({"suggestions": [each.to_json() for each in found]})
    elif found:
        texts = []
        for each in found:
            do = f"  `forge tools new {each.name}` begins one; `forge tools suggest --dismiss {each.key}` forgets it"
            texts.append("\n".join([*lines_for_person(each), do]))
        print("\n\n".join(texts))
    else:
        why = "no sequence of calls came up often enough in the last 30 days."
        print_error("tools suggest", f"nothing to suggest: {why}")
    return 0


def suggestions(workshop: Workshop) -> tuple[Suggestion, ...]:
    """Returns the suggestions; known secrets are redacted again, though no journal should hold them."""
    redactor = known_secrets(workshop.home)
    return find_suggestions(
        workshop.home, workshop.store, recent_sessions(workshop.home), native=workshop.native, redact=redactor.value
    )


def _dismiss(workshop: Workshop, key: str, found: tuple[Suggestion, ...]) -> int:
    if key not in {each.key for each in found}:
        if key in dismissed_keys(workshop.home):
            print(f"{key} was dismissed already")
            return 0
        return _print_no_suggestion(key)
    try:
        dismiss_sequence(workshop.home, key)
    except ForgeError as error:
        return fail("tools suggest", error.message, FAILED)
    print(f"{key} will not be suggested again; `forge tools suggest --restore {key}` takes that back")
    return 0


def _restore(workshop: Workshop, key: str) -> int:
    try:
        if not undismiss_sequence(workshop.home, key):
            return _print_no_suggestion(key, "dismissed ")
    except ForgeError as error:
        return fail("tools suggest", error.message, FAILED)
    print(f"{key} may be suggested again")
    return 0


def _print_no_suggestion(key: str, what: str = "") -> int:
    return fail(
        "tools suggest",
        f"no {what}suggestion '{key[:100]}'. `forge tools suggest` lists them by their keys.",
        NOT_FOUND,
    )
