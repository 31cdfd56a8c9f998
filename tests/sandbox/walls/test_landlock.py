"""Read-only walls against the real kernel: what a child tries, and what the launcher ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE, within
from tests.sandbox.process.launches import Plain

from golem_forge.config.sandbox_block import ResourceLimits
from golem_forge.core.decisions import Verdict
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.process.child import Child, start_process
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.walls import landlock
from golem_forge.sandbox.walls.landlock import LandlockCommand, host_operands, launch, needs_full
from golem_forge.sandbox.walls.model import HostGrant, Job, Level, Streams
from golem_forge.sandbox.zones import AccessMode, ZoneSpec

pytestmark = pytest.mark.skipif(landlock.landlock_abi() < 3, reason="this kernel has no Landlock, or an old one")
PYTHON = os.path.realpath(sys.executable)
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


async def begin(*argv: str, level: Level = Level.LANDLOCK, **options: Any) -> Child:
    options.setdefault("env", ENV)
    command = LandlockCommand(argv=argv, **options)
    return await start_process(launch(command, level=level), command.streams, filter=Plain)


async def run(*argv: str, **options: Any) -> tuple[int | None, str]:
    child = await begin(*argv, **options)
    try:
        ending = await child.wait(PATIENCE)
    finally:
        await child.end()
    assert ending is not None
    return ending.exit_code, child.output.read().decode()


async def attempt(code: str, *arguments: str, **options: Any) -> Any:
    """The outcome of each line that is wrapped in `t(...)`: the errno's name, or what it gave."""
    prelude = """
        import ctypes, errno, json, os, socket, sys
        libc = ctypes.CDLL(None, use_errno=True)
        found = {}
        def t(name, action):
            try:
                found[name] = repr(action())
            except OSError as error:
                found[name] = errno.errorcode[error.errno]
    """
    whole = "\n".join([textwrap.dedent(prelude), textwrap.dedent(code), "print(json.dumps(found))"])
    readable = (*options.pop("readable", ()), sys.base_prefix)
    status, text = await run(PYTHON, "-I", "-S", "-c", whole, *arguments, readable=readable, **options)
    assert status == 0, text
    return json.loads(text)


@pytest.fixture
def zone(tmp_path: Path) -> Path:
    made = tmp_path / "zone"
    (made / "sub").mkdir(parents=True)
    (made / "a.txt").write_text("plain")
    (made / "sub" / "b.txt").write_text("below")
    (made / ".env").write_text("CANARY-SECRET")
    (made / "sub" / "id_rsa").write_text("CANARY-KEY")
    (tmp_path / "outside.txt").write_text("CANARY-OUTSIDE")
    (made / "to_secret").symlink_to(".env")
    (made / "to_outside").symlink_to("../outside.txt")
    return made


def masked(zone: Path) -> dict[str, Any]:
    return {"readable": (str(zone),), "masked": (f"{zone}/.env", f"{zone}/sub/id_rsa"), "cwd": str(zone)}


async def test_reads_are_zones_and_system_only_and_secrets_are_masked_one_by_one(zone: Path) -> None:
    found = await attempt(
        """
        for name in ("a.txt", "sub/b.txt", ".env", "sub/id_rsa", "to_secret", "to_outside", "../outside.txt",
                     "sub/../../outside.txt", "/etc/shadow", "/proc/self/status", "/proc/version", "/dev/null"):
            t(name, lambda: open(name).read(5))
        t("list", lambda: sorted(os.listdir(".")))
        t("list above", lambda: os.listdir(".."))
        """,
        **masked(zone),
    )
    assert found["a.txt"] == repr("plain")
    assert found["sub/b.txt"] == repr("below")
    assert found["/proc/version"] == repr("Linux")
    assert found["/dev/null"] == repr("")
    assert "a.txt" in found["list"]
    refused = {name for name, outcome in found.items() if outcome == "EACCES"}
    assert refused == {
        *(".env", "sub/id_rsa", "to_secret", "to_outside", "../outside.txt", "sub/../../outside.txt"),
        *("/etc/shadow", "/proc/self/status", "list above"),
    }


async def test_a_file_made_later_beside_a_secret_is_unreadable_and_a_lifted_one_is_not(zone: Path) -> None:
    child = await begin(
        "sh", "-c", "read x < /dev/tty; cat late.txt; cat .env", streams=Streams.TERMINAL, **masked(zone)
    )
    (zone / "late.txt").write_text("CANARY-LATE")
    await child.write(b"\n")
    await child.wait(PATIENCE)
    await child.end()
    assert b"CANARY" not in child.output.read()
    _, text = await run("cat", ".env", lifted=(f"{zone}/.env",), **masked(zone))
    assert text == "CANARY-SECRET"


