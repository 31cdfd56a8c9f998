"""A person's own tools at work: what reaches the process, what it finds, what its caller reads. custom-tools.md §19,
cases 20–34 and 43. Every run is a real process in real walls.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.user_tools import Bench, card_text, parameter, run
from tests.deadlines import LONG, PATIENCE, ever_longer, within

from golem_forge.config.sandbox_block import MIB
from golem_forge.usertools.store.statistics import tool_statistics

SHELL = """\
for word in "$@"; do printf '%s' "$word" | od -An -v -tx1 | tr -d ' \\n'; echo; done
cat
"""
PYTHON = """\
import os, sys
for word in sys.argv[1:]:
    print(os.fsencode(word).hex())
sys.stdout.write(sys.stdin.read())
"""
CANARY = "canary-51e0c7d8f2"
SECRET = "canary-declared-a91b"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


class Probe:
    """The same tool three times: Python, a shell script and a program of its own; each says its arguments in hex."""

    def __init__(self, bench: Bench, name: str, parameters: list[dict[str, Any]], **manifest: Any) -> None:
        self.names = (f"{name}-py", f"{name}-sh", f"{name}-own")
        more = {"parameters": parameters, **manifest}
        bench.python(self.names[0], PYTHON, **more)
        bench.tool(self.names[1], SHELL, **more)
        bench.tool(self.names[2], f"#!/bin/sh\n{SHELL}", entrypoint="own", executable=True, **more)

    async def argv(self, session: Any, given: Any) -> list[str]:
        """What all three got, after their own name."""
        found = [await argv(session, name, given) for name in self.names]
        assert found[0] == found[1] == found[2]
        return found[0]


async def argv(session: Any, name: str, given: Any) -> list[str]:
    outcome = await run(session, name, given)
    assert outcome.ok, (name, outcome.text)
    return [bytes.fromhex(line).decode() for line in outcome.text.splitlines()]


# ---- arguments


async def test_c20_to_c24_values_arrive_as_flags_byte_for_byte_in_declared_order(bench: Bench) -> None:
    """How each kind of value is written: tests/usertools/run/test_run_arguments.py. Here real processes get them."""
    texts = ["007", "1.10", "1e5", "true", "NaN", " padded ", "", "null", "0x1F", "2020-01-01", "~", "no", "--b=2", "="]
    texts += ["a b;$(id)\n\"'", "`id`", "*", "\\n", "$HOME", "é\u202e\u0301😀", "\n", "\t", "\x7f\x1b[31m"]
    given = {f"t{at}": text for at, text in enumerate(texts)}
    numbers = {
        "n1": (1e21, "1000000000000000000000"),
        "n2": (1e-7, "0.0000001"),
        "n3": (2.0, "2"),
        "n4": (-1.5, "-1.5"),
    }
    words = [
        *map(parameter, given),
        parameter("b", default="1.10"),
        *(parameter(name, "number") for name in numbers),
        parameter("c", "integer"),
        parameter("plain", "boolean"),
        parameter("on", "boolean", default=True, flag="switch"),
        parameter("pair", "boolean", flag="pair"),
        parameter("tag", "array"),
    ]
    probe = Probe(bench, "p", words)
    bench.tool("sums", "printf '%s' \"$1\" | sha256sum\n", parameters=[parameter("a")])
    async with bench.session() as session:
        assert await probe.argv(session, {}) == ["--b=1.10", "--on"]
        others = {"tag": ["x y", ""], "pair": False, "on": False, "plain": True, "c": -(2**64), "b": ""}
        assert await probe.argv(session, {**others, **{name: each[0] for name, each in numbers.items()}, **given}) == [
            *(f"--{name}={text}" for name, text in given.items()),
            "--b=",
            *(f"--{name}={text}" for name, (_, text) in numbers.items()),
            *(f"--c={-(2**64)}", "--plain=true", "--no-pair", "--tag=x y", "--tag="),
        ]
        text = "é" * 60_000
        assert (await run(session, "sums", {"a": text})).text.split()[0] == sha256(f"--a={text}".encode()).hexdigest()
        for text, said in [("a\0b", "NUL"), ("é" * 65_537, "stdin-json"), ("\ud800", "")]:
            refused = await run(session, "p-sh", {"b": text})
            assert refused.status == "input_invalid" and re.search(r"\bb\b", refused.text) and said in refused.text
            assert not refused.executed


INVALID: list[tuple[Any, tuple[str, ...]]] = [
    ({}, ("need",)),
    ({"need": "x", "stray": 1}, ("stray",)),
    ({"need": "x", "Count": 1}, ("Count",)),
    ({"need": "x", "count": None}, ("count",)),
    ({"need": "x", "count": 11}, ("count",)),
    ({"need": "x", "kind": "purple"}, ("kind",)),
    ({"need": "x", "code": "12"}, ("code",)),
    ({"need": "x", "ids": [1, "x"]}, ("ids", "1")),
    ({"need": "x", "ids": [1, 2, 3, 4]}, ("ids",)),
    ('{"need": "x", "ratio": 1e400}', ("ratio",)),
    ('{"need": "x", "ratio": NaN}', ("NaN",)),
    ('{"need": "x", "need": "y"}', ("need",)),
]


async def test_c25_what_does_not_fit_names_its_parameter_and_starts_nothing(bench: Bench) -> None:
    words = [
        parameter("need", required=True),
        parameter("count", "integer", min=1, max=10),
        parameter("ratio", "number"),
        parameter("kind", enum=["red", "green"]),
        parameter("code", pattern="^[a-z]+$"),
        parameter("ids", "array", items="integer", max=3),
    ]
    bench.tool("strict", "echo ran >> ran\n", parameters=words, zones={"workspace": "rw"})
    async with bench.session() as session:
        fits = {"need": "x", "count": 10, "kind": "red", "code": "az", "ids": [1, 2, 3]}
        assert (await run(session, "strict", fits)).ok
        questions = len(bench.cards)
        for given, names in INVALID:
            ways = [await session.call("strict", given)]
            if isinstance(given, dict):
                ways.append(await run(session, "strict", given))
            for outcome in ways:
                assert outcome.status == "input_invalid", (given, outcome.text)
                assert all(name in outcome.text for name in names), (given, outcome.text)
                assert not outcome.executed
        assert len(bench.cards) == questions
    assert (bench.workspace / "ran").read_text() == "ran\n"


async def test_c25_a_draft_is_not_asked_about_for_a_call_that_cannot_be(bench: Bench) -> None:
    bench.tool("draft", parameters=[parameter("need", required=True)])
    async with bench.session() as session:
        assert (await run(session, "draft")).status == "input_invalid"
    assert bench.cards == []


def test_c26_parameters_may_have_forges_own_names(bench: Bench) -> None:
    words = [parameter("timeout", "integer"), *map(parameter, ("tool_name", "arguments", "json", "approval"))]
    bench.tool("odd", 'echo "$@"\n', parameters=words)
    given = {"timeout": 7, "tool_name": "t", "arguments": "a", "json": "j", "approval": "p"}
    flags = "--timeout=7 --tool_name=t --arguments=a --json=j --approval=p\n"

    async def both() -> None:
        async with bench.session() as session:
            assert (await run(session, "odd", given)).text == flags
            assert (await session.call("odd", given)).text == flags
            assert (await run(session, "odd", {"timeout": 9}, timeout=LONG)).text == "--timeout=9\n"

    asyncio.run(both())

    def forge(*words: str) -> tuple[int, str]:
        said = bench.forge_here("call", "odd", *words, "--approval", "approve_all")
        return said.code, said.out

    assert forge("--timeout=7", "--tool_name", "t") == (0, "--timeout=7 --tool_name=t\n")
    assert forge("--tool_name=007", "--arguments= padded ") == (0, "--tool_name=007 --arguments= padded \n")
    assert forge("--args-json", json.dumps({"json": "j", "approval": "p"})) == (0, "--json=j --approval=p\n")
    code, said = forge("--timeout=7", "--json")
    outcome = json.loads(said)
    assert (code, outcome["status"], outcome["tool"], outcome["args"]) == (0, "success", "odd", {"timeout": 7})
    assert outcome["value"]["stdout"] == "--timeout=7\n" and outcome["value"]["kind"] == "tool.output"
    assert forge("--timeout=many")[0] == 2 and forge("--nope=1")[0] == 2


async def test_c27_standard_input_is_one_object_in_declared_order(bench: Bench) -> None:
    kinds = [
        parameter("a"),
        parameter("b", "integer"),
        parameter("c", "object"),
        parameter("d", "array", items="number"),
    ]
    probe = Probe(bench, "p", kinds, arguments="stdin-json")
    source = "import json, sys\nprint(len(json.load(sys.stdin)['a']), sys.argv[1:])\n"
    bench.python("size", source, parameters=kinds[:1], arguments="stdin-json")
    many = {"d": [1.5, 2], "c": {"z": None, "a": [True, {"x": "\u2028"}]}, "a": 'q"é\n\0', "b": 10**25}
    nested = '"c":{"z":null,"a":[true,{"x":"\u2028"}]}'
    async with bench.session() as session:
        for name in probe.names:
            said = (await run(session, name, many)).text
            assert said == f'{{"a":"q\\"é\\n\\u0000","b":{10**25},{nested},"d":[1.5,2]}}\n'
        assert (await run(session, "p-sh", {})).text == "{}\n"
        assert (await run(session, "size", {"a": "x" * 300_000})).text == "300000 []\n"


async def test_c27_the_environment_carries_values_too(bench: Bench) -> None:
    words = [
        parameter("a-b"),
        parameter("n", "number"),
        parameter("l", "array", items="integer"),
        parameter("v", "boolean"),
    ]
    bench.tool("vars", "env | grep ^FORGE_ARG_ | sort; echo $#; cat\n", parameters=words, arguments="env")
    async with bench.session() as session:
        said = await run(session, "vars", {"a-b": " x=1 ", "n": 2.0, "l": [1, 2], "v": False})
        assert said.text == "FORGE_ARG_A_B= x=1 \nFORGE_ARG_L=[1,2]\nFORGE_ARG_N=2\nFORGE_ARG_V=false\n0\n"
        assert (await run(session, "vars", {"a-b": ""})).text == "FORGE_ARG_A_B=\n0\n"
        assert (await run(session, "vars", {"a-b": "\0"})).status == "input_invalid"


# ---- running


async def test_c28_how_it_ended_and_both_streams(bench: Bench) -> None:
    bench.tool("three", "echo out; echo err >&2; exit 3\n")
    bench.tool("warns", "echo out; echo careful >&2\n")
    bench.tool("killed", "echo out; kill -KILL $$\n")
    bench.python("segfault", "import os, signal\nprint('out', flush=True)\nos.kill(os.getpid(), signal.SIGTERM)\n")
    bench.tool("quiet", "printf ' exact\\n\\n'\n")
    bench.tool("mute", "exit 1\n")
    bench.python("raises", "print('before')\nraise SystemExit(4)\n")
    bench.python("broken", "print('before')\n1/0\n")
    async with bench.session() as session:
        three = await run(session, "three")
        assert (three.status, three.error) == ("execution_failed", "tool 'three' failed with exit code 3")
        assert three.text == "tool 'three' failed with exit code 3\nExit code: 3\nStdout:\nout\nStderr:\nerr\n"
        value = three.result.value
        assert {**value, "duration_ms": 0} == {
            "kind": "tool.output",
            "stdout": "out\n",
            "stderr": "err\n",
            "exit_code": 3,
            "signal": None,
            "duration_ms": 0,
            "truncated": False,
            "denials": [],
        }
        warns = await run(session, "warns")
        assert (warns.status, warns.text) == ("success", "Exit code: 0\nStdout:\nout\nStderr:\ncareful\n")
        killed = await run(session, "killed")
        assert killed.status == "execution_failed"
        assert killed.text.startswith("tool 'killed' failed with exit code 137 (SIGKILL)\n")
        assert (killed.result.value["exit_code"], killed.result.value["signal"]) == (137, "SIGKILL")
        assert killed.result.value["stdout"] == "out\n"
        ended = await run(session, "segfault")
        assert (ended.result.value["exit_code"], ended.result.value["signal"]) == (143, "SIGTERM")
        assert ended.result.value["stdout"] == "out\n"
        assert (await run(session, "quiet")).text == " exact\n\n"
        assert (await run(session, "mute")).text == "tool 'mute' failed with exit code 1\nExit code: 1"
        raises = await run(session, "raises")
        assert (raises.result.value["exit_code"], raises.result.value["stdout"]) == (4, "before\n")
        broken = await run(session, "broken")
        assert broken.result.value["exit_code"] == 1 and "ZeroDivisionError" in broken.result.value["stderr"]
        assert str(bench.root) not in broken.text


async def test_c29_time_is_kept(bench: Bench, marker: str) -> None:
    bench.tool("sleepy", f"echo before; (trap '' TERM; sleep 60; : {marker}) & sleep 60; : {marker}\n", timeout=1)
    bench.tool("half", "echo before; sleep 60\n", timeout=0.8)
    bench.tool("patient", "echo before; sleep 60\n", timeout=LONG)
    bench.python("snake", "import time\nprint('before', flush=True)\ntime.sleep(60)\n")
    bench.tool("quick", "echo done\n", timeout=30)
    async with bench.session() as session:
        assert (await run(session, "quick")).ok  # the walls are known from here on

        async def kept(name: str, seconds: float, **more: Any) -> str:
            with within(seconds + 1):
                outcome = await run(session, name, **more)
            assert (outcome.status, outcome.code) == ("timeout", "TIMEOUT")
            assert outcome.text.splitlines()[0] == f"tool '{name}' timed out after {seconds} seconds"
            said: str = outcome.result.value["stdout"]
            assert said in ("", "before\n")
            return said

        async def says_before(name: str) -> None:
            for seconds in ever_longer(1):
                if said := await kept(name, seconds, timeout=seconds):
                    break
            assert said == "before\n"

        await asyncio.gather(
            says_before("patient"),
            says_before("snake"),
            kept("sleepy", 1),
            kept("half", 0.8),
            kept("sleepy", 0.7, timeout=0.7),
            kept("half", 0.8, timeout=0),
            kept("half", 0.8, timeout=-1),
        )
        for seconds in (3601, 1e9, float("inf"), float("nan"), "5", True):
            outcome = await run(session, "quick", timeout=seconds)
            assert outcome.status == "input_invalid" and "timeout" in outcome.text, seconds
        assert (await run(session, "quick", timeout=3600)).text == "done\n"


async def test_c29_an_interrupted_run_ends_at_once_and_keeps_what_it_said(bench: Bench, marker: str) -> None:
    bench.tool("sleepy", f"echo before; sleep 60; : {marker}\n", parameters=[parameter("quick", "boolean")])
    async with bench.session() as session:
        said = asyncio.Event()
        session.bus.on("toolOutput", lambda event: said.set())
        call = asyncio.create_task(run(session, "sleepy"))
        await asyncio.wait_for(said.wait(), PATIENCE)
        with within(1):
            session.interrupt()
            outcome = await call
        assert outcome.status == "interrupted" and outcome.result.value["stdout"] == "before\n"


async def test_c30_surroundings(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARENT_TOKEN", CANARY)
    monkeypatch.setenv("SERVICE_KEY", SECRET)
    monkeypatch.delenv("NOT_SET", raising=False)
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    for toolchain in ("PYENV_ROOT", "RUSTUP_HOME", "CARGO_HOME", "NVM_DIR", "GOROOT", "JAVA_HOME"):
        monkeypatch.delenv(toolchain, raising=False)
    bench.tool("other", "echo other\n")
    said = {"env": ["SERVICE_KEY", "NOT_SET"], "version": "1.10"}
    bench.tool("shows", "pwd; printenv\n", **said)
    bench.python(
        "shows-py",
        "import os\nprint(os.getcwd())\nfor key, value in os.environ.items(): print(f'{key}={value}')\n",
        **said,
    )
    bench.tool("has", "printf '%s' \"$SERVICE_KEY\" | wc -c; printf '%s' \"$SERVICE_KEY\" | rev\n", env=["SERVICE_KEY"])
    bench.tool("needs", env=[{"name": "NOT_SET", "required": True}])
    bench.tool(
        "looks",
        f"ls -A {bench.home} {bench.tools} {bench.home}/store /user_tools; ls /forge; ls /forge/tool\n"
        "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -c canary; true\n",
        files={"beside.txt": "x"},
    )
    seen: list[str] = []
    async with bench.session() as session:
        session.bus.on("*", lambda event: seen.append(event.to_json()))
        assert (await run(session, "other")).ok
        for name in ("shows", "shows-py"):
            before = time.time()
            outcome = await run(session, name)
            assert outcome.ok, outcome.text
            where, *lines = outcome.text.splitlines()
            found = dict(line.split("=", 1) for line in lines)
            assert where == found["FORGE_WORKSPACE"] == "/workspace"
            assert before + 29 <= float(found.pop("FORGE_DEADLINE")) <= time.time() + 31
            assert found["PATH"].startswith("/usr/local/bin:/usr/bin:/bin")
            assert found == {
                "PATH": found["PATH"],
                "HOME": "/home/forge",
                "TMPDIR": "/tmp",
                "LANG": "C.UTF-8",
                "FORGE_WORKSPACE": "/workspace",
                "FORGE_TOOL_NAME": name,
                "FORGE_TOOL_DIR": "/forge/tool",
                "FORGE_TOOL_VERSION": "1.10",
                "FORGE_SESSION_ID": session.id,
                "FORGE_CALL_ID": outcome.call.id,
                "SERVICE_KEY": "[secret SERVICE_KEY]",
            } | {key: found[key] for key in ("PWD", "SHLVL", "_", "OLDPWD") if key in found}
            assert "SERVICE_KEY" in card_text(bench.cards.last)
        assert (await run(session, "has")).text.split()[0] == str(len(SECRET)), "the tool itself has it"
        missing = await run(session, "needs")
        assert (missing.status, missing.text) == ("execution_failed", "environment variable NOT_SET is not set")
        assert not missing.executed
        looks = await run(session, "looks")
        assert looks.result.value["stdout"] == "tool\nbeside.txt\nlooks.sh\ntool.yaml\n0\n"
        assert looks.result.value["stderr"].count("No such file") == 4
        seen += [card_text(card) + str(card.to_wire()) for card in bench.cards]
    kept = b"\n".join(path.read_bytes() for path in bench.home.rglob("*") if path.is_file())
    for canary in (CANARY, SECRET):
        assert not [text for text in seen if canary in text]
        assert canary.encode() not in kept
    assert [card.tool for card in bench.cards].count("needs") == 0, "nobody is asked for what cannot run"


async def test_c30_without_a_zone_it_starts_in_a_place_of_its_own(bench: Bench) -> None:
    bench.tool("nowhere", 'pwd; echo "${FORGE_WORKSPACE-none}"; ls -A; echo x > made && cat made\n', zones={})
    async with bench.session() as session:
        outcome = await run(session, "nowhere")
        assert outcome.ok, outcome.text
        assert outcome.text.split() == ["/tmp", "none", "x"]
    assert list(bench.workspace.iterdir()) == []


async def test_c31_output_is_bounded_and_kept_whole(bench: Bench) -> None:
    """However much it is, it costs no memory: tests/sandbox/process/test_monitor_limits.py."""
    size, most = 3 * MIB, 2 * MIB
    bench.tool("long", f"yes 0123456789 | head -c {size}\n")
    bench.tool("endless", "yes 0123456789\n", timeout=LONG)
    bench.tool("bytes", r"printf '\377\376A'" + "\n")
    bench.python("noisy", "import sys\nsys.stdout.write('o' * 50000)\nsys.stderr.write('e' * 50000)\n")
    async with bench.session() as session:
        assert (await run(session, "bytes")).ok
        long = await run(session, "long")
        assert long.ok and long.truncated and long.result.value["truncated"] is True
        assert len(long.text) < 40_000 and long.text.startswith("0123456789\n")
        assert long.text.rstrip().endswith(("0123456789"[: (size % 11) or 10], "0123456789"))
        said = re.search(r"\[… \d+ lines, (\d+) bytes left out; whole output: read_output handle=(\w+)\]\n", long.text)
        assert said and said[2] == long.output_handle == long.result.value["handle"]
        assert int(said[1]) + len(long.text) - len(said[0]) == size
        part = await session.call(
            "read_output", {"handle": long.output_handle, "offset": size // 2 // 11 + 1, "limit": 5}
        )
        assert part.ok and "0123456789" in part.text
        kept = bench.home / "output" / session.id
        whole = (kept / long.output_handle).stat()
        assert (whole.st_size, whole.st_mode & 0o077) == (size, 0)

        odd = await run(session, "bytes")
        assert (odd.status, odd.text, odd.result.value["truncated"]) == ("success", "\ufffd\ufffdA", False)
        assert (kept / odd.output_handle).read_bytes() == b"\xff\xfeA"
        noisy = await run(session, "noisy")
        assert "o" * 1000 in noisy.result.value["stdout"] and "e" not in noisy.result.value["stdout"].split("[")[0]
        assert len(noisy.text) < 40_000 and noisy.result.value["stderr"].count("e") > 1000

    (bench.workspace / "forge.yaml").write_text(f"sandbox: {{limits: {{output: {most}}}}}\n")
    async with bench.session() as session:
        endless = await run(session, "endless")
        assert (endless.status, endless.code) == ("execution_failed", "OUTPUT_LIMIT")
        assert endless.error == "tool 'endless' was ended: its output reached the limit sandbox.limits.output"
        assert len(endless.text) < 40_000 and "0123456789" in endless.text
        whole = (bench.home / "output" / session.id / endless.output_handle).stat()
        assert whole.st_size == most - most % 11, "without the word that the limit divides"


async def test_c32_json_is_structured_content(bench: Bench) -> None:
    """Every value, and what is none: tests/usertools/run/test_output.py."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    source = 'printf "%s" "$FORGE_ARG_TEXT"\n'
    words = [parameter("text")]
    bench.tool("matched", source, parameters=words, arguments="env", output="json", output_schema=schema)
    bench.tool("any", source, parameters=words, arguments="env", output="json")
    async with bench.session() as session:
        for name, value in (("matched", {"n": 1, "more": ["é", None, 1.5, {"deep": [True]}]}), ("any", False)):
            outcome = await run(session, name, {"text": json.dumps(value)})
            assert outcome.ok and outcome.result.structured == value and outcome.text == json.dumps(value)
        for name, text, place in [("matched", '{"m": 1}', r"\bn\b"), ("any", "[1,\n oops]", r"line 2 column 2")]:
            outcome = await run(session, name, {"text": text})
            assert outcome.status == "execution_failed" and outcome.result.structured is None
            assert re.search(place, outcome.text) and outcome.result.value["stdout"] == text, outcome.text


