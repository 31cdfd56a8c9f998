"""Real programs in real walls: what they get, what they may do, how they are ended, and what their caller reads."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from tests.deadlines import LONG, ever_longer, within

from golem_forge.config.sandbox_block import MIB, ResourceLimits, WallSettings
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ToolFailed
from golem_forge.sandbox.walls import landlock
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import Level
from golem_forge.usertools.manifest import ArgumentStyle, EnvVariable, OutputFormat, PathUse

from .run_ground import Ground, parameter

pytestmark = pytest.mark.skipif(find_bwrap() is None, reason="full walls need bubblewrap")


@pytest.fixture
async def ground(tmp_path):
    made = Ground(tmp_path)
    yield made
    await made.close()


async def test_arguments_are_a_vector_and_standard_input_is_empty(ground):
    words = (parameter("a"), parameter("b", "array"))
    text = "x y;$(id)\n\"'"
    done = await ground.run('printf "<%s>" "$@"; cat', {"b": ["1", "2"], "a": text}, parameters=words)
    assert done.status is Status.SUCCESS
    assert done.result.text == f"<--a={text}><--b=1><--b=2>"


async def test_standard_input_is_the_object_and_then_ends(ground):
    words = (parameter("a"), parameter("b", "integer"))
    done = await ground.run("cat", {"b": 1, "a": "é"}, parameters=words, arguments=ArgumentStyle.STDIN_JSON)
    assert done.result.text == '{"a":"é","b":1}\n'
    done = await ground.python(
        "import sys, json; print(json.load(sys.stdin), sys.stdin.read() == '', sys.argv[1:])",
        {"b": 1, "a": "é"},
        parameters=words,
        arguments=ArgumentStyle.STDIN_JSON,
    )
    assert done.result.text == "{'a': 'é', 'b': 1} True []\n"


async def test_the_environment_is_complete_and_nothing_else_is_in_it(ground, monkeypatch):
    monkeypatch.setenv("CANARY_OF_FORGE", "canary-7781-parent")
    ground.environ = {"API_TOKEN": "canary-4711-declared", "OTHER": "canary-0815-other"}
    declared = (EnvVariable(name="API_TOKEN", required=True), EnvVariable(name="NOT_SET"))
    before = time.time()
    done = await ground.run("/usr/bin/env", env=declared, arguments=ArgumentStyle.ENV, parameters=(parameter("x"),))
    found = dict(line.split("=", 1) for line in done.result.text.splitlines())
    deadline = int(found.pop("FORGE_DEADLINE"))
    assert before + 20 <= deadline <= time.time() + 21
    assert found == {
        "PATH": found["PATH"],
        "HOME": "/home/forge",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "PWD": "/workspace",
        "FORGE_WORKSPACE": "/workspace",
        "FORGE_TOOL_NAME": "probe",
        "FORGE_TOOL_DIR": "/forge/tool",
        "FORGE_TOOL_VERSION": "1.2",
        "FORGE_SESSION_ID": "session-1",
        "FORGE_CALL_ID": "call-1",
        "API_TOKEN": "[secret API_TOKEN]",
    } | {name: found[name] for name in ("_", "SHLVL", "OLDPWD") if name in found}
    assert "canary" not in str(done.result)


async def test_a_declared_variable_has_its_value_inside(ground):
    ground.environ = {"API_TOKEN": "canary-4711-declared"}
    source = 'test "$API_TOKEN" = "canary-$((4000+711))-declared" && echo same'
    assert (await ground.run(source, env=(EnvVariable(name="API_TOKEN"),))).result.text == "same\n"


async def test_a_required_variable_that_is_not_set_starts_nothing(ground):
    with pytest.raises(ToolFailed, match=r"^environment variable NEEDED is not set$"):
        await ground.run(
            "touch /workspace/ran", env=(EnvVariable(name="NEEDED", required=True),), zones={"workspace": "rw"}
        )
    assert not (ground.workspace / "ran").exists()


async def test_only_its_own_snapshot_is_there_of_forges_home(ground):
    (ground.home.path / "store" / "other").mkdir(parents=True)
    (ground.home.path / "rules.yaml").write_text("canary")
    done = await ground.run(f'ls "$FORGE_TOOL_DIR" /forge; ls {ground.home.path} 2>&1; echo x > "$FORGE_TOOL_DIR/y"')
    assert "probe.sh" in done.result.value["stdout"]
    assert "tool\n" in done.result.value["stdout"]
    assert "other" not in done.result.text and "rules" not in done.result.text
    assert "Read-only" in done.result.value["stderr"]


async def test_without_any_zone_it_starts_in_the_private_temporary_directory(tmp_path):
    ground = Ground(tmp_path, zones={})
    done = await ground.run('pwd; echo "$TMPDIR" "${FORGE_WORKSPACE-unset}"; touch made && ls')
    assert done.result.text.splitlines() == ["/tmp", "/tmp unset", "made"]
    await ground.close()


async def test_an_exit_code_and_both_streams(ground):
    done = await ground.run("echo out; echo err >&2; exit 3")
    assert (done.status, done.error) == (Status.EXECUTION_FAILED, "tool 'probe' failed with exit code 3")
    assert done.result.text == "tool 'probe' failed with exit code 3\nExit code: 3\nStdout:\nout\nStderr:\nerr\n"
    value = done.result.value
    assert (value["exit_code"], value["signal"], value["stdout"], value["stderr"]) == (3, None, "out\n", "err\n")
    assert value["kind"] == "tool.output" and value["truncated"] is False and value["denials"] == []
    assert 0 <= value["duration_ms"] < 20_000 and "handle" not in value


async def test_a_warning_on_standard_error_is_no_failure(ground):
    done = await ground.run("printf out; echo careful >&2")
    assert done.status is Status.SUCCESS
    assert done.result.text == "Exit code: 0\nStdout:\nout\nStderr:\ncareful\n"


async def test_success_is_standard_output_exactly(ground):
    done = await ground.run(r"printf '  a\n\n'")
    assert (done.status, done.result.text) == (Status.SUCCESS, "  a\n\n")
    assert (await ground.run("true")).result.text == ""


async def test_a_signal_has_a_name_and_a_code(ground):
    done = await ground.run("echo before; kill -KILL $$")
    assert done.status is Status.EXECUTION_FAILED
    assert (done.result.value["exit_code"], done.result.value["signal"]) == (137, "SIGKILL")
    assert done.result.text.startswith("tool 'probe' failed with exit code 137 (SIGKILL)\n")
    assert "before" in done.result.text


@pytest.mark.parametrize("timeout", [1, 1.5])
async def test_its_time_is_kept_with_what_it_said(ground, timeout):
    with within(timeout):
        done = await ground.run("echo partial; sleep 60", timeout=timeout)
    assert (done.status, done.code) == (Status.TIMEOUT, "TIMEOUT")
    assert done.error == f"tool 'probe' timed out after {timeout:g} seconds"
    assert done.result.text.startswith(done.error + "\n") and done.result.value["stdout"] == "partial\n"


async def test_a_cancelled_call_ends_the_tree_and_keeps_what_was_said(ground):
    source = "echo begun; touch /workspace/up; sleep 60"
    call = asyncio.create_task(ground.run(source, zones={"workspace": "rw"}))
    while not (ground.workspace / "up").exists():
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.5)  # it is up before whoever started it has heard so
    with within(1):
        ground.ctx.cancel.interrupt("stop")
        call.cancel()
        done = await call
    assert (done.status, done.result.value["stdout"]) == (Status.INTERRUPTED, "begun\n")


async def test_a_caller_who_is_gone_is_told_nothing(ground):
    call = asyncio.create_task(ground.run("sleep 60"))
    await asyncio.sleep(0.3)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_twenty_megabytes(ground):
    line = "0123456789abcdef" * 4
    done = await ground.run(f"yes {line} | head -c 20971520")
    assert done.status is Status.SUCCESS and done.result.value["truncated"] is True
    text = done.result.text
    assert len(text.encode()) < 34 * 1024
    assert text.startswith(line) and text.endswith(line[: 20971520 % 65])
    said = re.search(r"\[… (\d+) lines, (\d+) bytes left out; whole output: read_output handle=(out_\w+)\]\n", text)
    assert said is not None and said[3] == done.output_handle == done.result.value["handle"]
    kept = ground.kept(done)
    assert len(kept) == 20971520 and kept.startswith(f"{line}\n".encode())
    outside = len(text.encode()) - len(said[0].encode())
    assert int(said[2]) + outside == len(kept)


async def test_a_hundred_megabytes(ground):
    done = await ground.run("yes abcdefg | head -c 100000000")
    assert (done.status, done.code) == (Status.EXECUTION_FAILED, "OUTPUT_LIMIT")
    assert done.error == "tool 'probe' was ended: its output reached the limit sandbox.limits.output"
    assert len(done.result.text) < 34 * 1024
    assert len(ground.kept(done)) == 64 * MIB


async def test_memory_without_end(tmp_path):
    ground = Ground(tmp_path, settings=WallSettings(limits=ResourceLimits(memory=60 * MIB)))
    done = await ground.python("x = b'y' * (200 << 20)\nimport time\ntime.sleep(20)")
    assert (done.status, done.code) == (Status.EXECUTION_FAILED, "MEMORY_LIMIT")
    await ground.close()


async def test_bytes_that_are_no_text_are_replaced_in_text_and_kept_as_they_are(ground):
    done = await ground.run(r"printf '\377\376A'")
    assert (done.status, done.result.text) == (Status.SUCCESS, "\ufffd\ufffdA")
    assert done.result.value["truncated"] is False
    assert ground.kept(done) == b"\xff\xfeA"


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


async def test_no_network(ground):
    source = "import socket\ns = socket.socket(); s.settimeout(3)\ns.connect(('127.0.0.1', 9))"
    done = await ground.python(source)
    assert done.status is Status.EXECUTION_FAILED and "refused" in done.result.text
    done = await ground.python("import socket\nsocket.getaddrinfo('example.com', 443)")
    assert done.status is Status.EXECUTION_FAILED and "gaierror" in done.result.text


async def test_the_hosts_network_where_it_is_declared(ground):
    async def answer(reader, writer):
        writer.write(b"reached")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    source = f"import socket\ns = socket.create_connection(('127.0.0.1', {port}), 3)\nprint(s.recv(99))"
    done = await ground.python(source, network=True)
    assert done.result.text == "b'reached'\n"
    assert (await ground.python(source)).status is Status.EXECUTION_FAILED
    server.close()


async def test_hosts_are_reached_by_the_proxy_alone(ground):
    source = 'echo "$HTTPS_PROXY"; exec 3<>/dev/null; echo "${FORGE_NETWORK-none}"'
    done = await ground.run(source, network=("example.test",))
    assert done.result.text.startswith("http://127.0.0.1:")


async def test_python_finds_the_standard_library_and_its_folder_only(ground):
    source = (
        "import json, helper, sys\n"
        "try:\n    import golem_forge\nexcept ImportError: print('no forge')\n"
        "try:\n    import pydantic\nexcept ImportError: print('no packages')\n"
        "print(helper.WORD, sys.argv[1:], __name__)"
    )
    ground.environ = {"PYTHONPATH": "/docs"}
    (ground.root / "docs" / "evil.py").write_text("")
    words = (parameter("a"),)
    env = (EnvVariable(name="PYTHONPATH"),)
    done = await ground.python(source, {"a": "1"}, parameters=words, env=env, files={"helper.py": "WORD = 'sibling'"})
    assert done.result.text == "no forge\nno packages\nsibling ['--a=1'] __main__\n"


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


async def test_a_python_tool_that_takes_too_long(ground):
    for seconds in ever_longer(1.5):
        with within(seconds):
            done = await ground.python("print('so far', flush=True)\nimport time\ntime.sleep(60)", timeout=seconds)
        if done.result.value["stdout"]:
            break
    assert (done.status, done.result.value["stdout"]) == (Status.TIMEOUT, "so far\n")


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
        seen["timeout"], seen["ending"] = timeout, await walled.child.wait(30)
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


async def test_output_json(ground):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    done = await ground.run("""echo '{"n": 3, "l": [1.5, null]}'""", output=OutputFormat.JSON, output_schema=schema)
    assert done.status is Status.SUCCESS
    assert done.result.structured == {"n": 3, "l": [1.5, None]}
    assert done.result.text == '{"n": 3, "l": [1.5, null]}\n'


@pytest.mark.parametrize("level", [Level.LANDLOCK, Level.OFF])
async def test_where_there_are_no_mounts(tmp_path, level):
    if level is Level.LANDLOCK and landlock.landlock_abi() < 3:
        pytest.skip("this kernel has no Landlock")
    ground = Ground(tmp_path, level=level)
    (ground.workspace / "a").write_text("content")
    words = (parameter("file", path=PathUse.READ),)
    source = 'cat "${1#--file=}"; echo; pwd; echo "$FORGE_WORKSPACE"; ls "$FORGE_TOOL_DIR"'
    done = await ground.run(source, {"file": "a"}, parameters=words)
    assert done.result.text.splitlines() == ["content", "/workspace", "/workspace", "probe.sh"]
    source = "import helper, os, sys\nprint(helper.WORD, open(sys.argv[1][7:]).read(), os.getcwd())"
    for _ in range(2):  # the second one by an interpreter that waited
        done = await ground.python(source, {"file": "a"}, parameters=words, files={"helper.py": "WORD = 'sibling'"})
        assert done.result.text == "sibling content /workspace\n"
        await asyncio.sleep(0.3)
    await ground.close()
