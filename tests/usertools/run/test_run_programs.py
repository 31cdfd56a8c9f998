"""Real programs in real walls: what they may do and how they are ended. What reaches them and what their caller reads
is in tests/acceptance/test_user_tools_run.py.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.deadlines import LONG, PATIENCE, within

from golem_forge.config.sandbox_block import MIB, ResourceLimits, WallSettings
from golem_forge.core.decisions import Status
from golem_forge.sandbox.walls import landlock
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import Level
from golem_forge.usertools.manifest import PathUse

from .run_ground import Ground, parameter

pytestmark = pytest.mark.skipif(find_bwrap() is None, reason="full walls need bubblewrap")


@pytest.fixture
async def grounds(tmp_path):
    """`grounds(level=…)`: one for a test."""
    made = []

    def make(**options):
        made.append(Ground(tmp_path, **options))
        return made[-1]

    yield make
    for ground in made:
        await ground.close()


@pytest.fixture
def ground(grounds):
    return grounds()


async def test_only_its_own_snapshot_is_there_of_forges_home(ground):
    (ground.home.path / "store" / "other").mkdir(parents=True)
    (ground.home.path / "rules.yaml").write_text("canary")
    done = await ground.run(f'ls "$FORGE_TOOL_DIR" /forge; ls {ground.home.path} 2>&1; echo x > "$FORGE_TOOL_DIR/y"')
    assert "probe.sh" in done.result.value["stdout"]
    assert "tool\n" in done.result.value["stdout"]
    assert "other" not in done.result.text and "rules" not in done.result.text
    assert "Read-only" in done.result.value["stderr"]


async def test_a_caller_who_is_gone_is_told_nothing(ground):
    call = asyncio.create_task(ground.run("sleep 60"))
    await asyncio.sleep(0.3)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_memory_without_end(grounds):
    ground = grounds(settings=WallSettings(limits=ResourceLimits(memory=60 * MIB)))
    done = await ground.python("x = b'y' * (200 << 20)\nimport time\ntime.sleep(20)")
    assert (done.status, done.code) == (Status.EXECUTION_FAILED, "MEMORY_LIMIT")


async def test_a_read_only_zone_is_not_written_and_the_hint_says_how(ground):
    done = await ground.run("echo x > made")
    assert done.status is Status.SANDBOX_DENIED
    assert "Blocked by the sandbox: write /workspace/made (read-only zone)." in done.error
    assert 'declare "zones: {workspace: rw}" in tool.yaml' in done.error
    assert done.error in done.result.text
    assert done.denials[0]["widen"] == "tool.yaml: zones: {workspace: rw}"
    assert done.result.value["denials"] == list(done.denials)
    done = await ground.run("echo x > /docs/made")
    assert "/docs is read-only for this worker" in done.error and "`zones`" in done.error
    assert not list(ground.workspace.iterdir()) and not list((ground.root / "docs").iterdir())


async def test_a_zone_that_it_names_is_written_and_others_are_gone(ground):
    (ground.root / "docs" / "a").write_text("doc")
    done = await ground.run("pwd; echo x > made; cat /docs/a", zones={"workspace": "rw"})
    assert (ground.workspace / "made").read_text() == "x\n"
    assert done.status is Status.EXECUTION_FAILED and "No such file" in done.result.value["stderr"]
    assert done.result.value["stdout"] == "/workspace\n"
    done = await ground.run("pwd; cat a", zones={"docs": "ro"})
    assert done.result.text == "/docs\ndoc"


async def test_a_denied_write_with_exit_0_is_success_with_denials(ground):
    done = await ground.run("echo x > made; exit 0")
    assert done.status is Status.SUCCESS and done.denials[0]["target"] == "/workspace/made"


async def test_the_hosts_network_where_it_is_declared(ground):
    async def answer(reader, writer):
        writer.write(b"reached")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    source = f"import socket\ns = socket.create_connection(('127.0.0.1', {port}), {PATIENCE})\nprint(s.recv(99))"
    done = await ground.python(source, network=True)
    assert done.result.text == "b'reached'\n"
    assert (await ground.python(source)).status is Status.EXECUTION_FAILED
    server.close()


async def test_a_second_run_of_a_python_tool_sees_nothing_of_the_first(ground):
    source = (
        "import os, sys\n"
        "print(os.environ['FORGE_CALL_ID'], os.path.exists('/tmp/left'), sys.argv[1:])\n"
        "open('/tmp/left', 'w')\n"
    )
    words = (parameter("a"),)
    first = await ground.python(source, {"a": "1"}, parameters=words)
    await asyncio.sleep(0.4)  # another one waits by now
    ground.ctx.call_id = "call-2"
    second = await ground.python(source, {"a": "2"}, parameters=words)
    assert first.result.text == "call-1 False ['--a=1']\n"
    assert second.result.text == "call-2 False ['--a=2']\n"


async def test_a_path_argument_arrives_where_the_file_stands(ground):
    (ground.workspace / "sub dir").mkdir()
    (ground.workspace / "sub dir" / "a.txt").write_text("content")
    (ground.workspace / "link").symlink_to("sub dir/a.txt")
    words = (parameter("file", path=PathUse.READ),)
    for address in ("/workspace/sub dir/a.txt", "sub dir/a.txt", "/workspace/link", f"{ground.workspace}/link"):
        done = await ground.run('cat "${1#--file=}"', {"file": address}, parameters=words)
        assert done.result.text == "content", address


async def test_a_secret_is_read_only_by_the_call_that_names_it(ground):
    (ground.workspace / ".env").write_text("canary")
    words = (parameter("file", path=PathUse.READ),)
    done = await ground.run("cat .env", parameters=words)
    assert done.status is Status.SANDBOX_DENIED
    assert (await ground.run("cat .env", {"file": ".env"}, parameters=words)).result.text == "canary"


async def test_a_background_tool_is_handed_on(ground):
    seen = {}

    async def run_on(start, ctx, timeout):
        walled = await start()
        seen["timeout"], seen["ending"] = timeout, await walled.child.wait(PATIENCE)
        seen["text"] = walled.child.output.read()
        return "handed"

    done = await ground.run("echo out; echo err >&2", background=True, background_runner=run_on, timeout=7)
    assert done == "handed" and seen["timeout"] == 7 and seen["text"] == b"out\nerr\n"


async def test_a_desk_is_open_as_long_as_it_runs(ground):
    states = []

    class Desk:
        def __init__(self):
            self.shown = self.path = ()
            self.env = {"FORGE_SOCKET": "/forge/call/socket", "FORGE_CALL_TOKEN": "t"}

        async def __aenter__(self):
            states.append("open")
            return self

        async def __aexit__(self, *_):
            states.append("closed")

    done = await ground.run('echo "$FORGE_SOCKET"', call_server=Desk())
    assert done.result.text == "/forge/call/socket\n" and states == ["open", "closed"]


async def test_a_tool_that_leaves_a_process_behind(ground):
    with within(3):
        done = await ground.run("setsid sleep 60 & echo done", timeout=LONG)
    assert done.result.text == "done\n"


@pytest.mark.parametrize("level", [Level.LANDLOCK, Level.OFF])
async def test_where_there_are_no_mounts(grounds, level):
    if level is Level.LANDLOCK and landlock.landlock_abi() < 3:
        pytest.skip("this kernel has no Landlock")
    ground = grounds(level=level)
    (ground.workspace / "a").write_text("content")
    words = (parameter("file", path=PathUse.READ),)
    source = 'cat "${1#--file=}"; echo; pwd; echo "$FORGE_WORKSPACE"; ls "$FORGE_TOOL_DIR"'
    done = await ground.run(source, {"file": "a"}, parameters=words)
    assert done.result.text.splitlines() == ["content", "/workspace", "/workspace", "probe.sh"]
    source = "import helper, os, sys\nprint(helper.WORD, open(sys.argv[1][7:]).read(), os.getcwd())"
    for pause in (0, 0.3):  # the second one by an interpreter that waited
        await asyncio.sleep(pause)
        done = await ground.python(source, {"file": "a"}, parameters=words, files={"helper.py": "WORD = 'sibling'"})
        assert done.result.text == "sibling content /workspace\n"
