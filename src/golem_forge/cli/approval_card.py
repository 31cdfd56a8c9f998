"""The approval card of `forge call`: shows literally everything that is approved; Enter alone denies.

Loaded with the first question, not with `forge call`. Keys typed before the card was drawn never answer it
(`ask_line`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from golem_forge.policy.request import ApprovalRequest
from golem_forge.ui.approval_prompt import LineTerminal, ask_approval, card_data
from golem_forge.ui.line_terminal import ask_line, can_ask, discard_until_idle, print_lines, terminal_width

__all__ = ["ask_for_one_call", "ask_on_terminal", "can_ask"]


def ask_on_terminal(request: ApprovalRequest) -> dict[str, Any]:
    data = card_data(request)
    return _answer(data, data["choices"])


def ask_for_one_call(request: ApprovalRequest) -> dict[str, Any]:
    """For a session that ends with this call: what would be kept for the session is not offered."""
    data = card_data(request)
    return _answer(data, [choice for choice in data["choices"] if choice["scope"] != "session"])


def _answer(data: dict[str, Any], choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
    terminal = LineTerminal(read=ask_line, say=print_lines, width=terminal_width(), settle=discard_until_idle)
    return ask_approval(terminal, data, choices)