class Server:
    """A page on this machine's loopback; counts who asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(next(line for line in head.split("\r\n") if line.lower().startswith("host:"))[5:].strip())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nreached")
        await writer.drain()
        writer.close()


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """Every name under .test is this machine."""
    real = socket.getaddrinfo

    def lookup(host: Any, *more: Any, **keys: Any) -> Any:
        return real("127.0.0.1" if str(host).endswith(".test") else host, *more, **keys)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    made = Server()
    async with await asyncio.start_server(made.answer, "127.0.0.1", 0) as listening:
        made.port = listening.sockets[0].getsockname()[1]
        yield made


async def test_c33_only_the_hosts_it_declares_are_reached(bench: Bench, server: Server) -> None:
    curl = 'for url in "$@"; do curl -sS -m 3 "${url#--url=}"; echo " $?"; done\n'
    words = [parameter("url", "array")]
    named = f"example.test:{server.port}"
    bench.tool("shut", curl, parameters=words)
    bench.tool("empty", curl, parameters=words, network=[])
    bench.tool("open", curl, parameters=words, network=[named])
    bench.tool("private", curl, parameters=words, network=[f"private.test:{server.port}"])
    bench.rules(f"{{host: example.test, ports: [{server.port}], verdict: ask, private: true}}")
    urls = [
        f"http://example.test:{server.port}/",
        f"http://other.test:{server.port}/",
        f"http://127.0.0.1:{server.port}/",
    ]
    async with bench.session() as session:
        for name in ("shut", "empty"):
            outcome = await run(session, name, {"url": urls})
            assert "reached" not in outcome.text and server.asked == []
        reached = await run(session, "open", {"url": urls})
        assert server.asked == [named] and reached.text.count("reached") == 1, reached.text
        assert f"net {named}" in bench.cards.last.effects and named in card_text(bench.cards.last)
        assert [each["target"] for each in reached.denials] == [f"other.test:{server.port}", f"127.0.0.1:{server.port}"]
        refused = await run(session, "private", {"url": [f"http://private.test:{server.port}/"]})
        assert "reached" not in refused.text and server.asked == [named], "a name may not lead into this machine"
        direct = bench.tool("direct", f"curl -sS --noproxy '*' -m 3 {urls[2]}\n", network=[named])
        assert direct.exists() and not (await run(session, "direct")).ok and server.asked == [named]


async def test_c34_a_zone_is_written_only_where_the_tool_says_so(bench: Bench) -> None:
    bench.tool("reads", "echo x > made\n")
    bench.tool("also-reads", "echo x > made\n", zones={"workspace": "ro"})
    bench.tool("writes", "echo x > made && mkdir -p deep && echo y > deep/er\n", zones={"workspace": "rw"})
    async with bench.session() as session:
        for name in ("reads", "also-reads"):
            outcome = await run(session, name)
            assert outcome.status == "sandbox_denied"
            assert "/workspace/made" in outcome.text and "zones: {workspace: rw}" in outcome.text
            assert str(bench.root) not in outcome.text
            assert list(bench.workspace.iterdir()) == []
            assert "write /workspace" not in bench.cards.last.effects
        outcome = await run(session, "writes")
        assert outcome.ok, outcome.text
        card = bench.cards.last
        assert "write /workspace" in card.effects and "/workspace (rw: written)" in card.payload
        await session.call("writes", {})
        assert "write /workspace" in bench.cards.last.effects, "every call says so, not only the first"
    assert (bench.workspace / "made").read_text() == "x\n"
    assert (bench.workspace / "deep" / "er").read_text() == "y\n"


async def test_c34_a_hint_only_where_it_helps(bench: Bench) -> None:
    """`zones` opens no place outside of every zone, and mends nothing that the walls did not refuse."""
    bench.tool("outside", "echo x > /etc/made\n")
    bench.python("outside-py", "open('/usr/made', 'w')\n")
    bench.python("inside-py", "import os\nos.mkdir('made')\n")
    bench.tool("query", "echo 'psql: FATAL: permission denied for table users' >&2; exit 2\n")
    bench.tool("quiet", "echo x > made 2>/dev/null; echo went on\n")
    async with bench.session() as session:
        for name, target in (("outside", "/etc/made"), ("outside-py", "/usr/made")):
            outcome = await run(session, name)
            assert outcome.status == "sandbox_denied" and "zones" not in outcome.text, outcome.text
            assert [each["target"] for each in outcome.denials] == [target]
        inside = await run(session, "inside-py")
        assert inside.status == "sandbox_denied" and "zones: {workspace: rw}" in inside.text
        query = await run(session, "query")
        assert (query.status, query.denials) == ("execution_failed", ())
        assert (await run(session, "quiet")).ok


async def test_c34_nobody_gives_more_than_the_worker_has(bench: Bench) -> None:
    (bench.workspace / "docs").mkdir()
    (bench.workspace / "forge.yaml").write_text("sandbox: {zones: {docs: {path: docs, mode: ro}}}\n")
    bench.tool("greedy", zones={"elsewhere": "rw"})
    bench.tool("writer", "echo x > /docs/made\n", zones={"docs": "rw"})
    bench.tool("meddler", "ls /user_tools\n", zones={"user_tools": "rw"})
    async with bench.session() as session:
        for name in ("greedy", "writer", "meddler"):
            outcome = await run(session, name)
            assert outcome.status in ("sandbox_denied", "tool_not_found") and not outcome.executed, outcome.text
    assert bench.cards == [] and list((bench.workspace / "docs").iterdir()) == []


async def test_c34_a_path_argument_is_an_address_and_is_judged(bench: Bench) -> None:
    (bench.workspace / "a.txt").write_text("alpha\n")
    (bench.workspace / "out").symlink_to("/etc")
    words = [parameter("file", path="read"), parameter("to", path="write")]
    bench.tool(
        "shows",
        'for word in "$@"; do\n'
        'case $word in --file=*) cat "${word#*=}";; --to=*) echo new > "${word#*=}";; esac\n'
        "done\n",
        parameters=words,
        zones={"workspace": "rw"},
    )
    bench.tool("only-reads", "echo no\n", parameters=words)
    async with bench.session() as session:
        outcome = await run(session, "shows", {"file": "/workspace/a.txt", "to": "b.txt"})
        assert outcome.text == "alpha\n", outcome.text
        assert (bench.workspace / "b.txt").read_text() == "new\n"
        assert {"read /workspace/a.txt", "write /workspace/b.txt"} <= set(bench.cards.last.effects)
        questions = len(bench.cards)
        for place in (
            "/etc/passwd",
            "/workspace/../x",
            "/workspace/out/passwd",
            "/elsewhere/x",
            "/user_tools/shows/tool.yaml",
        ):
            refused = await run(session, "shows", {"file": place})
            assert refused.status == "sandbox_denied", (place, refused.text)
        refused = await run(session, "only-reads", {"to": "/workspace/a.txt"})
        assert refused.status == "sandbox_denied" and "zones: {workspace: rw}" in refused.text
        assert len(bench.cards) == questions, "no prompt"


async def test_c43_by_name_and_through_the_alias_is_one_call(bench: Bench) -> None:
    bench.tool("adds", 'echo "$@"; exit 0\n', parameters=[parameter("n", "integer"), parameter("m", default="d")])
    async with bench.session() as session:
        assert (await run(session, "adds", {"n": 0})).ok
        bench.cards.clear()
        first = await session.call("adds", {"n": 1})
        second = await run(session, "adds", {"n": 1})
        assert first.decision.fingerprint == second.decision.fingerprint != ""
        assert [card.fingerprint for card in bench.cards] == [first.decision.fingerprint] * 2
        assert (await run(session, "adds", {"n": 2})).decision.fingerprint != first.decision.fingerprint

        def facts(outcome: Any) -> Any:
            value = {**outcome.result.value, "duration_ms": 0}
            return outcome.tool, outcome.status, outcome.text, outcome.args, value, outcome.decision.risk

        assert facts(first) == facts(second)
        bad = [await session.call("adds", {"n": "x"}), await run(session, "adds", {"n": "x"})]
        assert (bad[0].tool, bad[0].text) == (bad[1].tool, bad[1].text)
        [kept] = tool_statistics(session.user_tools.workshop.store, ["adds"])
        assert (kept.usage.ran, kept.usage.successes) == (4, 4)


# ---- only the paths that it is given

LOOKS = """\
for each in "$@"; do case $each in --file=*) file=${each#*=};; --to=*) to=${each#*=};; esac; done
find . | sort
cat "$file" && cp "$file" "$to"
echo new > beside.txt || echo 'not beside'
echo new >> "$file" || echo 'not the source'
cat other.txt .env sub/key.pem || echo 'not the others'
"""
PATHS = [parameter("file", path="read", required=True), parameter("to", path="write", required=True)]


def _look(bench: Bench, **manifest: Any) -> None:
    bench.tool("look", LOOKS, parameters=PATHS, zones={"workspace": "rw"}, only_paths=True, **manifest)
    for name in ("source.txt", "other.txt", ".env", "sub/key.pem", "sub/deep.txt"):
        (bench.workspace / name).parent.mkdir(exist_ok=True)
        (bench.workspace / name).write_text(f"{name}\n")


async def test_a_tool_sees_only_the_files_it_is_given_where_its_manifest_says_so(bench: Bench) -> None:
    _look(bench)
    async with bench.session() as session:
        outcome = await run(session, "look", {"file": "source.txt", "to": "made.txt"})
    lines = outcome.text.splitlines()[2:]
    assert lines[:4] == [".", "./made.txt", "./source.txt", "source.txt"]
    assert {"not beside", "not the source", "not the others"} <= set(lines)
    assert (bench.workspace / "made.txt").read_text() == (bench.workspace / "source.txt").read_text() == "source.txt\n"
    assert not (bench.workspace / "beside.txt").exists()
    effects = bench.cards.last.effects
    assert [each for each in effects if "/workspace" in each] == [
        "read /workspace/source.txt",
        "write /workspace/made.txt",
    ]
    assert "only the paths it is given, of: /workspace (rw: written)" in card_text(bench.cards.last)


async def test_a_directory_that_it_is_given_is_shown_without_what_is_secret_or_protected_in_it(bench: Bench) -> None:
    source = "cat deep.txt key.pem; echo x > made.txt; echo x > .git/hooks/pre-commit; cat ../other.txt; true\n"
    bench.tool(
        "inside",
        f'cd "${{1#*=}}" && {source}',
        parameters=[parameter("to", path="write", required=True)],
        zones={"workspace": "rw"},
        only_paths=True,
    )
    _look(bench)
    hooks = bench.workspace / "sub/.git/hooks"
    hooks.mkdir(parents=True)
    (hooks / "kept").write_text("")
    async with bench.session() as session:
        outcome = await run(session, "inside", {"to": "sub"})
    lines = outcome.text.splitlines()
    assert "sub/deep.txt" in lines and "sub/key.pem" not in lines and "other.txt" not in lines
    assert (bench.workspace / "sub/made.txt").read_text() == "x\n"
    assert [each.name for each in hooks.iterdir()] == ["kept"]


async def test_a_missing_file_is_made_to_be_written_and_goes_if_it_stays_empty(bench: Bench) -> None:
    bench.tool("fails", "exit 3\n", parameters=PATHS, zones={"workspace": "rw"}, only_paths=True)
    _look(bench)
    async with bench.session() as session:
        outcome = await run(session, "fails", {"file": "source.txt", "to": "deep/made.txt"})
        assert not outcome.ok
        assert not (bench.workspace / "deep/made.txt").exists()
        missing = await run(session, "fails", {"file": "nothing.txt", "to": "made.txt"})
        assert not missing.ok and not (bench.workspace / "made.txt").exists()


async def test_the_git_directory_is_no_way_around(bench: Bench) -> None:
    git = bench.workspace / ".git"
    git.mkdir()
    for name in ("HEAD", "config"):
        (git / name).write_text("ref: refs/heads/main\n" if name == "HEAD" else "[core]\n\tbare = false\n")
    (git / "objects").mkdir()
    (git / "refs").mkdir()
    source = 'for each in "$@"; do echo evil >> "${each#*=}"; done; true\n'
    bench.tool("evil", source, parameters=PATHS, zones={"workspace": "rw"}, only_paths=True)
    _look(bench)
    async with bench.session() as session:
        await run(session, "evil", {"file": "source.txt", "to": ".git/config"})
        await run(session, "evil", {"file": "source.txt", "to": ".env"})
    assert "evil" not in (git / "config").read_text() + (bench.workspace / "source.txt").read_text()


async def test_its_tests_see_no_more_than_its_calls(bench: Bench) -> None:
    cases = [
        {
            "name": "alone",
            "arguments": {"file": "a.txt", "to": "b.txt"},
            "files": {"a.txt": "a", "other.txt": "o"},
            "expect": {"stdout_contains": ["not the others"], "files": {"b.txt": "a"}},
        }
    ]
    _look(bench, tests=cases)
    async with bench.session() as session:
        outcome = await run(session, "look", {"file": "source.txt", "to": "made.txt"})
    assert "not the others" in outcome.text, outcome.text
