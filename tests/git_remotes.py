"""Remotes that a person has elsewhere, for tests: a real sshd with a key in a real agent, git over https with a login
that a credential helper knows. All of it on this machine's loopback, with keys and settings of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from .deadlines import PATIENCE
from .machine import free_port
from .usertools.share.git_server import git_server

PASSWORD = "canary-password-5f1c"
LOGIN = f"ada:{PASSWORD}"
_SSHD = "this machine has no sshd: see build/missing-parts"


@dataclass(frozen=True)
class Elsewhere:
    """A remote's address and what a person has set up to reach it."""

    url: str
    environ: dict[str, str]
    settings: str
    """For their own `.gitconfig`."""


def git(where: Path, *words: str, home: Path | None = None) -> str:
    """The person's own git, without a remote that needs the network."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(home or where), "GIT_CONFIG_NOSYSTEM": "1"}
    ran = subprocess.run(["git", *words], cwd=where, env=environ, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def bare(root: Path, name: str = "project.git") -> Path:
    path = root / name
    path.mkdir(parents=True)
    git(path, "init", "-q", "--bare", "-b", "main", ".")
    return path


@contextmanager
def https_remote(root: Path) -> Iterator[Elsewhere]:
    """Behind a login that only the person's credential helper knows."""
    repository = bare(root / "served")
    helper = root / "credential-helper"
    helper.write_text(f'#!/bin/sh\ntest "$1" = get || exit 0\necho username=ada\necho password={PASSWORD}\n')
    helper.chmod(0o700)
    with git_server(repository.parent, login=LOGIN) as (address, environ):
        yield Elsewhere(f"{address}/project.git", environ, f"[credential]\n\thelper = {helper}\n")


@contextmanager
def ssh_remote(root: Path) -> Iterator[Elsewhere]:
    """Behind a key that only the person's ssh agent has."""
    sshd = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if sshd is None or shutil.which("bwrap") is None:
        pytest.skip(_SSHD)
    repository = bare(root / "served")
    keys = root / "keys"
    keys.mkdir(mode=0o700)
    for name in ("host", "person"):
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(keys / name))
    (keys / "authorized").write_bytes((keys / "person.pub").read_bytes())
    # A user of its own, without a root: sshd then needs no account of this machine and changes to nobody.
    (keys / "passwd").write_text(f"git:x:1000:1000::{keys}:/bin/sh\n")
    port = free_port()
    (keys / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {keys}/host\nAuthorizedKeysFile {keys}/authorized\n"
        "PidFile none\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nStrictModes no\n"
    )
    (keys / "known_hosts").write_text(f"[127.0.0.1]:{port} {(keys / 'host.pub').read_text()}")
    (keys / "ssh_config").write_text(f"Host *\n\tUserKnownHostsFile {keys}/known_hosts\n\tIdentityFile none\n")
    inside = ("--unshare-user", "--uid", "1000", "--gid", "1000", "--dev-bind", "/", "/", "--die-with-parent")
    argv = ["bwrap", *inside, "--ro-bind", str(keys / "passwd"), "/etc/passwd", sshd, "-D", "-e", "-f"]
    agent_socket = str(keys / "agent")
    environ = {"PATH": os.environ["PATH"], "SSH_AUTH_SOCK": agent_socket}
    with (
        (keys / "log").open("wb") as log,
        _running([*argv, str(keys / "sshd_config")], log),
        _running(["ssh-agent", "-D", "-a", agent_socket], log),
    ):
        _wait_for(lambda: _listens(agent_socket), keys / "log")
        _run("ssh-add", "-q", str(keys / "person"), env=environ)
        (keys / "person").unlink()  # nobody but the agent has it now
        _wait_for(lambda: _answers(port), keys / "log")
        yield Elsewhere(
            f"ssh://git@127.0.0.1:{port}{repository}",
            {"SSH_AUTH_SOCK": agent_socket},
            f"[core]\n\tsshCommand = ssh -F {keys}/ssh_config\n",
        )


def _run(*argv: str, env: dict[str, str] | None = None) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=PATIENCE, env=env, stdin=subprocess.DEVNULL)


@contextmanager
def _running(argv: list[str], log: object) -> Iterator[None]:
    with subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL) as process:  # type: ignore[call-overload]
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _wait_for(there: object, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not there():  # type: ignore[operator]
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.01)


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(path) == 0


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
