"""`create_cli_approval_callback()`: for programs that use Forge as a library and have a terminal.

Gives a function for `ApprovalController(approval_callback=…)` or `WorkerRuntime(approval_callback=…)`. It draws the
card on standard error and reads the answer from standard input, one question at a time. Without a terminal it denies.
A runtime whose UI reads that very terminal asks there instead: two readers of one keyboard would lose keys.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from golem_forge.ui.line_asking import LineTerminal, ask, card_data
from golem_forge.ui.line_terminal import ask_line, can_ask, say_lines, terminal_width, wait_for_silence

if TYPE_CHECKING:
    from golem_forge.policy.request import ApprovalRequest

NO_TERMINAL: Final = "There is no terminal to ask on."


def create_cli_approval_callback() -> Callable[[ApprovalRequest], dict[str, Any]]:
    one_at_a_time = Lock()  # each request is asked in a thread of its own, and there is one keyboard

    def approve(request: ApprovalRequest) -> dict[str, Any]:
        if not can_ask():
            return {"approved": False, "by": "nobody", "reason": NO_TERMINAL}
        data = card_data(request)
        with one_at_a_time:
            terminal = LineTerminal(read=ask_line, say=say_lines, width=terminal_width(), settle=wait_for_silence)
            return ask(terminal, data, data["choices"])

    approve.keyboard = lambda: sys.stdin.fileno()  # type: ignore[attr-defined]
    return approve
