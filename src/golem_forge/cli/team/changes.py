"""`forge diff ID` and `forge apply ID`: what a session of the store changed in its git workspace, against the commit it
began with; and the same brought into the checkout one stands in, by one call that is shown, asked for and recorded.

`Checkout.open` finds the work tree around a directory and refuses one that does not have the commit the session began
with: it is another repository. `Checkout.plan` gives what would be written, and every reason against it: files with
changes that are not committed, lines that both sides changed, paths that Forge protects. `apply_tool` makes the tool
whose one call writes all files or none; it is judged, approved and recorded like any other. Raises WorkspaceError.

Threats: a checkout has hooks, filters and settings that start programs, so git never runs on it. Forge reads HEAD by
itself, and asks git about the objects alone, from a repository of its own that borrows them. A session may name
`.git/hooks/x`, `forge.yaml` or a path through a link: none of these is written. What is written is what was shown: a
file that changed since is refused.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from golem_forge.agent.session import open_session
from golem_forge.cli.command import fail, print_notices, read_args
from golem_forge.cli.team import ID_SHOWN, fail_with, open_store
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import EXIT_CODES, Caller
from golem_forge.core.decisions import Verdict, strictest
from golem_forge.core.effects import Effect, Mark, Verb
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.signals import run_to_exit_code
from golem_forge.core.text import columns, display_path, escape_control_chars, escape_control_chars_in_prose, one_line
from golem_forge.sandbox.errors import SandboxError, path_changed
from golem_forge.sandbox.files import WRITE_LIMIT
from golem_forge.sandbox.git.directory import GitDir, is_object_id, is_ref_name
from golem_forge.sandbox.git.repository import git_directories, is_work_tree
from golem_forge.sandbox.handles import CONTENT, DIRECTORY, Handle, best_opener, read_regular
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.target import Target
from golem_forge.sandbox.zones import AccessMode, ZoneSpec
from golem_forge.storage.home import forge_home
from golem_forge.team.changes import (
    MOST_APPLIED,
    ApplyPlan,
    Conflict,
    SessionChanges,
    WorkspaceChangeSet,
    apply_plan,
    blob_id,
)
from golem_forge.team.database import TeamError
from golem_forge.team.people import PersonStore
from golem_forge.team.remote import RemoteStore
from golem_forge.team.session_workspace import read_changes
from golem_forge.team.workspace import (
    Clone,
    TreeEntry,
    Workspace,
    WorkspaceError,
    disk_errors,
    read_tree,
    resolve_ref,
    run_local,
)
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import native_tool
from golem_forge.tools.tool import Mode, Tool
from golem_forge.toolsets.edit import PlannedPatch, recover_patches
from golem_forge.toolsets.edit.draft import Draft
from golem_forge.toolsets.edit.patch import PatchFailed
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
        print(columns(rows))
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
        print_notices(session)
        outcome = await session.call(TOOL_NAME, args, caller=Caller.HUMAN)
    if outcome.ok:
        print(escape_control_chars(outcome.text_without_leftovers))
        return 0
    return fail("apply", f"{outcome.status.value}: {outcome.error}", EXIT_CODES[outcome.status])


TOOL_NAME: Final = "apply_changes"
ZONE: Final = "workspace"
_MOST_SYMBOLIC: Final = 5
_NO_CHECKOUT: Final = "This directory is in no git checkout; go to your checkout of the repository."
_OTHER_REPOSITORY: Final = (
    "This checkout does not have the commit that the session began with. It is another repository, or it is not up to "
    "date: go to the right checkout, or run `git fetch`."
)
_DIRTY: Final = "it has changes that are not committed (or git converts it); commit or stash them first"
_SCHEMA: Final = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("session", "base", "commit")},
    "required": ["session", "base", "commit"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    top: Path
    scratch: Clone
    """A repository of Forge's own that borrows the objects of the checkout's; files are merged beside it."""
    tracked: dict[str, TreeEntry]
    """The files of the commit that is checked out."""

    @classmethod
    def open(cls, start: Path, given: WorkspaceChangeSet, place: Path) -> Self:
        """`start`: a directory in it; `place`: an empty private directory for the time of the command."""
        here = Path(os.path.realpath(start))
        top = next((one for one in (here, *here.parents) if is_work_tree(os.fspath(one))), None)
        if top is None:
            raise WorkspaceError(_NO_CHECKOUT)
        git, common = git_directories(os.fspath(top))
        scratch = Clone(Workspace(git=os.fspath(top)), place, "", given.base)
        objects = os.path.join(common, "objects")
        if "\n" in objects or not os.path.isdir(objects):
            raise WorkspaceError(_NO_CHECKOUT)
        with disk_errors("read the checkout"):
            _borrow_objects(scratch, objects)
        if resolve_ref(scratch, given.base) != given.base:
            raise WorkspaceError(_OTHER_REPOSITORY)
        head = resolve_ref(scratch, _head(git, common))
        if not head:
            raise WorkspaceError("Forge cannot read which commit is checked out here; check out a branch first.")
        return cls(top=top, scratch=scratch, tracked=read_tree(scratch, head, sizes=False))

    def plan(self, given: WorkspaceChangeSet, sandbox: Sandbox) -> ApplyPlan:
        """Plans the changes, with every reason against them as a conflict."""
        found = apply_plan(given, self.top, self.scratch)
        changed = [(one.path, Verb.WRITE) for one in found.writes]
        changed += [(one.path, Verb.DELETE) for one in found.deletes]
        problems = {path: why for path, verb in changed if (why := _refusal(sandbox, path, verb))}
        problems |= {one.path: _TOO_LARGE for one in found.writes if len(one.content) > WRITE_LIMIT}
        problems |= {one.path: one.why for one in found.conflicts}
        open_paths = {*(path for path, _ in changed), *(one.path for one in found.conflicts)}
        problems |= {path: _DIRTY for path in open_paths if self._is_dirty(path)}
        return replace(found, conflicts=tuple(Conflict(path, problems[path]) for path in sorted(problems)))

    def _is_dirty(self, path: str) -> bool:
        """Whether a tracked file differs from the commit that is checked out. Others are never overwritten."""
        known = self.tracked.get(path)
        if known is None or not stat.S_ISREG(int(known.mode, 8)):
            return False
        try:
            root = Handle(os.open(self.top, DIRECTORY))
            file = Handle(best_opener()(root.fd, path.split("/"), CONTENT))
            data = read_regular(file.fd, MOST_APPLIED + 1)
        except OSError:
            return True
        if data is None:
            return True
        return blob_id(data, known.id) != known.id


_TOO_LARGE: Final = f"it is larger than {WRITE_LIMIT >> 20} MB; bring it over by hand"


def _borrow_objects(scratch: Clone, objects: str) -> None:
    scratch.repository.mkdir(mode=0o700)
    format = "sha256" if len(scratch.base) == 64 else "sha1"
    run_local(scratch, ("init", "--quiet", "--bare", "--template=", f"--object-format={format}"), "read the checkout")
    info = scratch.repository / "objects" / "info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_bytes(os.fsencode(objects) + b"\n")


def _head(git: str, common: str) -> str:
    """The commit that HEAD stands for; empty if Forge cannot tell."""
    opener = best_opener()
    try:
        folders = [Handle(os.open(folder, DIRECTORY & ~os.O_NOFOLLOW)) for folder in (git, common)]
    except OSError:
        return ""
    own, shared = (GitDir(folder.fd, opener, ()) for folder in folders)
    found = own.ref("HEAD") or ""
    for _ in range(_MOST_SYMBOLIC):
        name = found.removeprefix("ref:").strip()
        if is_object_id(found) or not found.startswith("ref:") or not is_ref_name(name):
            break
        found = shared.ref(name) or ""
    return found if is_object_id(found) else ""


# ---- where it may write


def checkout_zone(top: Path, home: Path) -> Sandbox:
    """The checkout as a zone in which every write asks. Raises WorkspaceError, for a home directory for instance."""
    spec = ZoneSpec(name=ZONE, path=top, write=Verdict.ASK, delete=Verdict.ASK)
    try:
        return open_sandbox([spec], ZONE, forge_home=home)
    except ConfigError as error:
        raise WorkspaceError("\n".join(error.problems)) from None


def _refusal(sandbox: Sandbox, path: str, verb: Verb) -> str:
    """Why Forge does not change this path; empty: it may."""
    try:
        target = _target(sandbox, path, verb)
    except SandboxError as error:
        return sandbox.virtualise(error.message)
    target.close()
    if Mark.PROTECTED_PATH in target.marks:
        return "Forge protects this path, because programs run or obey what is in it; change it by hand"
    if Mark.SECRET_PATH in target.marks:
        return "it may hold secrets; change it by hand"
    return ""


def _target(sandbox: Sandbox, path: str, verb: Verb) -> Target:
    """Refuses a path that leads through a link: the plan was made for the path itself."""
    address = f"/{ZONE}/{path}"
    target = sandbox.target(address, verb, follow_last=False)
    if target.virtual != address:
        target.close()
        raise path_changed(address)
    return target


# ---- the call


def apply_tool(planned: ApplyPlan, sandbox: Sandbox) -> Tool:
    """The tool of this one plan. Its arguments name the session and the commits, for the record."""

    def planner(args: dict[str, Any], ctx: ToolContext) -> Plan:
        draft = Draft(
            lambda path, verb: _target(sandbox, path, verb), lambda target: _effect(target, ctx), lambda _: False
        )
        try:
            notes = _fill(draft, planned)
        except BaseException:
            draft.close()
            raise
        patch = PlannedPatch(draft, ctx)
        return Plan(
            run=patch.run,
            effects=draft.effects,
            diff=patch.diff,
            recheck=patch.recheck,
            close=draft.close,
            warnings=tuple(notes),
        )

    return native_tool(
        TOOL_NAME,
        "Brings what a background session changed in its git workspace into a checkout: all files, or none.",
        input_schema=_SCHEMA,
        planner=planner,
        needs_approval=True,
        label="Apply changes",
        category="Files",
        mode=Mode.MANUAL,
        always=Verb.WRITE,
    )


def _fill(draft: Draft, planned: ApplyPlan) -> list[str]:
    """Adds the planned changes to a draft. Returns notes on what a diff does not show."""
    notes = [f"{one.path} has other changes in this checkout; both are kept" for one in planned.writes if one.merged]
    moved = {one.moved_from for one in planned.writes if one.moved_from}
    for gone in planned.deletes:
        if gone.path not in moved:
            file = draft.existing_file(gone.path, 0)
            _must_be_same(file.before, gone.before, gone.path)
            draft.remove(file, gone.path)
            file.deleted = True
    for one in planned.writes:
        source = draft.existing_file(one.moved_from, 0) if one.moved_from else None
        file = draft.file_to_write(one.path)
        _must_be_same(file.before, one.before, one.path)
        file.set_content(one.content)
        held = (source or file).target.stat
        if bool(held is not None and held.st_mode & stat.S_IXUSR) != one.executable:
            file.executable = one.executable
            notes.append(f"{one.path} {'becomes' if one.executable else 'is no longer'} executable")
        if source is not None:
            draft.add_move(source)
            draft.remove(source, one.moved_from)
            file.moved_from = source
    draft.check_directories()
    return notes


def _must_be_same(found: bytes | None, shown: bytes | None, path: str) -> None:
    if found != shown:
        raise PatchFailed(f"'{path}' has changed since it was looked at; run `forge apply` again.")


def _effect(target: Target, ctx: ToolContext) -> Effect:
    """Rules and zones of the program that the checkout holds count too: a rule about `/src` is one about these files,
    and a zone that is read-only or blocked there stays so."""
    effect = target.effect()
    host = [part for part in target.real.split("/") if part]
    zones = ctx.sandbox.zones.values() if ctx.sandbox is not None else ()
    inside = [(zone, parts) for zone in zones if (parts := zone.inside(host)) is not None]
    for zone, parts in sorted(inside, key=lambda found: len(found[1]))[:1]:
        said = Verdict.BLOCKED if zone.mode is AccessMode.RO else zone.verdict(target.access)
        verdict = strictest((effect.zone_verdict or Verdict.ASK, said))
        return replace(effect, zone_verdict=verdict, outer=zone.virtual((*zone.subpath, *parts)))
    return effect
