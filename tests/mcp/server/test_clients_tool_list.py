"""The exported list: honest hints, valid shapes, written once for each state of the catalog."""

from __future__ import annotations

from typing import Any

from tests.tables import table

from golem_forge.agent.session import open_session
from golem_forge.core.calls import Caller
from golem_forge.core.effects import Effect, Verb
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.server.clients import ExportedToolList, derived_annotations
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.tool import Remote, SourceKind, Tool

from .conftest import Serving

HINTS = ("readOnlyHint", "destructiveHint", "openWorldHint")


def nothing(args: dict[str, Any]) -> None: ...


def tool(**more: Any) -> Tool:
    return Tool("it", "It.", input_schema={"type": "object"}, execute=nothing, **more)


NATIVE = {
    "read_file": (True, False, False),
    "grep_files": (True, False, False),
    "write_file": (False, False, False),
    "delete_file": (False, True, False),
    "apply_patch": (False, True, False),
    "exec_command": (False, True, True),
    "shell": (False, True, True),
    "write_stdin": (False, True, True),
    "webfetch": (True, False, True),
    "update_plan": (False, False, False),
    "save_memory": (False, False, False),
    "run_custom_tool": (False, True, True),
    "read_mcp_resource": (True, False, True),
}


def test_native_tools(tmp_path: Any) -> None:
    session = open_session(tmp_path)
    found = {name: session.catalog.get(name) for name in NATIVE}
    session.close()
    assert {name: tuple(derived_annotations(one)[hint] for hint in HINTS) for name, one in found.items()} == NATIVE


@table(
    ("made", "hints"),
    [
        (tool(), (False, True, True)),
        (tool(read_only=True), (True, False, True)),
        (tool(effects=()), (False, False, False)),
        (tool(effects=(Effect(verb=Verb.WRITE, target="/w/a"),)), (False, False, False)),
        (tool(effects=(Effect(verb=Verb.NET, target="a.test"),)), (False, False, True)),
        (tool(effects=(Effect(verb=Verb.EXEC, target="ls"),)), (False, True, True)),
        (tool(annotations={"destructiveHint": False, "openWorldHint": False}), (False, False, False)),
        (
            tool(source=SourceKind.MCP, remote=Remote("s", "it"), annotations={"destructiveHint": False}),
            (False, True, True),
        ),
        (tool(source=SourceKind.MCP, remote=Remote("s", "it"), read_only=True), (True, False, True)),
    ],
)
def test_what_is_not_known_to_be_harmless_is_not_said_to_be(made: Tool, hints: tuple[bool, ...]) -> None:
    assert tuple(derived_annotations(made)[hint] for hint in HINTS) == hints


def test_built_once_for_each_state() -> None:
    catalog = Catalog([tool()])
    listing = ExportedToolList(lambda: catalog.offered(Caller.MCP))
    first, known = listing.entries(), listing.digest()
    assert listing.entries() is first and "it" in listing and "other" not in listing
    catalog.add(Tool("by_hand", "B.", input_schema={"type": "object"}, execute=nothing, mode="manual"))
    assert listing.digest() == known
    catalog.remove("it")
    assert listing.entries() == () and listing.digest() != known and listing.schema("it") is None


def test_a_definition_takes_no_secret_along() -> None:
    secret, redactor = "s3cr3t-of-a-server", Redactor()
    schema = {"type": "object", "properties": {"a": {"type": "string", "default": secret}}}
    made = Tool("it", f"Says {secret}.", input_schema=schema, execute=nothing)
    offered = (made,)
    listing = ExportedToolList(lambda: offered, redactor)
    assert secret in repr(listing.entries())
    redactor.add_secret("KEY", secret)
    assert secret not in repr(listing.entries()) and listing.entries()[0]["name"] == "it"


async def test_a_thousand_tools_and_schemas_of_every_kind(serving: Serving) -> None:
    async with serving() as served:
        catalog = served.host.session.catalog
        schema = {"type": "object", "properties": {"q": {"type": "string"}}, "$defs": {"x": {"type": "null"}}}
        for number in range(1000):
            catalog.add(Tool(f"many_{number:04}", f"Number {number}.", input_schema=schema, execute=nothing))
        catalog.add(
            Tool("lists", "L.", input_schema={"type": "object"}, execute=nothing, output_schema={"type": "array"})
        )
        async with served.client("auto") as client:
            tools = {each.name: each for each in (await client.list_tools()).tools}
        assert len([name for name in tools if name.startswith("many_")]) == 1000
        assert tools["many_0007"].input_schema == schema
        assert tools["lists"].output_schema is None
        assert tools["free"].output_schema == {"type": "object", "properties": {"got": {"type": "integer"}}}
        assert tools["read_file"].annotations.read_only_hint is True
        assert tools["read_file"].title == "Read file"
