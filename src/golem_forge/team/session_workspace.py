"""SessionWorkspace: the clone that one session works in, from its first turn to its last checkpoint.

`open` makes the clone, finds the one that is still on this machine, or restores the last checkpoint. A clone counts
only if it is the one that the journal names last: another machine may have gone on since. `checkpoint` commits and
pushes what changed. If the clone had to be restored and calls ran after the last checkpoint that the origin has, `lost`
names them: their changes are gone with their machine. All of it blocks: call it in a thread. Raises WorkspaceError.

Clones lie beside FORGE_HOME, in `<home>-workspaces`: no zone may reach the home itself. `remove` takes one away when
its session has ended; `remove_old_clones`, when a runner starts, those of sessions that ended elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from golem_forge.agent.files.worker import Worker
from golem_forge.agent.session_plan import SessionPlan, is_built_in
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.regex import regex
from golem_forge.core.text import display_name, shorten
from golem_forge.sandbox.process.cleanup import remove_tree
from golem_forge.sandbox.zones import choose_default_zone
from golem_forge.storage.home import make_private_dir
from golem_forge.team.changes import MOST_APPLIED, SessionChanges, session_changes
from golem_forge.team.checkpoint import Checkpoint, checkpoint, delete_checkpoints
from golem_forge.team.rows import CHECKPOINT
from golem_forge.team.store import Store
from golem_forge.team.workspace import (
    Clone,
    Workspace,
    WorkspaceError,
    disk_errors,
    fetch_history,
    last_commit,
    make_clone,
    open_clone,
    read_workspace,
    resolve_ref,
    restore,
)

NO_WORKSPACE: Final = Workspace(git="")
"""Set for a session that works in the directory itself, whatever the program names."""
LOST: Final = "Changes to files were lost with the machine that ran these calls:"
"""The start of the first notice line, which stays."""
WORKSPACE: Final = "workspace"
"""The journal's record of the clone that the calls from here on work in."""
_RAN: Final = frozenset({"started", "begun"})
"""Records of calls that may have changed something; a call that touched nothing is `done`."""
_MOST_NAMED: Final = 20
_MOST_LEFT_OUT: Final = 3
_CLONE_ID: Final = "id"
_OLD_CLONES_S: Final = 60.0
"""Time limit for a starting runner to remove old clones."""
_ZONE: Final = regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


def workspaces_folder(home: Path) -> Path:
    return home.with_name(f"{home.name}-workspaces")


def workspace_facts(plan: SessionPlan, given: Workspace | None = None) -> dict[str, str] | None:
    """Returns the workspace with which a new session is queued: the given repository, else that of the program's
    `workspace`, and the zone that becomes the clone; None if it works in the directory. Raises ConfigError.
    """
    said = plan.program.workspace
    if given is None and said.is_withheld:
        raise ConfigError(
            f"{said.origin}: workspace: this program is not trusted, so Forge clones nothing that it names. Read it "
            "and run `forge trust`, or name the repository with --workspace (`none`: work in the directory itself)"
        )
    if given is None and said.git:
        block = {"git": said.git, "ref": said.ref}
        given = read_workspace(block, where=f"{said.origin}: workspace", folder=said.folder.absolute())
    if given is None or given == NO_WORKSPACE:
        return None
    return {"git": given.git, "ref": given.ref, "zone": _clone_zone(plan.worker)}


def _clone_zone(worker: Worker) -> str:
    """Returns the zone in which relative paths begin. Raises ConfigError."""
    if is_built_in(worker):
        return "workspace"
    sandbox = worker.sandbox
    names = [zone.name for zone in sandbox.zones] if sandbox is not None else []
    wanted = sandbox.default_zone if sandbox is not None else ""
    if not (found := choose_default_zone(names, wanted or None)):
        raise ConfigError(f"worker {worker.name} has no zone, so it cannot work in a clone; give it one")
    return found


