"""A worker inside your own program: Python functions as its tools, yours for its questions, events as they come.

Run it with `python examples/embed.py`. The model here is a function that plays prepared turns, so no key is needed;
with `model="anthropic:<name>"` or any other provider the rest stays as it is.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

from golem_forge import WorkerRuntime, tool
from golem_forge.agent.files.worker import Worker
from golem_forge.agent.model.interface import Request
from golem_forge.agent.model.scripted import FunctionScript, Turn, TurnCall
from golem_forge.events.serialization import Event
from golem_forge.policy.request import ApprovalRequest

STOCK = {"mug": 3, "plate": 0}


@tool(needs_approval=False)
def in_stock(item: Annotated[str, "what is looked for"]) -> int:
    """Tell how many of an item there are."""
    return STOCK[item]


@tool(needs_approval=lambda args: args["count"] > 10)
def order(item: str, count: int) -> str:
    """Order more of an item. More than ten ask first."""
    STOCK[item] += count
    return f"ordered {count} of {item}"


TURNS = iter(
    [
        Turn(calls=tuple(TurnCall(tool="in_stock", args={"item": item}) for item in ("plate", "cup"))),
        Turn(say="No plates are left.", calls=(TurnCall(tool="order", args={"item": "plate", "count": 50}),)),
        Turn(calls=(TurnCall(tool="order", args={"item": "plate", "count": 10}),)),
        Turn(say="Fifty was too many for you; ten plates are on their way."),
    ]
)


def scripted(request: Request) -> Turn:
    """Takes what a model would be sent, gives what it would say."""
    return next(TURNS)


def answer(request: ApprovalRequest) -> dict[str, Any]:
    """Whoever asks is answered here: look at the request, decide, give a reason."""
    print(f"  asked: {request.tool} {request.args} ({request.why})")
    return {"approved": request.args["count"] <= 20, "reason": "at most twenty at a time"}


def show(event: Event) -> None:
    if event.type == "toolResult":
        said = event.wire.get("error") or event.wire["value"]
        print(f"  {event.wire['toolName']}: {event.wire['status']}, {said}")


async def main(home: Path) -> int:
    runtime = WorkerRuntime(
        Worker(name="clerk", instructions="You keep the shelves full."),
        model=FunctionScript(scripted),
        tools=[in_stock, order],
        approval_callback=answer,
        on_event=show,
        directory=home,
        home=home / "forge-home",  # leave it out, and sessions are kept in ~/.forge
    )
    async with runtime:
        print(f"clerk on {runtime.model_name}")
        result = await runtime.run("Are there plates?")
    print(f"{result.status.value}: {result.response}")
    print(f"plates now: {STOCK['plate']}")
    return 0 if result.success and STOCK["plate"] == 10 else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(asyncio.run(main(Path(folder))))
