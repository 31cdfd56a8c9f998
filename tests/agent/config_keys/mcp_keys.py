"""The keys `mcp` and `tools` of forge.yaml, each by what two servers with two values of it do. mcp.md §1, §10."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.agent.config_keys.ground import ZONE, Case, Cases, Ground, Seen
from tests.agent.conftest import calls, let_servers_start

from golem_forge.core.errors import ConfigError

CASES = Cases()
key = CASES.key
PROGRAM = Path(__file__).parents[2] / "mcp" / "programs" / "looking.py"
WORKER = 'toolsets: {mcp: {servers: ["*"]}}\n' + ZONE


async def served(
    ground: Ground, turns: list[Any], *, tools: Any = None, approval: str = "approve_all", **servers: Any
) -> Seen:
    """A run over these servers, each of them `looking` but for what is said; a person let them start before."""
    ground.write("looking.py", PROGRAM.read_bytes())
    blocks = {}
    for name, keys in servers.items():
        usual = {"command": "python3", "args": script(), "zones": {"workspace": "ro"}}
        blocks[name] = {"required": True, **({} if "url" in keys else usual), **keys}
    program = json.dumps({"mcp": {"servers": blocks}, **({"tools": tools} if tools else {})}) + "\n"
    ground.write("forge.yaml", program)
    let_servers_start(ground.root)
    return await ground.run(turns, worker=WORKER, program=program, approval=approval)


def script(*more: str) -> list[str]:
    return ["-S", "${zone:workspace}/looking.py", *more]


def of_a_server(*names: str) -> Callable[[Case], Case]:
    return CASES.key(*(f"mcp.servers.*.{name}" for name in names))


@of_a_server("args", "env", "pass_env", "cwd", "zones.*", "network", "sampling", "protocol")
async def how_it_is_started(ground: Ground) -> None:
    ground.write("sub/file")
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as listening:
        patch.setenv("CANARY_TOKEN", "canary-of-21-letters-")
        one = {
            "args": script("--one"),
            "env": {"X": "12345"},
            "pass_env": ["CANARY_TOKEN"],
            "cwd": "/workspace/sub",
            "zones": {"workspace": "rw"},
            "network": True,
            "sampling": "ask",
            "protocol": "auto",
        }
        other = {
            "args": script("two", ""),
            "env": {"Y": "1"},
            "cwd": "/workspace",
            "zones": {"workspace": "ro"},
            "network": False,
            "sampling": "blocked",
            "protocol": "legacy",
        }
        reach = f"reach:{listening.getsockname()[1]}"
        at = ("argv", "env:X", "env:CANARY_TOKEN", "cwd", "write:/workspace/new", reach, "capabilities", "methods")
        look = calls(*((f"{server}__look", {"at": each}) for each in at for server in "ab"))
        seen = await served(ground, [look, "ok"], a=one, b=other)

    assert set(seen.statuses()) == {"success"}, (seen.error, seen.texts())
    told = [json.loads(text.splitlines()[1]) for _, text in seen.script.results(-1)]
    by_key = {each: told[2 * number : 2 * number + 2] for number, each in enumerate(at)}
    assert by_key["argv"] == [["--one"], ["two", ""]]
    assert by_key["env:X"] == [5, -1]
    assert by_key["env:CANARY_TOKEN"] == [21, -1]
    assert by_key["cwd"][0] == f"{by_key['cwd'][1]}/sub"
    assert by_key["write:/workspace/new"] == ["written", "OSError"]
    assert by_key[reach] == ["reached", "no way"]
    assert ["sampling" in each for each in by_key["capabilities"]] == [True, False]
    assert ["server/discover" in each for each in by_key["methods"]] == [True, False]


@of_a_server("type", "command", "enabled")
async def whether_it_starts(ground: Ground) -> None:
    unable = {"command": "/no/such/binary", "required": False}
    disabled = {"enabled": False, "required": False}
    seen = await served(ground, ["ok"], a={"type": "stdio", "enabled": True}, b=unable, c=disabled)
    assert [f"{server}__look" in seen.offered for server in "abc"] == [True, False, False]
    with pytest.raises(ConfigError, match="http needs `url`"):
        await served(ground, ["ok"], a={"type": "http"})


@contextmanager
def over_http() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server's address, and the headers of what reached it."""
    heard: list[dict[str, str]] = []

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append({name.lower(): value for name, value in self.headers.items()})
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            result = {
                "initialize": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "over http", "version": "1"},
                },
                "tools/list": {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]},
            }.get(message["method"])
            unknown = {"error": {"code": -32601, "message": "Method not found"}}
            body = {"jsonrpc": "2.0", "id": message.get("id"), **({"result": result} if result else unknown)}
            self.answer(200 if "id" in message else 202, json.dumps(body).encode() if "id" in message else b"")

        def do_GET(self) -> None:
            self.answer(405, b"")

        do_DELETE = do_GET

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp", heard
    finally:
        server.shutdown()
        server.server_close()


