"""Slash commands about what was done: `/changes`, `/undo`, `/redo`, `/rewind`; and `/mode`, who is asked about what
comes.

`/undo` and `/redo` are calls of the tool `undo_changes` by the person, on the one path: its card shows every file.
`/rewind` undoes turn by turn, the newest first, and stops at the first that is not undone; only then the conversation
goes back.
"""

from __future__ import annotations

from typing import Final

from golem_forge.agent.rewind import RewindPoint
from golem_forge.agent.session_changes import (
    NOTHING_CHANGED,
    changes_text,
    read_changes,
    select_changes,
    undo_call,
)
from golem_forge.agent.session_changes import ChangeSelection as Selection
from golem_forge.agent.slash.invocation import PREFILL, Invocation, SlashHost
from golem_forge.agent.slash.parser import CommandError
from golem_forge.config.approval_modes import MODE_MEANINGS, ApprovalMode
from golem_forge.core.changes import ChangeSet
from golem_forge.core.text import columns, nearest_remark, one_line, shorten_prose
from golem_forge.sandbox.undo.log import taken_back
from golem_forge.tools.threads import run_in_thread

NEXT_MODE: Final = "next"
"""`/mode next`: what a key of a UI says."""
CYCLE: Final = (ApprovalMode.INTERACTIVE, ApprovalMode.CONTAINED, ApprovalMode.PLAN)
_BY: Final = "this session (/mode)"
_REWIND_USAGE: Final = "/rewind N [conversation|files|both]; /rewind alone lists your messages"
_WHAT: Final = ("conversation", "files", "both")
_SHORT: Final = 70
_NOT_REWOUND: Final = "Plans, approvals and loaded tools are not rewound."


async def _changes(host: SlashHost) -> tuple[ChangeSet, ...]:
    home, session = host.home.path, host.session_id
    return await run_in_thread(lambda: read_changes(home, session))


async def changes_command(call: Invocation) -> str:
    every = await _changes(call.host)
    if not every:
        return NOTHING_CHANGED
    if not call.args:
        return f"{changes_text(every)}\n/changes TURN, CALL or PATH shows the diff; /undo takes the last turn back."
    selected, home = select_changes(every, call.args), call.host.home.path
    found = selected.of(every)
    return await run_in_thread(lambda: changes_text(found, diffs=home, every=every))


async def undo_command(call: Invocation) -> str:
    return await _undo(call, redo=False)


async def redo_command(call: Invocation) -> str:
    return await _undo(call, redo=True)


async def _undo(call: Invocation, *, redo: bool) -> str:
    every = await _changes(call.host)
    if not every:
        return NOTHING_CHANGED
    selected = select_changes(every, call.args)
    outcome = await call.host.path.call(undo_call(selected, redo=redo))
    if not outcome.ok:
        raise CommandError(outcome.error)
    return ""  # its result was shown as every result is


async def rewind_command(call: Invocation) -> str:
    host = call.host
    points = await host.rewind_points()
    if not points:
        return "There is no message to go back to."
    every = await _changes(host)
    if not call.args:
        return _format_points(points, every)
    number, *what = call.args
    chosen = what[0].lower() if what else "both"
    if len(what) > 1 or chosen not in _WHAT or not (number.isascii() and number.isdigit()):
        raise CommandError(_REWIND_USAGE)
    point = next((each for each in points if each.turn == int(number)), None)
    if point is None:
        raise CommandError(f"There is no message {number} to go back to; /rewind lists them")
    host.check_can_rewind()
    files = chosen != "conversation" and await _undo_from(host, every, point.turn)
    host.rewind(point, conversation=chosen != "files", files=files)
    said = []
    if chosen != "files":
        host.bus.emit("status", {"type": "info", "message": point.text, "code": PREFILL}, host.id)
        said.append(f"The conversation is back before message {point.turn}, which stands in the input line again.")
    if chosen != "conversation":
        said.append("The files are back too." if files else "No files had changed since then.")
    return " ".join([*said, _NOT_REWOUND])


def _format_points(points: tuple[RewindPoint, ...], every: tuple[ChangeSet, ...]) -> str:
    changed = {turn: sum(len(each.changes) for each in every if each.turn == turn) for turn in {s.turn for s in every}}
    rows = [
        (
            str(each.turn),
            shorten_prose(one_line(" ".join(each.text.split())), _SHORT),
            f"changed {changed[each.turn]}" if changed.get(each.turn) else "",
        )
        for each in points
    ]
    return f"{columns(rows)}\n{_REWIND_USAGE}"


async def _undo_from(host: SlashHost, every: tuple[ChangeSet, ...], turn: int) -> bool:
    """Undoes the turns from this one on, newest first. False: there was nothing to undo. Raises CommandError where one
    is not undone: the others stay as well."""
    undone = taken_back(every)
    turns = {each.turn for each in every if each.turn >= turn and undone.get(each.call) != "undone" and not each.undoes}
    for each in sorted(turns, reverse=True):
        outcome = await host.path.call(undo_call(Selection(turn=each)))
        if not outcome.ok:
            raise CommandError(
                f"The files of turn {each} and before are as they were, and so is the conversation. {outcome.error}"
            )
    return bool(turns)


async def mode_command(call: Invocation) -> str:
    host = call.host
    now = host.controller.mode
    if not call.args:
        rows = [(f"{'>' if mode is now else ' '} {mode.value}", meaning) for mode, meaning in MODE_MEANINGS.items()]
        return f"{columns(rows)}\n/mode NAME changes it for this session."
    if len(call.args) > 1:
        raise CommandError("One mode: /mode NAME")
    typed = call.args[0].lower()
    if typed == NEXT_MODE:
        typed = CYCLE[(CYCLE.index(now) + 1) % len(CYCLE) if now in CYCLE else 0].value
    if typed not in set(ApprovalMode):
        raise CommandError(f"'{one_line(call.args[0])}' is no approval mode{nearest_remark(typed, ApprovalMode)}")
    wanted = ApprovalMode(typed)
    if wanted is ApprovalMode.APPROVE_ALL and now is not wanted:
        raise CommandError("approve_all is chosen when a session starts: `forge run --approval approve_all`")
    if wanted is now:
        return f"The approval mode is {now.value} already."
    host.switch_approval(wanted, _BY)
    return ""  # every UI was told
