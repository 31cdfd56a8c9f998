"""Whatever an event holds: rendering never crashes and never lets a control character through (U9, U20)."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from golem_forge.events.model import REGISTRY
from golem_forge.events.serialization import Event
from golem_forge.ui.render.card import approval_card, full_card
from golem_forge.ui.render.lines import fit_width, one_line, plain_text, width_of
from golem_forge.ui.render.results import result_lines
from golem_forge.ui.trace import TraceLevel, create_trace_formatter

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
VIEWS = ["text", "markdown", "code", "diff", "table", "tree", "image", "raw", "hidden", "other"]
KINDS = [
    *("text", "diff", "file_content", "file_list", "json", "exec.result", "patch.result", "web.page", "plan.update"),
    "x.y",
]

texts = st.text(st.characters(), max_size=20) | st.sampled_from(["\x1b[2J", "a\r\nb", "\u202e", "日本", "\ud800"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
FIELDS = sorted({field.wire for kind in REGISTRY.values() for field in kind.FIELDS} | {"content", "data", "files"})
values = st.fixed_dictionaries(
    {"kind": st.sampled_from(KINDS)},
    optional={
        "display": st.fixed_dictionaries(
            {}, optional={"preferredView": st.sampled_from(VIEWS), "maxHeight": json_values}
        ),
        **dict.fromkeys(("data", "content", "modified", "original", "files", "path", "output", "diff"), json_values),
    },
)


def check(rows: list[Any]) -> None:
    text = plain_text(rows)
    assert UNSAFE.search(text) is None
    assert text.count("\n") == len(rows)


@given(values | json_values, st.sampled_from(["success", "timeout"]))
def test_results(value: Any, status: str) -> None:
    check(result_lines({"toolName": "t", "status": status, "durationMs": 1, "value": value, "error": value}))


@given(st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=20))
def test_cards(request: dict[str, Any]) -> None:
    check(approval_card(request))
    check(approval_card(request, width=40))
    check(full_card(request))


@given(
    st.sampled_from(sorted(REGISTRY)),
    st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=8),
    st.sampled_from(list(TraceLevel)),
)
def test_events_at_every_level(kind: str, data: dict[str, Any], level: TraceLevel) -> None:
    check(create_trace_formatter(level).format(Event(kind, data, worker_id="w", ts="now")))


@given(texts, st.integers(2, 12))
def test_fitted_text_has_exactly_its_width(text: str, width: int) -> None:
    assert width_of(fit_width(one_line(text), width)) == width