@of_a_server("url", "headers", "auth")
async def what_is_sent(ground: Ground) -> None:
    with pytest.MonkeyPatch.context() as patch, over_http() as (one, heard), over_http() as (other, unheard):
        patch.setenv("CANARY_TOKEN", "canary-of-a-token")
        sent = {"url": one, "headers": {"X-Canary": "chirp"}, "auth": {"bearer_env": "CANARY_TOKEN"}}
        seen = await served(ground, ["ok"], a=sent)
        assert "a__look" in seen.offered, seen.error
        assert not unheard
        await served(ground, ["ok"], a={"url": other})

    for header, value in (("x-canary", "chirp"), ("authorization", "Bearer canary-of-a-token")):
        assert {each.get(header) for each in heard} == {value}
        assert {each.get(header) for each in unheard} == {None}


@of_a_server("required")
async def required(ground: Ground) -> None:
    broken = {"command": "/no/such/binary"}
    assert (await served(ground, ["ok"], a={**broken, "required": False})).ended == "completed"
    refused = await served(ground, ["ok"], a={**broken, "required": True})
    assert "required MCP server 'a' is not available" in refused.error


@of_a_server("trust", "approval")
async def who_is_asked(ground: Ground) -> None:
    called = [("a__look", {"at": "cwd"}), ("b__look", {"at": "cwd"})]
    called += [("b__wait", {"seconds": 0}), ("c__wait", {"seconds": 0})]
    seen = await served(
        ground,
        [calls(*called), "ok"],
        approval="auto_deny",
        a={"trust": "trusted"},
        b={"trust": "untrusted", "approval": {"tools": {"wait": "preApproved"}}},
        c={"trust": "trusted", "approval": {"default": "blocked"}},
    )
    assert seen.statuses() == ["success", "approval_denied", "success", "policy_denied"]


@of_a_server("tools.allow", "tools.deny")
async def which_tools(ground: Ground) -> None:
    seen = await served(
        ground,
        ["ok"],
        a={"tools": {"allow": ["lo*"]}},
        b={"tools": {"allow": ["*"], "deny": ["l*"]}},
    )
    assert sorted(name for name in seen.offered if "__" in name) == ["a__look", "b__wait"]


@of_a_server("connect_timeout")
async def connect_timeout(ground: Ground) -> None:
    slow = {"args": script("--slow=0.6")}
    seen = await served(ground, ["ok"], a={**slow, "connect_timeout": 90})
    assert "a__look" in seen.offered, seen.error
    refused = await served(ground, ["ok"], a={**slow, "connect_timeout": 0.3})
    assert "'a' is not connected after 0.3 seconds" in refused.error


@of_a_server("idle_timeout", "total_timeout")
async def timeouts_of_a_call(ground: Ground) -> None:
    idle = ("a__wait", {"seconds": 30})
    total = ("b__wait", {"seconds": 30, "progress": True})
    neither = ("c__wait", {"seconds": 0.8})
    limits = {"idle_timeout": 60, "total_timeout": 60}
    seen = await served(
        ground,
        [calls(idle, total, neither), "ok"],
        a={**limits, "idle_timeout": 0.6},
        b={**limits, "total_timeout": 0.6},
        c=limits,
    )
    assert seen.statuses() == ["timeout", "timeout", "success"], seen.texts()
    assert "no progress from a" in seen.texts() and "b did not finish within" in seen.texts()


@of_a_server("close_after")
async def close_after(ground: Ground) -> None:
    born = calls(("a__look", {"at": "born"}), ("b__look", {"at": "born"}))
    pause = calls(("b__wait", {"seconds": 1}))
    seen = await served(ground, [born, pause, born, "ok"], a={"close_after": 0.2}, b={"close_after": 60})
    first, last = ([text.splitlines()[1] for _, text in seen.script.results(at)] for at in (1, 3))
    assert first[0] != last[0] and first[1] == last[1]


async def offered(ground: Ground, tools: Mapping[str, Any], **servers: Any) -> set[str]:
    return {name for name in (await served(ground, ["ok"], tools=dict(tools), **servers)).offered if "__" in name}


@key("tools.defer_above", "tools.defer_tokens")
async def deferring(ground: Ground) -> None:
    assert await offered(ground, {"defer_above": 1}, a={}) == set()
    assert await offered(ground, {"defer_tokens": 1}, a={}) == set()
    assert await offered(ground, {"defer_above": 50, "defer_tokens": 50_000}, a={}) == {"a__look", "a__wait"}


@key("tools.always_load", "mcp.servers.*.always_load")
async def always_load(ground: Ground) -> None:
    tools = {"defer_above": 1, "always_load": ["a__w*"]}
    assert await offered(ground, tools, a={}, b={"always_load": ["loo*"]}) == {"a__wait", "b__look"}
