"""Data as a table or a tree. Any value at all: what JSON cannot hold has become words before.

Display limits: 20 items of a list, 30 keys of an object, 60 characters of a value, 20 rows, 30 columns of a cell; each
says `display cut` where it cut. A tree stops at 200 lines and 8 levels, however its limits multiply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from golem_forge.tools.json_values import compact, safe_json
from golem_forge.ui.rendering.lines import DISPLAY_CUT, Line, fitted, one_line, shortened, width_of

MOST_ITEMS: Final = 20
MOST_KEYS: Final = 30
MOST_VALUE: Final = 60
MOST_ROWS: Final = 20
MOST_CELL: Final = 30
_MOST_LINES: Final = 200
_MOST_LEVELS: Final = 8
_GAP: Final = "  "


def more(count: int) -> Line:
    return [("dim", f"... and {count} more"), ("dim", DISPLAY_CUT)]


def is_table(data: Any) -> bool:
    """A list of objects with at least one column."""
    return isinstance(data, list) and bool(data) and all(isinstance(row, Mapping) for row in data) and bool(data[0])


def table(rows: Sequence[Mapping[str, Any]]) -> list[Line]:
    """The columns of the first row; a cell is as wide as its column needs, at most 30."""
    names = list(rows[0])[:MOST_KEYS]
    cells = [[_cell(name) for name in names]]
    cells += [[_cell(row.get(name, "")) for name in names] for row in rows[:MOST_ROWS]]
    widths = [min(MOST_CELL, max(width_of(row[at]) for row in cells)) for at in range(len(names))]
    shown: list[Line] = [[("title" if index == 0 else "", _row(row, widths))] for index, row in enumerate(cells)]
    shown.insert(1, [("dim", _GAP.join("─" * width for width in widths))])
    if len(rows[0]) > MOST_KEYS:
        shown.append([("dim", f"... and {len(rows[0]) - MOST_KEYS} more columns"), ("dim", DISPLAY_CUT)])
    if len(rows) > MOST_ROWS:
        shown.append(more(len(rows) - MOST_ROWS))
    return shown


def tree(value: Any) -> list[Line]:
    shown: list[Line] = []
    _grow(shown, value, 0, "", frozenset())
    if len(shown) > _MOST_LINES:
        shown = [*shown[:_MOST_LINES], [("dim", "..."), ("dim", DISPLAY_CUT)]]
    return shown


def listing(items: Sequence[Any]) -> list[Line]:
    """One line an item, 20 of them."""
    shown: list[Line] = [[("", one_line(item))] for item in items[:MOST_ITEMS]]
    return [*shown, more(len(items) - MOST_ITEMS)] if len(items) > MOST_ITEMS else shown


def _cell(value: Any) -> str:
    return one_line(value)[: MOST_CELL * 4]


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(fitted(cell, width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _grow(shown: list[Line], value: Any, level: int, label: str, above: frozenset[int]) -> None:
    """Reads no more of the value than it shows: a small one may be endless to walk."""
    if len(shown) > _MOST_LINES:
        return
    indent = _GAP * level
    pairs = None if id(value) in above else _pairs(value)
    if not pairs:
        shown.append([("", f"{indent}{label}{_leaf('(cycle)' if id(value) in above else value)}")])
        return
    keyed = isinstance(value, Mapping)
    if level >= _MOST_LEVELS:
        size = f"({len(pairs)} {'keys' if keyed else 'items'})"
        shown.append([("", f"{indent}{label}"), ("dim", size), ("dim", DISPLAY_CUT)])
        return
    if label:
        shown.append([("", f"{indent}{label.rstrip()}")])
        level, indent = level + 1, indent + _GAP
    limit = MOST_KEYS if keyed else MOST_ITEMS
    for key, item in pairs[:limit]:
        mark = f"{shortened(one_line(key), MOST_VALUE)}: " if keyed else "- "
        _grow(shown, item, level, mark, above | {id(value)})
    if len(pairs) > limit:
        shown.append([("dim", indent), *more(len(pairs) - limit)])


def _pairs(value: Any) -> list[tuple[Any, Any]] | None:
    """The members of an object or a list; None for everything else."""
    if isinstance(value, Mapping):
        try:
            return list(value.items())
        except Exception:  # a foreign mapping may raise while it is read
            return None
    return [("", item) for item in value] if isinstance(value, (list, tuple)) else None


def _leaf(value: Any) -> str:
    if not isinstance(value, str):
        data, _ = safe_json(value)
        value = data if isinstance(data, str) else compact(data)
    return shortened(one_line(value[: MOST_VALUE * 4]), MOST_VALUE)
