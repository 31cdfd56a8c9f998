"""Git: one git command in a private repository, with nothing configured that could start another program.

Takes arguments and the most it may print; gives its output. Refuses (SharingError) what failed or took too long;
TooMuch for output beyond the bound. What git itself says is passed on, made visible and cut.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.core.visible import visible
from golem_forge.custom.sharing.refusal import SharingError
from golem_forge.sandbox.host import find_program, safe_path

if TYPE_CHECKING:
    import subprocess

SECONDS: Final = 120.0
_LARGEST_FILE_BLOCKS: Final = 1 << 20
"""Of 512 bytes (1024 in some shells): a pack that grows beyond it ends the fetch."""
_MOST_ERRORS: Final = 64 << 10
_SHOWN_ERRORS: Final = 500
_CREDENTIALS: Final = re.compile(r"://[^/\s'\"]*@")

_KEPT: Final = (
    *("HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"),
    *("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_CONFIG_GLOBAL"),
)
"""How the person reaches the network; no other GIT_ variable, each of which could point git somewhere else."""

_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.sshCommand=false",
    "core.pager=cat",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "fetch.writeCommitGraph=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.version=2",
)


class TooMuch(SharingError):
    """More output than the command may give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    folder: Path
    environ: Mapping[str, str]
    transports: frozenset[str]
    seconds: float = SECONDS

    def output(self, arguments: Sequence[str], limit: int, *, stdin: bytes = b"") -> bytes:
        import subprocess

        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        command = [self._program(), *settings, *arguments]
        limited = ["/bin/sh", "-c", f'ulimit -f {_LARGEST_FILE_BLOCKS} && exec "$@"', "git", *command]
        process = subprocess.Popen(
            limited,
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            given, errors = _exchanged(process, stdin, limit, self.seconds)
        finally:
            _end(process)
        if process.returncode != 0:
            raise SharingError(f"git could not do that: {_told(errors) or f'exit code {process.returncode}'}")
        return given

    def _program(self) -> str:
        found = find_program("git", environ=self.environ)
        if found is None:
            raise SharingError("git was not found on this machine; import a folder or an archive instead.")
        return found

    def _environment(self) -> dict[str, str]:
        kept = {name: self.environ[name] for name in _KEPT if name in self.environ}
        return kept | {
            "PATH": safe_path(self.environ.get("PATH", "")),  # credential helpers are looked up there
            "GIT_DIR": os.fspath(self.folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_ALLOW_PROTOCOL": ":".join(sorted(self.transports)),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "SSH_ASKPASS": "/bin/false",
            "GIT_DEFAULT_HASH": "sha1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "LC_ALL": "C",
        }


def _exchanged(process: subprocess.Popen[bytes], stdin: bytes, limit: int, seconds: float) -> tuple[bytes, bytes]:
    """Both streams to their end; TooMuch as soon as one is longer than it may be."""
    import selectors
    import subprocess
    import time

    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    found = {process.stdout: bytearray(), process.stderr: bytearray()}
    most = {process.stdout: limit, process.stderr: _MOST_ERRORS}
    unsent = memoryview(stdin)
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for stream in found:
            selector.register(stream, selectors.EVENT_READ)
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        while selector.get_map():
            if (left := until - time.monotonic()) <= 0:
                raise SharingError(f"git did not finish within {seconds:g} seconds; nothing was taken over.")
            for key, _ in selector.select(left):
                if key.fileobj is process.stdin:
                    with contextlib.suppress(BrokenPipeError):
                        unsent = unsent[os.write(key.fd, unsent[:65536]) :] if unsent else unsent
                        if unsent:
                            continue
                    selector.unregister(process.stdin)
                    process.stdin.close()
                    continue
                stream = process.stdout if key.fileobj is process.stdout else process.stderr
                if not (chunk := os.read(key.fd, 65536)):
                    selector.unregister(stream)
                    continue
                found[stream] += chunk
                if len(found[stream]) > most[stream]:
                    raise TooMuch("git gave more than a tool may be; nothing was taken over.")
        try:
            process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise SharingError(f"git did not finish within {seconds:g} seconds; nothing was taken over.") from None
    return bytes(found[process.stdout]), bytes(found[process.stderr])


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _told(errors: bytes) -> str:
    """A person's own settings may add a token to an address, which git then names."""
    lines = [line.strip() for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    return _CREDENTIALS.sub("://…@", visible("; ".join(lines)))[:_SHOWN_ERRORS]