def _changeable(stat: os.stat_result) -> tuple[int, ...]:
    """Without the time of access, which whoever reads moves."""
    return (stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


async def test_nothing_of_the_zone_can_be_changed_by_path_or_descriptor(zone: Path) -> None:
    before = {path: _changeable(path.stat()) for path in (zone, zone / "a.txt", zone.parent / "outside.txt")}
    found = await attempt(
        """
        private = os.environ["TMPDIR"]
        for name in ("a.txt", "../outside.txt"):
            t(name + " write", lambda: open(name, "w"))
            t(name + " truncate", lambda: os.truncate(name, 0))
            t(name + " truncating read", lambda: os.open(name, os.O_RDONLY | os.O_TRUNC))
            t(name + " unlink", lambda: os.unlink(name))
            t(name + " rename", lambda: os.rename(name, private + "/x"))
            t(name + " link", lambda: os.link(name, private + "/x"))
            t(name + " chmod", lambda: os.chmod(name, 0o777))
            t(name + " chown", lambda: os.chown(name, os.getuid(), os.getgid()))
            t(name + " utime", lambda: os.utime(name, (1, 1)))
            t(name + " setxattr", lambda: os.setxattr(name, "user.x", b"1"))
        descriptor = os.open("a.txt", os.O_RDONLY)
        t("fchmod", lambda: os.fchmod(descriptor, 0o777))
        t("fchown", lambda: os.fchown(descriptor, os.getuid(), os.getgid()))
        t("futime", lambda: os.utime(descriptor, (1, 1)))
        t("fsetxattr", lambda: os.setxattr(descriptor, "user.x", b"1"))
        directory = os.open(".", os.O_RDONLY)
        t("fchmod directory", lambda: os.fchmod(directory, 0o700))
        t("create", lambda: open("new", "x"))
        t("mkdir", lambda: os.mkdir("new"))
        t("symlink", lambda: os.symlink("x", "new"))
        t("mkfifo", lambda: os.mkfifo("new"))
        import fcntl
        t("flags", lambda: fcntl.ioctl(descriptor, 0x40086602, b"\\0" * 8))
        os.mkdir(private + "/d"); open(private + "/d/f", "w").write("mine"); os.rename(private + "/d/f", private + "/g")
        t("own", lambda: open(private + "/g").read())
        """,
        **masked(zone),
    )
    assert found.pop("own") == repr("mine")
    assert set(found.values()) <= {"EACCES", "EPERM", "EXDEV", "ENOTTY"}, found
    assert len(found) == 30
    for path, stat in before.items():
        assert _changeable(path.stat()) == stat


async def test_other_processes_are_out_of_reach(zone: Path) -> None:
    victim = subprocess.Popen(["sleep", "60"], env={"CANARY": "1"})
    try:
        found = await attempt(
            """
            for pid in (int(sys.argv[1]), int(sys.argv[2]), os.getppid()):
                t(f"{pid} environ", lambda: open(f"/proc/{pid}/environ").read())
                t(f"{pid} kill", lambda: os.kill(pid, 0))
                t(f"{pid} mem", lambda: open(f"/proc/{pid}/mem", "rb"))
                t(f"{pid} priority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 5))
            """,
            str(victim.pid),
            str(os.getpid()),
            **masked(zone),
        )
    finally:
        victim.kill()
        victim.wait()
    assert len(found) == 12
    expected = {"EACCES", "EPERM"} if landlock.landlock_abi() >= 6 else {"EACCES", "EPERM", "None"}
    assert set(found.values()) <= expected, found


async def test_no_socket_but_a_pair_of_streams(zone: Path) -> None:
    found = await attempt(
        """
        for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
            t(str(family), lambda: socket.socket(family, socket.SOCK_DGRAM))
        t("datagram pair", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        a, b = socket.socketpair()
        a.send(b"hi")
        t("pair", lambda: b.recv(2))
        t("connect", lambda: a.connect("/run/x.sock"))
        """
    )
    assert found.pop("pair") == repr(b"hi")
    assert set(found.values()) == {"EPERM"}


async def test_privileges_environment_descriptors_and_limits(zone: Path) -> None:
    os.environ["CANARY_OF_PARENT"] = "1"
    try:
        found = await attempt(
            """
            header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
            t("capget", lambda: (libc.capget(header, data), list(data)))
            t("no new privileges", lambda: libc.prctl(39, 0, 0, 0, 0))
            t("subreaper's", lambda: os.getsid(0) == os.getpid())
            t("env", lambda: sorted(os.environ))
            t("open", lambda: [n for n in range(3, 256) if os.path.lexists(f"/proc/self/fd/{n}")])
            import resource
            t("limits", lambda: [resource.getrlimit(w)[0] for w in (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE,
                resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)])
            def big():
                with open(os.environ["TMPDIR"] + "/big", "wb", buffering=0) as file:
                    while True: file.write(b"x" * 4096)
            t("too large", big)
            """,
            limits=ResourceLimits(cpu_s=7, file_size=1 << 20, open_files=99),
        )
    finally:
        del os.environ["CANARY_OF_PARENT"]
    assert found["capget"] == repr((0, [0] * 6))
    assert found["no new privileges"] == "1"
    assert found["subreaper's"] == "True"
    assert set(json.loads(found["env"].replace("'", '"'))) <= {*ENV, "HOME", "TMPDIR", "GIT_CONFIG_NOSYSTEM"}
    assert found["open"] == "[]"
    assert found["limits"] == repr([7, 1 << 20, 99, 0])
    assert found["too large"] == "EFBIG"


@pytest.mark.parametrize("level", [Level.LANDLOCK, Level.OFF])
async def test_exit_codes_are_those_of_a_shell(level: Level, tmp_path: Path) -> None:
    assert (await run("sh", "-c", "exit 7", level=level))[0] == 7
    assert (await run("no-such-command", level=level)) == (127, "sh: 1: exec: no-such-command: not found\n")
    assert (await run("/etc/passwd", level=level))[0] == 126
    child = await begin("sh", "-c", "kill -SEGV $$", level=level)
    ending = await child.wait(PATIENCE)
    assert ending is not None
    assert ending.signal == signal.SIGSEGV


async def test_private_directories_are_gone_afterwards_also_closed_ones() -> None:
    code, text = await run(
        "sh", "-c", "echo $HOME; umask 777; mkdir $TMPDIR/closed; pwd; cat ~/.gitconfig", gitconfig="[user]\n"
    )
    home = text.splitlines()[0]
    assert (code, text) == (0, f"{home}\n{home}\n[user]\n")
    assert not os.path.exists(os.path.dirname(home))


def alive(mark: str) -> list[str]:
    found = subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, check=False).stdout.split()
    return [pid for pid in found if pid != str(os.getpid())]


