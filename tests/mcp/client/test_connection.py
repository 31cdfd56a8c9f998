"""One life of one server in both eras: how it is spoken to, what it offers and asks, how it tells of changes."""

from __future__ import annotations

import asyncio
import json
import select
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.mcp.conftest import Ground
from tests.mcp.loop_time import LoopTime
from tests.mcp.pools import logged, notes, pooled, until

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.results import to_mcp
from golem_forge.mcp.client import connection
from golem_forge.mcp.client.model import ElicitationForm, FormAnswer, ServerState
from golem_forge.mcp.client.stdio_transport import LineWriter
from golem_forge.tools.context import ToolContext

LOG = {"MODERN_LOG": "/workspace/log", "ECHO_LOG": "/workspace/log"}


def modern(ground: Ground, *args: str, **keys: Any) -> ServerSpec:
    return ground.spec("new", "modern.py", *args, env=LOG, **keys)


async def accept(form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
    return FormAnswer(action="accept", values={"name": form.message})


async def test_auto_finds_the_new_era_and_every_request_carries_its_envelope(ground: Ground) -> None:
    async with pooled(ground, modern(ground)) as rig:
        assert (await rig.call("new", "echo", text="hi")).result.text == "hi"
        assert rig.pool.status("new").protocol == "2026-07-28"
        manifest = rig.pool.manifest("new")
        assert manifest is not None
        assert manifest.ttl_ms == 5000
        methods = [message["method"] for message in logged(ground)]
        assert "initialize" not in methods
        sent = next(message for message in logged(ground) if message["method"] == "tools/call")
        meta = sent["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert meta["progressToken"] == sent["id"]
        assert sent["params"]["name"] == "echo"


async def test_auto_falls_back_to_the_old_era_and_legacy_skips_the_question(ground: Ground) -> None:
    async with pooled(ground, ground.spec(env=LOG)) as rig:
        await rig.pool.wait_connected("echo")
        assert rig.pool.status("echo").protocol == "2025-11-25"
        assert [m["method"] for m in logged(ground)][:2] == ["server/discover", "initialize"]
    (ground.workspace / "log").unlink()
    async with pooled(ground, ground.spec(env=LOG, protocol="legacy")) as rig:
        await rig.pool.reconnect("echo")
        assert logged(ground)[0]["method"] == "initialize"


@pytest.mark.usefixtures("quick_tries")
async def test_a_server_that_dies_at_the_question_for_the_new_era_is_met_in_the_old_one(ground: Ground) -> None:
    async with pooled(ground, modern(ground, "dies-at-probe")) as rig:
        rig.pool.begin()
        await rig.pool.wait_connected("new")
        assert rig.pool.status("new").protocol == "2025-06-18"
        assert rig.states("new") == [
            ServerState.CONNECTING,
            ServerState.BACKOFF,
            ServerState.CONNECTING,
            ServerState.READY,
        ]


@pytest.mark.usefixtures("quick_tries")
async def test_the_first_start_of_a_program_may_take_longer_and_its_last_words_are_told(
    ground: Ground, loop_time: LoopTime
) -> None:
    """`npx` downloads the server first."""
    async with pooled(ground, ground.hostile("silent-start", "npm fetching 3 of 200")) as rig:
        rig.pool.begin()
        waiting = asyncio.create_task(rig.pool.wait_connected("bad"))
        await until(lambda: notes(ground, "asked") == ["initialize"])
        loop_time.skip(31)
        await asyncio.sleep(0.1)
        assert rig.states("bad") == [ServerState.CONNECTING] and not waiting.done()
        loop_time.skip(90)
        with pytest.raises(ForgeError, match=r"not connected after 120 seconds.*: npm fetching 3 of 200"):
            await waiting
        assert rig.pool.status("bad").stderr == ("npm fetching 3 of 200",)
        await until(lambda: notes(ground, "asked") == ["initialize"] * 2)
        loop_time.skip(31)
        late = "no answer within 30 seconds; the end of its stderr: npm fetching 3 of 200"
        # as it was told: the pause before the next try may be over before anybody looks
        await until(lambda: late in [status.error for status in rig.told], "the second start is not the first")


NPM = """
import os, sys, time
if os.path.exists("/workspace/tried"):
    time.sleep(3600)
open("/workspace/tried", "w").close()
for line in sys.argv[1:]:
    print(line, file=sys.stderr)
sys.exit(1)
"""


@pytest.mark.usefixtures("quick_tries")
@pytest.mark.parametrize(
    ("lines", "said", "hint"),
    [
        (
            ("npm error code E404", "npm error 404 Not Found - GET /nothing", "a log is in /tmp/x"),
            "the server ended with exit code 1; its stderr: npm error code E404 | npm error 404 Not Found",
            "",
        ),
        (("npm error code SELF_SIGNED_CERT_IN_CHAIN",), "SELF_SIGNED_CERT_IN_CHAIN", "NODE_EXTRA_CA_CERTS"),
        (("ModuleNotFoundError: No module named 'golem_forge'",), "golem_forge", "`sandbox.read` of your own config"),
    ],
)
async def test_why_the_first_start_failed_is_told_after_later_ones(
    ground: Ground, loop_time: LoopTime, lines: tuple[str, ...], said: str, hint: str
) -> None:
    spec = ground.spec("bad", args=("-S", "-c", NPM, *lines))
    async with pooled(ground, spec) as rig:
        rig.pool.begin()
        waiting = asyncio.create_task(rig.pool.wait_connected("bad"))
        await until(lambda: said in rig.pool.status("bad").error or len(rig.states("bad")) > 2)
        await until(lambda: rig.states("bad")[-1] is ServerState.CONNECTING)
        loop_time.skip(121)
        with pytest.raises(ForgeError) as failed:
            await waiting
        assert "the first start: " in failed.value.message and said in failed.value.message
        assert hint in failed.value.message
        assert hint or "`" not in failed.value.message


@pytest.mark.usefixtures("quick_tries")
async def test_a_server_that_ends_before_it_is_asked_is_told_by_its_exit_code(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(writer: LineWriter) -> None:
        """The loop stands still until nobody reads the pipe, so that the end of the output is not seen first."""
        pipe = select.poll()
        pipe.register(writer._descriptor, 0)
        pipe.poll()
        write(writer)

    write = LineWriter._write
    monkeypatch.setattr(LineWriter, "_write", late)
    spec = ground.spec("bad", args=("-S", "-c", "import sys; sys.exit('broken')"))
    async with pooled(ground, spec) as rig:
        with pytest.raises(ForgeError) as failed:
            await rig.pool.wait_connected("bad")
        assert "'bad' failed: the server ended with exit code 1; its stderr: broken; then run" in failed.value.message


async def test_a_program_that_answered_before_has_no_longer_start(ground: Ground, loop_time: LoopTime) -> None:
    async with pooled(ground, ground.spec("bad", env=LOG)) as rig:
        await rig.pool.wait_connected("bad")
        rig.cache.store(replace(rig.pool.manifest("bad"), config_digest=ground.hostile("silent-start").digest))
    async with pooled(ground, ground.hostile("silent-start")) as rig:
        waiting = asyncio.create_task(rig.pool.wait_connected("bad"))
        await until(lambda: notes(ground, "asked") == ["initialize"])
        loop_time.skip(31)
        with pytest.raises(ForgeError, match="not connected after 30 seconds"):
            await waiting


async def test_one_that_is_silent_at_a_question_it_does_not_know_is_asked_for_the_old_era(
    ground: Ground, loop_time: LoopTime
) -> None:
    async with pooled(ground, ground.hostile("old-and-silent")) as rig:
        waiting = asyncio.create_task(rig.pool.wait_connected("bad"))
        await until(lambda: notes(ground, "asked") == ["server/discover"])
        loop_time.skip(31)
        await waiting
        assert rig.pool.status("bad").protocol == "2025-11-25"
        assert notes(ground, "asked") == ["server/discover"], "the same process"


@pytest.mark.usefixtures("quick_tries")
async def test_a_silent_question_for_the_new_era_does_not_use_up_every_attempt(ground: Ground) -> None:
    async with pooled(ground, ground.hostile("silent-start", connect_timeout=0.2)) as rig:
        rig.pool.begin()
        with pytest.raises(ForgeError, match=r"is not connected after 0\.2 seconds"):
            await rig.pool.wait_connected("bad")
        await until(lambda: rig.pool.status("bad").state is ServerState.FAILED)
        assert rig.pool.status("bad").error == "no answer within 0.2 seconds"


@pytest.mark.usefixtures("quick_tries")
@pytest.mark.parametrize(
    ("mode", "within", "words"),
    [("old-version", PATIENCE, "Unsupported protocol version"), ("silent-list", 0.3, "no answer within 0.3 seconds")],
)
async def test_a_connection_that_cannot_be_is_told_in_words(
    ground: Ground, mode: str, within: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_ATTEMPTS", 2)
    async with pooled(ground, ground.hostile(mode, connect_timeout=within)) as rig:
        rig.pool.begin()
        await until(lambda: rig.pool.status("bad").state is ServerState.FAILED)
        assert words in rig.pool.status("bad").error


@pytest.mark.usefixtures("quick_tries")
@pytest.mark.parametrize("code", [-32000, -32001, -32603])
async def test_a_server_that_refuses_is_quoted_whatever_its_code(
    ground: Ground, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_ATTEMPTS", 1)
    async with pooled(ground, ground.hostile("refuses", f"{code} the licence has expired")) as rig:
        with pytest.raises(ForgeError, match=f"refused the connection: the licence has expired .{code}"):
            await rig.pool.wait_connected("bad")


async def test_garbage_around_the_answers_does_no_harm(ground: Ground) -> None:
    async with pooled(ground, ground.hostile("garbage")) as rig:
        assert (await rig.call("bad", "act")).result.text == "the answer"
        assert (await rig.call("bad", "act")).result.text == "the answer"


# Questions inside results


async def test_a_question_inside_a_result_is_answered_and_the_call_repeated(ground: Ground) -> None:
    async with pooled(ground, modern(ground), ask_form=accept) as rig:
        finished = await rig.call("new", "ask", rounds=2)
        assert finished.status is Status.SUCCESS
        answers = json.loads(finished.result.text)
        assert list(answers) == ["q2"]
        assert answers["q2"]["action"] == "accept"
        calls = [m["params"] for m in logged(ground) if m["method"] == "tools/call"]
        assert [call.get("requestState") for call in calls] == [None, "1", "2"]
        assert len({m["id"] for m in logged(ground) if m["method"] == "tools/call"}) == 3


async def test_a_state_without_questions_is_sent_again_and_never_more_than_ten_times(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golem_forge.mcp.client.call._LONGEST_WAIT", 0.05)
    async with pooled(ground, modern(ground)) as rig:
        assert (await rig.call("new", "again")).result.text == "enough"
        finished = await rig.call("new", "forever")
        assert finished.status is Status.EXECUTION_FAILED
        assert finished.error == "new asked for input more than 10 times during one call"


async def test_nothing_of_a_result_is_lost(ground: Ground) -> None:
    from tests.mcp.programs import modern as program

    async with pooled(ground, modern(ground)) as rig:
        finished = await rig.call("new", "rich")
        assert finished.status is Status.SUCCESS
        assert to_mcp(finished.result) == program.RICH


# Changes in the new era


async def test_changes_are_heard_in_the_listen_stream(ground: Ground) -> None:
    async with pooled(ground, modern(ground)) as rig:
        await rig.pool.wait_connected("new")
        await until(lambda: any(m["method"] == "subscriptions/listen" for m in logged(ground)))
        await rig.call("new", "grow")
        await until(lambda: rig.pool.status("new").tools == 8)


@pytest.mark.usefixtures("quick_tries")
async def test_a_lost_stream_is_opened_again_and_everything_listed_anew(ground: Ground) -> None:
    async with pooled(ground, modern(ground)) as rig:
        await rig.pool.wait_connected("new")
        await until(lambda: any(m["method"] == "subscriptions/listen" for m in logged(ground)))
        await rig.call("new", "drop")
        await until(lambda: sum(m["method"] == "subscriptions/listen" for m in logged(ground)) == 2)
        await until(lambda: sum(m["method"] == "tools/list" for m in logged(ground)) == 2)
