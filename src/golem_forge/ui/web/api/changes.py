"""What a session changed, the diff of one file of it, and what an undo would do.

The same as `/changes` and the list before `/undo`. Undoing is no operation here: the page calls the tool `undo_changes`
as a person calls any tool, and the approval card shows every file. Files are named by their virtual paths.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from golem_forge.agent.session_changes import (
    ChangeSelection,
    change_json,
    read_changes,
    select_call,
    select_paths,
    select_turn,
)
from golem_forge.core.changes import ChangeSet
from golem_forge.core.errors import ForgeError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.undo.log import taken_back
from golem_forge.sandbox.undo.restore import NothingToUndo, UndoPreview, change_diff, preview
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api.operation import ApiCall, RequestedSession, operation
from golem_forge.ui.web.wire import ApiModel, ApiRefusal

_MAX_CALLS: Final = 500
_MAX_FILES: Final = 1000
_MAX_DIFF: Final = 1 << 20
_Path = Annotated[str, Field(max_length=8192)]
_Call = Annotated[str, Field(max_length=200)]


class ChangedFile(ApiModel, title="ChangedFile"):
    path: str
    verb: str
    """`created`, `changed`, `deleted` or `mode`."""
    added: int | None
    """Lines; null: not text, or too large to compare."""
    removed: int | None
    others: list[str]
    """Who else may have changed it; undo does not take it back by itself then."""
    lost: str
    """Why it cannot be brought back; empty: it can."""


class ChangedRef(ApiModel, title="ChangedRef"):
    zone: str
    name: str
    before: str
    after: str


class CallChanges(ApiModel, title="CallChanges"):
    turn: int
    """Which message of the person; 0: they called the tool by hand."""
    call: str
    tool: str
    worker: str
    at: str
    what: str
    added: int
    removed: int
    undone: str
    """`undone`, `undone in part`; empty: it was not."""
    undoes: list[str]
    """The calls that this one took back."""
    problem: str
    """Why some changes may be missing; empty: it is complete."""
    files: list[ChangedFile]
    refs: list[ChangedRef]


class ChangesShown(ApiModel, title="ChangesShown"):
    calls: list[CallChanges]
    """Oldest first."""
    more: bool
    """Whether earlier ones, or further files of a call, are left out."""


class ChangeSelectionQuery(ApiModel, title="ChangeSelectionQuery"):
    turn: int | None = None
    call: _Call = ""
    path: _Path = ""


class FileDiffQuery(ApiModel, title="FileDiffQuery"):
    call: _Call
    path: _Path


class FileDiffShown(ApiModel, title="FileDiffShown"):
    path: str
    diff: str
    """Unified; empty where it is no text."""


class UndoQuery(ApiModel, title="UndoQuery"):
    turn: int | None = None
    call: _Call = ""
    path: _Path = ""
    redo: bool = False


class UndoStepShown(ApiModel, title="UndoStepShown"):
    path: str
    action: str
    """`restore`, `delete`, `create`, `mode` or `ref`."""
    selected: bool
    why: str
    """Why it is not taken back by itself, or cannot be."""
    diff: str


class UndoShown(ApiModel, title="UndoShown"):
    steps: list[UndoStepShown]
    calls: list[str]
    lost: list[str]


@operation("GET", "/api/sessions/{id}/changes", "list_changes", tag="changes")
async def list_changes(call: ApiCall, subject: RequestedSession, query: ChangeSelectionQuery) -> ChangesShown:
    """What the calls of a session changed in the zones; of one turn, call or path where it is named."""
    every = await _changes(call, subject)
    found = _selected(every, query).of(every)
    undone = taken_back(every)
    shown = [change_json(each, undone) for each in found[-_MAX_CALLS:]]
    more = len(found) > len(shown) or any(len(each["files"]) > _MAX_FILES for each in shown)
    for each in shown:
        del each["files"][_MAX_FILES:]
    return ChangesShown.model_validate(subject.redact({"calls": shown, "more": more}))


@operation(
    "GET",
    "/api/sessions/{id}/changes/diff",
    "show_change",
    tag="changes",
    refusals={404: "there is no such session, or no such change"},
)
async def show_change(call: ApiCall, subject: RequestedSession, query: FileDiffQuery) -> FileDiffShown:
    """What one call changed in one file."""
    every = await _changes(call, subject)
    found = next(
        (one for each in every if each.call == query.call for one in each.changes if one.path == query.path), None
    )
    if found is None:
        raise ApiRefusal(404, "This call did not change this file.")
    home = subject.home.path
    diff = await run_in_thread(lambda: change_diff(home, found))
    shown = subject.redact({"path": found.path, "diff": diff})
    # Cut afterwards: the beginning of a secret at the cut would be text like any other.
    return FileDiffShown.model_validate({**shown, "diff": shown["diff"][:_MAX_DIFF]})


@operation(
    "GET",
    "/api/sessions/{id}/undo",
    "preview_undo",
    tag="changes",
    refusals={409: "the session does not run here", 422: "there is no such turn, call or path"},
)
async def preview_undo(call: ApiCall, subject: RequestedSession, query: UndoQuery) -> UndoShown:
    """What the tool `undo_changes` would do with each file. Changes nothing."""
    runtime = subject.live_runtime
    every = await _changes(call, subject)
    selected = _selected(every, query)
    home, session = subject.home.path, runtime.session_id
    sandbox = runtime.path.sandbox or Sandbox(has_block=False)

    def look() -> UndoPreview:
        return preview(
            home,
            sandbox,
            session,
            turn=selected.turn,
            call=selected.call,
            paths=selected.paths,
            redo=query.redo,
        )

    try:
        found = await run_in_thread(look)
    except NothingToUndo as error:
        raise ApiRefusal(422, error.message) from None
    shown = {
        "steps": [
            {"path": each.path, "action": each.action, "selected": each.selected, "why": each.why, "diff": each.diff}
            for each in found.steps[:_MAX_FILES]
        ],
        "calls": list(found.calls),
        "lost": [f"{each.path}: {each.why}" for each in found.lost],
    }
    return UndoShown.model_validate(subject.redact(shown))


async def _changes(call: ApiCall, subject: RequestedSession) -> tuple[ChangeSet, ...]:
    home, session = subject.home.path, (await call.registry.find(call.path["id"])).id
    return await run_in_thread(lambda: read_changes(home, session))


def _selected(every: tuple[ChangeSet, ...], query: Any) -> ChangeSelection:
    """Refused (422) where there is no such thing."""
    try:
        selected = ChangeSelection()
        if query.turn is not None:
            selected = select_turn(every, query.turn)
        elif query.call:
            selected = select_call(every, query.call)
        paths = select_paths(selected.of(every), [query.path]).paths if query.path else ()
    except ForgeError as error:
        raise ApiRefusal(422, error.message) from None
    return ChangeSelection(turn=selected.turn, call=selected.call, paths=paths)
