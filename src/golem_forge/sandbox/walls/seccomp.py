"""The system call filter of a child: a classic BPF program, assembled here for the machine's own processor.

Takes what the other walls leave open (`Network`, `AttributeChanges`), returns the bytes that `bwrap --seccomp` and
the launcher load. Refuses (WALLS_UNAVAILABLE) a processor it has no numbers for. Threat: a kernel interface that
reaches around mounts, namespaces and Landlock. A filter cannot judge arguments in memory (the child may change them
meanwhile), so only numbers in registers are looked at. A call that a processor does not have is absent from its
table of numbers; from 424 on, numbers are the same everywhere.
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


class Network(StrEnum):
    OWN = "own"
    """A network namespace of its own: ordinary sockets reach nothing outside it."""
    JOINED = "joined"
    """One that other commands of the session are in, too; otherwise the same."""
    SHARED = "shared"
    """The host's network, declared by a tool or server and trusted so."""
    NONE = "none"
    """No namespace and no network: only a pair of stream sockets is allowed."""


class AttributeChanges(StrEnum):
    """What refuses changes of mode, owner, times and attributes."""

    BY_MOUNTS = "by_mounts"
    """Read-only mounts refuse them (level full)."""
    REFUSED = "refused"
    """The filter refuses all of them, by path and by descriptor, because Landlock has no such right."""


class MountTable(StrEnum):
    """Whether `/proc/self/mountinfo` shows the mounts inside."""

    SHOWN = "shown"
    HIDDEN = "hidden"
    """It shows nothing. The inner stage has to make a mount namespace and change its root for that, so these two calls
    are left to the kernel, which refuses them to everybody without the capabilities that the stage gives up.
    """


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
"""Without an ipc namespace these reach the host's objects, and Landlock does not cover them."""
_WATCHING: Final = ("inotify_add_watch",)
"""Files all over the host can be watched without a right to read them, which Landlock does not cover. (fanotify is
refused at every level.)
"""
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
"""System call → the argument that names the process. Without a pid namespace it must be 0, oneself; in one it must not
be 1: that is the backend's own process, under the same user, on which everybody's end depends.
"""
_HANDLES_OF_A_PROCESS: Final = {"pidfd_open": 0}
"""The same for calls that do no harm to oneself and one's children."""
_ONE_PROCESS: Final = {"setpriority": 0, "ioprio_set": 1}
"""First argument with which the other names one process, and not a group or a user: process 1 is in both."""
_SHARE_A_CORE: Final = 62
"""PR_SCHED_CORE: the one `prctl` that acts on another process. Kernels without it answer EINVAL."""
_MODES: Final = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknod": 1, "mknodat": 2, "creat": 1}
"""System call → the argument that is the mode of a file."""
_MODES_OF_NEW: Final = {"openat": (2, 3), "open": (1, 2)}
"""Flags, and the mode that counts if they say that a file may be made."""
_MAKES_A_FILE: Final = 0x00400040  # O_CREAT, and what makes O_TMPFILE out of O_DIRECTORY
_SET_ID: Final = 0o6000
"""A program in a zone that runs as its owner would be one for everybody on the host, whom no walls hold."""
_WHOLE_USER: Final = {"setpriority": 2, "ioprio_set": 3}
"""First argument with which 0 means all processes of the user, Forge among them."""
_NAMING_CALLS: Final = ("connect", "bind", "listen", "accept", "accept4")

_NEW_NAMESPACE: Final = 0x7E020000  # CLONE_NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET
_NEW_MOUNTS: Final = 0x00020000
_NEW_TIME_NAMESPACE: Final = 0x80  # only `unshare` takes it: in `clone` these bits are the exit signal
_TYPING_FOR_OTHERS: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: characters into a terminal as if typed
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET = 1, 5
_FILE_QUESTIONS: Final = (0x80086601, 0x80087601, 0xC020660B, 1, 2)
"""FS_IOC_GETFLAGS, FS_IOC_GETVERSION, FS_IOC_FIEMAP, FIBMAP, FIGETBSZ: they ask and change nothing."""


class _Step(NamedTuple):
    """A `struct sock_filter`."""

    code: int
    if_true: int
    if_false: int
    value: int


def _load(offset: int) -> _Step:
    return _Step(0x20, 0, 0, offset)


def _argument(index: int) -> _Step:
    """The low half of an argument: all of it where the kernel takes an int, as it does for every one asked here."""
    return _load(16 + 8 * index)


def _return(value: int) -> _Step:
    return _Step(0x06, 0, 0, value)


def _and(mask: int) -> _Step:
    return _Step(0x54, 0, 0, mask)


_ALLOW: Final = _return(0x7FFF0000)
_KILL: Final = _return(0x80000000)


def _error(number: int) -> _Step:
    return _return(0x00050000 | number)


_DENY: Final = _error(errno.EPERM)


