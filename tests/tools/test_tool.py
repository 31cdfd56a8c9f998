"""Tool and @tool: schemas from signatures, docstrings and models; validation; aliases; injection (design §5)."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field
from tests.tables import table

from golem_forge.tools.context import ToolContext
from golem_forge.tools.factory import tool
from golem_forge.tools.tool import Mode, SourceKind, Tool
from golem_forge.tools.validation import Err, Ok, SchemaCheck, ToolDefinitionError


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    city: str
    zip: int = 0


@tool
def everything(
    name: Annotated[str, "Who"],
    size: Annotated[int, Field(ge=1, description="How big")],
    colour: Colour = Colour.RED,
    remote: Literal["origin", "upstream"] = "origin",
    address: Address | None = None,
    tags: list[str] = [],  # noqa: B006
    *,
    ctx: ToolContext,
) -> str:
    """Does everything.

    Even over two paragraphs.

    Args:
        colour: which one
        tags: any number
    """
    return ctx.call_id + name


def properties(of: Tool) -> dict[str, Any]:
    found: dict[str, Any] = of.input_schema["properties"]
    return found


def test_the_schema_comes_from_the_signature() -> None:
    schema = everything.input_schema
    assert everything.description == "Does everything.\n\nEven over two paragraphs."
    assert schema["type"] == "object"
    assert schema["required"] == ["name", "size"]
    assert schema["additionalProperties"] is False
    assert list(schema["properties"]) == ["name", "size", "colour", "remote", "address", "tags"]
    assert properties(everything)["name"] == {"type": "string", "description": "Who"}
    assert properties(everything)["size"] == {"type": "integer", "minimum": 1, "description": "How big"}
    assert properties(everything)["remote"] == {"type": "string", "enum": ["origin", "upstream"], "default": "origin"}
    assert properties(everything)["colour"]["description"] == "which one"
    assert properties(everything)["tags"]["description"] == "any number"
    assert schema["$defs"]["Colour"]["enum"] == ["red", "blue"]
    assert SchemaCheck(schema).errors({"name": "x", "size": 1, "address": {"city": "y"}}) == ()


def test_nothing_is_built_before_it_is_needed() -> None:
    @tool
    def lazy(x: Undefined) -> None:  # type: ignore[name-defined]  # noqa: F821
        """Lazy."""

    assert lazy.name == "lazy"
    assert lazy.description == "Lazy."
    with pytest.raises(ToolDefinitionError, match="Undefined"):
        lazy.input_schema  # noqa: B018


def google(a: int, b: str = "") -> None:
    """Adds.

    Args:
        a: the first
            of two
        b (str): the second

    Returns:
        a: nothing
    """


def numpy(a: int, b: str = "") -> None:
    """Adds.

    Parameters
    ----------
    a : int
        the first
        of two
    b
        the second

    Returns
    -------
    nothing
    """


def sphinx(a: int, b: str = "") -> None:
    """Adds.

    :param a: the first
        of two
    :param str b: the second
    :returns: nothing
    """


@table("function", [google, numpy, sphinx])
def test_docstrings_in_three_layouts(function: Any) -> None:
    made = tool(function)
    assert made.description == "Adds."
    assert properties(made)["a"]["description"] == "the first of two"
    assert properties(made)["b"]["description"] == "the second"


def test_annotated_wins_over_the_docstring() -> None:
    @tool
    def both(a: Annotated[int, "from the annotation"]) -> None:
        """Adds.

        Args:
            a: from the docstring
        """

    assert properties(both)["a"]["description"] == "from the annotation"


async def test_the_context_is_injected_and_not_in_the_schema() -> None:
    @tool
    def by_name(ctx, x: int):  # type: ignore[no-untyped-def]
        """Takes ctx by name."""
        return f"{ctx.call_id}{x}"

    @tool
    async def by_annotation(x: int, context: ToolContext) -> str:
        """Takes it by annotation."""
        return f"{context.call_id}{x}"

    @tool
    def own_ctx(ctx: int) -> int:
        """A parameter that happens to be called ctx."""
        return ctx

    context = ToolContext(call_id="c")
    assert list(properties(by_name)) == ["x"]
    assert list(properties(by_annotation)) == ["x"]
    assert (await by_name.execute({"x": 1}, context)).text == "c1"
    assert (await by_annotation.execute({"x": 2}, context)).text == "c2"
    assert list(properties(own_ctx)) == ["ctx"]
    assert (await own_ctx.execute({"ctx": 3}, context)).text == "3"


async def test_parameters_may_have_names_that_mean_something_to_pydantic() -> None:
    @tool
    def awkward(
        json: str, schema: int, copy: bool = True, _x: int = 1, model_config: str = "m", dict: str = "d"
    ) -> Any:
        """Takes awkward names."""
        return {"json": json, "schema": schema, "copy": copy, "_x": _x, "model_config": model_config, "dict": dict}

    names = ["json", "schema", "copy", "_x", "model_config", "dict"]
    assert list(properties(awkward)) == names
    assert awkward.input_schema["required"] == ["json", "schema"]
    checked = awkward.validate({"json": "a", "schema": "5", "_x": 7})
    assert checked.values == checked.plain == {
        "json": "a", "schema": 5, "copy": True, "_x": 7, "model_config": "m", "dict": "d",
    }  # fmt: skip
    result = await awkward.execute(checked.values)
    assert result.value["data"] == checked.values
    refused = awkward.validate_input({"json": "a", "schema": 1, "argument_x": 1})
    assert isinstance(refused, Err)
    assert refused.message.startswith("awkward: unknown argument 'argument_x'")


@table(
    ("args", "data"),
    [
        ({"name": "n", "size": "3"}, {"size": 3, "colour": Colour.RED, "tags": [], "address": None}),
        ({"name": "n", "size": 1, "colour": "blue"}, {"colour": Colour.BLUE}),
        ({"name": "n", "size": 1, "address": {"city": "x", "zip": "7"}}, {"address": Address(city="x", zip=7)}),
    ],
)
def test_valid_input_is_coerced_and_completed(args: dict[str, Any], data: dict[str, Any]) -> None:
    checked = everything.validate_input(args)
    assert isinstance(checked, Ok)
    assert {name: checked.data[name] for name in data} == data


def test_what_is_judged_is_json() -> None:
    checked = everything.validate({"name": "n", "size": 1, "colour": "blue", "address": {"city": "x"}})
    assert checked.plain["colour"] == "blue"
    assert checked.plain["address"] == {"city": "x", "zip": 0}


@table(
    ("args", "message"),
    [
        ({}, "everything: name: field required; size: field required"),
        ({"name": "n", "size": 0}, "everything: size: input should be greater than or equal to 1"),
        ({"name": "n", "size": "x"}, "everything: size: input should be a valid integer, unable to parse"),
        ({"name": "n", "size": 1, "remote": "x"}, "everything: remote: input should be 'origin' or 'upstream'"),
        ({"name": "n", "size": 1, "address": {}}, "everything: address.city: field required"),
        ({"name": "n", "size": 1, "tags": ["a", 1]}, "everything: tags[1]: input should be a valid string"),
        ({"name": "n", "size": 1, "colr": 1}, "everything: unknown argument 'colr'; did you mean 'colour'?"),
        ({"name": "n", "size": 1, "zzzzz": 1}, "everything: unknown argument 'zzzzz'"),
        ({"name": "n", "size": 1, "ctx": 1}, "everything: unknown argument 'ctx'"),
        ([], "everything: arguments must be an object, got list"),
        (None, "everything: arguments must be an object, got NoneType"),
    ],
)
def test_invalid_input_names_the_field(args: Any, message: str) -> None:
    refused = everything.validate_input(args)
    assert isinstance(refused, Err)
    assert refused.message.startswith(message)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["name", "size", "tags", "x"]) | st.integers(), inner, max_size=4)
        ),
        max_leaves=8,
    )
)
def test_validate_input_never_raises(args: Any) -> None:
    by_schema = Tool("s", "S.", input_schema={"type": "object", "required": ["name"]}, execute=lambda args: "")
    for one in (everything, by_schema):
        assert isinstance(one.validate_input(args), (Ok, Err))


def test_argument_aliases() -> None:
    made = Tool(
        "read_file",
        "Reads.",
        input_schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        execute=lambda args: "",
        argument_aliases={"file_path": "path"},
    )
    assert made.validate_input({"file_path": "a"}) == Ok({"path": "a"})
    assert made.validate_input({"path": "a"}) == Ok({"path": "a"})
    assert made.validate_input({"path": "a", "file_path": "b"}) == Err(
        "read_file: unknown argument 'file_path'; did you mean 'path'?"
    )


class Options(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    depth: int = Field(alias="max-depth", description="How deep")
    dry: bool = False


async def test_a_model_is_the_schema_of_a_full_tool_and_of_a_function() -> None:
    full = Tool("full", "Full.", input_schema=Options, execute=lambda args: args["depth"] + 1)
    assert full.input_schema["properties"]["max-depth"] == {"description": "How deep", "type": "integer"}
    checked = full.validate_input({"max-depth": "2"})
    assert checked == Ok({"depth": 2, "dry": False})
    assert isinstance(checked, Ok)
    assert (await full.execute(checked.data)).text == "3"

    @tool(schema=Address)
    def by_model(city: str, zip: int) -> str:
        """Takes the model's fields one by one."""
        return f"{city} {zip}"

    assert by_model.input_schema["required"] == ["city"]
    assert (await by_model.execute(by_model.validate({"city": "x", "zip": "5"}).values)).text == "x 5"


