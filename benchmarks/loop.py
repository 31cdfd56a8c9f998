"""The loop's own price: 50 tool calls, one per turn, over a model that answers at once; beside pydantic-ai's Agent.

Ours is a worker as the product runs it: every request made to fit, counted and streamed to the bus, every call judged,
the history and each call journalled. A run is 51 requests; what is shown is the time of one turn (request, response,
call, result). Both sides start each run with an empty history. `add` is declared to touch nothing, which is so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.harness import Block, Pace, race_blocks
from benchmarks.ours import project_and_home
from benchmarks.peers import pydantic_ai_agent
from benchmarks.rows import Row, at_most, row
from benchmarks.subject import KINDS, args_of_turn
from golem_forge.agent.files.worker import Worker
from golem_forge.agent.model.interface import AssistantMessage, Request, ResultsMessage, TokenUsage
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.tools.factory import tool

CALLS = 50
AGENT = "pydantic-ai Agent, FunctionModel"
JOURNAL_ON = "journal on"
JOURNAL_OFF = "journal off"
USAGE = TokenUsage(input=100, output=10)


async def rows(pace: Pace) -> list[Row]:
    async with AsyncExitStack() as stack:
        blocks = {
            JOURNAL_ON: await stack.enter_async_context(our_worker(journal=True)),
            JOURNAL_OFF: await stack.enter_async_context(our_worker(journal=False)),
            AGENT: Block(run=_checked(pydantic_ai_agent.run_of(KINDS["async"], CALLS))),
        }
        seconds = await race_blocks(blocks, rounds=pace.rounds)
    return [
        row(
            f"one turn of {CALLS}, policy and {journal} (µs)",
            seconds[journal] / CALLS * 1e6,
            peer=seconds[AGENT] / CALLS * 1e6,
            peer_name=AGENT,
            goal=at_most(0.35),
        )
        for journal in (JOURNAL_ON, JOURNAL_OFF)
    ]


@asynccontextmanager
async def our_worker(*, journal: bool) -> AsyncIterator[Block]:
    """With a listener on its bus, as a UI would be."""
    add = tool(name="add", needs_approval=False, effects=())(KINDS["async"])
    worker = Worker(name="main", instructions="Add.", max_iterations=CALLS + 1)
    with project_and_home() as (project, home):
        async with WorkerRuntime(
            worker, directory=project, home=home, model=FunctionScript(_respond), tools=[add], journal=journal
        ) as runtime:
            runtime.bus.on("*", lambda event: None)

            async def answer(_material: object) -> object:
                return (await runtime.turn("go")).response

            yield Block(run=_checked(answer), prepare=runtime.clear_history)


def _respond(request: Request) -> Turn:
    turns = sum(isinstance(message, AssistantMessage) for message in request.messages)
    if turns < CALLS:
        return Turn(calls=(TurnCall(tool="add", args=args_of_turn(turns), id=str(turns)),), usage=USAGE)
    last = request.messages[-1]
    assert isinstance(last, ResultsMessage)
    return Turn(say=last.results[0].text, usage=USAGE)


def _checked(answer: Callable[[object], Awaitable[object]]) -> Callable[[object], Awaitable[None]]:
    """The last words hold the last sum, so every call was made and understood."""
    expected = str(sum(args_of_turn(CALLS - 1).values()))

    async def run(material: object) -> None:
        said = await answer(material)
        assert expected in str(said), f"expected {expected} in {said!r}"

    return run