async def until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        await asyncio.sleep(0.01)
    return condition()


LEAVES = """
trap '' TERM
setsid sh -c 'trap "" TERM HUP; while :; do sleep 7{mark}; done' &
(setsid sh -c 'sleep 7{mark} & sleep 7{mark}' &)
sleep 0.2
"""


@pytest.mark.parametrize("level", [Level.LANDLOCK, Level.OFF])
async def test_what_a_command_leaves_running_is_ended_when_it_exits(level: Level) -> None:
    mark = f"{os.getpid()}1"
    with within(5):
        assert (await run("sh", "-c", LEAVES.format(mark=mark) + "echo over", level=level)) == (0, "over\n")
    assert alive(f"sleep 7{mark}") == []


async def test_ending_takes_everybody_within_a_second() -> None:
    mark = f"{os.getpid()}2"
    child = await begin("sh", "-c", LEAVES.format(mark=mark) + "echo ready; while :; do sleep 1; done")
    assert await child.output.more(0, PATIENCE)
    with within(1):
        await child.end()
    assert alive(f"sleep 7{mark}") == []


RUNNER = """
import os, time
end = time.monotonic() + 300
print("running", flush=True)
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
"""


async def test_somebody_who_forks_and_exits_all_the_time_is_caught() -> None:
    child = await begin(PYTHON, "-I", "-S", "-c", RUNNER, readable=(sys.base_prefix,))
    assert await child.wait(PATIENCE) is not None
    assert await until(lambda: alive("print.*running") == [], PATIENCE)


async def test_a_crowd_is_ended() -> None:
    many = "i=0; while [ $i -lt 150 ]; do sleep 60 & i=$((i+1)); done; echo all; wait"
    child = await begin("sh", "-c", f"setsid sh -c '{many}' & wait", limits=ResourceLimits(processes=1000))
    assert await child.output.more(0, PATIENCE)
    with within(2):
        await child.end()
    assert child.ending is not None


