"""Tools that call tools: a real socket into real walls, the real client, and the one path's answers scripted."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import LONG, PATIENCE, ever_longer, within
from tests.tables import table

from golem_forge.core.calls import Caller, Outcome, ToolCall
from golem_forge.core.decisions import Status
from golem_forge.core.results import ToolResult
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.walls.model import Job, Streams
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import ToolContext
from golem_forge.tools.factory import tool
from golem_forge.tools.results import to_result
from golem_forge.tools.tool import Tool
from golem_forge.usertools.run import call_server
from golem_forge.usertools.run.call_server import (
    AT_ONCE,
    FROM_A_TEST,
    MOST_CALLS,
    MOST_LOOKUPS,
    MOST_MORE,
    CallServer,
    ReplayingCallServer,
    ToolCallServer,
    client_folder,
)
from golem_forge.usertools.run.interpreter import WaitingInterpreter

from .conftest import House, Ran, ran


@tool
def b(n: int = 0, tags: list[str] | None = None, loud: bool = False) -> str:
    """Says what it was given."""
    return ""


@dataclass
class Scripted:
    """Stands in for the one path: keeps what it was asked, answers what the test says."""

    status: Status = Status.SUCCESS
    asked: list[tuple[str, Any, str]] = field(default_factory=list)
    seconds: float = 0.0
    running: int = 0
    most_running: int = 0
    cancelled: int = 0
    result: ToolResult | None = None
    at_least: int = 0
    """Nobody goes on before so many ran at once."""
    full: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, name: str, args: Any, *, refuse: str = "") -> Outcome:
        self.asked.append((name, args, refuse))
        call = ToolCall(name, args, Caller.TOOL, parent_id="parent")
        if refuse:
            return Outcome(call, name, Status.POLICY_DENIED, error=refuse)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.most_running >= self.at_least:
                self.full.set()
            await self.full.wait()
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        if self.status is not Status.SUCCESS:
            return Outcome(call, name, self.status, error="why not", args=args, result=self.result)
        return Outcome(call, name, self.status, result=to_result(f"{name} got {args}"), args=args)


def _desk(house: House, path: Scripted, *calls: str, seconds: float = PATIENCE, **more: Any) -> ToolCallServer:
    ctx = ToolContext(session_id="s1", call_id="parent", home=house.forge, call=path, **more)
    return ToolCallServer(ctx, _found, calls or ("b",), time.time() + seconds)


async def _found(name: str) -> Tool | None:
    return {"b": b}.get(name)


async def _in_shell(house: House, desk: CallServer, script: str) -> Ran:
    job = Job(
        argv=("sh", "-c", f"PATH={':'.join(desk.path)}:$PATH; {script}"),
        streams=Streams.APART,
        reads_only=True,
        env=desk.env,
        shown=desk.shown,
    )
    child = (await house.walls().start(job)).child
    try:
        ending = await child.wait(PATIENCE)
    finally:
        await child.end()
    assert ending is not None
    assert child.errors is not None
    return Ran(ending, child.output.read().decode(), child.errors.read().decode())


async def test_a_shell_tool_calls_another(house: House) -> None:
    path = Scripted()
    async with _desk(house, path) as desk:
        done = await _in_shell(house, desk, "forge call b --n=1 --tags=x --tags=y --loud; echo $?")
    assert (done.output, done.errors) == ("b got {'n': 1, 'tags': ['x', 'y'], 'loud': True}\n0\n", "")
    assert path.asked == [("b", {"n": 1, "tags": ["x", "y"], "loud": True}, "")]


async def test_a_python_tool_calls_another(house: House) -> None:
    house.script(
        "from forge_tool import CallFailed, call, call_json\n"
        "print(call('b', n=2))\n"
        "print(call_json('b', n=3)['value']['content'], call_json('c')['status'])\n"
        "try: call('c', name='é')\n"
        "except CallFailed as error: print(error.status, error.exit_code, error.text)\n"
    )
    path = Scripted()
    async with _desk(house, path) as desk:
        job = house.job()
        job = replace(job, shown=(*job.shown, *desk.shown), env=desk.env)
        done = await ran(await WaitingInterpreter.start(house.walls(), job), search=desk.path)
    assert done.errors == ""
    text = "this tool does not list 'c' under `calls` in its tool.yaml"
    assert done.output == f"b got {{'n': 2}}\nb got {{'n': 3}} policy_denied\npolicy_denied 3 {text}\n"
    assert path.asked[-1] == ("c", {"name": "é"}, text)


@table(
    ("status", "code"),
    [
        (Status.EXECUTION_FAILED, 1),
        (Status.INPUT_INVALID, 2),
        (Status.APPROVAL_DENIED, 3),
        (Status.SANDBOX_DENIED, 3),
        (Status.TOOL_NOT_FOUND, 4),
        (Status.TIMEOUT, 124),
        (Status.INTERRUPTED, 130),
        (Status.SKIPPED, 130),
    ],
)
async def test_each_status_has_its_exit_code(house: House, status: Status, code: int) -> None:
    path = Scripted(status=status, result=to_result("half of it"))
    async with _desk(house, path) as desk:
        answer = await _ask(desk, {"name": "b", "args": "{}"})
    assert (answer["exit"], answer["stdout"], answer["stderr"]) == (
        code,
        "half of it\n",
        f"forge: {status.value}: why not\n",
    )


async def test_what_is_not_declared_is_refused_and_recorded(house: House) -> None:
    path = Scripted()
    async with _desk(house, path) as desk:
        done = await _in_shell(house, desk, "forge call c --n=1; echo $?; forge call c --json --args-json '{\"q\":1}'")
    why = "this tool does not list 'c' under `calls` in its tool.yaml"
    assert done.errors == f"forge: policy_denied: {why}\n"
    first, second = done.output.splitlines()
    assert first == "3"
    assert json.loads(second)["status"] == "policy_denied"
    assert path.asked == [("c", {}, why), ("c", '{"q":1}', why)]
    assert done.ending.exit_code == 3


async def test_the_whole_outcome_as_json(house: House) -> None:
    path = Scripted(status=Status.POLICY_DENIED)
    async with _desk(house, path) as desk:
        done = await _in_shell(house, desk, "forge call b --json --n=1")
    assert done.ending.exit_code == 3
    assert done.errors == ""
    told = json.loads(done.output)
    assert (told["status"], told["tool"], told["sessionId"], told["error"]) == ("policy_denied", "b", "s1", "why not")
    assert set(told) >= {"callId", "args", "text", "value", "code", "durationMs", "truncated", "decision"}


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The `forge` of tools, in this process."""
    monkeypatch.syspath_prepend(str(Path(call_server.__file__).with_name("client")))
    return importlib.import_module("forge_command")


