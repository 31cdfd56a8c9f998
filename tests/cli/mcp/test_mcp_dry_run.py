"""`forge run --dry-run` and MCP servers: what is known of their tools, and what would decide about a call."""

from __future__ import annotations

import json

import pytest

HINTS = {"reader": {"readOnlyHint": True}, "killer": {"destructiveHint": True}, "plain": {}}


@pytest.fixture
def looked(walled):
    """A program with the server `s`, approved and listed."""
    walled.shell.write(
        "tools.json",
        json.dumps(
            [
                {"name": name, "description": "d", "inputSchema": {"type": "object"}, "annotations": hints}
                for name, hints in HINTS.items()
            ]
        ),
    )
    assert walled.add("s", "--yes", program="changing.py", args=("tools.json",)).code == 0
    return walled


def told(servers, **keys):
    """Verdict, what a call does, and why, by tool; and the notes."""
    if keys:
        file = servers.project / "forge.yaml"
        text = file.read_text()
        for key, value in keys.items():
            text = text.replace("    s:\n", f"    s:\n      {key}: {json.dumps(value)}\n")
        file.write_text(text)
        servers.shell("trust", "--yes")
    facts = servers.shell("run", "--dry-run", "--json").json
    tools = {each["name"]: each for each in facts["tools"]}
    return tools, facts["notices"]


def test_tools_of_known_servers_are_there(looked):
    before = looked.shell.everything()
    tools, notes = told(looked)
    assert {name for name, tool in tools.items() if tool["toolsets"] == ["mcp"]} == {f"s__{name}" for name in HINTS}
    assert {tools[f"s__{name}"]["verdict"] for name in HINTS} == {"ask"}
    assert not any("'s'" in note for note in notes)
    assert "s__plain" in looked.shell("run", "--dry-run").out
    assert looked.shell.everything() == before


def test_what_decides_is_said(looked):
    tools, _ = told(looked, trust="trusted", approval={"default": "preApproved"})
    assert (tools["s__reader"]["verdict"], tools["s__reader"]["then"]) == ("preApproved", "runs")
    assert tools["s__reader"]["why"] == "its server is trusted and says that it only reads"
    assert tools["s__plain"]["verdict"] == "preApproved" and "forge.yaml:" in tools["s__plain"]["why"]
    assert tools["s__killer"]["verdict"] == "ask" and "destroys" in tools["s__killer"]["why"]
    for name in ("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"):
        assert tools[name]["why"] == "by server: reading from a trusted server runs, from any other it asks"


def test_a_new_tool_asks_first(looked):
    told(looked, approval={"default": "preApproved"})
    looked.changing({"name": "plain"}, {"name": "late"})
    assert looked("test", "s").code == 0
    tools, _ = told(looked)
    assert tools["s__late"]["verdict"] == "ask" and tools["s__late"]["why"].startswith("it is new on its server")


def test_a_server_that_is_not_known_is_named(servers):
    servers.add("s")
    tools, notes = told(servers)
    assert not [name for name in tools if name.startswith("s__")]
    assert [note for note in notes if "'s'" in note] == [
        "the tools of the MCP server 's' are not known here: pending; run: forge mcp approve s"
    ]


def test_a_block_that_names_no_server_is_refused_as_a_session_does(servers):
    servers.add("docs")
    servers.shell.write("main.worker", "---\nname: main\ntoolsets: {mcp: {servers: [dosc]}}\n---\nx\n")
    ended = servers.shell("run", "main", "--dry-run")
    assert ended.code == 2 and "no such server 'dosc'; did you mean 'docs'?" in ended.err
