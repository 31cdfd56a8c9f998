"""Servers as real processes in real walls: how they start, what they see, what is known of a request, how they end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import signal
import stat
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE, ROOM, within
from tests.mcp.conftest import PROGRAMS, PYTHON, Ground
from tests.mcp.pools import naming, until

from golem_forge.config.mcp_spec import expand_spec
from golem_forge.config.sandbox_block import WallSettings
from golem_forge.events.redaction import Redactor
from golem_forge.mcp import sdk
from golem_forge.mcp.client import stdio_transport
from golem_forge.mcp.client.stdio_transport import StdioTransport, server_home_name
from golem_forge.mcp.client.transport import CannotStart, NotSent, WallsFailed, track_delivery
from golem_forge.sandbox.walls.model import HostGrant, Level, LevelResult, ProbeReport
from golem_forge.tools.context import HostPermission, no_host_rule

LEVELS = [Level.FULL, Level.LANDLOCK]


class Puppet:
    """A transport with somebody at its other end."""

    def __init__(self, transport: StdioTransport, mark: str) -> None:
        self.transport = transport
        self.mark = mark
        self._ids = itertools.count(1)

    async def __aenter__(self) -> Puppet:
        self.read, self.write = await self.transport.__aenter__()
        return self

    async def __aexit__(self, *about: Any) -> None:
        await self.transport.__aexit__(*about)

    async def send(self, act: str, **params: Any) -> int:
        ident = next(self._ids)
        request = sdk.JSONRPCRequest(jsonrpc="2.0", id=ident, method=act, params=params)
        await self.write.send(sdk.SessionMessage(request))
        return ident

    async def do(self, act: str, **params: Any) -> Any:
        ident = await self.send(act, **params)
        message = (await asyncio.wait_for(self.read.receive(), PATIENCE)).message  # type: ignore[union-attr]
        assert message.id == ident
        if isinstance(message, sdk.JSONRPCError):
            raise OSError(message.error.code, message.error.message)
        return message.result["value"]

    async def end_of_output(self) -> None:
        with contextlib.suppress(sdk.anyio.EndOfStream):
            while True:
                await asyncio.wait_for(self.read.receive(), PATIENCE)


class Stage:
    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.redactor = Redactor()

    def spec(self, mark: str = "mark", **keys: Any) -> Any:
        keys.setdefault("zones", {"programs": "ro", "workspace": "ro"})
        return self.ground.spec("puppet", "puppet.py", mark, **keys)

    def transport(
        self,
        spec: Any,
        level: Level = Level.FULL,
        host_rule: Any = no_host_rule,
        environ: Any = os.environ,
        **options: Any,
    ) -> StdioTransport:
        """`options`: of the walls."""
        known = {"report": ProbeReport(level=level), "environ": dict(environ), "redactor": self.redactor}
        walls = self.ground.walls(spec, **(known | options))
        expanded = expand_spec(spec, environ, lambda zone: walls.mount_point(zone, level))
        return StdioTransport(spec, expanded, walls, self.ground.home, self.redactor, host_rule)

    def puppet(self, level: Level = Level.FULL, **keys: Any) -> Puppet:
        mark = f"mark-{uuid.uuid4().hex}"
        return Puppet(self.transport(self.spec(mark, **keys), level), mark)


@pytest.fixture
def stage(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return Stage(ground)


@pytest.fixture
async def puppet(stage: Stage) -> AsyncIterator[Puppet]:
    async with stage.puppet() as made:
        yield made


# What it sees


@pytest.mark.parametrize("level", LEVELS)
async def test_its_environment_is_what_was_said_and_nothing_else(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, level: Level
) -> None:
    canary = uuid.uuid4().hex
    monkeypatch.setenv("CANARY_SECRET", canary)
    monkeypatch.setenv("GIVEN", "passed-on")
    keys = {"env": {"FIXED": "value"}, "pass_env": ("GIVEN", "NOT_SET_ANYWHERE")}
    async with stage.puppet(level, **keys) as puppet:
        world = await puppet.do("world")
        toolchains = set(puppet.transport._walls.toolchains().variables)
    env = world["env"]
    assert env.pop("GIVEN") == "passed-on" and env.pop("FIXED") == "value"
    shells_own = {"PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}  # LC_CTYPE: Python's
    assert set(env) - shells_own - toolchains - {"GIT_CONFIG_NOSYSTEM"} == {"PATH", "HOME", "TMPDIR", "LANG"}
    assert canary not in str(world)


async def test_certificates_that_its_variables_name_are_there_and_nothing_beside_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
    (tmp_path / "own.pem").write_text(f"-----BEGIN PRIVATE KEY-----\ncanary\n{certificate}\n")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.pem"))
    async with stage.puppet(pass_env=("SSL_CERT_FILE",)) as puppet:
        place = (await puppet.do("world"))["env"]["SSL_CERT_FILE"]
        assert await puppet.do("read", path=place) == f"{certificate}\n"
        with pytest.raises(OSError, match=r"(?i)no such"):
            await puppet.do("read", path=str(tmp_path / "own.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(CannotStart, match="SSL_CERT_FILE names no certificate"):
        await stage.puppet(pass_env=("SSL_CERT_FILE",)).__aenter__()


@pytest.mark.parametrize("private", [True, False])
async def test_a_host_at_a_private_address_needs_the_persons_rule(stage: Stage, private: bool) -> None:
    """Of its list of hosts, only what a rule with `private: true` names is granted so."""
    rule = HostPermission(listed=True, private=private)

    def host_rule(host: str, port: int) -> HostPermission:
        return rule if (host, port) == ("127.0.0.1", 8080) else HostPermission()

    transport = stage.transport(stage.spec(network=("127.0.0.1:8080", "a.test")), host_rule=host_rule)
    assert transport._job(Level.FULL).hosts == (HostGrant("127.0.0.1", 8080, private), HostGrant("a.test"))


async def test_no_variable_reaches_the_program_that_builds_the_walls(stage: Stage) -> None:
    made = stage.puppet(env={"LD_PRELOAD": "/workspace/evil.so"})
    with pytest.raises(CannotStart, match="LD_PRELOAD"):
        await made.__aenter__()


@pytest.mark.parametrize("level", LEVELS)
async def test_its_home_is_its_own_and_kept_and_links_it_left_there_lead_nobody_anywhere(
    stage: Stage, level: Level
) -> None:
    """Threat: the next start writes who the person is into `.gitconfig`, through whatever stands there."""
    person = stage.ground.root / "person"
    (person / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.test\n")
    precious = stage.ground.workspace / "precious"
    precious.write_text("untouched")
    async with stage.puppet(level) as first:
        assert "Ada" in await first.do("read", path="~/.gitconfig")
        await first.do("write", path="~/kept.txt", text="remembered")
        await first.do("remove", path="~/.gitconfig")
        await first.do("link", path="~/.gitconfig", to=str(precious))
        await first.do("link", path="~/work", to="/oldroot/etc")
        place = Path(first.transport._walls.kept_home("golem-forge", "mcp", server_home_name(first.transport._spec)))
    assert place.parent == person / ".cache" / "golem-forge" / "mcp"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert (place / "kept.txt").read_text() == "remembered"
    async with stage.puppet(level) as second:
        assert await second.do("read", path="~/kept.txt") == "remembered"
        assert "Ada" in await second.do("read", path="~/.gitconfig")
    assert precious.read_text() == "untouched"
    async with stage.puppet(level, scope="another program") as other:
        with pytest.raises(FileNotFoundError):
            await other.do("read", path="~/kept.txt")


async def test_the_cache_directory_is_the_one_the_person_named(stage: Stage, tmp_path: Path) -> None:
    cache = tmp_path / "xdg"
    environ = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(cache)}
    async with Puppet(stage.transport(stage.spec(), environ=environ), "mark") as puppet:
        await puppet.do("write", path="~/x", text="")
    assert (cache / "golem-forge" / "mcp" / server_home_name(stage.spec()) / "x").exists()


async def test_a_cache_directory_in_forges_own_is_refused(stage: Stage) -> None:
    environ = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(stage.ground.home.path / "cache")}
    with pytest.raises(WallsFailed, match="XDG_CACHE_HOME"):
        await stage.transport(stage.spec(), environ=environ).__aenter__()


async def test_a_link_in_the_place_of_its_home_is_refused(stage: Stage, tmp_path: Path) -> None:
    made = stage.puppet()
    place = stage.ground.root / "person" / ".cache" / "golem-forge" / "mcp"
    place.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (place / server_home_name(made.transport._spec)).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WallsFailed, match="not a directory"):
        await made.__aenter__()


async def test_it_starts_where_the_config_says(stage: Stage) -> None:
    (stage.ground.workspace / "sub").mkdir()
    async with stage.puppet(cwd="/workspace/sub") as puppet:
        assert (await puppet.do("world"))["cwd"] == str(stage.ground.workspace / "sub")
    with pytest.raises(WallsFailed, match="/workspace/none"):
        await stage.puppet(cwd="/workspace/none").__aenter__()


async def test_zones_are_the_kernels_word(stage: Stage) -> None:
    keys = {"zones": {"programs": "ro", "workspace": "rw"}}
    async with stage.puppet(**keys) as puppet:
        await puppet.do("write", path="/workspace/made.txt", text="by it")
        for refused in ("/programs/made.txt", "/usr/made.txt", str(stage.ground.root / "person" / "made.txt")):
            with pytest.raises(OSError, match=r"Read-only file system|No such file"):
                await puppet.do("write", path=refused, text="x")
    assert (stage.ground.workspace / "made.txt").read_text() == "by it"
    async with stage.puppet() as puppet:
        with pytest.raises(OSError, match="Read-only file system"):
            await puppet.do("write", path="/workspace/again.txt", text="x")


# What is refused before anything runs


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("/no/such/binary", "there is no command '/no/such/binary'"),
        ("no-such-command-anywhere", "not on the PATH"),
        ("{hidden}", "not visible inside walls"),
    ],
)
async def test_a_command_that_is_not_there_is_said_with_what_to_do(
    stage: Stage, tmp_path: Path, command: str, text: str
) -> None:
    hidden = tmp_path / "hidden" / "program"
    hidden.parent.mkdir()
    hidden.write_text("#!/bin/sh\n")
    hidden.chmod(0o755)
    with pytest.raises(CannotStart, match=text):
        await stage.puppet(command=command.format(hidden=hidden), args=()).__aenter__()


async def test_read_only_walls_are_not_enough_for_an_rw_zone_or_a_list_of_hosts(stage: Stage) -> None:
    with pytest.raises(WallsFailed, match=r"read-only walls.*was not run"):
        await stage.puppet(Level.LANDLOCK, zones={"programs": "ro", "workspace": "rw"}).__aenter__()
    with pytest.raises(WallsFailed, match="network access needs full walls"):
        await stage.puppet(Level.LANDLOCK, network=("example.test:443",)).__aenter__()


async def test_a_machine_without_walls_starts_nothing(stage: Stage) -> None:
    tried = (LevelResult(level=Level.FULL, cause="bwrap is missing", fix="Install it."),)
    transport = stage.transport(stage.spec(), report=ProbeReport(level=Level.NONE, tried=tried))
    with pytest.raises(WallsFailed, match=r"bwrap is missing.*Install it\."):
        await transport.__aenter__()
    await transport.__aexit__(None, None, None)


async def test_walls_switched_off_by_the_person_start_without(stage: Stage) -> None:
    spec = stage.spec("off", args=("-S", str(PROGRAMS / "puppet.py"), "off"))
    transport = stage.transport(spec, Level.OFF, settings=WallSettings(off=True), report=None)
    async with Puppet(transport, "off") as puppet:
        assert (await puppet.do("world"))["env"]["HOME"].startswith(str(stage.ground.root / "person" / ".cache"))


# What it says


async def test_stderr_is_a_redacted_end(stage: Stage) -> None:
    stage.redactor.add_secret("TOKEN", "canary-value-123")
    async with stage.puppet() as puppet:
        await puppet.do("complain", text="x" * 1000 + "\n", times=1000)
        await puppet.do("complain", text="the token is canary-value-123 \x1b]0;evil\x07\n", times=30)
        await until(lambda: all("the token is" in line for line in puppet.transport.stderr_tail()))
        lines = puppet.transport.stderr_tail()
        assert len(puppet.transport._child.tail.text()) <= 64 << 10  # type: ignore[union-attr]
    assert len(lines) == 20
    assert all("canary" not in line and "\x1b" not in line and "the token is" in line for line in lines)


async def test_its_end_is_told_in_words(stage: Stage) -> None:
    async with stage.puppet() as puppet:
        await puppet.do("complain", text="I give up\n")
        await puppet.send("leave", code=3)
        await puppet.end_of_output()
        with within(1):
            await puppet.transport.gone.wait()
        assert puppet.transport.why_ended() == "the server ended with exit code 3"
        assert puppet.transport.stderr_tail() == ("I give up",)


async def test_noise_on_stdout_is_dropped_and_counted(puppet: Puppet) -> None:
    await puppet.do("say", text="starting up...\n{}\nnot json\n")
    assert puppet.transport.dropped_lines == 3


async def test_a_server_that_lives_long_is_not_ended_for_its_time(stage: Stage) -> None:
    short = type(WallSettings().limits)(cpu_s=1, timeout_s=0.2, output=1000)
    transport = stage.transport(stage.spec(), settings=WallSettings(limits=short))
    async with Puppet(transport, "mark") as puppet:
        await puppet.do("deaf", seconds=0.3)
        await puppet.do("complain", text="x" * 100_000 + "\n")
        limits = await puppet.do("read", path="/proc/self/limits")
        soft = limits.partition("Max cpu time")[2].split()[0]
        assert soft == "unlimited" or int(soft) > 10**6


# What is known of a request


async def test_a_request_to_a_dead_server_was_not_sent(puppet: Puppet) -> None:
    await puppet.send("leave", code=0)
    await puppet.end_of_output()
    with track_delivery() as delivery, pytest.raises(NotSent):
        await puppet.send("world")
    assert delivery.unprocessed and delivery.sent == 0 and isinstance(delivery.failure, NotSent)
    notice = sdk.SessionMessage(sdk.JSONRPCNotification(jsonrpc="2.0", method="n"))
    with pytest.raises(sdk.anyio.BrokenResourceError):  # what nobody waits for is no error of anybody's
        await puppet.write.send(notice)


async def test_a_request_that_was_written_may_have_run(puppet: Puppet) -> None:
    with track_delivery() as delivery:
        await puppet.send("leave", code=0)
        await puppet.end_of_output()
    assert delivery.sent == 1 and not delivery.unprocessed


async def test_a_request_that_was_half_written_may_have_run_and_one_behind_it_not(puppet: Puppet) -> None:
    await puppet.send("deaf", until="/workspace/never")

    async def post(size: int) -> tuple[Any, BaseException | None]:
        with track_delivery() as delivery:
            try:
                await puppet.send("read", path="x" * size)
            except Exception as error:
                return delivery, error
        return delivery, None

    half = asyncio.create_task(post(1 << 20))
    await asyncio.sleep(0.05)
    behind = asyncio.create_task(post(10))
    given_up = asyncio.create_task(post(20))
    await asyncio.sleep(0.05)
    given_up.cancel()
    assert not half.done() and not behind.done()
    os.kill(puppet.transport.pid, signal.SIGKILL)
    delivery, error = await asyncio.wait_for(half, PATIENCE)
    assert not delivery.unprocessed and isinstance(error, sdk.anyio.BrokenResourceError)
    delivery, error = await asyncio.wait_for(behind, PATIENCE)
    assert delivery.unprocessed and isinstance(error, NotSent)
    with pytest.raises(asyncio.CancelledError):
        await given_up


async def test_large_messages_go_both_ways_and_in_order(puppet: Puppet) -> None:
    async def ask(number: int) -> None:
        await puppet.send("write", path="/dev/null", text="ä" * number * 20_000)

    await asyncio.gather(*(ask(number) for number in range(12)))
    got = [(await asyncio.wait_for(puppet.read.receive(), PATIENCE)).message.id for _ in range(12)]  # type: ignore[union-attr]
    assert got == sorted(got)
    await puppet.do("write", path="~/big", text="x" * 3_000_000)
    assert len(await puppet.do("read", path="~/big")) == 3_000_000


async def test_a_line_begun_is_written_to_its_end_though_nobody_waits(puppet: Puppet) -> None:
    await puppet.send("deaf", seconds=0.3)
    sending = asyncio.create_task(puppet.send("write", path="/dev/null", text="x" * (1 << 20)))
    await asyncio.sleep(0.1)
    sending.cancel()
    assert (await puppet.read.receive()).message.id == 1  # type: ignore[union-attr]
    assert (await asyncio.wait_for(puppet.read.receive(), PATIENCE)).message.id == 2  # type: ignore[union-attr]
    assert await puppet.do("world")


async def test_a_request_given_up_before_its_first_byte_never_arrives(stage: Stage, puppet: Puppet) -> None:
    await puppet.send("deaf", until="/workspace/hear")
    filling = asyncio.create_task(puppet.send("write", path="/dev/null", text="x" * (1 << 20)))
    await asyncio.sleep(0.05)
    given_up = asyncio.create_task(puppet.send("world"))
    await asyncio.sleep(0.05)
    given_up.cancel()
    (stage.ground.workspace / "hear").touch()
    await filling
    heard = [(await asyncio.wait_for(puppet.read.receive(), PATIENCE)).message.id for _ in range(2)]  # type: ignore[union-attr]
    assert heard == [1, 2]
    assert await puppet.do("world")  # and its answer is the next one


# How it ends


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("acts", [(), ("linger",), ("breed", "stubborn", "linger")])
async def test_nobody_is_left(stage: Stage, level: Level, acts: tuple[str, ...]) -> None:
    puppet = await stage.puppet(level).__aenter__()
    for act in ("world", *acts):
        await puppet.do(act)
    wanted = 3 if "breed" in acts else 1
    await until(lambda: len(naming(puppet.mark)) >= wanted)
    for _ in range(2):  # leaving again is nothing
        with within(1):
            await puppet.transport.__aexit__(None, None, None)
        assert naming(puppet.mark) == []


async def test_a_polite_server_ends_by_itself(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio_transport, "STDIN_GRACE_S", PATIENCE)
    async with stage.puppet() as puppet:
        await puppet.do("world")
    ending = puppet.transport._child.ending  # type: ignore[union-attr]
    assert ending is not None and ending.exit_code == 0 and ending.code == ""


async def test_one_that_closed_its_output_but_lives_is_ended(stage: Stage) -> None:
    async with stage.puppet() as puppet:
        await puppet.send("mute")
        await asyncio.sleep(0.1)
        assert not puppet.transport.gone.is_set() and naming(puppet.mark)
    assert naming(puppet.mark) == []


async def test_when_its_main_process_goes_those_it_left_go_too(stage: Stage) -> None:
    async with stage.puppet() as puppet:
        await puppet.do("breed")
        await puppet.send("leave", code=0)
        with within(1):
            await puppet.end_of_output()
            await puppet.transport.gone.wait()
        assert naming(puppet.mark) == []


@pytest.mark.parametrize("after_ms", [0, 10, 60])
async def test_a_start_that_is_cancelled_leaves_nobody(stage: Stage, after_ms: int) -> None:
    made = stage.puppet()

    async def use() -> None:
        async with made:
            await asyncio.sleep(30)

    using = asyncio.create_task(use())
    await asyncio.sleep(after_ms / 1000)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(using, PATIENCE)
    await until(lambda: not naming(made.mark), within=1 + ROOM)


async def test_whoever_is_cancelled_while_leaving_does_not_stop_the_end(stage: Stage) -> None:
    puppet = await stage.puppet().__aenter__()
    await puppet.do("stubborn")
    await puppet.do("linger")
    leaving = asyncio.create_task(puppet.transport.__aexit__(None, None, None))
    await asyncio.sleep(0.05)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await until(lambda: not naming(puppet.mark), within=1 + ROOM)
    with within(0.5), sdk.anyio.move_on_after(0.01):
        await puppet.transport.__aexit__(None, None, None)


FORGE = """
import asyncio, os, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.mcp.client.test_stdio_transport import Ground, LEVELS, Stage