async def test_a_json_schema_is_checked_and_never_coerced() -> None:
    made = Tool(
        "s",
        "S.",
        input_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False},
        execute=lambda args: args,
    )
    assert made.validate_input({"n": 1}) == Ok({"n": 1})
    assert made.validate_input({"n": "1"}) == Err("s: n: expected integer, got string")
    assert isinstance(made.validate_input({"m": 1}), Err)
    assert (await made.execute({"n": 1})).structured == {"n": 1}


def test_modes_follow_the_source_unless_said() -> None:
    def made(**options: Any) -> Tool:
        return Tool("x", "X.", input_schema={"type": "object"}, execute=lambda args: "", **options)

    assert made().mode is Mode.LLM
    assert made(source="native").mode is Mode.BOTH
    assert made(source=SourceKind.MCP).mode is Mode.BOTH
    assert made(mode="manual").mode is Mode.MANUAL
    with pytest.raises(ValueError, match="humans"):
        made(mode="humans")
    with pytest.raises(TypeError, match="either execute= or planner="):
        Tool("x")


@table(
    "function",
    [lambda *args: 1, lambda **options: 1, eval("lambda a, /: 1")],
)
def test_parameters_without_a_name_of_their_own_are_refused(function: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="cannot be filled by name"):
        tool(name="x", description="X.")(function).input_schema  # noqa: B018


async def test_sync_async_and_callable_objects_run() -> None:
    @tool
    async def slow(x: int) -> int:
        """Async."""
        await asyncio.sleep(0)
        return x

    class Adder:
        """Adds."""

        async def __call__(self, args: dict[str, Any]) -> int:
            return int(args["x"]) + 1

    called = Tool("adder", None, input_schema={"type": "object"}, execute=Adder())
    assert slow.is_async and called.is_async
    assert (await slow.execute({"x": 4})).text == "4"
    assert (await called.execute({"x": 4})).text == "5"
    assert called.description == "Adds."


def test_decorator_options_and_names() -> None:
    @tool(name="renamed", description="Other.", mode="both", label="L", category="C", timeout=3, inline=True)
    def original() -> None:
        """Original."""

    assert (original.name, original.description, original.mode, original.label) == ("renamed", "Other.", Mode.BOTH, "L")
    assert (original.category, original.timeout, original.inline) == ("C", 3, True)


def test_the_digest_changes_with_the_definition() -> None:
    def made(description: str) -> Tool:
        return Tool("x", description, input_schema={"type": "object"}, execute=lambda args: "", code_digest="c")

    assert made("one").definition.digest == made("one").definition.digest
    assert made("one").definition.digest != made("two").definition.digest
