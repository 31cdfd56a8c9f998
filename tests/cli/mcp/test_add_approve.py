"""`forge mcp approve`, `test` and `reconnect`: nothing starts unapproved; what changed is shown and asked about."""

from __future__ import annotations

import pytest

ONE = {"name": "one", "description": "harmless"}


@pytest.fixture
def listed(walled):
    """A server that was listed once, with the tool `one`."""
    walled.changing(ONE)
    assert walled.add("x", "--yes", program="changing.py", args=("tools.json",)).code == 0
    return walled


def pins(shown):
    return {tool["tool"]: tool["pin"] for tool in shown["tools"]}


def test_a_person_reads_the_card(walled, on_terminal):
    walled.add()
    question = r"Start the MCP server 'echo' from now on\? \[y/N\] "
    assert on_terminal(["mcp", "approve", "echo"], (question, "yes"))[0] == 0
    shown = walled.shown("echo")
    assert (shown["state"], shown["approved"]) == ("pending", True), "it has never answered"
    assert shown["error"] == "what it offers is not known yet; run: forge mcp test echo"
    assert walled("test", "echo").code == 0
    assert walled.states() == {"echo": "known"}


def test_a_new_tool_is_new_until_somebody_agrees(listed, on_terminal):
    listed.changing(ONE, {"name": "two"}, {"name": "three.dots"})
    listed("reconnect", "x")
    shown = listed.shown("x")
    assert pins(shown) == {"one": "pinned", "two": "new", "three.dots": "new"}
    name = next(tool["name"] for tool in shown["tools"] if tool["tool"] == "three.dots")
    assert listed("approve", "x", name, "--yes").code == 0
    assert pins(listed.shown("x")) == {"one": "pinned", "two": "new", "three.dots": "pinned"}
    code, screen = on_terminal(["mcp", "approve", "x"], (r"Use 'two' as it is now\? \[y/N\] ", "y"))
    assert code == 0 and "is new:" in screen
    assert set(pins(listed.shown("x")).values()) == {"pinned"}
    assert "is approved already" in listed("approve", "x", "two").out


def test_what_is_not_there_cannot_be_approved(listed):
    assert listed("approve", "y").code == 4
    ended = listed("approve", "x", "onee")
    assert ended.code == 4 and "did you mean 'one'?" in ended.err
    listed.shell.write(".mcp.json", '{"mcpServers": {"old": {"type": "sse", "url": "https://x.test"}}}')
    assert listed("approve", "old", "--yes").code == 1


def test_a_tool_of_a_server_that_nobody_asked_yet(walled):
    walled.changing(ONE)
    walled.add("x", program="changing.py", args=("tools.json",))
    ended = walled("approve", "x", "one", "--yes")
    assert ended.code == 3 and "forge mcp approve x" in ended.err, "a yes to a tool is none to its server"
    assert walled("approve", "x", "--yes").code == 0
    ended = walled("approve", "x", "one", "--yes")
    assert ended.code == 0 and "one is approved already" in ended.out


def test_the_test_of_a_server(walled):
    walled.add("echo", "--yes")
    told = walled("test", "echo", "--json").json
    assert told["ok"] is True and told["tools"] == 8 and told["milliseconds"] > 0
    assert walled("test", "ecko").code == 4
    (walled.project / "echo.py").write_text("import sys\nsys.exit('no luck today')\n")
    failed = walled("test", "echo", "--json")
    assert failed.code == 1 and failed.json["ok"] is False and "no luck today" in failed.json["stderr"][-1]


def test_a_variable_that_is_not_set_is_named(walled):
    walled("add", "web", "https://x.test/mcp", "--header", "X-Key=${NO_SUCH_VARIABLE}", "--yes")
    ended = walled("test", "web")
    assert ended.code == 1 and "environment variable NO_SUCH_VARIABLE is not set" in ended.err


def test_a_zone_around_forges_own_files_is_refused_with_the_reason(walled):
    """Approvals and pins lie in FORGE_HOME: no server gets a way to them, and the person learns why."""
    server = '{"mcp": {"servers": {"peek": {"command": "/bin/cat", "zones": {"workspace": "rw"}}}}}'
    (walled.shell.home / "forge.yaml").write_text(server)
    for words in (("approve", "peek", "--yes"), ("test", "peek")):
        ended = walled(*words, cwd=walled.shell.home)
    assert ended.code == 1 and "Zone 'workspace' contains FORGE_HOME" in ended.err
