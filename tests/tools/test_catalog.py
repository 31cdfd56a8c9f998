"""The catalog: names, order, modes, aliases, quarantine, definitions (design §2, invariant 2; mcp.md §7, §9)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.tables import table

from golem_forge.core.calls import Caller
from golem_forge.core.decisions import Status
from golem_forge.tools.catalog import Catalog, CatalogError, ToolNotFound
from golem_forge.tools.factory import tool
from golem_forge.tools.tool import Mode, SourceKind, Tool, is_manual_tool, llm_tools, manual_tools


def make(name: str, source: str = "custom", schema: Any = None, **options: Any) -> Tool:
    schema = {"type": "object", "properties": {}} if schema is None else schema
    return Tool(name, f"About {name}.", input_schema=schema, execute=lambda args: "ok", source=source, **options)


def test_order_is_native_as_registered_then_custom_and_mcp_by_name() -> None:
    tools = [
        make("z__b", "mcp"),
        make("write_file", "native"),
        make("zebra"),
        make("read_file", "native"),
        make("a__b", "mcp"),
        make("apple"),
    ]
    expected = ("write_file", "read_file", "apple", "zebra", "a__b", "z__b")
    assert Catalog(tools).names() == expected
    assert tuple(one.name for one in Catalog(tools)) == expected


def test_a_native_tool_that_comes_back_takes_its_old_place() -> None:
    catalog = Catalog([make("one", "native"), make("two", "native")])
    one = catalog.remove("one")
    assert one is not None
    catalog.add(make("one"))
    assert catalog.names() == ("two", "one")
    catalog.add(one, replace=True)
    assert catalog.names() == ("one", "two")


@table(("first", "second"), [("native", "custom"), ("custom", "custom"), ("mcp", "native")])
def test_a_name_is_unique_and_the_error_names_both_sources(first: str, second: str) -> None:
    catalog = Catalog([make("x", first)])
    with pytest.raises(CatalogError, match=f"'x' is taken: a {first} tool has it, and now a {second} tool"):
        catalog.add(make("x", second))
    replacement = make("x", second)
    catalog.add(replacement, replace=True)
    assert catalog.get("x") is replacement
    assert len(catalog) == 1


@pytest.mark.parametrize("caller", list(Caller))
@pytest.mark.parametrize("mode", list(Mode))
def test_invariant_2_the_execution_mode_is_enforced_at_resolve(caller: Caller, mode: Mode) -> None:
    catalog = Catalog([make("deploy", mode=mode)])
    allowed = mode is not (Mode.LLM if caller is Caller.HUMAN else Mode.MANUAL)
    if allowed:
        assert catalog.resolve("deploy", caller).name == "deploy"
    else:
        with pytest.raises(ToolNotFound) as refused:
            catalog.resolve("deploy", caller)
        assert refused.value.status is Status.TOOL_NOT_FOUND
        assert refused.value.message == "Unknown tool 'deploy'."
    assert [one.name for one in catalog.offered(caller)] == (["deploy"] if allowed else [])


def test_a_replacement_with_another_mode_changes_who_sees_it() -> None:
    catalog = Catalog([make("x", mode="both")])
    catalog.add(make("x", mode="manual"), replace=True)
    with pytest.raises(ToolNotFound):
        catalog.resolve("x", Caller.LLM)
    assert catalog.resolve("x", Caller.HUMAN).mode is Mode.MANUAL


@table(
    ("asked", "caller", "message"),
    [
        ("raed_file", Caller.LLM, "Unknown tool 'raed_file'. Did you mean 'read_file'?"),
        ("READ-FILE", Caller.MCP, "Unknown tool 'READ-FILE'. Did you mean 'read_file'?"),
        ("deploi", Caller.HUMAN, "Unknown tool 'deploi'. Did you mean 'deploy'?"),
        ("deploi", Caller.LLM, "Unknown tool 'deploi'."),
        ("xyzzy", Caller.LLM, "Unknown tool 'xyzzy'."),
        ("git_log", Caller.LLM, "Unknown tool 'git_log'. Did you mean 'git_log1' or 'git_log2'?"),
    ],
)
def test_suggestions_name_only_what_the_caller_may_call(asked: str, caller: Caller, message: str) -> None:
    catalog = Catalog([make("read_file", "native"), make("deploy", mode="manual"), make("git_log1"), make("git_log2")])
    with pytest.raises(ToolNotFound) as refused:
        catalog.resolve(asked, caller)
    assert str(refused.value) == message


def test_a_misspelt_name_among_thousands_still_finds_its_neighbour() -> None:
    catalog = Catalog([make(f"server_{n}_list_things_{n}") for n in range(3000)] + [make("create_calendar_event")])
    with pytest.raises(ToolNotFound, match="Did you mean 'create_calendar_event'"):
        catalog.resolve("creat_calender_event", Caller.LLM)


def test_a_huge_unknown_name_is_not_repeated_in_full() -> None:
    with pytest.raises(ToolNotFound) as refused:
        Catalog([make("x")]).resolve("y" * 100_000, Caller.LLM)
    assert len(str(refused.value)) < 300


def test_t55_an_alias_is_resolved_not_shown_and_gives_way_to_a_real_tool() -> None:
    catalog = Catalog([make("read_file", "native")])
    catalog.add_alias("read", "read_file")
    assert catalog.resolve("read", Caller.LLM).name == "read_file"
    assert "read" not in catalog.names()
    assert catalog.get("read") is None
    catalog.add(make("read"))
    assert catalog.resolve("read", Caller.LLM).source is SourceKind.CUSTOM
    catalog.remove("read")
    assert catalog.resolve("read", Caller.LLM).name == "read_file"


def test_an_alias_opens_no_way_around_modes() -> None:
    catalog = Catalog([make("deploy", mode="manual"), make("ship", mode="manual")])
    catalog.add_alias("d", "deploy")
    catalog.add_alias("ship", "deploy")
    with pytest.raises(ToolNotFound):
        catalog.resolve("d", Caller.LLM)
    assert catalog.resolve("ship", Caller.HUMAN).name == "ship"
    with pytest.raises(CatalogError, match="already means 'deploy'"):
        catalog.add_alias("d", "other")


def test_25_one_bad_schema_among_ten_is_quarantined_and_nine_work() -> None:
    catalog = Catalog()
    for number in range(9):
        assert catalog.add_checked(make(f"srv__t{number}", "mcp")) is None
    bad = catalog.add_checked(make("srv__bad", "mcp", {"type": 5}))
    assert bad is not None
    assert bad.reason.startswith("schema_invalid: not a valid schema at $.type")
    assert len(catalog.offered()) == 9
    assert catalog.quarantined() == (bad,)
    with pytest.raises(ToolNotFound) as refused:
        catalog.resolve("srv__bad", Caller.LLM)
    assert "schema_invalid" in str(refused.value)


@table(
    ("name", "source", "good"),
    [
        ("read_file", "native", True),
        ("a" * 64, "custom", True),
        ("dry-run", "custom", True),
        ("a" * 65, "custom", False),
        ("2fast", "custom", False),
        ("_x", "custom", False),
        ("", "custom", False),
        ("a b", "native", False),
        ("a__b", "custom", False),
        ("naïve", "custom", False),
        ("x\n", "custom", False),
        ("srv__tool", "mcp", True),
        ("2srv__x_y-z", "mcp", True),
        ("s__" + "t" * 125, "mcp", True),
        ("s__" + "t" * 126, "mcp", False),
        ("srv__a.b", "mcp", False),
    ],
)
def test_names_of_checked_tools(name: str, source: str, good: bool) -> None:
    refused = Catalog().add_checked(make(name, source))
    assert (refused is None) is good
    if refused is not None:
        assert refused.reason.startswith("entry_invalid: invalid tool name")


@table("schema", [{"type": "string"}, {"type": "array"}, {}, {"type": ["object", "null"]}])
def test_an_input_schema_must_be_an_object_schema(schema: dict[str, Any]) -> None:
    refused = Catalog().add_checked(make("x", schema=schema))
    assert refused is not None
    assert "must have type object" in refused.reason


def test_a_lazy_schema_error_quarantines_at_first_use() -> None:
    @tool
    def broken(value: NoSuchType) -> str:  # type: ignore[name-defined]  # noqa: F821
        """Cannot be offered."""
        return ""

    @tool(output_schema={"type": 5})
    def broken_output() -> Any:
        """Cannot be offered either."""

    @tool
    def fine(value: int) -> str:
        """Can be offered."""
        return ""

    catalog = Catalog([broken, broken_output, fine])
    assert len(catalog) == 3
    assert [one.name for one in catalog.offered()] == ["fine"]
    assert [one.name for one in catalog.quarantined()] == ["broken", "broken_output"]
    assert "NoSuchType" in catalog.quarantined()[0].reason
    assert [one["name"] for one in catalog.definitions("anthropic")] == ["fine"]


def test_27_a_drifted_tool_is_named_by_its_reason_and_released_by_a_good_definition() -> None:
    catalog = Catalog([make("srv__x", "mcp")])
    catalog.quarantine("srv__x", "mcp", "drift")
    with pytest.raises(ToolNotFound, match="drift"):
        catalog.resolve("srv__x", Caller.LLM)
    catalog.add(make("srv__x", "mcp"))
    assert catalog.resolve("srv__x", Caller.LLM)
    assert catalog.quarantined() == ()
    catalog.quarantine("gone", "custom", "name_conflict")
    catalog.release("gone")
    with pytest.raises(ToolNotFound, match="Unknown tool 'gone'"):
        catalog.resolve("gone", Caller.LLM)


def test_a_quarantined_custom_tool_does_not_take_a_native_one_with_it() -> None:
    catalog = Catalog([make("read_file", "native")])
    catalog.quarantine("read_file", "custom", "shadow_pending")
    assert catalog.resolve("read_file", Caller.LLM).source is SourceKind.NATIVE


def test_the_version_changes_with_the_content_and_only_then() -> None:
    catalog = Catalog()
    seen = [catalog.version]
    for change in (
        lambda: catalog.add(make("a")),
        lambda: catalog.add_alias("b", "a"),
        lambda: catalog.quarantine("c", "mcp", "drift"),
        lambda: catalog.release("c"),
        lambda: catalog.remove("a"),
    ):
        change()
        assert catalog.version not in seen
        seen.append(catalog.version)
    catalog.remove("nothing")
    catalog.release("nothing")
    catalog.names(), catalog.offered(), catalog.search("a"), catalog.list()
    assert catalog.version == seen[-1]


def test_31_definitions_are_byte_identical_until_something_changes() -> None:
    catalog = Catalog([make("b"), make("a")])
    before = json.dumps(catalog.definitions("anthropic"))
    assert json.dumps(catalog.definitions("anthropic")) == before
    other = Catalog([make("a"), make("b")])
    assert json.dumps(other.definitions("anthropic")) == before
    catalog.add(make("c"))
    after = json.dumps(catalog.definitions("anthropic"))
    assert after.startswith(before[:-1])


def test_list_filters() -> None:
    catalog = Catalog(
        [make("read", "native", category="Files"), make("push", mode="manual", category="Git"), make("srv__x", "mcp")]
    )
    names = lambda **wanted: [one.name for one in catalog.list(**wanted)]  # noqa: E731
    assert names() == ["read", "push", "srv__x"]
    assert names(source="native") == ["read"]
    assert names(source=SourceKind.MCP) == ["srv__x"]
    assert names(mode="manual") == ["push"]
    assert names(category="Git") == ["push"]
    assert names(query="ABOUT PUSH") == ["push"]
    assert names(source="mcp", category="Git") == []


def test_modes_helpers() -> None:
    tools = [make("a", mode="llm"), make("b", mode="manual"), make("c", mode="both"), make("d")]
    assert [one.name for one in llm_tools(tools)] == ["a", "c", "d"]
    assert [one.name for one in manual_tools(tools)] == ["b", "c"]
    assert [is_manual_tool(one) for one in tools] == [False, True, True, False]
    assert is_manual_tool(make("n", "native"))
