"""Whatever a tool returns becomes a ToolResult (ui.md §8, cases 19 and 20)."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
from collections import OrderedDict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.tables import table

from golem_forge.core.results import ToolResult, is_valid_kind, is_well_known_kind
from golem_forge.tools.results import display_hints, text_for_model, to_result


class Colour(enum.Enum):
    RED = "red"


class Point(BaseModel):
    x: int
    when: datetime.date = datetime.date(2024, 5, 1)


@dataclasses.dataclass
class Pair:
    left: Any
    right: Any = None


class Stubborn:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


class Angry(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no")


@table("kind", ["git.status", "a.b.c.d", "v2_result", "text", "x"])
def test_19_valid_kinds(kind: str) -> None:
    assert is_valid_kind(kind)


@table("kind", ["Text", "2fast", "a-b", "a..b", ".a", "a.", "", "a\n", "a b", "ä", None, 5, ["a"]])
def test_19_invalid_kinds(kind: Any) -> None:
    assert not is_valid_kind(kind)


def test_19_well_known_kinds() -> None:
    assert all(map(is_well_known_kind, ["text", "diff", "file_content", "file_list", "json"]))
    assert not is_well_known_kind("git.status")
    assert not is_well_known_kind(None)


@table(
    ("value", "semantic", "text"),
    [
        ("hi", {"kind": "text", "content": "hi"}, "hi"),
        ("", {"kind": "text", "content": ""}, ""),
        (5, {"kind": "json", "data": 5}, "5"),
        (True, {"kind": "json", "data": True}, "true"),
        (None, {"kind": "json", "data": None}, "null"),
        (2.5, {"kind": "json", "data": 2.5}, "2.5"),
        ({"a": 1, "ü": "x"}, {"kind": "json", "data": {"a": 1, "ü": "x"}}, '{"a":1,"ü":"x"}'),
        ({}, {"kind": "json", "data": {}}, "{}"),
        ({"q": 'a"b\n'}, {"kind": "json", "data": {"q": 'a"b\n'}}, '{"q":"a\\"b\\n"}'),
        ([1, (2, 3)], {"kind": "json", "data": [1, [2, 3]]}, "[1,[2,3]]"),
        ({1: {2: 3}}, {"kind": "json", "data": {"1": {"2": 3}}}, '{"1":{"2":3}}'),  # number keys
        ({"b", "a"}, {"kind": "json", "data": ["a", "b"]}, '["a","b"]'),
        (Point(x=1), {"kind": "json", "data": {"x": 1, "when": "2024-05-01"}}, None),
        ([Point(x=1)], {"kind": "json", "data": [{"x": 1, "when": "2024-05-01"}]}, None),
        (Pair(1, {2}), {"kind": "json", "data": {"left": 1, "right": [2]}}, None),
        (Colour.RED, {"kind": "json", "data": "red"}, '"red"'),
        (pathlib.PurePosixPath("/a"), {"kind": "json", "data": "/a"}, '"/a"'),
        (decimal.Decimal("1.50"), {"kind": "json", "data": "1.50"}, '"1.50"'),
        (
            {"at": datetime.datetime(2024, 1, 2, 3, 4)},
            {"kind": "json", "data": {"at": "2024-01-02T03:04:00"}},
            None,
        ),
        ({"kind": "Text", "x": 1}, {"kind": "json", "data": {"kind": "Text", "x": 1}}, None),  # no kind
        ({"kind": "text"}, {"kind": "json", "data": {"kind": "text"}}, None),  # text without content
        ({"kind": "diff", "path": "/w/a"}, {"kind": "json", "data": {"kind": "diff", "path": "/w/a"}}, None),  # no diff
        (
            OrderedDict(kind="git.status", data=[1]),
            {"kind": "git.status", "data": [1]},
            "[1]",
        ),
    ],
)
def test_20_value_and_text(value: Any, semantic: dict[str, Any], text: str | None) -> None:
    result = to_result(value)
    assert result.value == semantic
    assert result.text == (text if text is not None else json.dumps(semantic["data"], separators=(",", ":")))


@table(
    ("value", "text"),
    [
        ({"kind": "file_list", "path": "/w", "files": ["a", {"name": "b"}], "count": 2}, "a\nb"),
        ({"kind": "file_content", "path": "/w/a", "content": "body", "size": 4}, "body"),
        ({"kind": "x.y", "data": {"a": 1}, "summary": "one a"}, 'one a\n{"a":1}'),
        ({"kind": "x.y", "data": {"a": 1}}, '{"a":1}'),
        ({"kind": "x.y", "rows": [1]}, '{"rows":[1]}'),  # custom without data
        (
            {"kind": "diff", "path": "/w/a", "modified": "x", "isNew": True, "bytesWritten": 1},
            "Created /w/a (1 bytes)",
        ),
    ],
)
def test_20_a_mapping_with_a_kind_is_taken_as_it_is(value: dict[str, Any], text: str) -> None:
    result = to_result(value)
    assert result.value == value
    assert result.text == text
    assert result.value is not value, "later changes by the tool must not reach the result"


def test_a_tool_result_is_taken_as_it_is() -> None:
    own = ToolResult(value={"kind": "text", "content": "x"}, text="something shorter")
    assert to_result(own) is own


def cyclic_dict() -> dict[str, Any]:
    value: dict[str, Any] = {"name": "x"}
    value["self"] = value
    return value


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def doubled(levels: int) -> Any:
    value: Any = ["x"]
    for _ in range(levels):
        value = [value, value]
    return value


@table(
    ("value", "text"),
    [
        (cyclic_dict(), '{"name":"x","self":"(cycle)"}'),
        (math.nan, "NaN"),
        ({"a": [math.inf, -math.inf]}, '{"a":["Infinity","-Infinity"]}'),
        (b"bytes \xff", "bytes \\xff"),
        ({"a": b"x"}, '{"a":"x"}'),
        (10**400, "1" + "0" * 400),  # 10 to the 400
        ({"n": 10**400}, '{"n":"1' + "0" * 400 + '"}'),  # 10 to the 400 inside
        (10**5000, hex(10**5000)),  # more digits than Python writes
        ("a\ud800", "a\\ud800"),  # broken unicode
        ({"k\ud800": "v"}, '{"k\\\\ud800":"v"}'),  # broken unicode key
    ],
)
def test_20_what_json_cannot_hold_becomes_text(value: Any, text: str) -> None:
    result = to_result(value)
    assert result.value == {"kind": "text", "content": text}
    assert result.text == text


@table(
    "value",
    [
        Stubborn(),
        {"a": Stubborn()},
        Angry(kind="x"),
        nested(200),
        nested(100_000),
        doubled(60),
        {(1, 2): 3, None: 4, 1.5: 5, Colour.RED: 6},
        Pair(cyclic_dict()),
        object(),
        int,
        lambda: None,
        iter([1]),
        range(3),
        [1] * 201_000,
        {"kind": "x.y", "data": cyclic_dict()},
        {"kind": "x.y", "data": math.nan},
        {"kind": "file_list", "path": "/", "files": [object()], "count": 1},
        {"kind": "text", "content": "\udcff"},
        ValueError("x"),
    ],
)
def test_20_odd_values_never_crash_and_always_give_json(value: Any) -> None:
    result = to_result(value)
    assert is_valid_kind(result.kind)
    assert json.loads(json.dumps(result.value, allow_nan=False)) == result.value
    result.text.encode()


def test_an_odd_object_leaves_no_memory_address_behind() -> None:
    assert to_result(object()).text == '"<object>"'


def test_a_kind_survives_a_value_json_cannot_hold() -> None:
    assert to_result({"kind": "x.y", "data": {"n": math.nan}}).value == {"kind": "x.y", "data": {"n": "NaN"}}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
            | st.tuples(inner, inner)
        ),
        max_leaves=12,
    )
)
def test_20_any_value_gives_pure_json_and_text(value: Any) -> None:
    result = to_result(value)
    assert json.loads(json.dumps(result.value, allow_nan=False)) == result.value
    if result.kind == "json":
        assert json.loads(result.text) == result.value["data"]


@table(
    ("display", "expected"),
    [
        ({"preferredView": "table", "collapsed": True, "maxHeight": 3, "priority": 1, "language": "py"}, None),
        ({"preferredView": "hologram", "glow": 1}, {}),
        ({"preferredView": ["text"], "collapsed": "yes", "maxHeight": -1, "language": 3, "priority": True}, {}),
        ({"maxHeight": math.nan}, {}),
        ("table", {}),
        (None, {}),
    ],
)
def test_unknown_and_mistyped_display_hints_are_ignored(display: Any, expected: dict[str, Any] | None) -> None:
    value = {"kind": "x", "data": 1, "display": display}
    assert display_hints(value) == (display if expected is None else expected)


@table("view", ["text", "markdown", "code", "diff", "table", "tree", "image", "raw", "hidden"])
def test_every_view_of_the_specification_is_known(view: str) -> None:
    assert display_hints({"kind": "x", "display": {"preferredView": view}}) == {"preferredView": view}


def of_server(texts: list[str], structured: Any) -> ToolResult:
    blocks = [{"type": "text", "text": text} for text in texts]
    return ToolResult.from_mcp({"content": blocks, "structuredContent": structured})


@table(
    ("texts", "structured"),
    [
        (['{"a": 1, "b": [2]}'], {"b": [2], "a": 1}),
        (["hello"], {"result": "hello"}),
        (["7"], {"result": 7}),
        (["one", "2"], {"result": ["one", 2]}),
        (['["one", 2]'], {"result": ["one", 2]}),
    ],
)
def test_structured_content_that_the_text_says_is_not_repeated(texts: list[str], structured: Any) -> None:
    result = of_server(texts, structured)
    assert text_for_model(result) == result.text


@table(
    ("texts", "structured", "read"),
    [
        (["Found 2 rows."], {"rows": [1, 2]}, 'Found 2 rows.\n{"rows":[1,2]}'),
        (['{"a": 1}'], {"a": 2}, '{"a": 1}\n{"a":2}'),
        (["Half."], {"result": "Half. And half."}, 'Half.\n{"result":"Half. And half."}'),
    ],
)
def test_structured_content_that_says_more_follows_the_text(texts: list[str], structured: Any, read: str) -> None:
    assert text_for_model(of_server(texts, structured)) == read


def test_structured_content_alone_is_the_text_and_a_long_one_is_cut() -> None:
    assert text_for_model(of_server([], {"rows": [1]})) == '{"rows":[1]}'
    long = text_for_model(of_server(["Many."], {"rows": ["x" * 100] * 1000}))
    assert long.startswith('Many.\n{"rows":') and len(long) < 17_000


def test_a_value_of_another_kind_says_what_it_says() -> None:
    result = ToolResult({"kind": "exec.result", "output": "x", "exit_code": 0}, text="x", structured={"output": "x"})
    assert text_for_model(result) == "x"
