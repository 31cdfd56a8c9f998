"""`forge mcp list` and `show`, `forge tools …` and `forge doctor`: what is known of servers without starting any."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from .conftest import PYTHON

CANARY = "canary-77aa"
FOREIGN = {"command": "/bin/false", "args": ["x"], "env": {"API_TOKEN": CANARY}, "autoApprove": ["*"]}


def test_servers_of_other_products_are_pending_whatever_they_say(servers):
    servers.shell.write(
        ".mcp.json", json.dumps({"mcpServers": {"theirs": FOREIGN, "old": {"type": "sse", "url": "x"}}})
    )
    ended = servers("list")
    assert "warning: .mcp.json: mcpServers.theirs.autoApprove" in ended.err
    told = {each["name"]: each for each in servers("list", "--json").json["servers"]}
    assert told["theirs"]["state"] == "pending" and told["theirs"]["origin"] == ".mcp.json"
    assert told["old"]["state"] == "failed" and "use streamable HTTP" in told["old"]["error"]
    shown = servers("show", "theirs")
    assert "variable: API_TOKEN = (a value, not shown)" in shown.out and "state: pending" in shown.out
    assert CANARY not in shown.out + servers("show", "theirs", "--json").out


def test_no_answer_steers_the_terminal(servers):
    servers.shell.write(".mcp.json", json.dumps({"mcpServers": {"x": {"command": "a\u001b[2J", "args": ["\u202eb"]}}}))
    for ended in (servers("show", "x"), servers("list"), servers("approve", "x")):
        assert "\x1b" not in ended.out + ended.err and "\u202e" not in ended.out + ended.err


def test_a_disabled_one_says_so(servers):
    servers.shell.write("forge.yaml", "mcp: {servers: {x: {command: ls, enabled: false}}}\n")
    assert servers.states() == {"x": "disabled"}
    ended = servers("test", "x")
    assert ended.code == 1 and "server 'x' is disabled" in ended.err


def test_looking_loads_nothing_of_the_sdk(walled):
    walled.add("echo", "--yes")
    code = (
        "import sys; from golem_forge.cli.main import main\n"
        "for words in (['mcp', 'list'], ['mcp', 'show', 'echo'], ['tools', 'list']): assert main(words) == 0\n"
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=walled.shell.environ, cwd=walled.project, capture_output=True, text=True
    )
    assert "echo__add" in done.stdout
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "golem_forge" in loaded and not loaded & {"mcp", "mcp_types", "httpx2", "anyio", "starlette", "uvicorn"}


def test_a_plain_headless_run_names_a_server_that_waits(servers):
    (servers.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"git": {"command": "/bin/false"}}}))
    (servers.project / "model.yaml").write_text("turns: [{say: Hello}]\n")
    waits = "server git: pending: server 'git' waits for approval; run: forge mcp approve git"

    def told(*options: str) -> list[str]:
        ended = servers.shell("run", "--model", "scripted:model.yaml", *options, "hi")
        assert (ended.code, ended.out) == (0, "Hello\n")
        return ended.err.splitlines()

    assert told().count(waits) == 1
    assert told() == told("--trace", "summary"), "the default that --help names"
    assert "by default normal, headless summary" in servers.shell("run", "--help").out
    assert waits in told("--trace", "normal") and not told("--trace", "quiet")


def test_lines_that_are_no_messages_are_counted(walled):
    walled.command("echo.py")
    added = walled.add("noisy", "--yes", program="hostile.py", args=("garbage",))
    assert added.code == 0, added.err
    must = "a server must write everything except messages to stderr"
    note = rf"standard output: (\d+) lines were not JSON-RPC and dropped; {must}"
    tested, shown = walled("test", "noisy").out, walled("show", "noisy").out
    (first,) = {int(re.search(f"note: {note}", text)[1]) for text in (added.out, tested, shown)}
    assert first > 5 and "tools: 1" in shown
    for told in (walled("test", "noisy", "--json").json, walled.shown("noisy")):
        assert re.fullmatch(note, told["diagnostics"][0])[1] == str(first) and len(told["diagnostics"]) == 1
    assert walled.shell("call", "noisy__act", "--approval", "approve_all").out == "the answer\n"
    assert int(re.search(note, walled("show", "noisy").out)[1]) == 2 * first, "those during a call count too"


def test_what_only_writes_to_standard_output_is_told_so(walled):
    (walled.project / "chatty.py").write_text("print('Listening on port 80'); print('Ready.')\nraise SystemExit(1)\n")
    ended = walled("add", "chatty", "--yes", "--zone", "workspace", "--", PYTHON, "-S", "chatty.py")
    assert ended.code == 1
    assert "the server ended with exit code 1; 2 lines were not JSON-RPC and dropped" in ended.err


def test_one_invalid_tool_is_held_back_alone(walled):
    walled.changing(
        {"name": "good"}, {"name": "bad", "inputSchema": {"type": 5}}, {"name": "sly", "title": "a\U000e0041"}
    )
    walled.add("x", "--yes", program="changing.py", args=("tools.json",))
    held = {each["tool"]: each["reason"] for each in walled.shown("x")["held"]}
    assert held == {"bad": "schema_invalid", "sly": "hidden_text"}
    assert "tools are held back; run: forge mcp show x" in walled("list").out
    text = walled("show", "x").out
    assert "held back: 2" in text and "bad  schema_invalid: " in text
    listed = walled.shell("tools", "list", "--json", "--source", "mcp").json
    assert [tool["name"] for tool in listed["tools"]] == ["x__good"]
    assert {each["name"] for each in listed["quarantined"]} == {"x__bad", "x__sly"}
    assert walled("approve", "x", "bad", "--yes").code == 1


def test_the_tools_of_servers_are_tools(walled):
    walled.add("echo", "--yes")
    path = walled.project / "forge.yaml"
    path.write_text(path.read_text() + "      approval: {tools: {add: blocked}}\n")
    assert walled.shell("tools", "search", "add", "two", "numbers", "--limit", "1", "--json").json["tools"][0][
        "name"
    ] == ("echo__add")
    shown = walled.shell("tools", "show", "echo__add")
    assert shown.out.startswith("echo__add  (mcp") and "approval: blocked (" in shown.out
    assert "approval: ask (" in walled.shell("tools", "show", "echo__echo").out
    called = walled.shell("call", "echo__echo", "--text", "hello", "--approval", "approve_all")
    assert called.code == 0 and called.out == "hello\n", called.err


def test_a_program_that_cannot_be_read_leaves_the_other_tools(servers):
    servers.shell.write("forge.yaml", "mpc: {}\n")
    ended = servers.shell("tools", "list")
    assert ended.code == 0 and "read_file" in ended.out
    assert "this list has no MCP tools: forge.yaml:1: mpc: unknown key 'mpc'" in ended.err
    assert servers("list").code == 2


def test_the_doctor_names_every_server(walled, told_of_walls):
    walled.add("echo", "--yes")
    walled.shell.write(".mcp.json", json.dumps({"mcpServers": {"theirs": FOREIGN}}))
    found = [each for each in walled.shell("doctor", "--json").json["findings"] if each["about"] == "mcp"]
    texts = {each["text"]: each for each in found}
    assert texts["echo offers 8 tools"]["state"] == "ok"
    assert texts["theirs waits for your approval (.mcp.json)"]["fix"] == "forge mcp approve theirs"
    assert any("autoApprove" in text for text in texts)
    (walled.shell.forge_home / "state" / "mcp.json").write_text("{")
    assert "must be approved again" in walled.shell("doctor").out
    listed = walled("list")
    assert "must be approved again" in listed.err and "echo    pending" in listed.out


def test_a_tool_whose_server_was_never_listed_is_shown_and_explained_by_asking_the_server(walled):
    assert walled.add("echo", "--yes").code == 0
    manifests = walled.shell.forge_home / "cache" / "mcp"
    for file in manifests.iterdir():
        file.unlink()
    for words in (("tools", "show", "echo__echo"), ("call", "echo__echo", "--help")):
        shown = walled.shell(*words)
        assert shown.code == 0 and "Says it back." in shown.out
    said = walled.shell("rules", "explain", "echo__echo", '{"text": "x"}', "--json")
    assert (said.code, said.json["effects"][0]["effect"]) == (3, "net mcp://echo")
    assert list(manifests.iterdir()) == [], "a look keeps nothing"


def test_a_server_that_nobody_agreed_to_is_not_started_for_a_look(servers):
    log = servers.project / "log"
    servers.add("echo", "--env", f"ECHO_LOG={log}")
    for words in (("tools", "show", "echo__echo"), ("rules", "explain", "echo__echo", "{}")):
        ended = servers.shell(*words)
        assert ended.code in (2, 4) and "forge mcp approve echo" in ended.out + ended.err
    assert not log.exists()