@table(
    ("words", "said"),
    [
        ("", "usage: forge call NAME"),
        ("run x", "usage: forge call NAME"),
        ("call", "NAME is missing"),
        ("call b --args-json", "--args-json needs a value"),
        ("call b --n=1 --args-json {}", "not both"),
        ("call b --approval approve_all", "--approval is for people"),
        ("call b -p=/", "-p is for people"),
    ],
)
def test_bad_words_are_not_sent(command: Any, capsys: pytest.CaptureFixture[str], words: str, said: str) -> None:
    assert command.main(words.split()) == 2
    assert said in capsys.readouterr().err


async def test_words_that_do_not_fit_the_tool_run_nothing(tmp_path: Path) -> None:
    path = Scripted()
    async with _desk(House(tmp_path), path) as desk:
        for words, said in ((["--m=1"], "--m"), (["--n=one"], "n")):
            answer = await _ask(desk, {"name": "b", "words": words})
            assert answer["exit"] == 2 and said in answer["stderr"]
    assert path.asked == []


async def _outside(desk: CallServer, words: str, **env: str) -> tuple[int, str, str]:
    folder, place = desk.shown[1].host, desk.shown[0].host
    variables = {**desk.env, "FORGE_SOCKET": f"{place}/socket", **env}
    child = await asyncio.create_subprocess_shell(
        f"exec {folder}/forge {words}", env=variables, stdout=-1, stderr=-1, stdin=asyncio.subprocess.DEVNULL
    )
    out, err = await child.communicate()
    assert child.returncode is not None
    return child.returncode, out.decode(), err.decode()


