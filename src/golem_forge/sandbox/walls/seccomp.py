"""The system call filter of a child: a classic BPF program, assembled here for the machine's own processor.

Takes what the other walls leave open (`Network`, `Changes`), gives the bytes that `bwrap --seccomp` and the launcher
load. Refuses (SandboxError WALLS_UNAVAILABLE) a processor it has no numbers for. Threat: a kernel interface that
reaches around mounts, namespaces and Landlock. Arguments in memory cannot be judged by a filter (the child may change
them meanwhile), so only numbers in registers are looked at.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from golem_forge.sandbox.errors import walls_unavailable
from golem_forge.sandbox.walls.seccomp_numbers import PROCESSORS, Processor


class Network(StrEnum):
    OWN = "own"
    """A network namespace of its own: ordinary sockets reach nothing outside it."""
    SHARED = "shared"
    """The host's network, declared by a tool or server and trusted so."""
    NONE = "none"
    """No namespace and no network: no socket but a pair of streams."""


class Changes(StrEnum):
    """Who refuses changes of mode, owner, times and attributes."""

    BY_MOUNTS = "by_mounts"
    """Read-only mounts do (level full)."""
    REFUSED = "refused"
    """Nobody else does (Landlock knows no such right): the filter refuses all of them, by path and by descriptor."""


