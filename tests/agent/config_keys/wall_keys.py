"""The keys of forge.yaml about walls, each by what a real command in them may do. sandbox.md §9."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from tests.agent.config_keys.ground import COMMANDS, ZONE, Cases, Ground
from tests.agent.conftest import calls

from golem_forge.sandbox.network import proxy
from golem_forge.sandbox.walls import walls as walls_module
from golem_forge.storage.home import forge_home

CASES = Cases()
key = CASES.key


@key("sandbox.zones.*.at_host_path")
async def at_host_path(ground: Ground) -> None:
    """Host paths are shown as addresses, so their length tells."""
    for flag, length in (("true", len(str(ground.root))), ("false", len("/workspace"))):
        program = f"sandbox: {{zones: {{workspace: {{path: ., at_host_path: {flag}}}}}}}\n"
        assert f"long={length}" in await ground.command("echo long=${#PWD}", program=program)


@key("sandbox.read")
async def read(ground: Ground) -> None:
    beside = ground.root.parent / "beside"
    beside.mkdir()
    (beside / "fact").write_text("what it says")
    other = ground.root.parent / "other"
    other.mkdir()
    for directory, found in ((beside, True), (other, False)):
        program = f"sandbox: {{read: [{directory}]}}\n"
        assert ("what it says" in await ground.command(f"cat {beside}/fact", program=program)) is found


@key("sandbox.toolchains")
async def toolchains(ground: Ground) -> None:
    programs = Path.home() / ".cargo" / "bin"
    programs.mkdir(parents=True)
    (programs / "canary-tool").write_text("#!/bin/sh\necho chirp\n")
    (programs / "canary-tool").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        for word, found in (("on", True), ("off", False)):
            program = f"sandbox: {{toolchains: {word}}}\n"
            assert ("chirp" in await ground.command("canary-tool", program=program)) is found


@key("sandbox.walls")
async def walls(ground: Ground) -> None:
    """A program cannot switch them off, and hears so; the person's own file can."""
    program = "sandbox: {walls: off}\n"
    refused = await ground.run(["ok"], program=program)
    assert any("sandbox.walls is ignored" in each["message"] for each in refused.all("status"))
    forge_home().config.write_text(program)
    outside = ground.root.parent / "outside"
    for file, reached in (("sandbox: {walls: on}\n", False), (program, True)):
        forge_home().config.write_text(file)
        await ground.command(f"echo x > {outside}")
        assert outside.exists() is reached


@key("sandbox.devices")
async def devices(ground: Ground) -> None:
    """A node that every command has besides, named once more: the session says so."""
    forge_home().ensure()
    for file, told in (("sandbox: {devices: [/dev/null]}\n", True), ("sandbox: {devices: []}\n", False)):
        forge_home().config.write_text(file)
        seen = await ground.run([calls(("exec_command", {"cmd": "touch x"})), "ok"], worker=COMMANDS + ZONE)
        assert ("device /dev/null" in str(seen.all("wallsReport"))) is told


@key("sandbox.sockets")
async def sockets(ground: Ground) -> None:
    forge_home().ensure()
    path = ground.root.parent / "s.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        for file, found in ((f"sandbox: {{sockets: [{path}]}}\n", True), ("sandbox: {sockets: []}\n", False)):
            forge_home().config.write_text(file)
            assert ("it is here" in await ground.command(f"test -S {path} && echo it is here")) is found


@key("sandbox.outside")
async def outside(ground: Ground) -> None:
    forge_home().ensure()
    for word, offered in (("ask", True), ("off", False)):
        forge_home().config.write_text(f"sandbox: {{outside: {word}}}\n")
        seen = await ground.run(["ok"], worker=COMMANDS + ZONE)
        assert ("outside" in seen.offered["exec_command"]) is offered


async def limited(ground: Ground, limit: str, cmd: str) -> str:
    return await ground.command(cmd, program=f"sandbox: {{limits: {{{limit}}}}}\n")


@key("sandbox.limits.timeout_s")
async def timeout_s(ground: Ground) -> None:
    assert "done" in await limited(ground, "timeout_s: 300", "sleep 0.3; echo done")
    assert "Timed out after " in await limited(ground, "timeout_s: 0.2", "sleep 60")