async def test_help_is_given(tmp_path: Path) -> None:
    async with _desk(House(tmp_path), Scripted()) as desk:
        assert [(await _outside(desk, words))[0] for words in ("--help", "call --help")] == [0, 0]


async def test_nobody_to_ask(tmp_path: Path) -> None:
    house = House(tmp_path)
    async with _desk(house, Scripted()) as desk:
        code, _, said = await _outside(desk, "call b", FORGE_SOCKET="")
        assert (code, "calls" in said) == (3, True)
        assert (await _outside(desk, "call b", FORGE_CALL_TOKEN="wrong"))[0] == 3
        assert (await _outside(desk, "call b"))[0] == 0
        place = desk.shown[0].host
    assert not os.path.exists(place)
    assert (await _outside(desk, "call b"))[0] == 3


async def _ask(desk: CallServer, request: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        await _say(desk, json.dumps({"token": desk._token, **request, **more}).encode())
    )
    return answer


def _socket_of(desk: Any) -> str:
    """Its name on the host may be longer than a socket's may be."""
    folder = os.open(desk.shown[0].host, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{folder}/socket"


async def _say(desk: CallServer, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(_socket_of(desk), limit=1 << 22)
    try:
        writer.write(line + b"\n")
        await writer.drain()
        return await reader.read()
    finally:
        writer.close()


GARBAGE: dict[str, Callable[[str], bytes]] = {
    "not json": lambda token: b"\xff\xfe{",
    "no object": lambda token: b"[1]",
    "deep": lambda token: b"[" * 100_000,
    "long number": lambda token: b"9" * 10_000,
    "no token": lambda token: b'{"name": "b", "args": {}}',
    "a wrong token": lambda token: b'{"token": "x", "name": "b", "args": {}}',
    "a token of another kind": lambda token: b'{"token": 1, "name": "b", "args": {}}',
    "half a token": lambda token: json.dumps({"token": token[:-1], "name": "b", "args": {}}).encode(),
    "no name": lambda token: json.dumps({"token": token, "args": {}}).encode(),
    "a long name": lambda token: json.dumps({"token": token, "name": "b" * 201, "args": {}}).encode(),
    "neither words nor args": lambda token: json.dumps({"token": token, "name": "b"}).encode(),
    "both": lambda token: json.dumps({"token": token, "name": "b", "args": {}, "words": []}).encode(),
    "words of another kind": lambda token: json.dumps({"token": token, "name": "b", "words": [1]}).encode(),
    "args of another kind": lambda token: json.dumps({"token": token, "name": "b", "args": [1]}).encode(),
}


@table("kind", GARBAGE)
async def test_garbage_is_refused_and_runs_nothing(tmp_path: Path, kind: str) -> None:
    (root := tmp_path / kind).mkdir()
    path = Scripted()
    async with _desk(House(root), path) as desk:
        answer = json.loads(await _say(desk, GARBAGE[kind](desk._token)))
        assert answer["exit"] == 3
        assert path.asked == []
        assert (await _ask(desk, {"name": "b", "args": {}}))["exit"] == 0


async def test_a_long_request_is_not_read(tmp_path: Path) -> None:
    path = Scripted()
    async with _desk(House(tmp_path), path) as desk:
        try:
            said = await _say(desk, b"x" * (3 << 20))
        except OSError:
            said = b""
        assert said == b"" or json.loads(said)["exit"] == 2
        code, _, error = await _outside(desk, "call b --args-json \"$(head -c 100000 /dev/zero | tr '\\0' x)\"")
        assert code == 0, error  # one that is long, but not too long, is the path's to judge
        assert len(path.asked) == 1


async def test_at_most_two_hundred_calls_sixteen_at_once_and_no_more_listening_after_all_that(tmp_path: Path) -> None:
    path = Scripted(seconds=0.03, at_least=AT_ONCE)
    async with _desk(House(tmp_path), path) as desk:
        answers = await asyncio.gather(*(_ask(desk, {"name": "b", "args": {}}) for _ in range(MOST_CALLS + 3)))
        assert path.most_running == AT_ONCE
        assert sorted(answer["exit"] for answer in answers) == [0] * MOST_CALLS + [3] * 3
        assert [refuse for _, _, refuse in path.asked if refuse] == [
            "a tool may call others at most 200 times in one run"
        ] * 3
        for _ in range(MOST_LOOKUPS + MOST_MORE - 3):
            await _say(desk, b"garbage")
        await asyncio.wait_for(asyncio.shield(desk._listening), PATIENCE)
        with pytest.raises(OSError, match="refused"):
            await _say(desk, b"garbage")


async def test_a_silent_connection_holds_up_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, house = Scripted(), House(tmp_path)
    async with _desk(house, path) as flooded, _desk(house, path) as other:
        monkeypatch.setattr("golem_forge.usertools.run.call_server.REQUEST_TIMEOUT_S", LONG)
        with _silent(flooded), within(1):
            assert (await _ask(other, {"name": "b", "args": {}}))["exit"] == 0
    async with _desk(house, path) as flooded:
        monkeypatch.setattr("golem_forge.usertools.run.call_server.REQUEST_TIMEOUT_S", 2.0)
        with _silent(flooded):
            assert (await _ask(flooded, {"name": "b", "args": {}}))["exit"] == 0  # after those that said nothing


@contextlib.contextmanager
def _silent(desk: CallServer) -> Iterator[None]:
    with contextlib.ExitStack() as wires:
        for _ in range(AT_ONCE + 5):
            wires.enter_context(socket.socket(socket.AF_UNIX)).connect(_socket_of(desk))
        yield


async def test_leaving_ends_the_calls_under_way(tmp_path: Path) -> None:
    path = Scripted(seconds=LONG)
    async with _desk(House(tmp_path), path) as desk:
        asking = asyncio.create_task(_say(desk, json.dumps({"token": desk._token, "name": "b", "args": {}}).encode()))
        while not path.running:
            await asyncio.sleep(0.001)
    assert (path.running, path.cancelled) == (0, 1)
    assert await asyncio.wait_for(asking, PATIENCE) == b""


async def test_a_client_that_goes_takes_its_call_with_it(tmp_path: Path) -> None:
    path = Scripted(seconds=LONG)
    async with _desk(House(tmp_path), path) as desk:
        _, writer = await asyncio.open_unix_connection(_socket_of(desk))
        writer.write(json.dumps({"token": desk._token, "name": "b", "args": {}}).encode() + b"\n")
        while not path.running:
            await asyncio.sleep(0.001)
        writer.close()
        until = time.monotonic() + PATIENCE
        while path.running and time.monotonic() < until:
            await asyncio.sleep(0.001)
        assert (path.running, path.cancelled) == (0, 1)


async def test_the_parents_time_is_the_calls_time(tmp_path: Path) -> None:
    path, house = Scripted(seconds=LONG), House(tmp_path)
    for seconds in ever_longer(0.2):
        async with _desk(house, path, seconds=seconds) as desk:
            assert (await _ask(desk, {"name": "b", "args": {}}))["exit"] == 124
        if path.asked:
            break
    assert path.cancelled == 1


async def test_a_path_that_fails_tells_the_tool_nothing(tmp_path: Path) -> None:
    async def broken(name: str, args: dict[str, Any], *, refuse: str = "") -> Outcome:
        raise RuntimeError("canary /root/.forge")

    house = House(tmp_path)
    ctx = ToolContext(home=house.forge, call=broken)
    async with ToolCallServer(ctx, _found, ("b",), time.time() + PATIENCE) as desk:
        answer = await _ask(desk, {"name": "b", "args": {}})
    assert (answer["exit"], "canary" in answer["stderr"]) == (1, False)


async def test_a_tool_that_is_not_there_is_the_paths_to_refuse(tmp_path: Path) -> None:
    path = Scripted(status=Status.TOOL_NOT_FOUND)
    async with _desk(House(tmp_path), path, "b", "gone") as desk:
        assert (await _ask(desk, {"name": "gone", "words": ["--x=1"]}))["exit"] == 4
    assert path.asked == [("gone", {}, "")]


async def test_from_a_test_every_call_is_denied(house: House) -> None:
    async with ReplayingCallServer(ForgeHome(house.forge)) as desk:
        done = await _in_shell(house, desk, "forge call b --n=1; echo $?; forge call read_file --json")
    code, told = done.output.splitlines()
    assert (code, done.errors) == ("3", f"forge: policy_denied: {FROM_A_TEST}\n")
    assert (json.loads(told)["status"], json.loads(told)["error"]) == ("policy_denied", FROM_A_TEST)


async def test_tokens_are_new_each_time_and_one_secret_hides_them_all(tmp_path: Path) -> None:
    redactor, house = Redactor(), House(tmp_path)
    ctx = ToolContext(home=house.forge, call=Scripted(), redactor=redactor)
    tokens = []
    for _ in range(3):
        async with ToolCallServer(ctx, _found, (), time.time() + PATIENCE) as desk:
            tokens.append(desk.env["FORGE_CALL_TOKEN"])
    assert len(set(tokens)) == 3
    hidden = [redactor.text(f"it is {token}") for token in tokens]
    assert all("FORGE_CALL_TOKEN" in text and token not in text for text, token in zip(hidden, tokens, strict=True))
    assert len(redactor._values) == 1


async def test_a_deep_home_has_a_socket_too(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    path = Scripted()
    async with _desk(House(deep), path) as desk:
        code, out, _ = await _outside(desk, "call b --n=1")
    assert (code, out) == (0, "b got {'n': 1}\n")


async def test_what_a_tool_sees(house: House) -> None:
    async with _desk(house, Scripted()) as desk:
        done = await _in_shell(
            house,
            desk,
            "ls /forge /forge/bin /forge/call; env | grep -c ^FORGE_; echo x > /forge/call/y; rm /forge/bin/forge",
        )
    assert done.output.split() == [
        "/forge:",
        "bin",
        "call",
        "/forge/bin:",
        "forge",
        "forge_tool.py",
        "forge_tools.py",
        "tools.py",
        "/forge/call:",
        "socket",
        "2",
    ]
    assert done.errors.count("Read-only file system") == 2


def test_the_command_is_written_once_and_mended(tmp_path: Path) -> None:
    home = ForgeHome(tmp_path / "home with a space")
    first = Path(client_folder(home)[0].host)
    stamp = first.stat().st_ino
    assert Path(client_folder(home)[0].host).stat().st_ino == stamp
    (first / "forge").chmod(0o700)
    (first / "forge").write_text("#!/bin/sh\necho evil\n")
    assert "evil" not in (Path(client_folder(home)[0].host) / "forge").read_text()
    assert (first / "forge").stat().st_mode & 0o777 == 0o500
    assert sorted(os.listdir(first)) == ["forge", "forge_tool.py", "forge_tools.py", "tools.py"]


async def test_an_interpreter_at_an_odd_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path with a space and a quote, longer than a `#!` line may be."""
    odd = tmp_path / ("it's odd " + "x" * 200) / "python"
    odd.parent.mkdir()
    odd.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    odd.chmod(0o700)
    monkeypatch.setattr(sys, "_base_executable", str(odd))
    async with _desk(House(tmp_path), Scripted()) as desk:
        assert (await _outside(desk, "call b"))[:2] == (0, "b got {}\n")
