"""Rewinding: which earlier messages of the person a conversation can go back to.

`rewind_points` takes the history of the root worker and the records of its journal; it gives each input that the
history still has, with its turn and its place. Going back to one is `History.replace_all` with what stands before it,
so a resumed session has the shorter history, and a `rewound` event for whoever reads the record. Turns are counted as
change sets count them: every message of the person in the session, those that were rewound or compacted away too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from golem_forge.agent.history import ADDED, CLEARED, REPLACED, apply_record
from golem_forge.agent.messages import Message, UserMessage
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.journal_records import join_records

_HISTORY = frozenset({ADDED, REPLACED, CLEARED})


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindPoint:
    turn: int
    text: str
    at: int
    """The place of the message in the history."""


def rewind_points(
    messages: Sequence[Message], records: Iterable[Mapping[str, Any]], worker_id: str
) -> tuple[RewindPoint, ...]:
    """Oldest first. Without records, as in a session that keeps no journal, turns are counted from the history."""
    inputs = [(at, message) for at, message in enumerate(messages) if _is_input(message)]
    turns = _recorded_turns(records, worker_id)
    if len(turns) != len(inputs):  # of no journal that Forge writes, or of none: the last ones are what they are
        last = max(turns, default=len(inputs))
        turns = list(range(last - len(inputs) + 1, last + 1))
    return tuple(
        RewindPoint(turn=turn, text=message.text, at=at)
        for turn, (at, message) in zip(turns, inputs, strict=True)
        if isinstance(message, UserMessage)
    )


def _recorded_turns(records: Iterable[Mapping[str, Any]], worker_id: str) -> list[int]:
    """The turn of each input in the history as the journal has it."""
    history: list[Message] = []
    turns: dict[int, int] = {}
    """id of the message object → its turn; the objects stay alive in `history`."""
    turn = 0
    for record in join_records(records):
        if record.get("workerId") != worker_id:
            continue
        kind = record.get("type")
        if kind == "event":
            data = record.get("data")
            message = data.get("message") if isinstance(data, Mapping) else None
            said = isinstance(message, Mapping) and message.get("role") == "user"
            turn += record.get("event") == "message" and said
        elif kind in _HISTORY:
            before = list(history)
            history = apply_record(history, record)
            if kind == ADDED and _is_input(history[-1]):
                turns[id(history[-1])] = turn
            elif kind == REPLACED:
                turns = _carried_over(before, history, turns)
    return [turns.get(id(message), 0) for message in history if _is_input(message)]


def _carried_over(before: Sequence[Message], after: Sequence[Message], turns: Mapping[int, int]) -> dict[int, int]:
    """A resumed session writes the messages that stay anew: they are found by what they say, in their order."""
    earlier = [message for message in before if _is_input(message)]
    found: dict[int, int] = {}
    for message in after:
        if not _is_input(message):
            continue
        at = next((at for at, each in enumerate(earlier) if each is message or each == message), None)
        if at is not None:
            found[id(message)] = turns.get(id(earlier[at]), 0)
            del earlier[: at + 1]
    return found


def _is_input(message: Message) -> bool:
    return isinstance(message, UserMessage) and message.kind == "input"
