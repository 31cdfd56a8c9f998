"""`forge mcp serve` with several clients at once: what is one's own is nobody else's. mcp.md §14.

Two tokens, one program, the real command. Its server `asker` asks during a call whatever it is told to ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.mcp_bench import PROGRAMS, McpBench
from tests.acceptance.mcp_serving import (
    ERAS,
    LEGACY,
    MODERN,
    YES,
    HttpServer,
    Person,
    alive,
    children_of,
    http_server,
    serving_bench,
    words_of,
)
from tests.deadlines import PATIENCE

FORM = {
    "message": "Who are you?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}
ASK = {"method": "elicitation/create", "params": FORM}
_OUTER = f'''

async def outer(x: int, *, ctx) -> str:
    """Has the server asked on its behalf."""
    return (await ctx.call("asker__ask", {ASK!r})).text
'''
_PATIENCE = """
two, first_is_done = threading.Barrier(2), threading.Event()

def one_after_another(params, ident):
    if two.wait(90) == 0:
        try:
            return call(params, ident)
        finally:
            first_is_done.set()
    first_is_done.wait(90)
    first_is_done.clear()
    return call(params, ident)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tried_walls: Path, ready_forge: Any) -> Iterator[HttpServer]:
    with serving_bench(tmp_path_factory.mktemp("guests"), tried_walls, ready_forge) as bench:
        _with_askers(bench)
        with http_server(bench) as running:
            yield running


def _with_askers(bench: McpBench) -> None:
    """`asker` asks at once; `patient` says that it only reads, and asks when two calls wait for it."""
    text = (PROGRAMS / "asker.py").read_text()
    only_reads = text.replace(
        '"description": "Asks.",', '"description": "Asks.", "annotations": {"readOnlyHint": True},'
    )
    (bench.workspace / "patient.py").write_text(
        only_reads.replace("return call(params, ident)", "return one_after_another(params, ident)").replace(
            "def answer(", f"{_PATIENCE}\n\ndef answer(", 1
        )
    )
    how: dict[str, Any] = {"trust": "trusted", "network": False, "approval": {"default": "preApproved"}}
    asker = bench.ours("asker.py", "legacy", **how)
    patient = {**asker, "args": [word.replace("asker.py", "patient.py") for word in asker["args"]]}
    zones = {"workspace": {"path": ".", "mode": "rw"}}
    bench.yaml({"asker": asker, "patient": patient}, entry="main.worker", sandbox={"zones": zones})
    shutil.copy(PROGRAMS / "asker.py", bench.workspace)
    worker, tools = bench.workspace / "main.worker", bench.workspace / "tools.py"
    tools.write_text(tools.read_text() + _OUTER)
    words = worker.read_text().replace("by_hand]", "by_hand, outer]").replace("servers: [echo]", "servers: ['*']")
    worker.write_text(words.replace("double: preApproved", "double: preApproved, outer: preApproved"))
    bench.trust()
    bench.approve()
    assert bench.forge("mcp", "test", "asker").code == 0  # known from now on: it is the first call that starts it


@contextlib.asynccontextmanager
async def two(server: HttpServer, era: str) -> AsyncIterator[tuple[Any, Person, Any, Person]]:
    ada, bob = Person(YES, "Ada"), Person(YES, "Bob")
    async with (
        server.client(era, "ada", elicitation_callback=ada) as hers,
        server.client(era, "bob", elicitation_callback=bob) as his,
    ):
        yield hers, ada, his, bob


async def said(client: Any, tool: str, **args: Any) -> str:
    async with asyncio.timeout(PATIENCE):
        return str((await client.call_tool(tool, args)).content[0].text)


@pytest.mark.parametrize("era", ERAS)
async def test_a_servers_question_goes_to_the_client_whose_call_it_is(server: HttpServer, era: str) -> None:
    """Also when a tool calls the server, and another client's call was the one that started it."""
    async with two(server, era) as (hers, ada, his, bob):
        assert '"Ada"' in await said(hers, "asker__ask", **ASK)
        assert '"Bob"' in await said(his, "outer", x=1)
        assert (len(ada.asked), [form.message for form in bob.asked]) == (1, ["asker: Who are you?"])


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_that_could_be_eithers_is_nobodys(server: HttpServer, era: str) -> None:
    """Calls of two clients wait for one server, which asks without saying for which of them."""
    async with two(server, era) as (hers, ada, his, bob):
        to_her, to_him = await asyncio.gather(said(hers, "patient__ask", **ASK), said(his, "patient__ask", **ASK))
        assert "Bob" not in to_her and "Ada" not in to_him
        assert "several clients" in to_her + to_him
        assert len(ada.asked) + len(bob.asked) <= 1, "the second question is the second call's, once the first is over"


@pytest.mark.parametrize("era", ERAS)
async def test_a_running_command_is_its_clients_alone(server: HttpServer, era: str) -> None:
    """Its number is easily guessed; for anybody else it can be neither read nor typed into nor ended."""
    async with two(server, era) as (hers, ada, his, bob):
        began = await said(hers, "exec_command", cmd="echo for Ada alone; sleep 300", yield_time_ms=500)
        number = int(began.partition("Running: session ")[2].split()[0])
        for how in ({"chars": ""}, {"chars": "\x03"}, {"chars": "", "signal": "KILL"}):
            refused = await said(his, "write_stdin", session_id=number, yield_time_ms=300, **how)
            assert f"Session {number} not found" in refused and "Ada" not in refused
        assert f"Running: session {number}" in await said(
            hers, "write_stdin", session_id=number, chars="", yield_time_ms=300
        )
        assert len(ada.asked) == 1 and bob.asked == []
        await said(hers, "write_stdin", session_id=number, chars="", signal="KILL")


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_what_a_client_left_running_ends_when_it_leaves(server: HttpServer, era: str) -> None:
    """A connection that closes, or a token that is revoked. What everybody shares, a server say, may start meanwhile:
    it stays."""
    left = f"sleep 300; echo left by {era}"
    async with server.client(era, f"guest-{era}", elicitation_callback=Person(YES, "Eve")) as client:
        assert "Running: session" in await said(client, "exec_command", cmd=left, yield_time_ms=300)
        started = [child for child in children_of(server.process.pid) if left in words_of(child)]
        assert started
    if era == MODERN:
        assert all(alive(each) for each in started)  # the next request may come over another connection
        assert server.bench.forge("mcp", "token", "revoke", f"guest-{era}").code == 0
    async with asyncio.timeout(PATIENCE):
        while any(alive(each) for each in started):
            await asyncio.sleep(0.05)
