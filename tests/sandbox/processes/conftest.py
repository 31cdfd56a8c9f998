"""Launches made by hand: a bwrap with an inner stage as the walls make it, and the launcher without walls."""

from __future__ import annotations

import asyncio
import marshal
import os
import resource
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from golem_forge.config.sandbox_block import ResourceLimits
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.process import launcher
from golem_forge.sandbox.process.child import Child, start_process
from golem_forge.sandbox.process.launch import ChildFd, Launch, TreeRoot
from golem_forge.sandbox.walls.model import Streams

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
BOTH = (TreeRoot.NAMESPACE, TreeRoot.LAUNCHER)
_WALLS = [
    *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"),
    *("--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
    *("--die-with-parent", "--info-fd", "5"),
]


class Plain:
    """A filter that lets everything pass."""

    def feed(self, chunk: str, /) -> str:
        return chunk

    def finish(self) -> str:
        return ""


def content(data: bytes) -> int:
    descriptor = os.memfd_create("content")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def refused(text: str) -> SandboxError:
    return SandboxError("WALLS_UNAVAILABLE", text)


def launch_of(
    root: TreeRoot,
    *command: str,
    limits: ResourceLimits | None = None,
    terminal: bool = False,
    env: dict[str, str] | None = None,
) -> Launch:
    limits = limits or ResourceLimits()
    env = ENV | (env or {})
    if root is TreeRoot.NAMESPACE:
        return _bwrap(command, limits, terminal, env)
    order = {
        "argv": [each.encode() for each in command],
        "env": {name.encode(): value.encode() for name, value in env.items()},
        "cwd": b"/tmp",
        "terminal": terminal,
        "limits": {resource.RLIMIT_CPU: (limits.cpu_s, limits.cpu_s + 2)},
        "landlock": None,
        "filter": b"",
        "waits": False,
        "private": b"/nonexistent",
    }
    argv = launcher.argv(os.path.realpath(sys.executable))
    descriptors = {ChildFd.ARGUMENTS: content(marshal.dumps(order))}
    return Launch(argv=argv, env=env, root=root, limits=limits, descriptors=descriptors, make_error=refused)


def _bwrap(command: tuple[str, ...], limits: ResourceLimits, terminal: bool, env: dict[str, str]) -> Launch:
    walls = _WALLS if terminal else [*_WALLS, "--new-session"]
    inner = (
        f"ulimit -St {limits.cpu_s}; ulimit -Ht {limits.cpu_s + 2}; ulimit -c 0; trap '' XFSZ; "
        f'printf 1 >&9; exec {"setsid -c " if terminal else ""}"$@" 9>&-'
    )
    return Launch(
        argv=("/usr/bin/bwrap", "--args", "3", "--", "/bin/sh", "-c", inner, "sh", *command),
        env=env,
        root=TreeRoot.NAMESPACE,
        limits=limits,
        descriptors={ChildFd.ARGUMENTS: content("\0".join(walls).encode() + b"\0")},
        make_error=refused,
    )


Run = Callable[..., Awaitable[Child]]


@pytest.fixture(params=BOTH, ids=lambda root: root.value)
def root(request: pytest.FixtureRequest) -> TreeRoot:
    return request.param


@pytest.fixture
def marker() -> Iterator[str]:
    """In the environment of everything a test starts; afterwards nothing with it may be left."""
    value = f"forge-test-{uuid.uuid4().hex}"
    yield value
    gone_within(value, 20)


@pytest.fixture
async def run(root: TreeRoot, marker: str) -> Any:
    """Starts `bash -c script` (or a command) in the tree of this test's kind."""
    children: list[Child] = []

    async def started(
        *command: str, streams: Streams = Streams.MERGED, stdin: bytes | None = None, **more: Any
    ) -> Child:
        if len(command) == 1:
            command = ("/bin/bash", "-c", command[0])
        launch = launch_of(
            root,
            *command,
            limits=ResourceLimits(**more),
            terminal=streams is Streams.TERMINAL,
            env={"MARKER": marker},
        )
        child = await start_process(launch, streams, stdin=stdin, filter=Plain)
        children.append(child)
        return child

    yield started
    for child in children:
        await child.end()


def living(marker: str) -> list[str]:
    """Whoever runs with this marker in its environment, by command line; the dead have neither."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if place.name != str(os.getpid()) and marker.encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def gone_within(marker: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while left := living(marker):
        assert time.monotonic() < until, f"still running: {left}"
        time.sleep(0.02)


async def until_output(child: Child, text: str, seconds: float = 30) -> None:
    """Waits for what the program writes when it is where the test wants it."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while text.encode() not in child.output.read():
        assert loop.time() < until, f"no {text!r} in {child.output.read()!r}"
        assert child.ending is None, child.output.read()
        await child.output.more(child.output.size, 0.5)