def _if_equal(value: int, then: Iterable[_Step]) -> list[_Step]:
    """`then` must end in a verdict: what follows is for other values."""
    steps = list(then)
    return [_Step(0x15, 0, len(steps), value), *steps]


def _if_any_bit(mask: int, then: _Step, *more: _Step) -> list[_Step]:
    """Runs the given steps if any bit of the mask is set; the last of them must be a verdict."""
    return [_Step(0x45, 0, 1 + len(more), mask), then, *more]


def _one_of(values: Iterable[int]) -> list[_Step]:
    return [step for value in values for step in _if_equal(value, [_ALLOW])]


def _sockets(network: Network, *, unix: bool) -> dict[str, list[_Step]]:
    """Returns the rules about kinds of sockets. Netlink is allowed only to ask for the interfaces, as `getifaddrs`
    does.
    """
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
    """Returns the rules against set-user-ID and set-group-ID files. `openat2` has its mode in memory and is refused;
    programs then use `openat`.
    """
    judged = {name: [_argument(at), *_if_any_bit(_SET_ID, _DENY), _ALLOW] for name, at in _MODES.items()}
    for name, (flags, mode) in _MODES_OF_NEW.items():
        made = _if_any_bit(_MAKES_A_FILE, _argument(mode), *_if_any_bit(_SET_ID, _DENY), _ALLOW)
        judged[name] = [_argument(flags), *made, _ALLOW]
    return {**judged, "openat2": [_error(errno.ENOSYS)]}


def _without_process_one() -> dict[str, list[_Step]]:
    """Returns the rules against limiting, scheduling, moving or watching process 1. Signals need no rule: the kernel
    keeps them from it.
    """
    rules = {}
    for name, where in (_ON_A_PROCESS | _HANDLES_OF_A_PROCESS).items():
        rules[name] = [_argument(where), *_if_equal(1, [_DENY]), _ALLOW]
    for name, one in _ONE_PROCESS.items():
        rules[name] = [_argument(0), *_if_equal(one, rules[name]), _DENY]
    return rules


def _device_controls(changes: AttributeChanges) -> list[_Step]:
    refused = [step for value in _TYPING_FOR_OTHERS for step in _if_equal(value, [_DENY])]
    if changes is AttributeChanges.BY_MOUNTS:
        return [_argument(1), *refused, _ALLOW]
    # File systems take changes (flags, subvolumes, clones) by ioctl on a descriptor that is only open for reading:
    # nothing passes but terminals, pipes and questions.
    terminals = [_and(0xFF00), *_one_of([ord("T") << 8]), _error(errno.ENOTTY)]
    return [_argument(1), *refused, *_one_of(_FILE_QUESTIONS), *terminals]


def _rules(network: Network, changes: AttributeChanges, table: MountTable) -> dict[str, list[_Step]]:
    """Call → the steps that judge it, each list ending in a verdict. What is not named is allowed."""
    alone = changes is AttributeChanges.REFUSED
    """Only Landlock besides: no namespace hides other processes, shared memory and sockets."""
    set_id = _without_set_id()
    rules = {name: set_id[name] for name in _MODES_OF_NEW}  # first, because everybody opens files all the time
    rules |= set_id | {name: [_DENY] for name in _REFUSED}
    rules["clone3"] = [_error(errno.ENOSYS)]  # its flags are in memory; libraries then use `clone`
    rules["clone"] = [_argument(0), *_if_any_bit(_NEW_NAMESPACE, _DENY), _ALLOW]
    rules["unshare"] = [_argument(0), *_if_any_bit(_NEW_NAMESPACE | _NEW_TIME_NAMESPACE, _DENY), _ALLOW]
    if table is MountTable.HIDDEN:
        del rules["chroot"]
        rules["unshare"] = [_argument(0), *_one_of([_NEW_MOUNTS]), *rules["unshare"][1:]]
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
        rules |= {name: [_DENY] for name in _NAMING_CALLS}
    return rules


def assemble(processor: Processor, rules: dict[str, list[_Step]]) -> bytes:
    """The program: foreign conventions first, then one comparison for each call named."""
    steps = [_load(4), _Step(0x15, 1, 0, processor.audit), _KILL, _load(0)]
    if processor.foreign_bit:
        steps += [_Step(0x35, 0, 1, processor.foreign_bit), _error(errno.ENOSYS)]  # that number, or a larger one
    for name, body in rules.items():
        if (number := processor.numbers.get(name)) is not None:
            steps += _if_equal(number, body)
    return b"".join(struct.pack("=HBBI", *step) for step in (*steps, _ALLOW))


