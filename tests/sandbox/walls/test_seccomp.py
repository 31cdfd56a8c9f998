"""The system call filter: what it says for both processors, and what the real kernel does with it."""

from __future__ import annotations

import base64
import errno
import json
import os
import shutil
import struct
import subprocess
import sys
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.tables import table

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.walls import seccomp
from golem_forge.sandbox.walls.seccomp import PROCESSORS, AttributeChanges, Network, filter_program

ALLOW, KILL = 0x7FFF0000, 0x80000000
DENY = 0x00050000 | errno.EPERM
LEVELS = {
    "full": {"network": Network.OWN, "changes": AttributeChanges.BY_MOUNTS},
    "landlock": {"network": Network.NONE, "changes": AttributeChanges.REFUSED},
}
FOREIGN = {"i386": 0x40000003, "arm": 0x40000028}


def verdict(program: bytes, number: int, *arguments: int, audit: int) -> int:
    """What the kernel's interpreter makes of it."""
    data = struct.pack("=IIQ6Q", number, audit, 0, *(*arguments, *[0] * (6 - len(arguments))))
    steps = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            accumulator = struct.unpack_from("=I", data, value)[0]
        elif code == 0x54:
            accumulator &= value
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            at += if_true if holds else if_false


@table("level", LEVELS)
@table("machine", PROCESSORS)
def test_dangerous_calls_are_refused(machine: str, level: str) -> None:
    processor = PROCESSORS[machine]
    program = filter_program(**LEVELS[level], machine=machine)
    for name in seccomp._REFUSED:
        if name in processor.numbers:
            assert verdict(program, processor.numbers[name], audit=processor.audit) == DENY, name
    assert verdict(program, processor.numbers["clone3"], audit=processor.audit) == 0x00050000 | errno.ENOSYS


@table("level", LEVELS)
@table("machine", PROCESSORS)
def test_foreign_conventions_reach_nothing(machine: str, level: str) -> None:
    program = filter_program(**LEVELS[level], machine=machine)
    for audit in FOREIGN.values():
        assert verdict(program, 20, audit=audit) == KILL
    if machine == "x86_64":  # x32: the same processor name, another numbering
        assert verdict(program, 0x40000000 | 39, audit=PROCESSORS[machine].audit) == 0x00050000 | errno.ENOSYS


@table("machine", PROCESSORS)
def test_arguments_decide(machine: str) -> None:
    processor = PROCESSORS[machine]

    def full(name: str, *arguments: int) -> int:
        return verdict(filter_program(machine=machine), processor.numbers[name], *arguments, audit=processor.audit)

    assert full("clone", 17) == ALLOW
    assert full("clone", 0x003D0F00) == ALLOW  # a thread
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert full("clone", flag | 17) == DENY
        assert full("unshare", flag) == DENY
    assert full("unshare", 0x80) == DENY
    assert full("unshare", 0x400) == ALLOW  # CLONE_FILES
    assert full("personality", 0xFFFFFFFF) == full("personality", 0) == ALLOW
    assert full("personality", 0x0040000) == DENY
    assert full("ioctl", 0, 0x5412) == full("ioctl", 0, 0x541C) == DENY
    assert full("ioctl", 0, 0xABCD00005412) == DENY  # the kernel looks at the low half only
    assert full("ioctl", 0, 0x5413) == ALLOW
    assert [full("socket", family) for family in (1, 2, 10)] == [ALLOW] * 3
    assert full("socket", 16, 3, 0) == ALLOW
    assert full("socket", 16, 3, 9) != ALLOW
    assert all(full("socket", family) == 0x00050000 | errno.EAFNOSUPPORT for family in (17, 38, 40))
    assert full("fchmodat") == full("socketpair", 1, 2) == full("prlimit64", 7) == ALLOW


@table("machine", PROCESSORS)
def test_process_one_is_nobody_s_to_change(machine: str) -> None:
    processor = PROCESSORS[machine]

    def full(name: str, *arguments: int) -> int:
        return verdict(filter_program(machine=machine), processor.numbers[name], *arguments, audit=processor.audit)

    first = ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr", "pidfd_open")
    for name in (*first, "migrate_pages", "move_pages"):
        assert full(name, 1) == full(name, (7 << 32) | 1) == DENY, name  # the kernel looks at the low half only
        assert full(name, 0) == full(name, 2) == full(name, 11) == ALLOW, name
    for name, process, others in (("setpriority", 0, (1, 2)), ("ioprio_set", 1, (2, 3))):
        assert full(name, process, 0) == full(name, process, 2) == ALLOW
        assert full(name, process, 1) == full(name, process, (7 << 32) | 1) == DENY
        assert {full(name, which, who) for which in others for who in (0, 1, 2, 1000)} == {DENY}
    assert full("prctl", 62, 2, 1) == 0x00050000 | errno.EINVAL
    assert full("prctl", 15) == full("prctl", 1, 9) == ALLOW


