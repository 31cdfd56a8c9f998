"""Launches made by hand: a bwrap with an inner stage as the walls make it, and the launcher without walls. Loaded by
other processes too, so pytest is not."""

from __future__ import annotations

import marshal
import os
import resource
import sys

from golem_forge.config.sandbox_block import ResourceLimits
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.process import launcher
from golem_forge.sandbox.process.launch import ChildFd, Launch, TreeRoot

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
WALLS = [
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
        "limits": {resource.RLIMIT_CPU: (limits.cpu_s, limits.cpu_s + 1)},
        "landlock": None,
        "filter": b"",
        "waits": False,
        "private": b"/nonexistent",
    }
    argv = launcher.argv(os.path.realpath(sys.executable))
    descriptors = {ChildFd.ARGUMENTS: content(marshal.dumps(order))}
    return Launch(argv=argv, env=env, root=root, limits=limits, descriptors=descriptors, make_error=refused)


def _bwrap(command: tuple[str, ...], limits: ResourceLimits, terminal: bool, env: dict[str, str]) -> Launch:
    walls = WALLS if terminal else [*WALLS, "--new-session"]
    inner = (
        f"ulimit -St {limits.cpu_s}; ulimit -Ht {limits.cpu_s + 1}; ulimit -c 0; trap '' XFSZ; "
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
