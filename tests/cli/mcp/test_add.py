"""`forge mcp add` and `remove`: what is written, who is asked, what is started."""

from __future__ import annotations

import pytest

CANARY = "sk-canary-5f1e"


def test_with_a_yes_it_is_connected_to_and_shown(walled):
    ended = walled.add("echo", "--yes", "--deny", "f*")
    assert ended.code == 0, ended.err
    assert "echo: answers after " in ended.out and "protocol 2025-11-25" in ended.out
    assert "echo__add" in ended.out and "prompts: 1: greet" in ended.out and "resources: yes" in ended.out
    fail = next(line for line in ended.out.splitlines() if "echo__fail" in line)
    assert "not offered" in fail
    assert walled.states() == {"echo": "known"}
    assert walled.shown("echo")["approved"] is True


@pytest.mark.parametrize(("typed", "code", "state"), [("y", 0, "known"), ("n", 3, "pending"), ("", 3, "pending")])
def test_the_person_at_a_terminal_decides(walled, on_terminal, typed, code, state):
    words = ["mcp", "add", "echo", "--zone", "workspace", *walled.command()]
    ended, screen = on_terminal(words, (r"Start the MCP server 'echo' from now on\? \[y/N\] ", typed))
    assert ended == code, screen
    assert "runs: " in screen
    assert ("answers after" in screen) is (code == 0)
    assert walled.states() == {"echo": state}


def test_what_does_not_answer_stays_and_says_why(walled):
    ended = walled("add", "broken", "--yes", "--", "/no/such/binary")
    assert ended.code == 1
    assert "server 'broken' failed" in ended.err and "it stays in forge.yaml" in ended.err
    assert walled.states() == {"broken": "pending"}, "it has never answered"


def test_its_last_words_are_shown(walled):
    walled.shell.write("dies.py", "import sys\nsys.exit('no \\x1b[31mdatabase')\n")
    ended = walled("add", "dies", "--yes", "--zone", "workspace", *walled.command()[:3], "dies.py")
    assert ended.code == 1
    assert "the last lines of its stderr:" in ended.err and "database" in ended.err and "\x1b" not in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x"], "name a URL, or write the command after `--`"),
        (["x", "ls"], "'ls' is not a URL; a command goes after `--`"),
        (["x", "https://x.test/mcp", "--", "ls"], "either a URL or a COMMAND"),
        (["x", "https://x.test/mcp", "--zone", "workspace"], "--zone has no effect for a server with a URL"),
        (["x", "--auth", "oauth", "--", "ls"], "--auth has no effect for a server that is started"),
        (["x", "--zone", "nope", "--", "ls"], "this program has no zone 'nope'; its zones: workspace"),
        (["x", "--zone", "workspace:w", "--", "ls"], "write NAME, NAME:ro or NAME:rw"),
        (["x", "--env", CANARY, "--", "ls"], "--env needs NAME=VALUE"),
        (["x", "--env", "A=1", "--env", "A=2", "--", "ls"], "--env A was given twice"),
        (["x", "https://x.test", "--auth", "oauth", "--bearer-env", "T"], "exclude each other"),
        (["a b", "--", "ls"], "is not a name of a server"),
        (["x", "http://x.test/mcp"], "https"),
    ],
)
def test_what_cannot_be_meant_writes_nothing(servers, words, said):
    before = servers.shell.everything()
    ended = servers("add", *words)
    assert ended.code == 2 and said in ended.err and CANARY not in ended.err
    assert servers.shell.everything() == before


def test_a_name_that_is_taken_anywhere_is_refused(servers):
    servers.shell.write(".mcp.json", '{"mcpServers": {"docs": {"url": "https://docs.example/mcp"}}}')
    ended = servers("add", "docs", "--", "ls")
    assert ended.code == 2 and "'docs' exists already (.mcp.json)" in ended.err
    assert not (servers.project / "forge.yaml").exists()


def test_a_home_is_not_made_a_program(servers):
    ended = servers("add", "x", "--", "ls", cwd=servers.shell.home)
    assert ended.code == 2 and "use --user" in ended.err
    assert not (servers.shell.home / "forge.yaml").exists()


def test_a_zone_that_is_read_only_stays_so(servers):
    servers.shell.write("forge.yaml", "sandbox: {zones: {workspace: {path: ., mode: ro}}}\n")
    ended = servers("add", "x", "--zone", "workspace:rw", "--", "ls")
    assert ended.code == 2 and "zone 'workspace' is read-only" in ended.err


