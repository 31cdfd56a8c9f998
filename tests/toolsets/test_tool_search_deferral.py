"""Which definitions are sent when there are too many (mcp.md §10)."""

from __future__ import annotations

from typing import Any

from tests.tables import table

from golem_forge.config.mcp_spec import DeferralSettings
from golem_forge.tools.tool import Remote, Tool
from golem_forge.toolsets.tool_search import (
    MAX_LOADED,
    MAX_LOADED_TOKENS,
    DeferralThreshold,
    ToolSplit,
    add_loaded,
    definition_tokens,
    sources,
    split_tools,
)


def made(name: str, source: str = "mcp", says: str = "x", raw: str = "", **options: Any) -> Tool:
    server, _, own = name.partition("__")
    remote = Remote(server, raw or own) if source == "mcp" else None
    schema = {"type": "object"}
    return Tool(name, says, input_schema=schema, execute=dict, source=source, remote=remote, **options)


def is_users(tool: Tool) -> bool:
    return tool.name.startswith("mine")


def split(tools: list[Tool], *always: str, servers: dict[str, tuple[str, ...]] | None = None) -> ToolSplit:
    return split_tools(tools, DeferralSettings(always_load=always), lambda server: (servers or {}).get(server, ()))


def test_tools_of_every_source_wait_but_native_and_pinned_ones() -> None:
    tools = [
        made("read_file", "native"),
        made("from_a_block", "custom"),
        made("mine", "custom"),
        made("mine_instead_of_a_native_one", "custom", shadows=True),
        made("pinned_in_python", "custom", always_load=True),
        made("git__log"),
        made("git__push"),
    ]
    found = split(tools)
    assert [tool.name for tool in found.always] == ["read_file", "mine_instead_of_a_native_one", "pinned_in_python"]
    assert list(found.waiting) == ["from_a_block", "mine", "git__log", "git__push"]
    loaded = found.loaded(["git__push", "gone", "mine"])
    assert [tool.name for tool in loaded] == ["git__push", "mine"]


@table(
    ("globs", "server", "waits"),
    [
        ((), (), {"mine", "git__log", "git__x_y_0a1b2c3d", "docs__log"}),
        (("git__*",), (), {"mine", "docs__log"}),
        (("git__x.y",), (), {"mine", "git__log", "docs__log"}),
        (("log",), (), {"mine", "git__log", "git__x_y_0a1b2c3d", "docs__log"}),
        (("mine",), (), {"git__log", "git__x_y_0a1b2c3d", "docs__log"}),
        ((), ("x.*",), {"mine", "git__log", "docs__log"}),
        ((), ("log",), {"mine", "git__x_y_0a1b2c3d", "docs__log"}),
        ((), ("git__*",), {"mine", "git__log", "git__x_y_0a1b2c3d", "docs__log"}),
        (("*",), (), set()),
    ],
)
def test_always_load_goes_by_names_and_a_servers_own_by_raw_names(
    globs: tuple[str, ...], server: tuple[str, ...], waits: set[str]
) -> None:
    tools = [made("mine", "custom"), made("git__log"), made("git__x_y_0a1b2c3d", raw="x.y"), made("docs__log")]
    assert set(split(tools, *globs, servers={"git": server}).waiting) == waits


def test_too_many_by_count_or_by_tokens() -> None:
    small = [made(f"s__t{number}") for number in range(10)]
    assert not DeferralThreshold().passed(small, DeferralSettings(above=10))
    assert DeferralThreshold().passed(small, DeferralSettings(above=9))
    tokens = sum(definition_tokens(tool) for tool in small)
    assert not DeferralThreshold().passed(small, DeferralSettings(tokens=int(tokens) + 1))
    assert DeferralThreshold().passed(small, DeferralSettings(tokens=int(tokens) - 1))


def test_tokens_are_bytes_of_the_definition_by_four() -> None:
    tool = made("s__t", says="é")
    written = '{"name":"s__t","description":"é","input_schema":{"type":"object"}}'
    assert definition_tokens(tool) == len(written.encode()) / 4
    assert definition_tokens(Tool("bad", "x", input_schema={"type": 5}, execute=dict)) == 0


def test_around_a_limit_it_does_not_change_back_and_forth() -> None:
    tools = [made(f"s__t{number}") for number in range(60)]
    threshold, limits = DeferralThreshold(), DeferralSettings(above=40)
    assert [threshold.passed(tools[:count], limits) for count in (40, 41, 40, 21, 20, 40, 41)] == [
        False,
        True,
        True,
        True,
        False,
        False,
        True,
    ]
    assert not threshold.passed(tools[:41], DeferralSettings(above=41))  # other settings are looked at afresh


def test_counting_many_builds_no_schema() -> None:
    tools = [made(f"s__t{number}") for number in range(41)]
    assert DeferralThreshold().passed(tools, DeferralSettings())
    assert not any("input" in tool.__dict__ for tool in tools)


def waiting(tools: list[Tool]) -> dict[str, Tool]:
    return {tool.name: tool for tool in tools}


def test_loading_appends_each_name_once() -> None:
    tools = [made(f"s__t{number}") for number in range(4)]
    one, two, three, four = tools
    known = waiting([one, two, three])
    loaded = add_loaded((), [two, one], known)
    assert loaded == ("s__t1", "s__t0")
    assert add_loaded(loaded, [one, three, three, four], known) == ("s__t1", "s__t0", "s__t2")


def test_a_tool_that_is_away_keeps_its_place() -> None:
    tools = [made(f"s__t{number}") for number in range(3)]
    assert add_loaded(("gone", "s__t0"), tools, waiting(tools)) == ("gone", "s__t0", "s__t1", "s__t2")


def test_what_is_loaded_is_bounded_in_number_and_the_newest_stay() -> None:
    tools = [made(f"s__t{number}") for number in range(300)]
    known, loaded = waiting(tools), ()
    changes = 0
    for first in range(0, 300, 5):
        before, loaded = loaded, add_loaded(loaded, tools[first : first + 5], known)
        assert loaded[-5:] == tuple(tool.name for tool in tools[first : first + 5])
        assert len(loaded) <= MAX_LOADED
        changes += loaded[: len(before)] != before
    assert changes <= 300 / (MAX_LOADED / 2)


def test_what_is_loaded_is_bounded_in_size() -> None:
    """Threat: a server whose definitions are as large as they may be."""
    tools = [made(f"s__t{number}", says="long " * 12_000) for number in range(20)]
    known, loaded = waiting(tools), ()
    for _ in range(3):
        loaded = add_loaded(loaded, tools, known)
        assert loaded
        assert sum(definition_tokens(known[name]) for name in loaded) <= MAX_LOADED_TOKENS
    small = made("s__small")
    assert add_loaded(loaded, [small], known | {small.name: small})[-1] == "s__small"


def test_sources_are_counted_and_named_by_server() -> None:
    tools = [made("mine", "custom"), made("zoo__a"), made("git__a"), made("git__b"), made("own", "custom")]
    assert sources(tools, is_users) == {"mcp git": 2, "mcp zoo": 1, "program tools": 1, "user tools": 1}
    assert list(sources(tools, is_users)) == ["mcp git", "mcp zoo", "program tools", "user tools"]
