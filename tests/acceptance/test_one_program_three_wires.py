"""One program, whatever its model speaks: Anthropic Messages, an OpenAI format, or calls as XML in plain text.

The command, the provider's own SDK, the connection, the walls and the journal are real; only the model's words are
written down. What a provider does wrong on the way (a stream cut after a whole call, 429, 401, 500) is wrong here too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

KEY = "canary-key-5b1e77d0c9"
MODELS = {
    "anthropic": "anthropic:claude-wire",
    "openai": "openai:gpt-wire",
    "openai-compatible": "openai-compatible:chat-wire",
}
WIRES = {"anthropic": ("anthropic", "auto"), "openai": ("openai", "auto"), "xml": ("openai-compatible", "xml")}
"""Provider and `tool_format`; together all three formats that the server speaks."""

MAIN = """\
---
name: main
toolsets:
  filesystem:
  custom: {module: ./tools.py, tools: [count], approval: {default: preApproved}}
  workers: {allow: [helper], approval: {default: preApproved}}
sandbox: {zones: [{name: workspace, mode: rw}]}
tool_format: FORMAT
---
You are MAIN-WORKER.
"""
HELPER = """\
---
name: helper
description: Looks things up.
toolsets: {filesystem: }
sandbox: {zones: [{name: workspace, mode: ro}]}
tool_format: FORMAT
---
You are HELPER-WORKER.
"""
TOOLS = '''\
import pathlib


def count(by: int, why: str = "") -> int:
    """Adds to the counter."""
    file = pathlib.Path("/workspace/counter.txt")
    total = int(file.read_text()) + by
    file.write_text(str(total))
    return total
'''
CONTENT = "if a < b && b > c:\n    say('007 & </tool>')\n"


ZONES = "sandbox: {zones: {workspace: {path: ., mode: rw, approval: {write: preApproved, delete: ask}}}}\n"


def models_yaml(provider: str, url: str) -> str:
    return f"models: {{{provider}: {{base_url: '{url}', key_env: WIRE_LOGIN}}}}\n"


class Words:
    """What both workers say, in the format of a wire, and what goes wrong before it."""

    def __init__(self, wire: Any, *, xml: bool = False) -> None:
        self._wire = wire
        self._xml = xml
        self.given: list[tuple[float, Any]] = []
        turn = wire.WireTurn
        self.main = [
            turn(say="First try. ", calls=self._native(("count", {"by": 1})), cut="abrupt")
            if not xml
            else turn(say="First try. " + _xml("count", {"by": 1}), cut="abrupt"),
            self._turn("I count. ", ("count", {"by": 1, "why": "007"}), ("helper", {"input": "look"})),
            turn(status=429, headers={"Retry-After": "1"}, error="slow down"),
            self._turn(
                "",
                ("write_file", {"path": "/workspace/out.py", "content": CONTENT}),
                ("delete_file", {"path": "/workspace/out.py"}),
                ("no_such_tool", {}),
                ("count", {"by": "many"}),
            ),
            turn(say="All done."),
        ]
        self.helper = [self._turn("", ("read_file", {"path": "notes.txt"})), turn(say="Looked.")]

    def __call__(self, request: Any) -> Any:
        turns = self.helper if "HELPER-WORKER" in str(request.body) else self.main
        self.given.append((time.monotonic(), turn := turns.pop(0)))
        return turn

    @property
    def waited(self) -> float:
        """Seconds between the 429 and the request after it."""
        [at] = [index for index, (_, turn) in enumerate(self.given) if turn.status == 429]
        return self.given[at + 1][0] - self.given[at][0]

    def _turn(self, say: str, *calls: tuple[str, dict[str, Any]]) -> Any:
        if self._xml:
            return self._wire.WireTurn(say=say + "".join(_xml(*call) for call in calls), piece=5)
        return self._wire.WireTurn(say=say, calls=self._native(*calls))

    def _native(self, *calls: tuple[str, dict[str, Any]]) -> Any:
        return tuple(self._wire.WireCall(name=name, args=args) for name, args in calls)


def _xml(name: str, args: dict[str, Any]) -> str:
    values = "".join(
        f"<{key}><![CDATA[{value}]]></{key}>" if "\n" in str(value) else f"<{key}>{value}</{key}>"
        for key, value in args.items()
    )
    return f"<tool><tool_name>{name}</tool_name><arguments>{values}</arguments></tool>"


OUTCOMES = [
    ("main", "count", '{"by": 1, "why": "007"}', "success"),
    ("main", "helper", '{"input": "look"}', "success"),
    ("main/helper", "read_file", '{"path": "notes.txt"}', "success"),
    ("main", "write_file", '{"content": ' + json.dumps(CONTENT) + ', "path": "/workspace/out.py"}', "success"),
    ("main", "delete_file", '{"path": "/workspace/out.py"}', "approval_denied"),
    ("main", "no_such_tool", "{}", "tool_not_found"),
    ("main", "count", '{"by": "many"}', "input_invalid"),
]


def start(desk: Callable[..., Any], server: Any, name: str) -> tuple[Any, Any]:
    """The program, and `forge run` under way in it."""
    provider, tool_format = WIRES[name]
    program = desk(
        {
            "forge.yaml": ZONES + models_yaml(provider, server.base_url(provider)),
            "main.worker": MAIN.replace("FORMAT", tool_format),
            "workers/helper.worker": HELPER.replace("FORMAT", tool_format),
            "tools.py": TOOLS,
            "counter.txt": "0",
            "notes.txt": f"milk\n{KEY}\n",
        },
        name=name,
        WIRE_LOGIN=KEY,
    )
    program.trust()
    return program, program.start("run", "-m", MODELS[provider], "-i", "go", "--json")


def test_w16_w17_w18_the_same_outcomes_on_every_wire(desk: Callable[..., Any], finish: Any, wire: Any) -> None:
    """W16: the counter is 1. W17: a stream cut after a whole call ran nothing, and its text was withdrawn.
    W18: after a 429 the time that the provider named was waited, and there was one answer."""
    words = {name: Words(wire, xml=name == "xml") for name in WIRES}
    with ExitStack() as open_servers:
        servers = {name: open_servers.enter_context(wire.WireServer(words[name])) for name in WIRES}
        runs = {name: start(desk, server, name) for name, server in servers.items()}
        ended = {name: (program, finish(process)) for name, (program, process) in runs.items()}
    for name, (program, ran) in ended.items():
        assert ran.code == 0, (name, ran.err)
        assert [call.told for call in program.calls()] == OUTCOMES, name
        assert (program.root / "counter.txt").read_text() == "1", name
        assert (program.root / "out.py").read_text() == CONTENT, name
        assert all(call.starts == (call.status == "success") for call in program.calls()), name
        assert words[name].waited >= 1 and "trying again in 1.0 s" in ran.err, name
        _check_withdrawn(program, ran)
        _check_key(program, ran, servers[name])


def _check_withdrawn(program: Any, ran: Any) -> None:
    events = [json.loads(line) for line in ran.out.splitlines()]
    streamed = [event["data"] for event in events if event["type"] == "streaming"]
    tried = next(each["requestId"] for each in streamed if each["delta"])
    first = [each for each in streamed if each["requestId"] == tried]
    assert "".join(each["delta"] for each in first).strip() == "First try."
    assert first[-1]["discarded"] and first[-1]["done"]
    assert "First try" not in str(program.history())
    assert "First try" not in str([event for event in events if event["type"] == "message"])
    assert "tool_name" not in "".join(each["delta"] for each in streamed), "nothing of a call is shown as text"
    assert events[-1]["type"] == "runResult" and events[-1]["data"]["response"] == "All done."


def _check_key(program: Any, ran: Any, server: Any) -> None:
    """It went where it belongs, from a variable whose name says nothing of a key, and is nowhere else, although the
    helper read a file that holds it."""
    sent = [request.headers.get("x-api-key") or request.headers["authorization"] for request in server.requests]
    assert {text.removeprefix("Bearer ") for text in sent} == {KEY}
    assert KEY not in str([request.body for request in server.requests])
    assert KEY not in ran.out and KEY not in ran.err
    assert KEY.encode() not in program.kept_bytes()


def small(desk: Callable[..., Any], server: Any, provider: str, name: str) -> Any:
    worker = "---\nname: main\n---\nAnswer.\n"
    program = desk({"main.worker": worker}, name=name, WIRE_LOGIN=KEY)
    program.home.mkdir()
    (program.home / "config.yaml").write_text(models_yaml(provider, server.base_url(provider)))
    return program


def test_w18_failures_that_end_the_run(desk: Callable[..., Any], finish: Any, wire: Any) -> None:
    """What the provider says of a key it does not know may hold the key."""
    turn = wire.WireTurn
    unknown = turn(status=401, error=f"invalid key {KEY}")
    broken = [turn(status=500, headers={"Retry-After": "0"}, error="out of order") for _ in range(4)]
    with (
        wire.WireServer([unknown]) as refuses,
        wire.WireServer([*broken, turn(say="Too late.")]) as fails,
    ):
        servers = {"openai-compatible": refuses, "anthropic": fails}
        programs = {name: small(desk, server, name, name) for name, server in servers.items()}
        started = {name: program.start("run", "-m", MODELS[name], "-i", "go") for name, program in programs.items()}
        refused, failed = (finish(process) for process in started.values())
    assert (refused.code, refused.out, len(refuses.requests)) == (5, "", 1)
    assert "answered 401" in refused.err
    assert (failed.code, failed.out, len(fails.requests)) == (5, "", 4)
    assert "answered 500: out of order (after 4 tries)" in failed.err
    for program, ran in zip(programs.values(), (refused, failed), strict=True):
        assert KEY not in ran.out + ran.err and KEY.encode() not in program.kept_bytes()
