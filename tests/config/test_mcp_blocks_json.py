"""`.mcp.json` as other programs write it: mcp.md §1, cases 1 and 2; and as an enemy writes it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.deadlines import within

from golem_forge.config.mcp_blocks import JsonServers, read_mcp_json
from golem_forge.config.mcp_merge import editor_of_scope, editor_scope
from golem_forge.config.mcp_spec import is_server_name, server_name


def read(root: Path, value: Any) -> JsonServers:
    (root / ".mcp.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return read_mcp_json(root)


def server(root: Path, value: Any) -> Any:
    return read(root, {"mcpServers": {"s": value}}).servers["s"]


def test_nothing_there(root: Path) -> None:
    assert read_mcp_json(root) == JsonServers()


def test_servers_as_other_hosts_write_them(root: Path) -> None:
    found = read(
        root,
        {
            "mcpServers": {
                "filesystem": {"command": "npx", "args": ["-y", "server-filesystem", "/x"], "env": {"A": "${B}"}},
                "time": {"type": "stdio", "command": "uvx", "args": ["mcp-server-time"], "autoApprove": ["*"]},
                "web": {"type": "streamable-http", "url": "https://h.test/mcp", "headers": {"X": "${KEY}"}},
                "off": {"command": "x", "disabled": True},
            }
        },
    )
    assert found.servers["filesystem"].keys == {
        "command": "npx",
        "args": ["-y", "server-filesystem", "/x"],
        "env": {"A": "${B}"},
    }
    assert found.servers["web"].keys == {"url": "https://h.test/mcp", "headers": {"X": "${KEY}"}}
    assert found.servers["off"].keys == {"command": "x", "enabled": False}
    assert {block.problem for block in found.servers.values()} == {""}
    assert {block.origin for block in found.servers.values()} == {".mcp.json"}
    [said] = found.warnings
    assert said.startswith(".mcp.json: mcpServers.time.autoApprove: grants nothing here")


@pytest.mark.parametrize("key", ["alwaysAllow", "autoApprove", "trust", "auto_approve", "approval"])
def test_no_key_grants_anything(root: Path, key: str) -> None:
    found = read(
        root, {"mcpServers": {"s": {"command": "x", key: True, "tools": {"allow": ["*"]}, "zones": {"w": "rw"}}}}
    )
    assert found.servers["s"].keys == {"command": "x"}
    assert [said.split(": ")[1] for said in found.warnings] == [f"mcpServers.s.{k}" for k in (key, "tools", "zones")]
    assert "grants nothing" in found.warnings[0] and "unknown key, not used" in found.warnings[2]


@pytest.mark.parametrize("kind", ["http", "streamable-http", "streamable_http"])
def test_the_types(root: Path, kind: str) -> None:
    assert server(root, {"type": kind, "url": "https://h.test"}).problem == ""
    assert server(root, {"type": kind, "command": "x"}).problem == f".mcp.json: type {kind} needs `url`"


def test_sse_is_refused_with_the_text(root: Path) -> None:
    assert server(root, {"type": "sse", "url": "https://h.test/sse"}).problem == (
        "SSE is not supported; use streamable HTTP"
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "expected an object"),
        ({}, "needs exactly one of `command` and `url`"),
        ({"command": "x", "url": "https://h.test"}, "needs exactly one of"),
        ({"command": ""}, "command: expected a text"),
        ({"command": 5}, "command: expected a text"),
        ({"command": "x\0y"}, "command: expected a text"),
        ({"command": "x", "args": "a b"}, "args: expected a list of texts"),
        ({"command": "x", "args": [1]}, "args: expected a list of texts"),
        ({"command": "x", "env": {"PORT": 80}}, "env.PORT: expected a text"),
        ({"command": "x", "env": []}, "env: expected an object"),
        ({"type": "websocket", "url": "https://h.test"}, "type: expected stdio or http, got 'websocket'"),
        ({"type": ["http"], "url": "https://h.test"}, "type: expected stdio or http"),
        ({"url": "http://h.test"}, "url: http is only for this machine"),
        ({"url": "https://u:canary@h.test"}, "url: an address must not contain credentials"),
        ({"url": "file:///etc/passwd"}, "url: expected an address"),
        ({"url": "https://h.test", "headers": {"A\r\nB": "x"}}, "is not the name of a header"),
        ({"url": "https://h.test", "headers": {"A": "x\r\nHost: y"}}, "expected a text of one line"),
        ({"url": "https://h.test", "headers": {"host": "y"}}, "headers.host: is set by Forge"),
    ],
)
def test_a_server_that_cannot_be_used_says_why_and_stops_nothing(root: Path, value: Any, said: str) -> None:
    found = read(root, {"mcpServers": {"s": value, "good": {"command": "x"}}})
    assert found.servers["s"].problem.startswith(".mcp.json: ") and said in found.servers["s"].problem
    assert "canary" not in repr(found.servers["s"].problem)
    assert found.servers["good"].problem == ""


def test_keys_of_the_other_transport_are_left_out_with_a_warning(root: Path) -> None:
    found = read(
        root, {"mcpServers": {"s": {"type": "http", "url": "https://h.test", "command": "x", "env": {"A": "b"}}}}
    )
    assert found.servers["s"].keys == {"url": "https://h.test"}
    assert [said.split(": ")[1] for said in found.warnings] == ["mcpServers.s.command", "mcpServers.s.env"]


def test_variables_that_no_child_gets_are_left_out_with_a_warning(root: Path) -> None:
    found = read(
        root, {"mcpServers": {"s": {"command": "x", "env": {"LD_PRELOAD": "/evil.so", "PATH": "/x", "A": "b"}}}}
    )
    assert found.servers["s"].keys["env"] == {"A": "b"} and found.servers["s"].problem == ""
    assert [said.split(": ")[1] for said in found.warnings] == ["mcpServers.s.env.LD_PRELOAD", "mcpServers.s.env.PATH"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ".mcp.json:1:1: not valid JSON"),
        ('{"mcpServers": {\n  "a": {"command": "x",}\n}}', ".mcp.json:2:"),
        ("[]", ".mcp.json: expected an object"),
        ('{"mcpServers": []}', ".mcp.json: mcpServers: expected an object"),
        ('{"mcpServers": {"a": {"command": "x", "command": "y"}}}', ".mcp.json: key 'command' appears twice"),
        ('{"mcpServers": {"a": {}, "a": {}}}', ".mcp.json: key 'a' appears twice"),
        ('{"mcpServers": {"a": {"x": NaN}}}', ".mcp.json: NaN is not JSON"),
        ('{"x": ' + "9" * 10_000 + "}", ".mcp.json: has an invalid number"),
        ('{"x": ' + "[" * 200_000 + "]" * 200_000 + "}", ".mcp.json: too deeply nested"),
        ('{"x": "' + "y" * (1 << 20) + '"}', ".mcp.json: is larger than 1048576 bytes"),
        (json.dumps({"mcpServers": {f"s{n}": {} for n in range(101)}}), ".mcp.json: mcpServers: more than 100 servers"),
    ],
)
def test_a_broken_file_is_one_warning(root: Path, text: str, said: str) -> None:
    found = read(root, text)
    assert not found.servers
    [warning] = found.warnings
    assert warning.startswith(said) and warning.endswith("none of its servers is used"), warning


def test_bytes_that_are_no_text(root: Path) -> None:
    (root / ".mcp.json").write_bytes(b'{\n"a\xff": 1}')
    assert read_mcp_json(root).warnings[0].startswith(".mcp.json:2: is not UTF-8")
    (root / ".mcp.json").write_bytes(b'\xef\xbb\xbf{"mcpServers": {"s": {"command": "x"}}}')
    assert list(read_mcp_json(root).servers) == ["s"]


def test_what_is_no_file_or_leads_out_is_not_read(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"mcpServers": {"stolen": {"command": "x"}}}')
    (root / ".mcp.json").symlink_to(tmp_path / "secret.json")
    found = read_mcp_json(root)
    assert not found.servers and "leads out of the program" in found.warnings[0]
    (root / ".mcp.json").unlink()
    (root / "inside.json").write_text('{"mcpServers": {"ours": {"command": "x"}}}')
    (root / ".mcp.json").symlink_to("inside.json")
    assert list(read_mcp_json(root).servers) == ["ours"]
    (root / ".mcp.json").unlink()
    os.mkfifo(root / ".mcp.json")
    with within(1):
        assert "is not a regular file" in read_mcp_json(root).warnings[0]


def test_warnings_are_bounded_and_cannot_steer_a_terminal(root: Path) -> None:
    found = read(root, {"mcpServers": {"s": {"command": "x", **{f"k{n}\x1b[2J": 1 for n in range(3000)}}}})
    assert len(found.warnings) == 51 and found.warnings[-1] == ".mcp.json: and 2950 more of this kind"
    assert "\x1b" not in "".join(found.warnings) and "\\x1b[2J" in found.warnings[0]


def test_foreign_names_stay_apart(root: Path) -> None:
    raw = ["my server", "my.server", "my_server", "a__b", "日本", "", "x" * 200, "x" * 201, "-a", "\x1b[2J"]
    found = read(root, {"mcpServers": {name: {"command": name or "empty"} for name in raw}})
    assert len(found.servers) == len(raw) and all(is_server_name(name) for name in found.servers)
    assert found.servers["my_server"].keys["command"] == "my_server"
    again = read(root, {"mcpServers": {name: {"command": name or "empty"} for name in reversed(raw)}})
    assert dict(again.servers) == dict(found.servers)
    assert any(".mcp.json: mcpServers.my server: is called 'my_server_" in said for said in found.warnings)


def test_a_name_that_another_would_become_belongs_to_who_has_it(root: Path) -> None:
    made = server_name("my server")
    found = read(root, {"mcpServers": {"my server": {"command": "a"}, made: {"command": "b"}}})
    assert found.servers[made].keys["command"] == "b"
    assert [said for said in found.warnings if "not used" in said and "my server" in said]


@given(st.text(max_size=60), st.text(max_size=60))
def test_every_text_has_a_name_and_two_have_two(one: str, other: str) -> None:
    names = server_name(one), server_name(other)
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", name) and "__" not in name
    assert (names[0] == names[1]) == (one == other)


@pytest.mark.parametrize(
    "words",
    [
        ["forge", "mcp", "serve"],
        ["/opt/venv/bin/forge", "mcp", "serve", "-p", "/somewhere", "--worker", "w"],
        ["/usr/bin/python3.11", "-m", "golem_forge", "mcp", "serve"],
        ["uvx", "golem-forge", "mcp", "serve"],
    ],
)
def test_forge_is_no_server_of_itself(root: Path, words: list[str]) -> None:
    started = {"type": "stdio", "command": words[0], "args": words[1:]}
    found = read(root, {"mcpServers": {"golem-forge": started, "other": {"command": "x"}}})
    assert list(found.servers) == ["other"]
    assert found.warnings == (), "Forge itself wrote it there, for others"


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "forge", "args": ["build"]},
        {"command": "unforge", "args": ["mcp", "serve"]},
        {"command": "mcp", "args": ["serve", "forge"]},
        {"command": "x", "args": ["forge", "serve", "mcp"]},
        {"command": "forge", "args": "mcp serve"},
        {"command": "forge"},
    ],
)
def test_what_only_looks_like_forge_is_a_server(root: Path, entry: Any) -> None:
    found = read(root, {"mcpServers": {"s": entry}})
    assert list(found.servers) == ["s"] and found.warnings == ()


@pytest.mark.parametrize("client", ["zed", "zed: nightly", "a:/place"])
def test_the_scope_of_an_editors_servers_names_the_editor_of_this_program_alone(client: str) -> None:
    root = Path("/srv/app")
    assert editor_of_scope(editor_scope(client, root), root) == client
    assert editor_of_scope(editor_scope(client, Path("/srv/other")), root) == ""
    assert editor_of_scope(str(root), root) == ""
