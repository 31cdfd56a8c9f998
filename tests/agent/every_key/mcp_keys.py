"""The keys `mcp` and `tools` of forge.yaml, each by what two servers with two values of it do. mcp.md §1, §10."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import calls
from tests.agent.every_key.ground import ZONE, Cases, Ground, Seen

from golem_forge.config.program import load_program
from golem_forge.core.errors import ConfigError
from golem_forge.mcp.client.trust_store import ServerTrustStore
from golem_forge.storage.home import forge_home

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
        usual = {"command": "python3", "args": ["${zone:workspace}/looking.py"], "zones": {"workspace": "ro"}}
        blocks[name] = {"required": True, **({} if "url" in keys else usual), **keys}
    program = json.dumps({"mcp": {"servers": blocks}, **({"tools": tools} if tools else {})}) + "\n"
    ground.write("forge.yaml", program)
    book = ServerTrustStore(forge_home())
    for spec in load_program(ground.root, forge_home(), trusted=lambda _: True).mcp.servers.values():
        book.approve_server(spec, "a person")
    return await ground.run(turns, worker=WORKER, program=program, approval=approval)


async def looked(ground: Ground, at: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Any]:
    """What two servers with these keys tell."""
    both = calls(("a__look", {"at": at}), ("b__look", {"at": at}))
    seen = await served(ground, [both, "ok"], a=one, b=other)
    assert seen.statuses() == ["success", "success"], (seen.error, seen.texts())
    return [json.loads(text.splitlines()[1]) for _, text in seen.script.results(-1)]


def script(*more: str) -> list[str]:
    return ["${zone:workspace}/looking.py", *more]


@key("mcp.servers.*.type")
async def kind(ground: Ground) -> None:
    seen = await served(ground, ["ok"], a={"type": "stdio"})
    assert "a__look" in seen.offered
    with pytest.raises(ConfigError, match="http needs `url`"):
        await served(ground, ["ok"], a={"type": "http"})


@key("mcp.servers.*.command")
async def command(ground: Ground) -> None:
    seen = await served(ground, ["ok"], a={}, b={"command": "/no/such/binary", "required": False})
    assert "a__look" in seen.offered and "b__look" not in seen.offered


@key("mcp.servers.*.args")
async def args(ground: Ground) -> None:
    assert await looked(ground, "argv", {"args": script("--one")}, {"args": script("two", "")}) == [
        ["--one"],
        ["two", ""],
    ]


@key("mcp.servers.*.env")
async def env(ground: Ground) -> None:
    assert await looked(ground, "env:X", {"env": {"X": "12345"}}, {"env": {"Y": "1"}}) == [5, -1]


@key("mcp.servers.*.pass_env")
async def pass_env(ground: Ground) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CANARY_TOKEN", "canary-of-21-letters-")
        assert await looked(ground, "env:CANARY_TOKEN", {"pass_env": ["CANARY_TOKEN"]}, {}) == [21, -1]


@key("mcp.servers.*.cwd")
async def cwd(ground: Ground) -> None:
    ground.write("sub/file")
    below, top = await looked(ground, "cwd", {"cwd": "/workspace/sub"}, {"cwd": "/workspace"})
    assert below == f"{top}/sub"


@key("mcp.servers.*.zones.*")
async def zones(ground: Ground) -> None:
    ways = {"zones": {"workspace": "rw"}}, {"zones": {"workspace": "ro"}}
    assert await looked(ground, "write:/workspace/new", *ways) == ["written", "OSError"]


@key("mcp.servers.*.network")
async def network(ground: Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert await looked(ground, f"reach:{port}", {"network": True}, {"network": False}) == ["reached", "no way"]


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


@key("mcp.servers.*.url")
async def url(ground: Ground) -> None:
    with over_http() as (one, heard), over_http() as (other, unheard):
        seen = await served(ground, ["ok"], a={"url": one})
        assert "a__look" in seen.offered, seen.error
        assert heard and not unheard
        await served(ground, ["ok"], a={"url": other})
        assert unheard


@key("mcp.servers.*.headers")
async def headers(ground: Ground) -> None:
    with over_http() as (one, heard), over_http() as (other, unheard):
        await served(ground, ["ok"], a={"url": one, "headers": {"X-Canary": "chirp"}}, b={"url": other})
        assert {each.get("x-canary") for each in heard} == {"chirp"}
        assert {each.get("x-canary") for each in unheard} == {None}


@key("mcp.servers.*.auth")
async def auth(ground: Ground) -> None:
    with pytest.MonkeyPatch.context() as patch, over_http() as (one, heard), over_http() as (other, unheard):
        patch.setenv("CANARY_TOKEN", "canary-of-a-token")
        await served(ground, ["ok"], a={"url": one, "auth": {"bearer_env": "CANARY_TOKEN"}}, b={"url": other})
        assert {each.get("authorization") for each in heard} == {"Bearer canary-of-a-token"}
        assert {each.get("authorization") for each in unheard} == {None}


@key("mcp.servers.*.enabled")
async def enabled(ground: Ground) -> None:
    seen = await served(ground, ["ok"], a={"enabled": True}, b={"enabled": False, "required": False})
    assert "a__look" in seen.offered and "b__look" not in seen.offered


@key("mcp.servers.*.required")
async def required(ground: Ground) -> None:
    broken = {"command": "/no/such/binary"}
    assert (await served(ground, ["ok"], a={**broken, "required": False})).ended == "completed"
    refused = await served(ground, ["ok"], a={**broken, "required": True})
    assert "required MCP server 'a' is not available" in refused.error


@key("mcp.servers.*.trust")
async def trust(ground: Ground) -> None:
    look = calls(("a__look", {"at": "cwd"}), ("b__look", {"at": "cwd"}))
    seen = await served(ground, [look, "ok"], approval="auto_deny", a={"trust": "trusted"}, b={"trust": "untrusted"})
    assert seen.statuses() == ["success", "approval_denied"]


@key("mcp.servers.*.tools.allow")
async def allow(ground: Ground) -> None:
    seen = await served(ground, ["ok"], a={"tools": {"allow": ["lo*"]}}, b={"tools": {"allow": ["wait"]}})
    assert sorted(name for name in seen.offered if "__" in name) == ["a__look", "b__wait"]


@key("mcp.servers.*.tools.deny")
async def deny(ground: Ground) -> None:
    seen = await served(ground, ["ok"], a={"tools": {"allow": ["*"], "deny": ["wait"]}}, b={"tools": {"deny": ["l*"]}})
    assert sorted(name for name in seen.offered if "__" in name) == ["a__look", "b__wait"]


@key("mcp.servers.*.approval")
async def approval(ground: Ground) -> None:
    wait = calls(("a__wait", {"seconds": 0}), ("b__wait", {"seconds": 0}))
    allowed = {"approval": {"tools": {"wait": "preApproved"}}}
    seen = await served(ground, [wait, "ok"], approval="auto_deny", a=allowed, b={"approval": {"default": "blocked"}})
    assert seen.statuses() == ["success", "policy_denied"]


@key("mcp.servers.*.sampling")
async def sampling(ground: Ground) -> None:
    one, other = await looked(ground, "capabilities", {"sampling": "ask"}, {"sampling": "blocked"})
    assert "sampling" in one and "sampling" not in other


@key("mcp.servers.*.connect_timeout")
async def connect_timeout(ground: Ground) -> None:
    slow = {"args": script("--slow=1.5")}
    seen = await served(ground, ["ok"], a={**slow, "connect_timeout": 20})
    assert "a__look" in seen.offered, seen.error
    refused = await served(ground, ["ok"], a={**slow, "connect_timeout": 0.3})
    assert "'a' is not connected after 0.3 seconds" in refused.error


async def limited(ground: Ground, name: str, *, progress: bool) -> str:
    """What the caller of a slow tool is told, with a short limit and a long one."""
    long, short = ({"seconds": seconds, "progress": progress} for seconds in (30, 0.8))
    seen = await served(ground, [calls(("a__wait", long), ("b__wait", short)), "ok"], a={name: 0.6}, b={name: 60})
    assert seen.statuses() == ["timeout", "success"], seen.texts()
    return seen.texts()


@key("mcp.servers.*.idle_timeout")
async def idle_timeout(ground: Ground) -> None:
    assert "no progress from a" in await limited(ground, "idle_timeout", progress=False)


@key("mcp.servers.*.total_timeout")
async def total_timeout(ground: Ground) -> None:
    assert "a did not finish within" in await limited(ground, "total_timeout", progress=True)


@key("mcp.servers.*.close_after")
async def close_after(ground: Ground) -> None:
    born = calls(("a__look", {"at": "born"}), ("b__look", {"at": "born"}))
    pause = calls(("c__wait", {"seconds": 1.5}))
    seen = await served(ground, [born, pause, born, "ok"], a={"close_after": 0.2}, b={"close_after": 60}, c={})
    first, _, last = ([text for _, text in seen.script.results(at)] for at in (1, 2, 3))
    told = [[text.splitlines()[1] for text in each] for each in (first, last)]
    assert told[0][0] != told[1][0] and told[0][1] == told[1][1]


@key("mcp.servers.*.protocol")
async def protocol(ground: Ground) -> None:
    one, other = await looked(ground, "methods", {"protocol": "auto"}, {"protocol": "legacy"})
    assert "server/discover" in one and "server/discover" not in other


async def offered(ground: Ground, tools: Mapping[str, Any], **more: Any) -> set[str]:
    return {name for name in (await served(ground, ["ok"], tools=dict(tools), a=more)).offered if "__" in name}


@key("tools.defer_above")
async def defer_above(ground: Ground) -> None:
    assert await offered(ground, {"defer_above": 1}) == set()
    assert await offered(ground, {"defer_above": 50}) == {"a__look", "a__wait"}


@key("tools.defer_tokens")
async def defer_tokens(ground: Ground) -> None:
    assert await offered(ground, {"defer_tokens": 1}) == set()
    assert await offered(ground, {"defer_tokens": 50_000}) == {"a__look", "a__wait"}


@key("tools.always_load")
async def always_load(ground: Ground) -> None:
    assert await offered(ground, {"defer_above": 1, "always_load": ["*wait"]}) == {"a__wait"}


@key("mcp.servers.*.always_load")
async def always_load_of_a_server(ground: Ground) -> None:
    assert await offered(ground, {"defer_above": 1}, always_load=["loo*"]) == {"a__look"}
