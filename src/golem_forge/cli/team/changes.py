"""`forge diff ID` and `forge apply ID`: what a session of the store changed in its git workspace, against the commit it
began with; and the same brought into the checkout one stands in, by one call that is shown, asked for and recorded.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.session import open_session
from golem_forge.cli.command import fail, print_columns, read_args
from golem_forge.cli.team import ID_SHOWN, fail_with, open_store
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import EXIT_CODES, Caller
from golem_forge.core.errors import ForgeError
from golem_forge.core.signals import run_to_exit_code
from golem_forge.core.text import display_path, escape_control_chars, escape_control_chars_in_prose, one_line
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.storage.home import forge_home
from golem_forge.team.apply import TOOL_NAME, Checkout, apply_tool, checkout_zone
from golem_forge.team.changes import ApplyPlan, SessionChanges, WorkspaceChangeSet
from golem_forge.team.database import TeamError
from golem_forge.team.people import PersonStore
from golem_forge.team.remote import RemoteStore
from golem_forge.team.session_workspace import read_changes
from golem_forge.team.workspace import WorkspaceError
from golem_forge.toolsets.edit import recover_patches
from golem_forge.ui.approval_prompt import card_data
from golem_forge.ui.line_terminal import ask_yes, can_ask, print_lines, terminal_width
from golem_forge.ui.render.card import approval_card
from golem_forge.ui.render.lines import styled_diff

if TYPE_CHECKING:
    from golem_forge.policy.request import ApprovalRequest

DIFF_HELP: Final = """usage: forge diff ID [--stat]

Shows what a session changed in its git workspace, up to its last checkpoint.

      --stat   the files and how many lines, without the text"""
APPLY_HELP: Final = """usage: forge apply ID [--yes]

Brings what a session changed in its git workspace, up to its last checkpoint, into the checkout around this directory.
It shows the difference and asks once. Then it writes all files or none. It commits nothing.

It refuses a checkout of another repository, files with changes that are not committed, lines that were changed on both
sides, and paths that Forge protects (.git, forge.yaml, .forge and the like).

      --yes   answer yes to the question

Exit: 0 done, 1 it cannot be applied, 2 usage or configuration, 3 denied, 4 no such session."""


def run_diff(words: list[str]) -> int:
    given = read_args("diff", DIFF_HELP, words, "ID", "--stat")
    try:
        _, found = _changes(given.id, contents=False)
    except TeamError as error:
        return fail_with("diff", error)
    except ForgeError as error:
        return fail("diff", one_line(error.message), 1)
    if not found.files:
        print("nothing changed up to the last checkpoint", file=sys.stderr)
    elif given.stat:
        rows = [(each.status, f"+{each.added} -{each.deleted}", one_line(each.path)) for each in found.files]
        print_columns(lambda: rows)
    else:
        print(escape_control_chars_in_prose(found.diff.text), end="")
        if found.diff.cut:
            print("… the rest is too long to show; `--stat` lists all files", file=sys.stderr)
    return 0


def run_apply(words: list[str]) -> int:
    given = read_args("apply", APPLY_HELP, words, "ID", "--yes")
    try:
        session_id, found = _changes(given.id, contents=True)
        if found.contents is None:
            raise WorkspaceError("The team's server sent no contents; upgrade it.")
        with tempfile.TemporaryDirectory() as folder:
            return _apply(session_id, found.contents, Path(folder), yes=given.yes)
    except TeamError as error:
        return fail_with("apply", error)
    except ForgeError as error:
        return fail("apply", error.message, 1)


def _changes(reference: str, *, contents: bool) -> tuple[str, SessionChanges]:
    """(the session's id, what it changed). From a team's server, or read here."""
    store = open_store()
    row = store.find(reference)
    if row.notice:
        print(f"! {one_line(row.notice)}", file=sys.stderr)
    if isinstance(store, RemoteStore):
        return row.id, store.changes(row.id, contents=contents)
    assert isinstance(store, PersonStore)
    facts = store.workspace_of(row.id, "apply" if contents else "see")
    if not facts:
        text = f"session {row.id[:ID_SHOWN]} has no git workspace; `forge log --session` shows its calls"
        raise WorkspaceError(text)
    return row.id, read_changes(facts, forge_home().path, row.id, contents=contents)


def _apply(session_id: str, given: WorkspaceChangeSet, folder: Path, *, yes: bool) -> int:
    checkout = Checkout.open(Path.cwd(), given, folder)
    sandbox = checkout_zone(checkout.top, forge_home().path)
    for notice in recover_patches(
        forge_home().path, sandbox
    ):  # of a command that was killed: else its files count as changed
        print(f"forge: {escape_control_chars(notice)}", file=sys.stderr)
    planned = checkout.plan(given, sandbox)
    if planned.conflicts:
        print("forge apply: this cannot be applied here, so nothing was written:", file=sys.stderr)
        for each in planned.conflicts:
            print(f"  {one_line(each.path)}: {one_line(each.why)}", file=sys.stderr)
        return 1
    if not planned.writes and not planned.deletes:
        print("nothing to apply: the session changed nothing that this checkout does not have", file=sys.stderr)
        return 0
    args = {"session": session_id, "base": given.base, "commit": given.commit}
    return run_to_exit_code(_call(checkout, planned, sandbox, args, yes=yes))


def _question(checkout: Checkout, planned: ApplyPlan) -> str:
    count = len({one.path for one in planned.writes} | {one.path for one in planned.deletes})
    files = "this file" if count == 1 else f"these {count} files"
    return f"Change {files} in {display_path(checkout.top)}? [y/N] "


async def _call(checkout: Checkout, planned: ApplyPlan, sandbox: Sandbox, args: dict[str, Any], *, yes: bool) -> int:
    """Strict: no rule and no trusted program answers for the person."""
    tool, question = apply_tool(planned, sandbox), _question(checkout, planned)

    def ask(request: ApprovalRequest) -> dict[str, Any]:
        card = approval_card(card_data(request), (), width=terminal_width(), with_diff=False)
        print_lines([*styled_diff(request.diff), *card])
        if yes:
            return {"approved": True}
        if can_ask():
            return {"approved": ask_yes(question)}
        again = f"Read the text above, then run `forge apply {args['session'][:ID_SHOWN]} --yes`."
        return {"approved": False, "by": "nobody", "reason": f"Forge cannot ask you here. {again}"}

    strict = ApprovalMode.STRICT
    async with open_session(checkout.top, tools=[tool], toolsets={}, approval=strict, approval_callback=ask) as session:
        for notice in session.notices_for_one_command:
            print(f"forge: {escape_control_chars(notice)}", file=sys.stderr)
        outcome = await session.call(TOOL_NAME, args, caller=Caller.HUMAN)
    if outcome.ok:
        print(escape_control_chars(outcome.text_without_leftovers))
        return 0
    return fail("apply", f"{outcome.status.value}: {outcome.error}", EXIT_CODES[outcome.status])