FORGE = """
import asyncio, os, sys
from golem_forge.sandbox.process.child import start_process as start
from golem_forge.sandbox.walls.model import Streams
from golem_forge.sandbox.walls.landlock import LandlockCommand as Command, launch
from golem_forge.sandbox.walls.model import Level
class Plain:
    def feed(self, text): return text
    def finish(self): return ""
async def main():
    command = Command(argv=("sh", "-c", sys.argv[1]), env={"PATH": "/usr/bin:/bin"})
    child = await start(launch(command, level=Level.LANDLOCK), Streams.MERGED, filter=Plain)
    await child.output.more(0, 90)
    print(child.pid, child.output.read().decode(), sep="\\n", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def forge(mark: str) -> subprocess.Popen[str]:
    script = LEAVES.format(mark=mark) + "pwd; while :; do sleep 1; done"
    return subprocess.Popen([sys.executable, "-c", FORGE, script], stdout=subprocess.PIPE, text=True)


async def test_when_forge_is_killed_the_launcher_ends_the_tree() -> None:
    mark = f"{os.getpid()}3"
    process = forge(mark)
    assert process.stdout is not None
    launcher = int(process.stdout.readline())
    os.kill(launcher, signal.SIGTERM)  # which it ignores
    assert await until(lambda: bool(alive(f"sleep 7{mark}")), PATIENCE)
    home = process.stdout.readline().strip()
    assert os.path.isdir(home)
    process.kill()
    process.wait()
    with within(1):
        assert await until(lambda: not alive(f"sleep 7{mark}"), PATIENCE)
    assert await until(lambda: not os.path.exists(os.path.dirname(home)), PATIENCE)


async def test_the_command_dies_with_a_launcher_that_is_killed() -> None:
    child = await begin("sh", "-c", f"exec sleep 9{os.getpid()}")
    os.kill(child.pid, signal.SIGKILL)
    await child.wait(PATIENCE)
    assert await until(lambda: not alive(f"sleep 9{os.getpid()}"), PATIENCE)


async def test_a_terminal_is_the_childs_own() -> None:
    child = await begin("sh", "-c", "tty; echo $(ps -o tty= -p $$) ; read x; echo got $x", streams=Streams.TERMINAL)
    assert await child.output.more(0, PATIENCE)
    await child.write(b"word\n")
    await child.wait(PATIENCE)
    await child.end()
    assert "got word" in child.output.read().decode()


async def test_an_order_the_kernel_refuses_is_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "filter_program", lambda **_: b"\xff" * 16)
    with pytest.raises(SandboxError) as caught:
        await begin("true")
    assert caught.value.code == "WALLS_UNAVAILABLE"
    assert "system call filter" in caught.value.message
    monkeypatch.setattr(landlock, "landlock_abi", lambda: 0)
    with pytest.raises(SandboxError) as caught:
        await begin("true")
    assert "no Landlock" in caught.value.message


def zones(tmp_path: Path, **specs: dict[str, Any]) -> Sandbox:
    made = []
    for name, options in specs.items():
        (tmp_path / name).mkdir()
        made.append(ZoneSpec(name=name, path=tmp_path / name, **options))
    return open_sandbox(made, forge_home=tmp_path / "home", home=tmp_path / "person")


def test_what_read_only_walls_cannot_hold(tmp_path: Path) -> None:
    sandbox = zones(tmp_path, work={}, docs={"mode": AccessMode.RO})
    writes, reads = Job(argv=("make",)), Job(argv=("cat", "a"), reads_only=True)
    refusal = needs_full(writes, sandbox, fix="Do this.")
    assert refusal is not None
    assert refusal.code == "WALLS_UNAVAILABLE"
    assert refusal.message.endswith("The command was not run. Do this.")
    assert needs_full(reads, sandbox) is None
    hosts = needs_full(Job(argv=("curl",), hosts=(HostGrant("x.test"),), reads_only=True), sandbox)
    assert hosts is not None
    assert "network access needs full walls" in hosts.message
    (tmp_path / "other").mkdir()
    shut = zones(tmp_path / "other", work={"delete": Verdict.BLOCKED}, docs={"mode": AccessMode.RO})
    assert needs_full(writes, shut) is None


def test_virtual_operands_become_host_paths(tmp_path: Path) -> None:
    sandbox = zones(tmp_path, area={})
    host = os.path.realpath(tmp_path / "area")
    asked = ("grep", "-f", "/area/p", "--file=/area/sub//q", "/area", "/areas/x", "/area/../etc", "a=/area/x", "x")
    assert host_operands(asked, sandbox) == (
        *("grep", "-f", f"{host}/p", f"--file={host}/sub/q", host, "/areas/x", "/area/../etc", "a=/area/x", "x"),
    )
