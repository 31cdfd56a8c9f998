"""Arguments made from every tool's own schema never crash the path: each call gives an Outcome of the closed set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tables import table

from golem_forge import TOOL_LIST, Caller, open_session
from golem_forge.core.decisions import Status

_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


def _from_schema(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit one of our tools' parameters: scalars with limits, and lists and objects of them."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if options := schema.get("anyOf"):
        return st.one_of([_from_schema(option) for option in options])
    kind = schema.get("type")
    if kind == "string":
        lengths = {"min_size": schema.get("minLength", 0), "max_size": min(schema.get("maxLength", 200), 200)}
        return st.text(**lengths) | st.sampled_from(["a.txt", "/workspace/a", "..", "/", "~", "a\0b", "x" * 300])
    if kind == "integer":
        return st.integers(schema.get("minimum"), schema.get("maximum"))
    if kind == "number":
        return st.floats(schema.get("minimum"), schema.get("maximum"), allow_nan=False, allow_infinity=False)
    if kind == "boolean":
        return st.booleans()
    if kind == "array":
        return st.lists(_from_schema(schema.get("items", {})), max_size=5)
    if kind == "object":
        required = set(schema.get("required", ()))
        members = {name: _from_schema(part) for name, part in schema.get("properties", {}).items()}
        optional = {name: part for name, part in members.items() if name not in required}
        return st.fixed_dictionaries({name: members[name] for name in required}, optional=optional)
    return _anything


@pytest.fixture
def outcome_of(tmp_path: Path) -> Iterator[Callable[[str, Any], Any]]:
    """One session for all the calls."""
    opened = open_session(tmp_path, approval="approve_all", journal=False)
    with asyncio.Runner() as runner:
        session = runner.run(opened.__aenter__())
        try:
            yield lambda name, args: runner.run(session.call(name, args, caller=Caller.HUMAN))
        finally:
            runner.run(opened.__aexit__(None, None, None))


_often = settings(max_examples=settings.default.max_examples // 5, suppress_health_check=list(HealthCheck))


@pytest.mark.generated
@table("tool", TOOL_LIST)
def test_neither_arguments_from_the_schema_nor_any_json_at_all_crash_the_path(
    tool: Any, outcome_of: Callable[[str, Any], Any], tmp_path: Path
) -> None:
    @_often
    @given(args=_from_schema(tool.input_schema))
    def from_the_schema(args: Any) -> None:
        outcome = outcome_of(tool.name, args)
        assert outcome.status in set(Status)
        assert outcome.ok or outcome.error
        assert str(tmp_path) not in outcome.text

    @_often
    @given(args=st.dictionaries(st.sampled_from(["path", "content", "offset", "handle", "x"]), _anything) | _anything)
    def any_json(args: Any) -> None:
        assert outcome_of(tool.name, args).status in set(Status)

    from_the_schema()
    any_json()
    assert outcome_of("list_files", {}).ok, "the session goes on"