def test_zones_that_no_session_can_use_are_refused_before_anything_is_written(servers):
    servers.shell.write("forge.yaml", "sandbox: {zones: {workspace: {path: .}, notes: {path: notes}}}\n")
    (servers.project / "notes").mkdir()
    before = servers.shell.everything()
    ended = servers("add", "x", "--zone", "notes", "--yes", "--", "ls")
    assert ended.code == 2 and "forge.yaml:1: Zones 'notes' and 'workspace' overlap" in ended.err
    assert "Choose directories that lie beside each other" in ended.err
    assert servers.shell.everything() == before


def test_every_option_is_a_key_of_the_file(servers):
    from golem_forge.config.yaml_file import parse_yaml

    options = ["--env", "A=b=c", "--pass-env", "LANG", "--zone", "workspace:rw", "--cwd", "/workspace/sub"]
    options += ["--network", "x.test:443", "--required", "--trust", "trusted", "--allow", "a*", "--deny", "ab"]
    assert servers("add", "all", *options, "--protocol", "legacy", "--", "prog", "-x", "--", "y").code == 0
    assert servers("add", "web", "https://x.test/mcp", "--header", "X-A: b c", "--bearer-env", "TOKEN").code == 0
    blocks = parse_yaml((servers.project / "forge.yaml").read_bytes(), "forge.yaml").value["mcp"]["servers"]
    assert blocks["all"] == {
        "command": "prog",
        "args": ["-x", "--", "y"],
        "env": {"A": "b=c"},
        "pass_env": ["LANG"],
        "cwd": "/workspace/sub",
        "zones": {"workspace": "rw"},
        "network": ["x.test:443"],
        "trust": "trusted",
        "required": True,
        "tools": {"allow": ["a*"], "deny": ["ab"]},
        "protocol": "legacy",
    }
    assert blocks["web"] == {
        "url": "https://x.test/mcp",
        "headers": {"X-A": "b c"},
        "auth": {"bearer_env": "TOKEN"},
    }


def test_a_secret_that_was_typed_is_noted_and_shown_nowhere(servers):
    ended = servers("add", "web", "https://x.test/mcp", "--header", f"X-Api-Key={CANARY}")
    assert "the value of X-Api-Key is in the file as you typed it" in ended.err
    texts = [ended.out, ended.err, servers("show", "web").out, servers("show", "web", "--json").out]
    assert all(CANARY not in text for text in texts)
    assert servers.shown("web")["config"]["headers"] == {"X-Api-Key": None}


def test_notes_for_whoever_would_wonder(walled):
    walled.shell.write("main.worker", "---\nname: main\ntoolsets: {filesystem: {}}\n---\nHi.\n")
    ended = walled.add("echo", "--yes", "--trust", "trusted")
    assert "the worker 'main' does not see it yet" in ended.err
    assert "`trust: trusted` counts once the program itself is trusted" in ended.err
    unseen = walled("add", "other", *walled.command())
    assert "'echo.py' is in zone 'workspace', which this server does not see" in unseen.err
    assert "note:" not in walled("test", "other").err  # pending: that is the reason
    assert walled("approve", "other", "--yes").code == 0
    failed = walled("test", "other")
    assert failed.code == 1 and "`zones: {workspace: ro}` under mcp.servers.other of forge.yaml" in failed.err


def test_a_trusted_program_is_told_to_be_no_longer(servers):
    servers.shell.write("forge.yaml", "approval: {mode: strict}\n")
    assert servers.shell("trust", "--yes").code == 0
    assert "not trusted any more" in servers("add", "x", "https://x.test/mcp").out


def test_a_server_of_ones_own_is_there_in_every_program(servers, tmp_path):
    assert servers("add", "web", "https://x.test/mcp", "--user").code == 0
    assert not (servers.project / "forge.yaml").exists()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    ended = servers("list", cwd=elsewhere)
    assert "web" in ended.out and "config.yaml" in ended.out
    assert servers("remove", "web").code == 4
    assert servers("remove", "web", "--user").code == 0
    assert servers.states() == {}


def test_removing_forgets_what_was_agreed_to(walled):
    walled.add("echo", "--yes")
    assert walled("remove", "echo").code == 0
    walled.add("echo")
    assert walled.states() == {"echo": "pending"}
    assert walled("remove", "ecko").code == 4
