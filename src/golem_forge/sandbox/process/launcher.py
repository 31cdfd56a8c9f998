"""The launcher: starts one command behind Landlock and seccomp (or, with walls off, without), and outlives it.

Runs as a program of its own in a bare interpreter (`argv` says how), so only the standard library, and of that only
what loads fast. Reads its order (`Order`, marshalled) from ARGUMENTS; whatever cannot be done exactly as ordered ends
it before READY, with one line on stderr. Threat: what a command leaves running. The launcher is the subreaper of
everything below it and ends all of it when the command exits, when CONTROL closes, which the kernel does when Forge
dies, or when the watchdog sends END_ALL, because Forge is silent. It lies outside the child's Landlock domain, which
the child cannot signal (ABI 6 on). If it is killed nevertheless, the command itself dies with it; what the command had
started is then the business of Forge's watcher.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # for the type checker alone: `typing` loads slower than all the rest
    from typing import NoReturn, TypedDict

    class Confinement(TypedDict):
        """The rights that Landlock forbids (`files`, `network`, `scopes`), except what a rule allows at and below its
        path.
        """

        rules: list[tuple[bytes, int]]
        files: int
        network: int
        scopes: int
        only_files: int
        """The rights of `files` that apply to a single file."""

    class Order(TypedDict):
        argv: list[bytes]
        env: dict[bytes, bytes]
        cwd: bytes
        terminal: bool
        """Standard input is a terminal and becomes the controlling one."""
        limits: dict[int, tuple[int, int]]
        """Resource number → (soft, hard)."""
        landlock: Confinement | None
        """None if walls are off; privileges then stay."""
        filter: bytes
        waits: bool
        """Whether to wait for GO after READY."""
        private: bytes
        """A directory of this call's own. Forge removes it; if Forge is gone, we do."""


ARGUMENTS, CONTROL, GO, READY = 3, 6, 8, 9
TERM, KILL, CONTINUE = 15, 9, 18
END_ALL = 12
"""The signal (USR2) that means what the end of CONTROL means: Forge was stopped, and others go on in its place. Threat:
a command that sends it ends only itself."""
GRACE_SECONDS = 0.3
CROWD = 1000
LOOKS = 50
OUT_OF_REACH = 100
"""Rounds after which the launcher gives up on processes that it cannot signal; with walls off, a set-user-ID program
may be one.
"""
CONTROL_CLOSED = 128 + KILL
_SIGNALS = 64
_CHILD_ENDED = 17
_KEEPS_IGNORED = 25  # XFSZ: writing past the file size limit fails with EFBIG instead of killing

_libc = ctypes.CDLL(None, use_errno=True)


class Stopped(Exception):
    """A step of the order that could not be carried out."""


def _call(step: str, *arguments: object) -> int:
    """One call into the C library by name; raises Stopped with the step's name."""
    name, *rest = arguments
    result = _try(str(name), *rest)
    if result < 0:
        raise Stopped(f"{step}: {os.strerror(ctypes.get_errno())}")
    return result


def _try(name: str, *arguments: object) -> int:
    """Every number as a whole register: the kernel reads all of it."""
    return int(getattr(_libc, name)(*(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)))


def main() -> None:
    try:
        order = _read_order()
        _call("subreaper", "prctl", 36, 1, 0, 0, 0)
        events = _watch_children()
        launcher = os.getpid()
        child = os.fork()
    except (Stopped, OSError, ValueError, EOFError, TypeError) as error:
        _refuse(error)
    if child == 0:
        _become(order, launcher)
    for number in (GO, READY):
        _close(number)
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):  # whoever reads the command's output must see its end, not ours
        os.dup2(nothing, number)
    code = _attend(child, events)
    _end_everything()
    if code == CONTROL_CLOSED:
        from cleanup import remove_tree  # type: ignore[import-not-found]  # beside this file, which is no package here

        remove_tree(order["private"])
    os._exit(code)


def _read_order() -> Order:
    with os.fdopen(ARGUMENTS, "rb") as file:
        order: Order = marshal.loads(file.read())  # noqa: S302 - our own parent wrote it
    return order


# --- the part that stays


def _watch_children() -> int:
    """A descriptor that tells of ended children and of END_ALL. Every other signal is ignored."""
    for number in range(1, _SIGNALS + 1):
        if number not in (KILL, 19, _CHILD_ENDED, END_ALL, 32, 33):  # not to be changed, or the C library's own
            _libc.signal(number, ctypes.c_void_p(1))
    for number in (_CHILD_ENDED, END_ALL):
        _libc.signal(number, ctypes.c_void_p(0))
    mask = (ctypes.c_ulong * 16)(1 << (_CHILD_ENDED - 1) | 1 << (END_ALL - 1))
    _call("signals", "sigprocmask", 0, mask, None)
    return _call("signals", "signalfd", -1, mask, 0o2004000)