async def main():
    stage = Stage(Ground(Path(sys.argv[1]), dict(os.environ)))
    for puppet in [await stage.puppet(level).__aenter__() for level in LEVELS]:
        for act in ("breed", "stubborn", "linger"):
            await puppet.do(act)
        print(puppet.mark, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_when_forge_is_killed_nobody_is_left(tmp_path: Path, ready_forge: Any) -> None:
    """At either level of walls."""
    (tmp_path / "ground").mkdir()
    (tmp_path / "forge.py").write_text(FORGE.format(root=str(Path(__file__).parents[3])))
    command = ["python", str(tmp_path / "forge.py"), str(tmp_path / "ground")]
    with ready_forge.start(command, cwd=tmp_path, env=os.environ) as forge:
        try:
            reading = [asyncio.to_thread(forge.stdout.readline) for _ in LEVELS]
            marks = [(await asyncio.wait_for(line, PATIENCE)).strip() for line in reading]
            for mark in marks:
                assert mark
                await until(lambda mark=mark: len(naming(mark)) >= 3)  # who was just forked is not yet seen as itself
        finally:
            forge.kill()
    await until(lambda: not any(map(naming, marks)), within=1 + ROOM)


async def test_many_starts_leave_no_descriptor(stage: Stage) -> None:
    async def once() -> None:
        async with stage.puppet() as puppet:
            await puppet.do("world")

    await once()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await once()
    for sandbox in stage.ground.sandboxes[1:]:
        sandbox.close()
    gc.collect()  # the zones' handles, which go with their walls
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_a_command_from_the_persons_own_path_works(stage: Stage, tmp_path: Path) -> None:
    own = tmp_path / "tools" / "bin"
    own.mkdir(parents=True)
    tool = own / "my-server"
    tool.write_text(f'#!/bin/sh\nexec {PYTHON} -S "$1" "$2"\n')
    tool.chmod(0o755)
    spec = stage.spec("own", command="my-server", args=("${zone:programs}/puppet.py", "own"))
    environ = {**os.environ, "PATH": f"{own}:{os.environ['PATH']}"}
    async with Puppet(stage.transport(spec, environ=environ), "own") as puppet:
        assert (await puppet.do("world"))["env"]["PATH"].startswith(f"{own}:")