@table("machine", PROCESSORS)
def test_read_only_walls_refuse_attributes_sockets_and_other_processes(machine: str) -> None:
    processor = PROCESSORS[machine]
    program = filter_program(**LEVELS["landlock"], machine=machine)

    def alone(name: str, *arguments: int) -> int:
        return verdict(program, processor.numbers[name], *arguments, audit=processor.audit)

    names = (*seccomp._ATTRIBUTES, *seccomp._SHARED_MEMORY, *seccomp._NAMING_CALLS)
    assert {alone(name) for name in names if name in processor.numbers} == {DENY}
    assert {alone("socket", family) for family in range(46)} == {DENY}
    assert alone("socketpair", 1, 1 | 0o2000000) == alone("socketpair", 1, 5) == ALLOW
    assert alone("socketpair", 1, 2) == alone("socketpair", 30, 1) == DENY
    assert alone("prlimit64", 0) == alone("setpriority", 0, 0) == ALLOW
    assert alone("prlimit64", 7) == alone("setpriority", 0, 7) == DENY
    assert alone("setpriority", 2, 0) == alone("ioprio_set", 3, 0) == DENY  # everybody of this user
    assert alone("ioprio_set", 1, 0) == ALLOW
    assert alone("ioctl", 0, 0x5401) == alone("ioctl", 0, 0x802C542A) == alone("ioctl", 0, 0x80086601) == ALLOW
    for change in (0x40086602, 0x40046602, 0x401C5820, 0x5000940E, 0x40049409):  # flags, attributes, subvolume, clone
        assert alone("ioctl", 0, change) == 0x00050000 | errno.ENOTTY
    shared = filter_program(network=Network.SHARED, changes=AttributeChanges.REFUSED, machine=machine)
    of = {family: verdict(shared, processor.numbers["socket"], family, audit=processor.audit) for family in (1, 2, 10)}
    assert of[2] == of[10] == ALLOW
    assert of[1] != ALLOW


def test_an_unknown_processor_has_no_walls() -> None:
    with pytest.raises(SandboxError) as caught:
        filter_program(machine="vax")
    assert caught.value.code == "WALLS_UNAVAILABLE"


# --- the real kernel

LOAD = """
import base64, ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
program = base64.b64decode(sys.argv[1])
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(program) // 8, program)), 0, 0) == 0
"""
TRY = (
    LOAD
    + """
found = {}
for name, number, arguments in json.loads(sys.argv[2]):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(each) for each in arguments))
    found[name] = errno.errorcode.get(ctypes.get_errno(), "") if result < 0 else "done"
print(json.dumps(found))
"""
)
RUN = LOAD + "os.execvp(sys.argv[2], sys.argv[2:])"