@lru_cache(maxsize=16)
def filter_program(
    *,
    network: Network = Network.OWN,
    changes: AttributeChanges = AttributeChanges.BY_MOUNTS,
    table: MountTable = MountTable.SHOWN,
    machine: str = "",
) -> bytes:
    """Level full: the defaults. Level landlock: `Network.NONE` and `AttributeChanges.REFUSED`. `machine` as `uname -m`
    says, empty for this one."""
    processor = PROCESSORS.get(machine or os.uname().machine)
    if processor is None:
        cause = f"there is no system call filter for this processor ({machine or os.uname().machine})"
        raise walls_unavailable(cause, "Use a machine with an x86_64 or aarch64 processor.")
    return assemble(processor, _rules(network, changes, table))


class Processor(NamedTuple):
    audit: int
    """The kernel's number of this calling convention in the filter's input (AUDIT_ARCH_*)."""
    numbers: dict[str, int]
    foreign_bit: int
    """Calls at or above this number belong to a second convention under the same name (x32); 0: there is none."""


# fmt: off
_SHARED: Final = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_open": 434, "clone3": 435, "openat2": 437, "pidfd_getfd": 438, "process_madvise": 440,
    "mount_setattr": 442, "quotactl_fd": 443, "process_mrelease": 448, "fchmodat2": 452, "setxattrat": 463,
    "removexattrat": 466, "open_tree_attr": 467, "file_setattr": 469,
}
_X86_64: Final = {
    "open": 2, "creat": 85, "mknod": 133, "inotify_add_watch": 254, "openat": 257, "mknodat": 259, "prctl": 157,
    "ioctl": 16, "shmget": 29, "shmat": 30, "shmctl": 31, "socket": 41, "connect": 42, "accept": 43, "bind": 49,
    "listen": 50, "socketpair": 53, "clone": 56, "semget": 64, "semop": 65, "semctl": 66, "msgget": 68, "msgsnd": 69,
    "msgrcv": 70, "msgctl": 71, "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "ptrace": 101,
    "syslog": 103, "utime": 132, "uselib": 134, "personality": 135, "sysfs": 139, "setpriority": 141,
    "sched_setparam": 142, "sched_setscheduler": 144, "vhangup": 153, "modify_ldt": 154, "pivot_root": 155,
    "_sysctl": 156, "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166,
    "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172,
    "ioperm": 173, "create_module": 174, "init_module": 175, "delete_module": 176, "get_kernel_syms": 177,
    "query_module": 178, "quotactl": 179, "nfsservctl": 180, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190,
    "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199, "sched_setaffinity": 203, "lookup_dcookie": 212,
    "semtimedop": 220, "clock_settime": 227, "utimes": 235, "mq_open": 240, "mq_unlink": 241, "kexec_load": 246,
    "add_key": 248, "request_key": 249, "keyctl": 250, "ioprio_set": 251, "migrate_pages": 256, "fchownat": 260,
    "futimesat": 261, "fchmodat": 268, "unshare": 272, "move_pages": 279, "utimensat": 280, "accept4": 288,
    "perf_event_open": 298, "fanotify_init": 300, "fanotify_mark": 301, "prlimit64": 302, "name_to_handle_at": 303,
    "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311,
    "kcmp": 312, "finit_module": 313, "sched_setattr": 314, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
}
_AARCH64: Final = {
    "inotify_add_watch": 27, "mknodat": 33, "openat": 56, "prctl": 167,
    "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16,
    "lookup_dcookie": 18, "ioctl": 29, "ioprio_set": 30, "umount2": 39, "mount": 40, "pivot_root": 41,
    "nfsservctl": 42, "chroot": 51, "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "vhangup": 58,
    "quotactl": 60, "utimensat": 88, "acct": 89, "personality": 92, "unshare": 97, "kexec_load": 104,
    "init_module": 105, "delete_module": 106, "clock_settime": 112, "syslog": 116, "ptrace": 117,
    "sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122, "setpriority": 140, "reboot": 142,
    "sethostname": 161, "setdomainname": 162, "settimeofday": 170, "adjtimex": 171, "mq_open": 180, "mq_unlink": 181,
    "msgget": 186, "msgctl": 187, "msgrcv": 188, "msgsnd": 189, "semget": 190, "semctl": 191, "semtimedop": 192,
    "semop": 193, "shmget": 194, "shmctl": 195, "shmat": 196, "socket": 198, "socketpair": 199, "bind": 200,
    "listen": 201, "accept": 202, "connect": 203, "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220,
    "swapon": 224, "swapoff": 225, "migrate_pages": 238, "move_pages": 239, "perf_event_open": 241, "accept4": 242,
    "prlimit64": 261, "fanotify_init": 262, "fanotify_mark": 263, "name_to_handle_at": 264, "open_by_handle_at": 265,
    "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
    "finit_module": 273, "sched_setattr": 274, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294,
}
# fmt: on

PROCESSORS: Final = {
    "x86_64": Processor(audit=0xC000003E, numbers=_X86_64 | _SHARED, foreign_bit=0x40000000),
    "aarch64": Processor(audit=0xC00000B7, numbers=_AARCH64 | _SHARED, foreign_bit=0),
}
"""Processors by the name of `uname -m`."""
