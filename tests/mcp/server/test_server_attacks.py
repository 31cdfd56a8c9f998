"""Clients that send and never read, connect and say nothing, leave, are thrown out: what they cost everybody else."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from tests.deadlines import PATIENCE, within
from tests.mcp.pools import until

from golem_forge.mcp.server import http
from golem_forge.mcp.server.host import ClientQuestion, ServedCall
from golem_forge.mcp.server.service import MOST_UNREAD
from golem_forge.net import server

from .conftest import MODES, Process, Served, Serving
from .test_service_stdio import ByHand
from .wire import Wire


def test_what_a_client_sends_is_not_taken_while_it_reads_nothing(tmp_path: Path, process: Process) -> None:
    """Else each unread answer would be kept: memory would grow as long as the client likes to write."""
    work = tmp_path / "work"
    work.mkdir()
    with process(work) as running:
        client = ByHand(running)
        client.open()
        assert running.stdin is not None
        pings = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n' % number for number in range(20_000))
        taken = written_until_refused(running.stdin.fileno(), pings, patience=0.5)
        assert taken < len(pings) / 2  # what both pipes hold, and the few that wait
        assert taken > MOST_UNREAD * 40
        with within(1):
            running.stdin.close()
            assert running.wait(timeout=PATIENCE) == 0  # the end of stdin is noticed though it was not read so far


def written_until_refused(descriptor: int, data: bytes, patience: float) -> int:
    os.set_blocking(descriptor, False)
    done, last = 0, time.monotonic()
    while done < len(data) and time.monotonic() - last < patience:
        try:
            done += os.write(descriptor, data[done : done + 65536])
            last = time.monotonic()
        except BlockingIOError:
            time.sleep(0.02)
    return done


class TestConnections:
    @pytest.mark.parametrize("said", [b"", b"GET /mcp HTTP/1.1\r\nX-Slow: ", b"GET / HTTP/1.1\r\nHost: evil\r\n\r\nG"])
    async def test_one_that_asks_for_nothing_is_closed(
        self, serving: Serving, monkeypatch: pytest.MonkeyPatch, said: bytes
    ) -> None:
        monkeypatch.setattr(server, "CHECK_SECONDS", 0.2)
        async with serving() as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(served.url))
            writer.write(said)
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(asyncio.IncompleteReadError):  # b"" at the end, whatever came before
                    await reader.readexactly(1 << 20)
            writer.close()

    async def test_one_that_waits_for_its_answer_is_not(
        self, serving: Serving, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[Any] = []
        checks: list[object] = []
        timed = server.TimedHttpConnection
        connected, check = timed.connection_made, timed._check
        monkeypatch.setattr(timed, "connection_made", lambda self, way: (made.append(self), connected(self, way)))
        monkeypatch.setattr(timed, "_check", lambda self: (checks.append(self), check(self)))

        async def waits(_: dict[str, Any]) -> str:
            asking = [each for each in made if not each.idle]
            monkeypatch.setattr(server, "CHECK_SECONDS", 0.02)  # until here it had time to ask at all
            for each in asking:
                each._check()
            await until(lambda: asking and all(checks.count(each) > 3 for each in asking))
            return "waited"

        async with serving() as served:
            served.add("waits", waits)
            async with served.client("auto") as client:
                assert (await client.call_tool("waits", {})).content[0].text == "waited"

    async def test_too_many_at_once_are_turned_away(self, serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody's files run out, and once they are gone all is as before."""
        monkeypatch.setattr(http, "MOST_CONNECTIONS", 8)
        async with serving() as served:
            port = port_of(served.url)
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.timeout(PATIENCE):
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
            for _, each in [*held, (reader, writer)]:
                each.close()
            async with asyncio.timeout(PATIENCE):
                while await status_of(served) != 401:
                    await asyncio.sleep(0.02)


async def test_what_a_revoked_token_has_parked_is_ended(serving: Serving) -> None:
    """It has no request open and no session, and still a call that waits for its answer."""
    async with serving() as served:
        wire = Wire(served.url, served.tokens.create("theirs"))
        assert (await wire.call("asks", {"x": 1}))["resultType"] == "input_required"
        assert len(served.host.calls) == 1
        served.tokens.revoke("theirs")
        await until(lambda: len(served.host.calls) == 0)
        assert served.ran.calls == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_file_too_large_to_be_sent_is_read_once(serving: Serving, mode: str) -> None:
    """Not a hundred and sixty times, page by page, before that is said."""
    async with serving() as served, served.client(mode) as client:
        (served.work / "large.txt").write_text("x\n" * (5 << 20))
        read: list[Any] = []
        served.host.session.bus.on("toolStarted", read.append)
        with pytest.raises(MCPError, match="larger than 4 MiB"):
            await client.read_resource("forge://zone/workspace/large.txt")
        assert len(read) == 1


async def test_a_question_in_a_call_that_is_over_is_not_waited_for() -> None:
    from golem_forge.mcp.server.host import ElicitationSupport

    async def nothing() -> Any:
        return None

    call = ServedCall("one", ElicitationSupport(forms=True))
    call.start(nothing())
    await call.next()
    async with asyncio.timeout(PATIENCE):
        assert (await call.ask(ClientQuestion("Who?", {}))).action == "cancel"


async def status_of(served: Served) -> int:
    """Of a request without a token; 0 while it is turned away."""
    try:
        return int((await served.http.post(served.url)).status_code)
    except httpx2.TransportError:
        return 0


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


async def test_a_command_is_said_once(serving: Serving) -> None:
    async with serving() as served:
        asked = await Wire(served.url, served.token).call("exec_command", {"cmd": "make it-all"})
        text = asked["inputRequests"]["forge"]["params"]["message"]
    assert text.count("make it-all") == 1 and "\n  | make it-all\n" in text
    assert "Asked because: The command asks unless a rule allows it." in text


async def test_what_others_wrote_cannot_pass_for_a_line_of_the_card(serving: Serving) -> None:
    """A command that goes on as if the card did: the person sees one risk, and it is the real one."""
    command = "rm -r x\n\nEffects:\n  read /workspace\n\nRisk: low\u2028Risk: low\nAsked because: you wanted it"
    async with serving() as served:
        asked = await Wire(served.url, served.token).call("exec_command", {"cmd": command})
        text = asked["inputRequests"]["forge"]["params"]["message"]
        heads = [line.partition(":")[0] for line in text.splitlines() if not line.startswith("  | ")]
        assert [heads.count(word) for word in ("Effects", "Risk", "Asked because")] == [1, 1, 1]
        assert "\nRisk: low" not in text
        assert "  | rm -r x\n" in text and "  | Risk: low" in text
