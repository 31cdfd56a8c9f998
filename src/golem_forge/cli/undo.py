"""`forge undo`: takes back what a session changed. Shows every file first and asks once; then calls the tool
`undo_changes` as a person does, with the zones and rules of the session's directory."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.session_changes import select_paths, undo_call
from golem_forge.cli.args import DENIED, FAILED, read_args
from golem_forge.cli.changes import NamedChanges, named_changes
from golem_forge.cli.format import fail, print_error
from golem_forge.config.approval_modes import ApprovalMode
from golem_forge.core.calls import EXIT_CODES
from golem_forge.core.signals import run_to_exit_code
from golem_forge.core.text import escape_control_chars, one_line
from golem_forge.sandbox.undo.restore import NothingToUndo, UndoPreview, preview
from golem_forge.toolsets.undo import undo_summary
from golem_forge.ui.line_terminal import ask_yes, can_ask, print_lines
from golem_forge.ui.render.lines import Line, Style, line, styled_diff

if TYPE_CHECKING:
    from golem_forge.policy.request import ApprovalRequest

HELP: Final = """usage: forge undo [SESSION] [--turn N | --call ID] [--also PATH…] [--redo] [--yes] [PATH…]

Takes back what a session changed: the last turn that changed something, or what is named. It shows every file first
and asks once. A file that was edited since is left alone, unless --also names it. What is overwritten is kept, so
`--redo` takes the undo back.

  SESSION      its id, the beginning of it, or `last`; without it the newest session of this directory that changed
               something
  PATH         only these files, and what lies below these directories
  --turn N     what message N of the person led to
  --call ID    what this call changed
  --also PATH  this file too, although it is not preselected (repeat for more)
  --redo       take the last undo back
  --yes        answer yes to the question; without a terminal it is needed

Exit: 0 done, 1 it failed or there was nothing to undo, 2 usage or configuration, 3 denied, 4 no such session."""
_ACTIONS: Final[Mapping[str, Style]] = {"delete": "del", "create": "add"}


def run(words: list[str]) -> int:
    declared = ("names:NAME*", "--turn N", "--call ID", "--also PATH…", "--redo", "--yes")
    given = read_args("undo", HELP, words, *declared)
    named = named_changes("undo", given)
    if isinstance(named, int):
        return named
    return run_to_exit_code(_undo(named, given.also, redo=given.redo, yes=given.yes))


async def _undo(named: NamedChanges, also: Sequence[str], *, redo: bool, yes: bool) -> int:
    from golem_forge.agent.session import entry_session
    from golem_forge.agent.trust import NotTrusted

    selected, id = named.selected, named.session.id
    taken = tuple(select_paths(named.every, also).paths) if also else ()

    shown = ""

    def agreed(request: ApprovalRequest) -> dict[str, Any]:
        """The person has seen every file and said so; what is planned now must be the same."""
        if request.payload == shown:
            return {"approved": True}
        return {"approved": False, "reason": "files changed since they were shown; run it again"}

    try:
        async with entry_session(
            named.session.root or ".", approval=ApprovalMode.STRICT, approval_callback=agreed
        ) as session:
            for notice in session.notices_for_one_command:
                print(f"forge: {escape_control_chars(notice)}", file=sys.stderr)
            found = preview(
                named.home.path,
                session.sandbox,
                id,
                turn=selected.turn,
                call=selected.call,
                paths=selected.paths,
                also=taken,
                redo=redo,
            )
            shown = undo_summary(found)
            if not any(step.selected for step in found.steps):
                print_lines(preview_lines(found))
                return fail("undo", f"there is nothing to {'redo' if redo else 'undo'}.", FAILED)
            print_lines(preview_lines(found))
            if not yes and not _agreed(found, redo=redo):
                return DENIED
            outcome = await session.call(undo_call(selected, also=taken, redo=redo, session=id))
    except NotTrusted as refused:
        return fail("undo", str(refused), DENIED)
    except NothingToUndo as nothing:
        return fail("undo", nothing.message, FAILED)
    if outcome.ok:
        print(escape_control_chars(outcome.text_without_leftovers))
        return 0
    return fail("undo", f"{outcome.status.value}: {outcome.error}", EXIT_CODES[outcome.status])


def _agreed(found: UndoPreview, *, redo: bool) -> bool:
    count = sum(step.selected for step in found.steps)
    if not can_ask():
        print_error("undo", "Forge cannot ask you here. Read the list above, then add --yes.")
        return False
    files = "this" if count == 1 else f"these {count}"
    if ask_yes(f"{'Bring back' if redo else 'Take back'} {files}? [y/N] "):
        return True
    print_error("undo", "nothing was changed.")
    return False


def preview_lines(found: UndoPreview) -> list[Line]:
    """The diffs first, so that what happens to each file stands last on the screen."""
    rows: list[Line] = []
    for step in found.steps:
        if step.selected and step.diff:
            rows += styled_diff(step.diff)
    for step in found.steps:
        if step.selected:
            rows.append([(_ACTIONS.get(step.action, ""), f"  {step.action:<8}"), ("", one_line(step.path))])
        else:
            again = f" (--also {one_line(step.path)} takes it back too)"
            rows.append(line(f"{'left':<8}{step.path}: {step.why or 'not preselected'}{again}", "warn", "  "))
    rows += [line(f"{'lost':<8}{one.path}: {one.why}", "warn", "  ") for one in found.lost]
    return rows
