"""What a tool accepts: the corners of schemas, coercion and the words of an error."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from enum import Enum
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Literal, Optional

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from tests.tables import table

from golem_forge import Tool, tool
from golem_forge.tools import inputs
from golem_forge.tools.inputs import PlainInput, signature_input
from golem_forge.tools.validation import InputInvalid


class Node(BaseModel):
    name: str
    children: list[Node] = Field(default_factory=list)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def test_a_model_that_refers_to_itself_keeps_its_fields_at_the_root() -> None:
    grow = Tool("grow", "Grows.", input_schema=Node, execute=lambda args: "ok")
    assert grow.input_schema["type"] == "object"
    assert list(grow.input_schema["properties"]) == ["name", "children"]
    good = grow.validate_input({"name": "a", "children": [{"name": "b"}]})
    assert good.ok and good.data["children"][0].name == "b"


def union(a: int | list[int]) -> str:
    return str(a)


def floats(y: list[float], z: float = 0.0) -> str:
    return str(y)


def rich(
    colour: Colour,
    when: date,
    amount: Decimal = Decimal("1.5"),
    where: Path | None = None,
    maybe: Optional[int] = None,  # noqa: UP045 - people write this
    tags: list[str] = ["x"],  # noqa: B006 - and this
) -> str:
    return f"{colour.name} {when.year} {amount} {where} {maybe} {tags}"


def test_the_error_of_a_union_names_the_argument_not_the_members() -> None:
    message = tool(union).validate_input({"a": ["x"]})
    assert not message.ok
    assert message.message.startswith("union: a")
    assert "list[int]" not in message.message.split(": ")[1]


@table("args", [{"y": ["nan"]}, {"y": [1.0, "inf"]}, {"y": [], "z": "nan"}, {"y": [], "z": "-inf"}])
def test_numbers_that_are_not_finite_are_refused_also_when_they_came_as_text(args: dict[str, Any]) -> None:
    answer = tool(floats).validate_input(args)
    assert not answer.ok
    assert "is not JSON" in answer.message


def test_python_types_are_coerced_for_the_function_and_written_as_json() -> None:
    checked = tool(rich).validate({"colour": "red", "when": "2026-01-02", "where": "a/b"})
    assert checked.values["colour"] is Colour.RED and checked.values["when"] == date(2026, 1, 2)
    assert checked.plain == {
        "colour": "red",
        "when": "2026-01-02",
        "amount": "1.5",
        "where": "a/b",
        "maybe": None,
        "tags": ["x"],
    }


def test_a_closed_json_schema_suggests_the_nearest_argument() -> None:
    schema = {"type": "object", "properties": {"branch": {"type": "string"}}, "additionalProperties": False}
    push = Tool("push", "Pushes.", input_schema=schema, execute=lambda args: "ok")
    answer = push.validate_input({"brnach": "x"})
    assert not answer.ok
    assert answer.message == "push: unknown argument 'brnach'; did you mean 'branch'?"


def test_a_mutable_default_is_not_shared_between_calls() -> None:
    first = tool(rich).validate({"colour": "red", "when": "2026-01-02"}).values["tags"]
    first.append("y")
    assert tool(rich).validate({"colour": "red", "when": "2026-01-02"}).values["tags"] == ["x"]


def plain(path: str, limit: int = 10, exact: bool = False, note: str = "") -> str:
    """Look.

    Args:
        path: Where to look.
        limit: How many.
    """
    return path


def named(json: str, model_x: bool = True, from__to: str = "a", copy: int = -1, Camel: str = "") -> str:
    return json


def measured(path: float, limit: float = -0.5, unit: Literal["m", "km"] = "m", only: Literal["x"] = "x") -> str:
    """Args:
    limit: How far.
    unit: Of what.
    """
    return unit


def may_be_none(path: str | None, limit: float | None = None, unit: Literal["m", "km"] | None = "m") -> str | None:
    return unit


@table("function", [plain, named, measured, may_be_none, lambda: ""])
def test_plain_scalars_are_described_and_checked_as_pydantic_does(function: Any) -> None:
    ours = signature_input(function, None)
    assert isinstance(ours, PlainInput)
    model = ours._model
    assert json.dumps(ours.schema()) == json.dumps(model.schema()) and ours.names() == model.names()
    texts = ({"path": "x"}, {"path": "x", "limit": 3, "exact": True}, {"json": "x", "copy": 4}, {"path": "\ud800"})
    others = ({}, {"path": "x", "limit": "4"}, {"path": "x", "limit": True}, {"path": 3}, {"path": "x", "z": 1})
    numbers = ({"path": 1.5, "limit": 2, "unit": "km"}, {"path": float("nan")}, {"path": float("inf")}, {"path": "nan"})
    words = ({"path": 1.0, "unit": "miles"}, {"path": 1.0, "unit": 1}, {"path": 1.0, "only": "y"}, {"path": 1.0})
    nothing = ({"path": None}, {"path": "x", "limit": None, "unit": None}, {"path": "x", "limit": 1}, {"limit": 1.5})
    for args in (*texts, *others, *numbers, *words, *nothing):
        assert _outcome(ours, args) == _outcome(model, args), args


def _outcome(given: Any, args: dict[str, Any]) -> Any:
    try:
        checked = given.check(dict(args))
        return list(checked.values.items()), list(checked.plain.items())
    except InputInvalid as error:
        return str(error), error.fields


_kinds = st.sampled_from([int, str, bool, float, Literal["m"], Literal["m", "km"], Literal["m", 1]])
_kinds |= _kinds.map(lambda kind: Optional[kind])  # noqa: UP045 - made of a value
_values = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["m", "km", "x", "1", "nan", "é"])


@st.composite
def _functions(draw: st.DrawFn) -> Any:
    def function(**values: Any) -> Any:
        return values

    function.__annotations__ = draw(st.dictionaries(st.sampled_from(["one", "json", "model_x"]), _kinds))
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=draw(st.just(Parameter.empty) | _values))
        for name in function.__annotations__
    ]
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    function.__doc__ = draw(st.sampled_from(["", "Args:\n    json: What it is.\n"]))
    return function


@given(_functions(), st.dictionaries(st.sampled_from(["one", "json", "model_x", "two"]), _values))
def test_whatever_is_plain_is_as_pydantic_has_it(function: Any, args: dict[str, Any]) -> None:
    ours = signature_input(function, None)
    if isinstance(ours, PlainInput):
        assert json.dumps(ours.schema()) == json.dumps(ours._model.schema())
        assert _outcome(ours, args) == _outcome(ours._model, args)


def test_what_is_not_a_plain_scalar_is_left_to_pydantic() -> None:
    def late(name: str = None) -> str:  # type: ignore[assignment]  # noqa: RUF013
        return name

    def titled(from_: int, size: float = 1.0) -> str:
        return str(from_)

    def mixed(unit: Literal["m", 1] = "m") -> str:
        return str(unit)

    def endless(size: float = float("inf")) -> str:
        return str(size)

    def whole(size: float = 1) -> str:
        return str(size)

    def another(unit: Literal["m", "km"] = "miles") -> str:  # type: ignore[assignment]
        return unit

    for function in (union, floats, rich, late, titled, mixed, endless, whole, another):
        assert not isinstance(signature_input(function, None), PlainInput), function


def test_names_that_a_model_has_itself_are_left_to_the_model() -> None:
    own = {name for name in dir(BaseModel) if not name.startswith(("_", "model_"))}
    assert own == inputs._MODEL_NAMES