class SessionWorkspace:
    def __init__(self, facts: Mapping[str, Any], home: Path, session_id: str) -> None:
        """Raises WorkspaceError for facts that nobody's `--workspace` could have written."""
        self._workspace = _workspace_of(facts)
        self._zone = str(facts.get("zone") or "workspace")
        if _ZONE.fullmatch(self._zone) is None:
            raise WorkspaceError("The session's workspace names no zone.")
        self._folder = workspaces_folder(home)
        self._id = session_id
        self.clone: Clone | None = None
        self.new_clone = ""
        """The id of a clone that the journal does not name yet."""
        self.lost: list[str] = []
        """The tools whose calls ran after the last checkpoint, where their changes are gone."""

    @property
    def place(self) -> Path:
        return self._folder / self._id

    def open(self, records: Iterable[Mapping[str, Any]]) -> str:
        """Gives the setting (`--set`) that makes the tree the session's zone. `records`: of its journal so far."""
        make_private_dir(self._folder)
        past = _read_past(records)
        clone = open_clone(self._workspace, self.place, self._id)
        found = _clone_id(self.place) if clone is not None else ""
        if clone is None or not found or found != (past.clone or found):
            is_new = not past.ran and len(past.kept) == 1
            clone = (make_clone if is_new else restore)(self._workspace, self.place, self._id)
            commit = last_commit(clone)
            self.lost = past.lost_after("" if commit == clone.base else commit)
            found = new_id()
            with disk_errors("make a clone"):
                (self.place / _CLONE_ID).write_text(found)
        self.new_clone = "" if found == past.clone else found
        self.clone = clone
        return f"sandbox.zones.{self._zone}.path={json.dumps(str(clone.tree))}"

    @property
    def directory_names(self) -> dict[str, str]:
        """The clone as fingerprints call it: an answer that was given while the session was elsewhere counts here. In
        clones of one repository the same call has the same fingerprint, so that people see which questions are alike;
        an answer counts for its own session alone (`approve.question_id`)."""
        assert self.clone is not None
        origin = sha256(f"{self._workspace.git}\n{self._workspace.ref}".encode()).hexdigest()[:16]
        return {os.fspath(self.clone.tree): f"workspace:{origin}"}

    def checkpoint(self, title: str) -> Checkpoint:
        assert self.clone is not None
        return checkpoint(self.clone, shorten(title, 200) or "Forge session")

    def remove(self) -> None:
        remove_tree(os.fspath(self.place))

    def remove_if_kept(self) -> None:
        """Removes the clone of an ended session once the origin has all of its files."""
        self.clone = open_clone(self._workspace, self.place, self._id)
        if self.clone is None or self.checkpoint("").pushed:
            self.remove()

    @property
    def lost_note(self) -> str:
        """The text about lost changes for model and person; empty if nothing is lost."""
        if not self.lost:
            return ""
        return (
            f"The machine that ran this session is gone. The files are those of the last checkpoint. These calls ran "
            f"after it, and their changes to files are lost: {self._lost_calls}. Look at the files before you go on."
        )

    @property
    def lost_notice(self) -> str:
        """The same for lists, as long as the session exists."""
        return f"{LOST} {self._lost_calls}." if self.lost else ""

    @property
    def _lost_calls(self) -> str:
        more = f" and {len(self.lost) - _MOST_NAMED} more" if len(self.lost) > _MOST_NAMED else ""
        return f"{', '.join(self.lost[:_MOST_NAMED])}{more}"


def checkpoint_notice(made: Checkpoint) -> str:
    """Returns a notice about a checkpoint; empty if it has all files and the origin has it."""
    said = []
    if made.problem:
        said.append(
            f"The origin does not have the last checkpoint: {made.problem} Forge tries again after the next turn."
        )
    if made.left_out:
        named = [f"{display_name(one.path)} ({one.why})" for one in made.left_out[:_MOST_LEFT_OUT]]
        more = f" and {len(made.left_out) - _MOST_LEFT_OUT} more" if len(made.left_out) > _MOST_LEFT_OUT else ""
        said.append(f"The checkpoint does not have {', '.join(named)}{more}.")
    return " ".join(said)


def session_clone(facts: Mapping[str, Any], home: Path, session_id: str, fallback: Path) -> Clone:
    """Base and checkpoints of a session, for `forge diff` and `forge apply`. `fallback`: where they are fetched to if
    this machine has no clone, or one without the last checkpoint."""
    workspace = _workspace_of(facts)
    found = open_clone(workspace, workspaces_folder(home) / session_id, session_id)
    if found is not None and (facts.get(CHECKPOINT) or last_commit(found)) == last_commit(found):
        return found
    return fetch_history(workspace, fallback, session_id)


def read_changes(
    facts: Mapping[str, Any], home: Path, session_id: str, *, contents: bool, limit: int = MOST_APPLIED
) -> SessionChanges:
    """`contents`: also those of the files, of at most `limit` bytes together. `facts` of a session that has ended name
    the `checkpoint` that its journal names last; another one is refused: its files may be what somebody denied."""
    with tempfile.TemporaryDirectory() as folder:
        clone = session_clone(facts, home, session_id, Path(folder))
        commit = last_commit(clone)
        recorded = str(facts.get(CHECKPOINT) or "")
        if recorded not in ("", commit) and not resolve_ref(clone, clone.ref):
            raise WorkspaceError(
                f"{clone.ref} is missing in the repository {clone.workspace.shown_name}. This machine does not have "
                f"the session's last checkpoint ({recorded[:12]}). Either it was not pushed, or the ref was deleted. "
                "Restore that ref there, or run this where the session ran."
            )
        if recorded not in ("", commit):
            raise WorkspaceError(
                f"The repository has another state of this session ({commit[:12]}) than its journal ({recorded[:12]}). "
                f"Either the last checkpoint could not be pushed, or the store was restored from a backup. Look at "
                f"refs/forge/{session_id} with git."
            )
        return session_changes(clone, contents=contents, limit=limit)


