"""`forge run` for a demo without a person: the same runtime, and a callback that says yes and says that it does.

Without a terminal `forge run` itself denies whatever asks. A program that wants to answer gives WorkerRuntime an
`approval_callback`; this is one in full: says each line to the worker (one with a `/` is a person's command), shows
the cards, prints its answers, stops on Ctrl+C.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import Any

from golem_forge import WorkerRuntime, is_command
from golem_forge.agent.run_result import RunResult, RunStatus
from golem_forge.agent.slash.handler import SlashCommands
from golem_forge.policy.request import ApprovalRequest
from golem_forge.ui.approval_prompt import card_data
from golem_forge.ui.headless import PlainAdapter
from golem_forge.ui.render.card import approval_card
from golem_forge.ui.render.lines import plain_text
from golem_forge.ui.session_ui import exit_code


def answer(request: ApprovalRequest) -> dict[str, Any]:
    print(plain_text(approval_card(card_data(request), choices=())), end="")
    print("  nobody is here to ask: the demo answers yes, once", flush=True)
    return {"approved": True}


async def run(lines: Sequence[str]) -> int:
    runtime = WorkerRuntime(approval_callback=answer, ui_adapter=PlainAdapter)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, runtime.interrupt)
    async with runtime:
        last = await talk(runtime, lines)
        runtime.end(last)
        return exit_code(last)


async def talk(runtime: WorkerRuntime, lines: Sequence[str]) -> RunResult:
    """Line by line, as long as each is answered."""
    last = RunResult(success=True, status=RunStatus.COMPLETED)
    commands = SlashCommands(runtime)
    try:
        for line in lines:
            if is_command(line):
                print(f"> {line}", flush=True)
                await commands.run(line)
            elif (last := await runtime.turn(line)).status is not RunStatus.COMPLETED:
                break
    finally:
        await commands.aclose()
    return last


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1:])))