def _attend(child: int, events: int) -> int:
    """Waits until the command ended, CONTROL closed or END_ALL came. A byte on CONTROL is a signal for the command's
    group.
    """
    poll = select.poll()
    poll.register(events, select.POLLIN)
    poll.register(CONTROL, select.POLLIN)
    busy = False
    while True:
        ready = {number for number, _ in poll.poll(0 if busy else None)}
        if events in ready and _drain(events):
            return CONTROL_CLOSED
        busy, code = _reap(child)
        if code is not None:
            return code
        if CONTROL in ready:
            try:
                numbers = os.read(CONTROL, 64)
            except OSError:
                numbers = b""
            if not numbers:
                return CONTROL_CLOSED
            for number in numbers:
                _signal(-child, number)


def _drain(events: int) -> bool:
    """Whether END_ALL is among what happened. Each is told in 128 bytes, which begin with the signal's number."""
    found = False
    try:
        while told := os.read(events, 1024):
            numbers = (int.from_bytes(told[at : at + 4], sys.byteorder) for at in range(0, len(told), 128))
            found = END_ALL in numbers or found
    except BlockingIOError:
        pass
    return found


def _reap(child: int) -> tuple[bool, int | None]:
    """Collects ended children, adopted ones too. Returns whether there may be more, and the command's exit code once it
    has one. The number per call is limited, so that a tree that forks quickly does not keep us from CONTROL.
    """
    for _ in range(CROWD):
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False, None
        if pid == 0:
            return False, None
        if pid == child:
            return False, 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return True, None


def _end_everything() -> None:
    """TERM, a moment, then KILL until nothing is left: whoever changed session, was adopted or is stopped too."""
    if not _any_left():
        return
    found = _descendants()
    if len(found) < CROWD:  # more, and the moment would be theirs
        for pid in found:
            _signal(pid, TERM)
            _signal(pid, CONTINUE)
        until = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < until:
            if not _any_left():
                return
            time.sleep(0.005)
    ours = os.getpgrp()
    out_of_reach = 0
    while _any_left() and out_of_reach < OUT_OF_REACH:
        _catch_runners()
        found = _descendants()
        # Groups first: the kernel signals a whole group at once, and nobody in it can fork meanwhile.
        reached = [_signal(-group, KILL) for group in set(found.values()) if group not in (0, 1, ours)]
        reached += [_signal(pid, KILL) for pid in found]
        out_of_reach = out_of_reach + 1 if found and not any(reached) else 0
        time.sleep(0.001)


def _catch_runners() -> None:
    """Somebody who forks and exits, again and again, is always gone when a walk arrives; but each time its parent ends
    it becomes our own child, and one look at our own children is quick enough to meet it."""
    for _ in range(LOOKS):
        try:
            with open(f"/proc/self/task/{os.getpid()}/children", "rb", buffering=0) as file:
                children = file.read(65536).split()
        except OSError:  # a kernel that keeps no such list
            return
        for pid in children:
            _signal(int(pid), KILL)


def _any_left() -> bool:
    try:
        for _ in range(CROWD):
            if not os.waitpid(-1, os.WNOHANG)[0]:
                break
    except ChildProcessError:
        return False
    return True


def _descendants() -> dict[int, int]:
    """Returns the pids of all descendants with their process groups. It reads the parent of every process, so that
    other sessions are found too.
    """
    children: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                    fields = file.read(512).rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append((int(name), int(fields[2])))
            except (OSError, IndexError, ValueError):
                continue
    found: dict[int, int] = {}
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += [pid for pid, _ in below]
    return found