def _workspace_of(facts: Mapping[str, Any]) -> Workspace:
    """Threat: facts are a row that others write, or what a team's server answers; git reads an address as a program,
    an option or a path."""
    try:
        return read_workspace({"git": facts.get("git"), "ref": facts.get("ref") or ""})
    except ConfigError as error:
        raise WorkspaceError(f"The session's workspace cannot be used: {error}.") from None


def remove_old_clones(store: Store, home: Path) -> None:
    """Removes clones of ended sessions once the origin has all of their files, and of pruned ones. A clone of a session
    that this store does not know is left alone: it may be another store's.
    """
    folder, until = workspaces_folder(home), time.monotonic() + _OLD_CLONES_S
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for session_id, facts in store.ended_facts(among=names).items() if names else ():
        if time.monotonic() > until:
            return
        if not (workspace := facts.get("workspace")):
            remove_tree(os.fspath(folder / session_id))
            continue
        with contextlib.suppress(ForgeError):  # it stays, and `forge diff` and `apply` find it here
            SessionWorkspace(workspace, home, session_id).remove_if_kept()


def delete_refs(ended: Mapping[str, Mapping[str, Any]], home: Path) -> Iterator[tuple[str, str]]:
    """Deletes the refs at the origins and the local clones of sessions that are to be pruned (id → facts). Yields each
    session whose ref stays, and why.
    """
    origins: dict[tuple[str, str], list[str]] = {}
    for session_id, facts in ended.items():
        if workspace := facts.get("workspace"):
            remove_tree(os.fspath(workspaces_folder(home) / session_id))
            git = str(workspace.get("git"))
            host = str(facts.get("host") or "") if git.startswith(("/", "file:")) else ""
            origins.setdefault((git, host), []).append(session_id)
    for (git, host), sessions in origins.items():
        problem = ""
        if host and host != socket.gethostname():
            problem = f"its repository is a path on {display_name(host)}; delete the ref there"
        else:
            try:
                with tempfile.TemporaryDirectory() as place:
                    delete_checkpoints(_workspace_of({"git": git}), Path(place), sessions)
            except (ForgeError, OSError) as error:
                problem = error.message if isinstance(error, ForgeError) else "the disk refused it"
        yield from ((session_id, problem) for session_id in sessions if problem)


def _clone_id(place: Path) -> str:
    try:
        return (place / _CLONE_ID).read_text()[:100]
    except (OSError, ValueError):
        return ""


class _Past(NamedTuple):
    """What the journal says about the workspace so far."""

    ran: list[str]
    """All calls that may have changed something."""
    kept: dict[str, int]
    """Checkpoint → how many of these are in it; the empty one is the base."""
    clone: str
    """The id of the last clone that calls worked in."""

    def lost_after(self, commit: str) -> list[str]:
        """The calls whose changes a checkpoint does not have. One that the journal does not name is the last thing that
        its runner did: each call is recorded after the checkpoints before it."""
        return self.ran[self.kept[commit] :] if commit in self.kept else []


def _read_past(records: Iterable[Mapping[str, Any]]) -> _Past:
    past = _Past([], {"": 0}, "")
    named: dict[str, str] = {}
    last = ""
    for record in records:
        kind = record.get("type")
        if kind == CHECKPOINT:
            last = str(record.get("commit") or last)
            past.kept[last] = len(past.ran)
        elif kind == WORKSPACE:
            past = past._replace(clone=str(record.get("clone", "")))
        elif kind == "proposed":
            named[str(record.get("call"))] = name_call(record.get("tool"), record.get("args"))
        elif kind in _RAN:
            past.ran.append(named.get(str(record.get("call"))) or name_call(record.get("tool"), record.get("args")))
    return past


def name_call(tool: object, args: object) -> str:
    """Names a call: `write_file /work/a.txt`."""
    path = args.get("path") or args.get("cmd") if isinstance(args, Mapping) else ""
    tool = display_name(str(tool or ""))
    return f"{tool} {shorten(display_name(str(path)), 80)}" if isinstance(path, str) and path else tool
