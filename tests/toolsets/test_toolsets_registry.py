"""What the native tools are called, and what they cost before anybody uses them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.tables import table

from golem_forge.agent.tool_inventory import TOOL_LIST, TOOLKIT, TOOLSETS, build_catalog
from golem_forge.core.errors import ConfigError
from golem_forge.tools.factory import Toolset, ToolsetContext
from golem_forge.tools.tool import Mode, SourceKind
from golem_forge.tools.validation import SchemaCheck
from golem_forge.toolsets import ALIASES, FilesystemToolset
from golem_forge.usertools.native_tools import create_run_custom_tool, listed_create_custom_tool

FILE_TOOLS = ["read_file", "list_files", "file_exists", "file_info", "write_file", "delete_file"]


def test_table_order() -> None:
    others = [
        "shell",
        "exec_command",
        "write_stdin",
        "publish_port",
        "git_push",
        "git_fetch",
        "run_code",
        "apply_patch",
        "list_dir",
        "grep_files",
        "list_mcp_resources",
        "list_mcp_resource_templates",
        "read_mcp_resource",
        "update_plan",
        "webfetch",
    ]
    assert [tool.name for tool in TOOL_LIST] == [*FILE_TOOLS, *others, "get_memory", "save_memory", "read_output"]
    assert list(TOOLKIT) == [tool.name for tool in TOOL_LIST]
    assert [tool.name for tool in FilesystemToolset().get_tools()] == FILE_TOOLS


def test_t55_every_alias_leads_to_a_tool() -> None:
    assert ALIASES == {
        "read": "read_file",
        "list_directory": "list_dir",
        "shell_command": "exec_command",
        "execute_command": "exec_command",
    }
    assert set(ALIASES.values()) <= set(TOOLKIT)
    assert not set(ALIASES) & set(TOOLKIT)


def test_toolsets_are_found_by_name_and_build_with_what_they_are_given() -> None:
    toolset: Toolset = TOOLSETS["filesystem"]
    assert toolset.config is None
    assert [tool.name for tool in toolset.get_tools(ToolsetContext())] == FILE_TOOLS


def test_coding_is_a_bundle_that_hands_its_members_their_keys() -> None:
    catalog = build_catalog(toolsets={"coding": {"exec": {"walled": "preApproved"}}})
    names = {tool.name for tool in catalog}
    assert names == {tool.name for tool in TOOL_LIST} - {*FILE_TOOLS, "shell"} | {"read_file"}
    both = build_catalog(toolsets={"filesystem": None, "coding": {}})
    assert {tool.name for tool in both} == {tool.name for tool in TOOL_LIST} - {"shell"}


@table(
    ("blocks", "says"),
    [
        ({"codng": {}}, "toolsets.codng: no such toolset; did you mean 'coding'?"),
        ({"coding": {"exek": {}}}, "toolsets.coding.exek: unknown key; did you mean 'exec'?"),
        ({"exec": {"waled": "ask"}}, "toolsets.exec.waled: unknown key; did you mean 'walled'?"),
        ({"exec": {"walled": "blocked"}}, "toolsets.exec.walled: "),
        ({"exec": {"env": {"set": {"LD_PRELOAD": "x"}}}}, "LD_PRELOAD"),
        ({"search": {"x": 1}}, "toolsets.search.x: unknown key; this toolset has only the key 'approval'"),
        ({"coding": {"search": {"x": 1}}}, "toolsets.coding.search.x: unknown key"),
        ({"coding": {"edit": {"x": 1}}}, "toolsets.coding.edit.x: unknown key"),
        ({"shell": []}, "toolsets.shell: must be a mapping or `off`, not list"),
        ({"shell": {"rules": [{"pattern": ""}]}}, "a pattern needs the name of a program"),
    ],
)
def test_a_block_with_a_mistake_says_where(blocks: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build_catalog(toolsets=blocks)
    assert says in "\n".join(refused.value.problems)


@table("tool", TOOL_LIST)
def test_every_tool_is_native_described_and_closed(tool: object) -> None:
    from golem_forge.tools.tool import Tool

    assert isinstance(tool, Tool)
    assert tool.source is SourceKind.NATIVE and tool.mode is Mode.BOTH
    assert tool.description and tool.label
    schema = tool.input_schema
    assert schema["additionalProperties"] is False
    assert all(field.get("description") for field in schema["properties"].values())


def test_every_schema_of_forge_s_own_is_valid() -> None:
    """Nothing else checks them before a call does."""
    user_tools = (listed_create_custom_tool(), create_run_custom_tool(lambda name, seconds: None, tuple))
    for tool in (*TOOL_LIST, *user_tools):
        assert SchemaCheck(tool.input_schema).problems({"no such": 1}), tool.name


def test_the_schema_says_what_is_required_and_the_ranges() -> None:
    schema = TOOLKIT["read_file"].input_schema
    assert schema["required"] == ["path"]
    limit = schema["properties"]["limit"]
    assert (limit["type"], limit["minimum"], limit["maximum"], limit["default"]) == ("integer", 1, 10_000, 2000)
    assert "required" not in TOOLKIT["list_files"].input_schema
    assert TOOLKIT["write_file"].input_schema["required"] == ["path", "content"]


def test_importing_the_tools_imports_nothing_heavy() -> None:
    heavy = "pydantic asyncio jsonschema_rs mimetypes difflib ssl html http subprocess ctypes sqlite3 ruamel tempfile"
    code = (
        "import sys; from golem_forge.agent.tool_inventory import TOOL_LIST;"
        "[(t.name, t.description) for t in TOOL_LIST];"
        f"print([m for m in {heavy!r}.split() if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