def _signal(pid: int, number: int) -> bool:
    """A negative number is a process group. False: it is gone by itself, or not ours to end."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


# --- the part that becomes the command


def _become(order: Order, launcher: int) -> NoReturn:
    """Never returns. Privileges go first, the filter last: it refuses what the steps before it need."""
    try:
        os.setsid()
        if order["terminal"]:
            _call("terminal", "ioctl", 0, 0x540E, 0)
        os.chdir(order["cwd"])
        _limit(order["limits"])
        if order["landlock"]:
            _drop_privileges()
            _restrict(order["landlock"])
        _restore_signals()
        _die_with(launcher)
        if order["filter"]:
            _load_filter(order["filter"])
        os.write(READY, b"1")
        if order["waits"] and os.read(GO, 1) == b"":
            os._exit(125)  # Forge is gone, or thought better of it
        os.closerange(3, 1 << 16)
    except (Stopped, OSError, KeyError, TypeError, ValueError) as error:
        _refuse(error)
    _run(order["argv"], order["env"])


def _limit(limits: dict[int, tuple[int, int]]) -> None:
    """Sets resource limits; a limit that is already tighter stays."""
    for what, (soft, hard) in limits.items():
        top = resource.getrlimit(what)[1]
        if top != resource.RLIM_INFINITY:
            soft, hard = min(soft, top), min(hard, top)
        resource.setrlimit(what, (soft, hard))


def _drop_privileges() -> None:
    """Drops all capabilities, also of root, and forbids new ones by exec (set-user-ID programs have no effect)."""
    _call("no new privileges", "prctl", 38, 1, 0, 0, 0)
    for capability in range(64):  # where we may not, no-new-privileges still keeps exec from giving any back
        if _try("prctl", 24, capability, 0, 0, 0) < 0 and ctypes.get_errno() == errno.EINVAL:
            break
    _try("prctl", 47, 4, 0, 0, 0)  # ambient ones; a kernel without them has none
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _call("capabilities", "capset", header, (ctypes.c_uint32 * 6)())


def _restrict(order: Confinement) -> None:
    """A path that is gone, or leads through a link by now, gets nothing."""
    attributes = (ctypes.c_uint64 * 3)(order["files"], order["network"], order["scopes"])
    size = 24 if order["scopes"] else 16 if order["network"] else 8  # an older kernel knows only the first of them
    ruleset = _call("Landlock", "syscall", 444, attributes, size, 0)
    for path, rights in order["rules"]:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if os.readlink(b"/proc/self/fd/%d" % place) != path:
                continue
            if os.fstat(place).st_mode & 0o170000 != 0o040000:
                rights &= order["only_files"]
            rule = (ctypes.c_char * 12).from_buffer_copy(
                rights.to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder)
            )
            _call("Landlock rule", "syscall", 445, ruleset, 1, rule, 0)
        finally:
            os.close(place)
    _call("Landlock", "syscall", 446, ruleset, 0)
    os.close(ruleset)


def _restore_signals() -> None:
    for number in range(1, _SIGNALS + 1):
        if number not in (KILL, 19, _KEEPS_IGNORED, 32, 33):
            _libc.signal(number, ctypes.c_void_p(0))
    _call("signals", "sigprocmask", 2, (ctypes.c_ulong * 16)(), None)


def _die_with(launcher: int) -> None:
    _call("parent's end", "prctl", 1, KILL, 0, 0, 0)
    if os.getppid() != launcher:
        os._exit(128 + KILL)


def _load_filter(program: bytes) -> None:
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]

    whole = Program(len(program) // 8, program)
    _call("system call filter", "prctl", 22, 2, ctypes.byref(whole), 0, 0)


def _run(argv: list[bytes], env: dict[bytes, bytes]) -> NoReturn:
    """Executes the command as a shell's `exec` does: exits with 127 if there is no such command, 126 if it cannot be
    run.
    """
    name = argv[0]
    places = [name] if b"/" in name else [each + b"/" + name for each in env.get(b"PATH", b"").split(b":") if each]
    why = errno.ENOENT
    for place in places:
        try:
            os.execve(place, argv, env)  # noqa: S606
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                _run([b"/bin/sh", place, *argv[1:]], env)
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                why = error.errno or why
    text = b"not found" if why == errno.ENOENT else os.strerror(why).encode()
    os.write(2, b"sh: 1: exec: %s: %s\n" % (name, text))
    os._exit(127 if why == errno.ENOENT else 126)


def _refuse(error: Exception) -> NoReturn:
    """Exits before READY: the command was not run, and this line says why."""
    text = str(error) if isinstance(error, Stopped) else f"{type(error).__name__}: {getattr(error, 'strerror', error)}"
    os.write(2, f"launcher: {text}\n".encode())
    os._exit(125)


def _close(number: int) -> None:
    try:
        os.close(number)
    except OSError:
        return


def argv(interpreter: str) -> tuple[str, ...]:
    """Returns the words that start this file: isolated, without site packages, away from the working directory, from
    its compiled form if there is one. Its environment need not be the command's, which is in the order.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    start = "import posix, sys; posix.chdir('/'); sys.path.append(sys.argv[1]); import launcher; launcher.main()"
    return (interpreter, "-I", "-S", "-c", start, folder)