_ACCESS_LISTS: Final = ("setxattr", "lsetxattr", "fsetxattr", "setxattrat")
_REFUSED: Final = (
    # other processes' memory and descriptors
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "pidfd_getfd", "kcmp"),
    # large kernel interfaces that checks elsewhere do not see into
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "bpf", "perf_event_open", "userfaultfd"),
    *("keyctl", "add_key", "request_key", "fanotify_init", "fanotify_mark", "open_by_handle_at", "lookup_dcookie"),
    # the tree of mounts
    *("mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "open_tree_attr", "mount_setattr"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "setns"),
    # the kernel and the machine
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "create_module"),
    *("get_kernel_syms", "query_module", "nfsservctl", "uselib", "sysfs", "_sysctl", "iopl", "ioperm", "modify_ldt"),
    *("reboot", "swapon", "swapoff", "acct", "syslog", "quotactl", "quotactl_fd", "vhangup"),
    *("settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "sethostname", "setdomainname"),
)
_ATTRIBUTES: Final = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "utimensat", "futimesat", "file_setattr"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr", "fremovexattr"),
    "removexattrat",
)
_SHARED_MEMORY: Final = (
    *("shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
)
"""Without an ipc namespace these are the host's, and Landlock does not know them."""
_WATCHING: Final = ("inotify_add_watch",)
"""What happens to files all over the host can be watched without a right to read them, which Landlock does not see.
(fanotify is refused at every level.)"""
_ON_A_PROCESS: Final = {
    "prlimit64": 0,
    "sched_setaffinity": 0,
    "sched_setscheduler": 0,
    "sched_setparam": 0,
    "sched_setattr": 0,
    "setpriority": 1,
    "ioprio_set": 1,
    "migrate_pages": 0,
    "move_pages": 0,
}
"""Which argument names the process. Without a pid namespace it must be 0, oneself; in one it must not be 1: that is the
backend's own process, under the same user, on which everybody's end depends."""
_HANDLES_OF_A_PROCESS: Final = {"pidfd_open": 0}
"""The same, where it does no harm to oneself and one's children."""
_ONE_PROCESS: Final = {"setpriority": 0, "ioprio_set": 1}
"""First argument with which the other names one process, and not a group or a user: process 1 is in both."""
_SHARE_A_CORE: Final = 62
"""PR_SCHED_CORE: the one `prctl` that acts on another process. Kernels without it answer EINVAL."""
_MODES: Final = {
    "chmod": 1,
    "fchmod": 1,
    "fchmodat": 2,
    "fchmodat2": 2,
    "mknod": 1,
    "mknodat": 2,
    "creat": 1,
}
"""Which argument is the mode a file gets."""
_MODES_OF_NEW: Final = {"openat": (2, 3), "open": (1, 2)}
"""Flags, and the mode that counts if they say that a file may be made."""
_MAKES_A_FILE: Final = 0x00400040  # O_CREAT, and what makes O_TMPFILE out of O_DIRECTORY
_SET_ID: Final = 0o6000
"""A program in a zone that runs as its owner would be one for everybody on the host, whom no walls hold."""
_WHOLE_USER: Final = {"setpriority": 2, "ioprio_set": 3}
"""First argument with which 0 means all processes of the user, Forge among them."""
_NAMING: Final = ("connect", "bind", "listen", "accept", "accept4")

_NEW_NAMESPACE: Final = 0x7E020000  # CLONE_NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET
_NEW_TIME_NAMESPACE: Final = 0x80  # only `unshare` takes it: in `clone` these bits are the exit signal
_TYPING_FOR_OTHERS: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: characters into a terminal as if typed
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET = 1, 5
_FILE_QUESTIONS: Final = (0x80086601, 0x80087601, 0xC020660B, 1, 2)
"""FS_IOC_GETFLAGS, FS_IOC_GETVERSION, FS_IOC_FIEMAP, FIBMAP, FIGETBSZ: they ask and change nothing."""


class _Step(NamedTuple):
    """struct sock_filter."""

    code: int
    if_true: int
    if_false: int
    value: int


def _load(offset: int) -> _Step:
    return _Step(0x20, 0, 0, offset)


def _argument(index: int) -> _Step:
    """The low half of an argument: all of it where the kernel takes an int, as it does for every one asked here."""
    return _load(16 + 8 * index)


def _give(value: int) -> _Step:
    return _Step(0x06, 0, 0, value)


def _and(mask: int) -> _Step:
    return _Step(0x54, 0, 0, mask)


_ALLOW: Final = _give(0x7FFF0000)
_KILL: Final = _give(0x80000000)


def _error(number: int) -> _Step:
    return _give(0x00050000 | number)


_DENY: Final = _error(errno.EPERM)


def _if_equal(value: int, then: Iterable[_Step]) -> list[_Step]:
    """`then` must end in a verdict: what follows is for other values."""
    steps = list(then)
    return [_Step(0x15, 0, len(steps), value), *steps]


def _if_at_least(value: int, then: _Step) -> list[_Step]:
    return [_Step(0x35, 0, 1, value), then]


def _if_any_bit(mask: int, then: _Step, *more: _Step) -> list[_Step]:
    """The last one must be a verdict."""
    return [_Step(0x45, 0, 1 + len(more), mask), then, *more]


def _one_of(values: Iterable[int]) -> list[_Step]:
    return [step for value in values for step in _if_equal(value, [_ALLOW])]


def _sockets(network: Network, *, unix: bool) -> dict[str, list[_Step]]:
    """Which kinds may be made. Netlink only to ask for the interfaces, as `getifaddrs` does."""
    if network is Network.NONE:
        made = [_DENY]
    else:
        families = [_AF_UNIX, _AF_INET, _AF_INET6] if unix else [_AF_INET, _AF_INET6]
        routes = [_argument(2), *_one_of([0]), _error(errno.EAFNOSUPPORT)]
        made = [_argument(0), *_one_of(families), *_if_equal(_AF_NETLINK, routes), _error(errno.EAFNOSUPPORT)]
    if unix and network is not Network.NONE:
        return {"socket": made}
    # A datagram pair could be pointed at any host socket by name afterwards; connected streams cannot.
    streams = [_argument(1), _and(0xF), *_one_of([_STREAM, _SEQPACKET]), _DENY]
    return {"socket": made, "socketpair": [_argument(0), *_if_equal(_AF_UNIX, streams), _DENY]}


def _without_set_id() -> dict[str, list[_Step]]:
    """Nobody makes a set-user-ID or set-group-ID file. `openat2` has its mode in memory; programs then use `openat`."""
    judged = {name: [_argument(at), *_if_any_bit(_SET_ID, _DENY), _ALLOW] for name, at in _MODES.items()}
    for name, (flags, mode) in _MODES_OF_NEW.items():
        made = _if_any_bit(_MAKES_A_FILE, _argument(mode), *_if_any_bit(_SET_ID, _DENY), _ALLOW)
        judged[name] = [_argument(flags), *made, _ALLOW]
    return {**judged, "openat2": [_error(errno.ENOSYS)]}


def _without_process_one() -> dict[str, list[_Step]]:
    """Nobody limits, schedules, moves or watches process 1. Signals need no rule: the kernel keeps them from it."""
    rules = {}
    for name, where in (_ON_A_PROCESS | _HANDLES_OF_A_PROCESS).items():
        rules[name] = [_argument(where), *_if_equal(1, [_DENY]), _ALLOW]
    for name, one in _ONE_PROCESS.items():
        rules[name] = [_argument(0), *_if_equal(one, rules[name]), _DENY]
    return rules


def _device_controls(changes: Changes) -> list[_Step]:
    refused = [step for value in _TYPING_FOR_OTHERS for step in _if_equal(value, [_DENY])]
    if changes is Changes.BY_MOUNTS:
        return [_argument(1), *refused, _ALLOW]
    # File systems take changes (flags, subvolumes, clones) by ioctl on a descriptor that is only open for reading:
    # nothing passes but terminals, pipes and questions.
    terminals = [_and(0xFF00), *_one_of([ord("T") << 8]), _error(errno.ENOTTY)]
    return [_argument(1), *refused, *_one_of(_FILE_QUESTIONS), *terminals]


def _rules(network: Network, changes: Changes) -> dict[str, list[_Step]]:
    """Call → the steps that judge it, each list ending in a verdict. What is not named is allowed."""
    alone = changes is Changes.REFUSED
    """Only Landlock besides: no namespace hides other processes, shared memory and sockets."""
    set_id = _without_set_id()
    rules = {name: set_id[name] for name in _MODES_OF_NEW}  # first, because everybody opens files all the time
    rules |= set_id | {name: [_DENY] for name in _REFUSED}
    rules["clone3"] = [_error(errno.ENOSYS)]  # its flags are in memory; libraries then use `clone`
    rules["clone"] = [_argument(0), *_if_any_bit(_NEW_NAMESPACE, _DENY), _ALLOW]
    rules["unshare"] = [_argument(0), *_if_any_bit(_NEW_NAMESPACE | _NEW_TIME_NAMESPACE, _DENY), _ALLOW]
    rules["personality"] = [_argument(0), *_one_of([0, 0xFFFFFFFF]), _DENY]
    rules["prctl"] = [_argument(0), *_if_equal(_SHARE_A_CORE, [_error(errno.EINVAL)]), _ALLOW]
    rules["ioctl"] = _device_controls(changes)
    rules |= _sockets(network, unix=not alone)
    if alone:
        rules |= {name: [_DENY] for name in (*_ATTRIBUTES, *_SHARED_MEMORY, *_WATCHING)}
        for name, where in _ON_A_PROCESS.items():
            everybody = [_argument(0), *_if_equal(_WHOLE_USER[name], [_DENY])] if name in _WHOLE_USER else []
            rules[name] = [*everybody, _argument(where), *_one_of([0]), _DENY]
    else:
        rules |= _without_process_one()
    if not alone and os.geteuid() == 0:  # it owns the host's device nodes bound inside, and could leave lists on them
        rules |= {name: [_error(errno.EOPNOTSUPP)] for name in _ACCESS_LISTS}
    if network is Network.NONE:
        rules |= {name: [_DENY] for name in _NAMING}
    return rules


def assemble(processor: Processor, rules: dict[str, list[_Step]]) -> bytes:
    """The program: foreign conventions first, then one comparison for each call named."""
    steps = [_load(4), _Step(0x15, 1, 0, processor.audit), _KILL, _load(0)]
    if processor.foreign_bit:
        steps += _if_at_least(processor.foreign_bit, _error(errno.ENOSYS))
    for name, body in rules.items():
        if (number := processor.numbers.get(name)) is not None:
            steps += _if_equal(number, body)
    return b"".join(struct.pack("=HBBI", *step) for step in (*steps, _ALLOW))


@lru_cache(maxsize=16)
def filter_program(*, network: Network = Network.OWN, changes: Changes = Changes.BY_MOUNTS, machine: str = "") -> bytes:
    """Level full: the defaults. Level landlock: `Network.NONE` and `Changes.REFUSED`. `machine` as `uname -m` says,
    empty for this one."""
    processor = PROCESSORS.get(machine or os.uname().machine)
    if processor is None:
        cause = f"there is no system call filter for this processor ({machine or os.uname().machine})"
        raise walls_unavailable(cause, "Use a machine with an x86_64 or aarch64 processor.")
    return assemble(processor, _rules(network, changes))