def under(level: str, code: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    program = base64.b64encode(filter_program(**LEVELS[level])).decode()
    command = [sys.executable, "-I", "-S", "-c", code, program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, **options)


@table("level", LEVELS)
def test_the_kernel_refuses_each(level: str) -> None:
    numbers = PROCESSORS[os.uname().machine].numbers
    tries = [[name, numbers[name], [-1] * 6] for name in seccomp._REFUSED if name in numbers]
    tries += [["unshare", numbers["unshare"], [0x10000000]], ["clone", numbers["clone"], [0x10000000 | 17, 0, 0, 0, 0]]]
    tries += [["TIOCSTI", numbers["ioctl"], [0, 0x5412, 0]], ["personality", numbers["personality"], [8]]]
    if level == "landlock":
        names = (*seccomp._ATTRIBUTES, *seccomp._SHARED_MEMORY, *seccomp._NAMING_CALLS, "socket")
        tries += [[name, numbers[name], [-1] * 6] for name in names if name in numbers]
    done = under(level, TRY, json.dumps(tries))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == len(tries)
    assert set(found.values()) == {"EPERM"}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("python3", "-c", "import subprocess as s; print(s.run(['echo', 'hi'], capture_output=True).stdout)"), "hi"),
        (("node", "-e", "new (require('worker_threads').Worker)('console.log(7*6)', {eval: true})"), "42"),
        (("node", "-e", "console.log(typeof require('os').networkInterfaces())"), "object"),
        (("bash", "-ic", "set -m; sleep 0.01 & wait; jobs; echo ok"), "ok"),
        (
            ("sh", "-c", "cd $TMPDIR && git init -q r && cd r && git status --short -b && touch a && git add a"),
            "No commits",
        ),
        (("make", "-f", "/dev/stdin", "-j2"), "made"),
    ],
)
def test_ordinary_programs_work_under_the_full_filter(
    command: tuple[str, ...], said: str, tmp_path: os.PathLike[str]
) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = under("full", RUN, *command, env=env, input="all: a b\n\t@echo made\na b:\n\t@true\n")
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_reading_programs_work_under_the_read_only_filter(tmp_path: os.PathLike[str]) -> None:
    with open(os.path.join(tmp_path, "a"), "w", encoding="utf-8") as file:
        file.write("x\n")
    done = under("landlock", RUN, "sh", "-c", "ls -l /usr && grep -r x . && git --version && id", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(said in done.stdout for said in (" bin\n", "a:x\n", "git version ", "uid="))


@table("machine", PROCESSORS)
def test_without_any_network_nothing_can_be_named(machine: str) -> None:
    processor = PROCESSORS[machine]
    program = filter_program(network=Network.NONE, machine=machine)

    def own_program(name: str, *arguments: int) -> int:
        return verdict(program, processor.numbers[name], *arguments, audit=processor.audit)

    assert {own_program(name) for name in (*seccomp._NAMING_CALLS, "socket")} == {DENY}
    assert own_program("socketpair", 1, 1) == own_program("socketpair", 1, 5) == ALLOW
    assert own_program("socketpair", 1, 2) == DENY  # a datagram pair could send to any name of the host


@table("level", LEVELS)
@table("machine", PROCESSORS)
def test_no_file_gets_a_set_user_id_bit(machine: str, level: str) -> None:
    processor = PROCESSORS[machine]
    program = filter_program(**LEVELS[level], machine=machine)

    def given(name: str, *arguments: int) -> int:
        return verdict(program, processor.numbers[name], *arguments, audit=processor.audit)

    for name, at in seccomp._MODES.items():
        if name in processor.numbers:
            before = [0] * at
            assert given(name, *before, 0o4755) == given(name, *before, 0o2755) == DENY, name
            if level == "full":
                assert given(name, *before, 0o100755) == given(name, *before, 0o1777) == ALLOW, name
    for name, (flags, mode) in seccomp._MODES_OF_NEW.items():
        if name in processor.numbers:
            before, between = [0] * flags, [0] * (mode - flags - 1)
            for makes in (os.O_CREAT | os.O_WRONLY, 0o20000000 | os.O_RDWR):
                assert given(name, *before, makes, *between, 0o4755) == DENY
                assert given(name, *before, makes, *between, 0o644) == ALLOW
            assert given(name, *before, os.O_RDWR, *between, 0o4755) == ALLOW  # a mode that nobody looks at
    assert given("openat2") == 0x00050000 | errno.ENOSYS


SET_ID = """
import os, stat
found = {}
def t(name, action):
    try:
        action()
        found[name] = "done"
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
open("file", "w").close()
t("plain", lambda: os.chmod("file", 0o755))
t("path", lambda: os.chmod("file", 0o4755))
t("descriptor", lambda: os.fchmod(os.open("file", os.O_RDONLY), 0o2755))
t("new", lambda: os.open("new", os.O_CREAT | os.O_WRONLY, 0o4755))
t("nameless", lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755))
t("node", lambda: os.mknod("node", stat.S_IFREG | 0o4755))
found["left"] = [oct(os.stat(name).st_mode) for name in os.listdir(".")]
print(json.dumps(found))
"""


def test_the_kernel_refuses_set_user_id_bits(tmp_path: os.PathLike[str]) -> None:
    done = under("full", LOAD + SET_ID, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    refused = dict.fromkeys(("path", "descriptor", "new", "nameless", "node"), "EPERM")
    assert json.loads(done.stdout) == {"plain": "done", **refused, "left": ["0o100755"]}


@table(
    "script",
    [
        "echo x > a && cp -p a b && install -m 755 a c && tar cf t a b c && mkdir o && tar xpf t -C o && ls -l o/c",
        "mkdir -m 1777 d && umask 022 && mkdir -p e/f && mktemp -d -p . && rm -rf d e && ls",
        "git init -q r && echo x > r/a && git -C r add a && git -C r -c user.name=a -c user.email=a commit -qm x && ls",
    ],
)
def test_files_are_copied_and_unpacked_under_the_full_filter(script: str, tmp_path: os.PathLike[str]) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = under("full", RUN, "sh", "-c", script, cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
