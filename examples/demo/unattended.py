"""`forge run` for a demo without a person: the same runtime, and a callback that says yes and says that it does.

Without a terminal `forge run` itself denies whatever asks. A program that wants to answer gives WorkerRuntime an
`approval_callback`; this is one in full: shows the card, prints its answer, stops on Ctrl+C.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

from golem_forge import WorkerRuntime
from golem_forge.policy.request import ApprovalRequest
from golem_forge.ui.exit_codes import exit_code
from golem_forge.ui.line_asking import card_data
from golem_forge.ui.plain import PlainAdapter
from golem_forge.ui.rendering.card import card
from golem_forge.ui.rendering.lines import plain_text


def answer(request: ApprovalRequest) -> dict[str, Any]:
    print(plain_text(card(card_data(request), choices=())), end="")
    print("  nobody is here to ask: the demo answers yes, once", flush=True)
    return {"approved": True}


async def run(text: str) -> int:
    runtime = WorkerRuntime(approval_callback=answer, ui_adapter=PlainAdapter)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, runtime.interrupt)
    async with runtime:
        return exit_code(await runtime.run(text))


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1])))
