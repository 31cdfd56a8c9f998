"""`forge changes` shows what a session changed, by turn and call, with diffs; `forge undo` takes it back.

`named_changes` reads what a person named, for both. Undo shows every file first and asks once; then it calls the tool
`undo_changes` as a person does, with the zones and rules of the session's directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.session import entry_session
from golem_forge.agent.session_changes import (
    NOTHING_CHANGED,
    change_json,
    changes_text,
    newest_changed_session,
    read_changes,
    select,
    select_paths,
    undo_call,
)
from golem_forge.agent.trust import NotTrusted
from golem_forge.cli.command import (
    DENIED,
    FAILED,
    NOT_FOUND,
    USAGE,
    fail,
    print_error,
    print_json,
    print_notices,
    read_args,
)
from golem_forge.cli.sessions import ID_SHOWN, IdNotFound, found_session, home_with_sessions, root_here
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import EXIT_CODES
from golem_forge.core.changes import ChangeSelection, ChangeSet
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.signals import run_to_exit_code
from golem_forge.core.text import escape_control_chars, one_line
from golem_forge.events.index import SessionIndex, SessionSummary
from golem_forge.sandbox.undo.log import taken_back
from golem_forge.sandbox.undo.restore import NothingToUndo, UndoPreview, preview
from golem_forge.sandbox.undo.store import FOLDER, is_busy
from golem_forge.storage.home import ForgeHome, forge_home
from golem_forge.toolsets.undo import undo_summary
from golem_forge.ui.line_terminal import ask_yes, can_ask, print_lines
from golem_forge.ui.render.lines import Line, Style, line, styled_diff

if TYPE_CHECKING:
    from golem_forge.policy.request import ApprovalRequest


HELP: Final = """usage: forge changes [SESSION] [--turn N | --call ID] [--stat | --diff] [--json] [PATH…]

Shows what a session changed in the zones: by turn and call, the files with their lines, and by which tool.

  SESSION   its id, the beginning of it, or `last`; without it the newest session of this directory that changed
            something
  PATH      only these files, and what lies below these directories
  --turn N  only what message N of the person led to
  --call ID only this call, by its id or the beginning of it
  --stat    the list (this is the default)
  --diff    what changed in each file, too
  --json    all of it for programs; with --diff the diffs too

Exit: 0 shown, 1 nothing changed there, 2 usage, 4 no such session."""
_SESSION_ID: Final = regex(r"[0-9a-f]{4,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedChanges:
    home: ForgeHome
    session: SessionSummary
    every: tuple[ChangeSet, ...]
    selected: ChangeSelection


def run(words: list[str]) -> int:
    declared = ("names:NAME*", "--turn N", "--call ID", "--stat", "--diff", "--json")
    given = read_args("changes", HELP, words, *declared)
    if given.stat and given.diff:
        return fail("changes", "give --stat or --diff, not both.", USAGE)
    named = named_changes("changes", given)
    if isinstance(named, int):
        return named
    home, found = named.home.path, named.selected.of(named.every)
    if given.json:
        undone = taken_back(named.every)
        print_json([change_json(each, undone, diffs=home if given.diff else None) for each in found])
    else:
        print(escape_control_chars(changes_text(found, diffs=home if given.diff else None, every=named.every)))
    return 0


def named_changes(verb: str, given: Any) -> NamedChanges | int:
    """Returns the changes that the words name, or the exit code after it printed the reason."""
    if given.turn is not None and given.call:
        return fail(verb, "give --turn or --call, not both.", USAGE)
    home, names = forge_home(), list(given.names)
    if any(map(is_busy, (home.path / FOLDER).glob("*"))):
        asyncio.run(_record_cut_short_calls())
    session: SessionSummary | None = None
    if names and (names[0] == "last" or _SESSION_ID.fullmatch(names[0])):
        try:
            session = found_session(names.pop(0), to_change=True)[1]
        except IdNotFound as error:
            return fail("sessions", str(error), NOT_FOUND)
    else:
        id = newest_changed_session(home.path, root_here()) if home_with_sessions() is not None else ""
        session = next(iter(SessionIndex(home.path).sessions(prefix=id, limit=1)), None) if id else None
    if session is None:
        return fail(verb, "no session of this directory changed a file; `forge sessions list` shows all.", FAILED)
    every = read_changes(home.path, session.id)
    if not every:
        return fail(verb, f"session {session.id[:ID_SHOWN]}: {NOTHING_CHANGED[0].lower()}{NOTHING_CHANGED[1:]}", FAILED)
    try:
        selected = select(every, turn=given.turn, call=given.call, paths=names)
    except ForgeError as error:
        return fail(verb, error.message, FAILED)
    return NamedChanges(home=home, session=session, every=every, selected=selected)


async def _record_cut_short_calls() -> None:
    """What a call changed whose Forge was killed: every session that opens here records it, and says so."""
    with contextlib.suppress(ForgeError):
        async with entry_session(root_here() or ".", approval=ApprovalMode.AUTO_DENY) as session:
            for notice in session.notices_for_one_command:
                print(f"forge: {escape_control_chars(notice)}", file=sys.stderr)


UNDO_HELP: Final = """usage: forge undo [SESSION] [--turn N | --call ID] [--also PATH…] [--redo] [--yes] [PATH…]

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


def run_undo(words: list[str]) -> int:
    declared = ("names:NAME*", "--turn N", "--call ID", "--also PATH…", "--redo", "--yes")
    given = read_args("undo", UNDO_HELP, words, *declared)
    named = named_changes("undo", given)
    if isinstance(named, int):
        return named
    return run_to_exit_code(_undo(named, given.also, redo=given.redo, yes=given.yes))


async def _undo(named: NamedChanges, also: Sequence[str], *, redo: bool, yes: bool) -> int:
    selected, id = named.selected, named.session.id
    taken = tuple(select_paths(named.every, also).paths) if also else ()

    shown = ""

    def agreed(request: ApprovalRequest) -> dict[str, Any]:
        """The person has seen every file and said so; what is planned now must be the same."""
        if request.payload == shown:
            return {"approved": True}
        return {"approved": False, "reason": "files changed since they were shown; run `forge undo` again"}

    try:
        async with entry_session(
            named.session.root or ".", approval=ApprovalMode.STRICT, approval_callback=agreed
        ) as session:
            print_notices(session)
            found = preview(named.home.path, session.sandbox, id, selected, also=taken, redo=redo)
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
    rows += [line(f"not taken back: {found.lasting}", "warn", "  ")] if found.lasting else []
    return rows