@key("sandbox.limits.memory")
async def memory(ground: Ground) -> None:
    """`tail` holds what it has read until nothing more comes."""
    eat = "{{ head -c 60000000 /dev/zero; sleep {}; }} | tail -c 60000000 | wc -c | sed s/^/ate=/"
    assert "ate=60000000" in await limited(ground, "memory: 2GiB", eat.format(0))
    assert "sandbox.limits.memory" in await limited(ground, "memory: 32MiB", eat.format(60))


@key("sandbox.limits.processes")
async def processes(ground: Ground) -> None:
    many = "for i in 1 2 3 4 5 6 7 8; do sleep {} & done; wait; echo done"
    assert "done" in await limited(ground, "processes: 100", many.format(0.2))
    assert "sandbox.limits.processes" in await limited(ground, "processes: 4", many.format(60))


@key("sandbox.limits.cpu_s")
async def cpu_s(ground: Ground) -> None:
    for seconds in (7, 11):
        assert f"cpu={seconds}" in await limited(ground, f"cpu_s: {seconds}", "echo cpu=$(ulimit -t)")


@key("sandbox.limits.file_size")
async def file_size(ground: Ground) -> None:
    grow = "head -c 20000 /dev/zero > grown; stat -c size=%s grown"
    assert "size=20000" in await limited(ground, "file_size: 1MiB", grow)
    assert "size=8192" in await limited(ground, "file_size: 8192", grow)


@key("sandbox.limits.open_files")
async def open_files(ground: Ground) -> None:
    for number in (64, 128):
        assert f"files={number}" in await limited(ground, f"open_files: {number}", "echo files=$(ulimit -n)")


@key("sandbox.limits.output")
async def output(ground: Ground) -> None:
    speak = "head -c 300000 /dev/zero | tr '\\0' x; echo; echo done"
    assert "done" in await limited(ground, "output: 1MiB", speak)
    assert "sandbox.limits.output" in await limited(ground, "output: 100KiB", f"{speak}; sleep 60")


CREDENTIAL = {
    "host": "localhost",
    "header": "Authorization",
    "value": "env:CANARY_TOKEN",
    "methods": ["GET"],
    "paths": ["/a/**"],
}


@key(*(f"sandbox.credentials[].{name}" for name in CREDENTIAL))
async def credentials(ground: Ground) -> None:
    """A request that each part of an entry allows; with another value of that part it is refused. Nobody listens at
    the other end, which is asked last."""
    with pytest.MonkeyPatch.context() as patch, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        for module in (proxy, walls_module):
            patch.setattr(module, "TLS_PORT", port)
        patch.setenv("CANARY_TOKEN", "canary-token-4711")
        patch.setenv("OTHER_TOKEN", "other-token-4711")
        forge_home().ensure()
        rule = {"host": "localhost", "ports": [port], "private": True, "verdict": "preApproved"}
        forge_home().rules.write_text(json.dumps({"rules": [rule]}))
        for name, other in (
            ("", ""),
            ("host", "other.test"),
            ("header", "X-Key"),
            ("value", "env:OTHER_TOKEN"),
            ("methods", ["POST"]),
            ("paths", ["/b"]),
        ):
            entry = CREDENTIAL | ({name: other} if name else {})
            forge_home().config.write_text(json.dumps({"sandbox": {"credentials": [entry]}}))
            header = "Authorization: Bearer forge-credential-CANARY_TOKEN"
            cmd = f"curl -s -o /dev/null -w code=%{{http_code}} -H '{header}' http://localhost/a/x"
            worker = COMMANDS + ZONE
            seen = await ground.run(
                [calls(("exec_command", {"cmd": cmd, "network": [f"localhost:{port}"]})), "ok"], worker=worker
            )
            refused = "code=000" if name == "host" else "code=403"  # without a credential it is a service, at its port
            assert (refused in seen.texts()) is bool(name), (name, seen.texts())
            assert len(seen.all("credentialUsed")) == (0 if name else 1)
