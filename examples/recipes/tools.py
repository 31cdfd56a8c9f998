"""Tools of the help desk. They run in a process of their own, in the worker's walls; its zone is where they start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from golem_forge import tool

_TICKETS = Path("tickets.json")


@tool(mode="both", read_only=True)
def open_tickets() -> list[str]:
    """List the open tickets."""
    return [f"{number}: {ticket['title']}" for number, ticket in _read().items() if ticket["open"]]


@tool(mode="both")
def close_ticket(number: Annotated[str, "number of the ticket"], answer: Annotated[str, "what the user reads"]) -> str:
    """Close a ticket with an answer to the user."""
    tickets = _read()
    if number not in tickets:
        raise ValueError(f"there is no ticket {number}; there are: {', '.join(tickets)}")
    tickets[number] |= {"open": False, "answer": answer}
    _TICKETS.write_text(json.dumps(tickets, indent=2) + "\n")
    return f"closed {number}"


def _read() -> dict[str, dict[str, str | bool]]:
    tickets: dict[str, dict[str, str | bool]] = json.loads(_TICKETS.read_text())
    return tickets
