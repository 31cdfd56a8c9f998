"""What the probe runs inside walls: it attempts what each guarantee forbids, and says how each attempt ended.

Its text is handed to a bare interpreter (`-I -S -c`), so only the standard library, and one argument: the JSON object
of `ProbeFixture.child_arguments`. Prints one line, guarantee → attempt → errno name, or `done` where nothing stopped
it, or `not made` where it could not even be tried. Then it leaves a process that should not be left over, and waits for
its own end.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

LONGER_THAN_A_PROBE_S = 60
NOBODY = 0x7FFFFFFE
"""A number that no user and no process group has."""
_libc = ctypes.CDLL(None, use_errno=True)
_found: dict[str, dict[str, str]] = {}


def attempt(guarantee: str, name: str, action: Callable[..., object], *arguments: object) -> None:
    try:
        action(*arguments)
        outcome = "done"
    except TimeoutError:
        outcome = "done"  # nobody answered, but nothing stopped it either
    except OSError as error:
        outcome = errno.errorcode.get(error.errno or 0, "OSError")
    except Exception as error:
        outcome = f"not made ({type(error).__name__})"
    _found.setdefault(guarantee, {})[name] = outcome


def must(holds: object) -> None:
    """Checks a fact instead of an attempt: raises PermissionError if the guarantee holds."""
    if holds:
        raise PermissionError(errno.EPERM, "as it should be")


def call(name: str, *arguments: Any) -> None:
    if int(getattr(_libc, name)(*arguments)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def write(path: str, flags: int = 0) -> None:
    os.close(os.open(path, os.O_WRONLY | flags))


def read(path: str, canary: str) -> None:
    """Reads a file that must not show the canary; a masked file may also exist and be empty."""
    with open(path, "rb") as file:
        must(canary.encode() not in file.read())


def by_descriptor(path: str, change: Callable[[int], object]) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        change(descriptor)
    finally:
        os.close(descriptor)


def files(asked: dict[str, Any]) -> None:
    outside, closed, zone, canary = asked["outside"], asked["closed"], asked["zone"], asked["canary"]
    for where in (f"{outside}/file", f"{closed}/file"):
        attempt("G1", f"write {where}", write, where)
        attempt("G1", f"empty {where}", lambda name: os.close(os.open(name, os.O_RDONLY | os.O_TRUNC)), where)
        attempt("G1", f"rename {where}", os.rename, where, where + "2")
        attempt("G1", f"mode of {where}", os.chmod, where, 0o640)
        attempt("G1", f"times of {where}", os.utime, where, (1, 1))
        attempt("G1", f"attribute of {where}", os.setxattr, where, "user.forge", b"1")
    attempt("G1", "create outside", write, f"{outside}/new", os.O_CREAT)
    attempt("G1", "create in a read-only zone", write, f"{closed}/new", os.O_CREAT)
    attempt("G1", "create in a system directory", write, f"/usr/{asked['mark']}", os.O_CREAT)
    changes: dict[str, Callable[[int], object]] = {
        "mode": lambda file: os.fchmod(file, 0o640),
        "owner": lambda file: os.fchown(file, os.getuid(), os.getgid()),
        "times": lambda file: os.utime(file, (1, 1)),
    }
    for name, change in changes.items():
        attempt("G1", f"{name} by descriptor", by_descriptor, f"{closed}/file", change)
    attempt("G2", "read outside", read, f"{outside}/file", canary)
    attempt("G2", "list outside", os.listdir, outside)
    attempt("G3", "git config", write, f"{zone}/.git/config")
    attempt("G3", "git hook", write, f"{zone}/.git/hooks/pre-commit", os.O_CREAT)
    attempt("G3", "rename .git", os.rename, f"{zone}/.git", f"{zone}/.tig")
    take_over_git(f"{zone}/.git")
    for name in (".env", "to_secret", "deep/er/id_rsa"):
        attempt("G4", name, read, f"{zone}/{name}", canary)


def take_over_git(git: str) -> None:
    """Tries to take over `.git`. In a private copy these attempts succeed; the fixture tells whether they reached the
    real one.
    """
    for name in ("commondir", "config.worktree", "gitdir", "refs/replace"):
        with contextlib.suppress(OSError):
            write(f"{git}/{name}", os.O_CREAT)
    with contextlib.suppress(OSError):
        os.unlink(f"{git}/HEAD")
    for name in ("HEAD", "COMMIT_EDITMSG", "logs"):
        with contextlib.suppress(OSError):
            os.symlink("/", f"{git}/{name}")


def network(asked: dict[str, Any]) -> None:
    def tcp(host: str, port: int) -> None:
        with socket.socket() as made:
            made.settimeout(0.1)
            made.connect((host, port))

    def udp(host: str, port: int) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as made:
            made.connect((host, port))
            made.send(b"forge")
            made.settimeout(0.1)
            made.recv(1)  # nobody has that port in a network of one's own

    def stream(name: str) -> None:
        with socket.socket(socket.AF_UNIX) as made:
            made.connect(name)

    def datagram(name: str) -> None:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with one, other:
            one.sendto(b"forge", name)

    attempt("G5", "TCP to the host's loopback", tcp, "127.0.0.1", asked["tcp"])
    attempt("G5", "UDP to the host's loopback", udp, "127.0.0.1", asked["udp"])
    attempt("G5", "TCP to another network", tcp, "192.0.2.1", 80)
    attempt("G5", "a name server", udp, "192.0.2.1", 53)
    attempt("G5", "raw packets", socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
    attempt("G5", "packets of an interface", socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0)
    for kind, name in {"by path": asked["unix"], "abstract": "\0" + asked["abstract"]}.items():
        attempt("G6", f"stream {kind}", stream, name)
        attempt("G6", f"datagram {kind}", datagram, name)


def privileges(asked: dict[str, Any]) -> None:
    def capabilities() -> None:
        data = (ctypes.c_uint32 * 6)()
        call("capget", (ctypes.c_uint32 * 2)(0x20080522, 0), data)
        must(not any(data))

    attempt("G7", "capabilities", capabilities)
    attempt("G7", "new privileges", lambda: must(_libc.prctl(39, 0, 0, 0, 0) == 1))
    attempt("G7", "nested user namespace", call, "unshare", 0x10000000)
    attempt("G7", "nested mount namespace", call, "unshare", 0x00020000)
    attempt("G7", "remount", call, "mount", b"none", b"/", None, ctypes.c_ulong(0x1020), None)
    own = os.path.join(os.environ["TMPDIR"], "set-id")
    attempt("G7", "set-user-ID file", lambda: os.close(os.open(own, os.O_WRONLY | os.O_CREAT, 0o4700)))
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/sys/kernel/uevent_helper"):
        attempt("G7", path, write, path)
    for name, numbers in asked["calls"].items():
        attempt("G9", name, call, "syscall", *(ctypes.c_long(each) for each in numbers))
    attempt("G9", "typing for others", fcntl.ioctl, 0, 0x5412, b"x")


def surroundings(asked: dict[str, Any]) -> None:
    parent, canary = asked["parent"], asked["canary"]

    def anybody() -> None:
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    read(f"/proc/{name}/environ", canary)
                except OSError:
                    continue
                return  # somebody carries it
        must(True)

    def signals() -> None:
        must(asked["hidden"] and os.path.exists(f"/proc/{parent}"))  # somebody of ours with that number
        os.kill(parent, 0)

    attempt("G8", "environment of anybody", anybody)
    attempt("G8", "environment of Forge", read, f"/proc/{parent}/environ", canary)
    attempt("G8", "signal to Forge", signals)
    attempt("G10", "terminal", write, "/dev/tty")
    attempt("G10", "terminal by name", write, asked["terminal"])
    attempt("G10", "session", lambda: must(os.getsid(0) != asked["session"]))
    attempt("G13", "values", lambda: must(not any(canary in value for value in os.environ.values())))
    attempt("G13", "names", lambda: must(not set(os.environ) & set(asked["names"])))
    attempt("G13", "descriptors", lambda: must(not _open_descriptors()))


def process_one(asked: dict[str, Any]) -> None:
    """Attempts on process 1, which ends all others when Forge dies. At level landlock it is the machine's own, and as
    little theirs. Where walls do not hold it is the machine's too, so every attempt is one that changes nothing.
    """
    for name in ("mem", "oom_score_adj", "autogroup"):
        attempt("G11", f"write /proc/1/{name}", lambda path: os.close(os.open(path, os.O_RDWR)), f"/proc/1/{name}")
    attempt("G11", "read its memory", lambda: os.close(os.open("/proc/1/task/1/mem", os.O_RDONLY)))
    attempt("G11", "list its descriptors", os.listdir, "/proc/1/fd")
    attempt("G11", "limit it", resource.prlimit, 1, resource.RLIMIT_NOFILE)
    attempt("G11", "choose its processors", call, "sched_setaffinity", 1, 8, None)
    attempt(
        "G11", "change its priority", lambda: os.setpriority(os.PRIO_PROCESS, 1, os.getpriority(os.PRIO_PROCESS, 1))
    )
    if asked["hidden"]:
        attempt("G11", "get a handle of it", lambda: os.close(os.pidfd_open(1)))
        attempt("G11", "change the priority of a group", os.setpriority, os.PRIO_PGRP, NOBODY, 0)
        attempt("G11", "change the priority of a user", os.setpriority, os.PRIO_USER, NOBODY, 0)
        attempt("G11", "change the priority of a session", write, "/proc/self/autogroup")


def limits(asked: dict[str, Any]) -> None:
    ordered = asked["limits"]
    for name in ("CPU", "FSIZE", "NOFILE", "CORE"):
        kind = getattr(resource, f"RLIMIT_{name}")
        attempt("G12", name, lambda kind, value: must(resource.getrlimit(kind)[0] == value), kind, ordered[name])
    attempt("G12", "many files", lambda: [os.open("/dev/null", os.O_RDONLY) for _ in range(ordered["NOFILE"])])
    os.closerange(3, ordered["NOFILE"])
    attempt("G12", "a large file", _large_file, ordered["FSIZE"])


def _large_file(limit: int) -> None:
    with open(os.path.join(os.environ["TMPDIR"], "large"), "wb", buffering=0) as file:
        for _ in range(limit // 4096 + 2):
            file.write(b"x" * 4096)


def _open_descriptors() -> list[int]:
    found = []
    for number in range(3, 256):
        try:
            os.fstat(number)
        except OSError:
            continue
        found.append(number)
    return found


def cling(lock: str) -> None:
    """Own session, deaf to what ends others politely, holding the lock that tells the probe that somebody lives."""
    descriptor = os.open(lock, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if os.fork() != 0:
            os._exit(0)


def main() -> None:
    asked = json.loads(sys.argv[1])
    for step in (surroundings, process_one, limits, files, network, privileges, partial(_say, _found)):
        step(asked)
    time.sleep(LONGER_THAN_A_PROBE_S)


def _say(found: dict[str, dict[str, str]], asked: dict[str, Any]) -> None:
    cling(f"{asked['closed']}/lock")
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
