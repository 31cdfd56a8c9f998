"""undo_changes: takes back what calls of a session changed, or takes such an undo back (`redo`). Only people call it.

The plan names every path with what becomes of it; the card shows them as effects and as a diff. What was edited since,
may be somebody else's work, or cannot be brought back is said and left alone, unless it is named in `also`. The run
restores what the plan showed, and nothing of a path that changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.changes import ChangeSelection, PathKind
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_module import pydantic
from golem_forge.core.results import ToolResult
from golem_forge.core.text import display_name
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.protected import GIT_FILE, marks
from golem_forge.sandbox.undo.log import UNDO_TOOL
from golem_forge.tools.context import ModelNotes, Plan, ToolContext
from golem_forge.tools.factory import native_tool
from golem_forge.tools.tool import Mode, Tool

if TYPE_CHECKING:
    from golem_forge.sandbox.undo.restore import UndoPreview, UndoStep

_DESCRIPTION: Final = (
    "Take back what calls of this session changed in files, links, directories and git's branches: the last turn that "
    "changed something, or the turn, call or paths that are named."
)
EVERYTHING_STANDS: Final = "Everything stands as it was before: there is nothing to undo."
_MOST_NAMED: Final = 20
_MOST_SHOWN: Final = 1_000


def create_undo_changes_tool() -> Tool:
    return native_tool(
        UNDO_TOOL,
        _DESCRIPTION,
        input_schema=_arguments,
        planner=_plan,
        needs_approval=True,
        mode=Mode.MANUAL,
        label="Undo changes",
        category="Files",
    )


def _arguments() -> type[pydantic.BaseModel]:
    fields: dict[str, Any] = {
        "turn": (
            int | None,
            pydantic.Field(default=None, ge=1, description="The turn to take back: 1 is your first message."),
        ),
        "call": (str, pydantic.Field(default="", max_length=200, description="The id of one call to take back.")),
        "paths": (list[str], pydantic.Field(default_factory=list, description="Only these files or directories.")),
        "also": (
            list[str],
            pydantic.Field(default_factory=list, description="Paths to take back although they were edited since."),
        ),
        "redo": (bool, pydantic.Field(default=False, description="Take the last undo back.")),
        "session": (str, pydantic.Field(default="", max_length=200, description="Another session of this directory.")),
    }
    return pydantic.create_model(UNDO_TOOL, **fields)


def _plan(args: dict[str, Any], ctx: ToolContext) -> Plan:
    from golem_forge.sandbox.undo.restore import NothingToUndo, preview

    if ctx.home is None or ctx.sandbox is None:
        raise ToolFailed("Nothing is kept in this session, so nothing can be undone.")
    sandbox = ctx.sandbox
    session = args["session"] or ctx.session_id
    paths, also = ([_address(path, sandbox) for path in args[name]] for name in ("paths", "also"))
    try:
        found = preview(
            ctx.home,
            sandbox,
            session,
            ChangeSelection(turn=args["turn"], call=args["call"], paths=(*paths, *also) if paths else ()),
            also=also,
            redo=args["redo"],
            settings=ctx.undo,
        )
    except NothingToUndo as error:
        raise ToolFailed(error.message, code=error.code) from None
    selected = found.selected
    if not selected:
        raise ToolFailed(_why_nothing(found), code="NOTHING_TO_UNDO")
    return Plan(
        run=partial(_run, found, ctx),
        effects=tuple(_effect(step, ctx) for step in selected),
        diff="".join(step.diff for step in selected),
        payload=undo_summary(found),
        undoes=found.calls,
        undoes_in=session,
        warnings=tuple(_warnings(found)),
    )


def _address(path: str, sandbox: Any) -> str:
    """As change sets name it."""
    try:
        place = sandbox.locate(path)
    except SandboxError:
        return path
    return place.zone.virtual((*place.zone.subpath, *place.parts)) if place.zone else path


def _effect(step: UndoStep, ctx: ToolContext) -> Effect:
    """Of a path as it was recorded. The rules for names that people type are not asked: it may have any name, and git's
    own (`.git/refs/heads/main`) is no file at all."""
    verb = Verb.DELETE if step.then.kind is PathKind.ABSENT else Verb.WRITE
    assert ctx.sandbox is not None
    _, name, *parts = step.path.split("/")
    zone = ctx.sandbox.zones[name]
    inside = tuple(parts[len(zone.subpath) :])
    found = marks(parts, unprotect=zone.unprotect) if parts[0] != GIT_FILE else ()
    real, said = zone.real(inside), zone.verdict(verb)
    return Effect(
        verb=verb, target=display_name(step.path), real=real, zone_verdict=said, marks=tuple(found), leaves=()
    )


def undo_summary(found: UndoPreview) -> str:
    """What a card shows: a line for each path that goes back."""
    lines = [f"{step.action} {display_name(step.path)}" for step in found.selected[:_MOST_SHOWN]]
    return "\n".join(lines)


def _warnings(found: UndoPreview) -> list[str]:
    left = [f"{display_name(one.path)} is left alone: {one.why}" for one in found.steps if not one.selected]
    lost = [f"{display_name(one.path)} cannot be brought back: {one.why}" for one in found.lost]
    named = [
        f"{display_name(one.path)} is taken back because it was named: {one.why}" for one in found.selected if one.why
    ]
    said = left + lost
    more = [f"{len(said) - _MOST_NAMED} more paths are not taken back"] if len(said) > _MOST_NAMED else []
    lasting = [f"not taken back: {found.lasting}"] if found.lasting else []
    return named[:_MOST_NAMED] + said[:_MOST_NAMED] + more + lasting


def _why_nothing(found: UndoPreview) -> str:
    if not (said := _warnings(found)):
        return EVERYTHING_STANDS
    return "\n".join(("Nothing can be undone here.", *said, "Name a path in `also` to take it back all the same."))


def _run(found: UndoPreview, ctx: ToolContext) -> ToolResult:
    from golem_forge.sandbox.undo.restore import restore_all

    assert ctx.home is not None
    assert ctx.sandbox is not None
    left = restore_all(ctx.home, ctx.sandbox, found.selected, ctx.undo)
    done = [step.path for step in found.selected if step.path not in left]
    said = [{"path": display_name(path), "why": why} for path, why in left.items()]
    said += [{"path": display_name(one.path), "why": one.why} for one in found.steps if not one.selected]
    lost = [{"path": display_name(one.path), "why": one.why} for one in found.lost]
    value = {"kind": "undo.result", "restored": [display_name(path) for path in done], "left": said, "lost": lost}
    if done:
        ctx.parts.get(ModelNotes).add(f"The user undid changes. These paths are as they were before: {_names(done)}.")
    lines = [f"{len(done)} {'path' if len(done) == 1 else 'paths'} restored."]
    lines += [f"Left alone: {one['path']}: {one['why']}" for one in said[:_MOST_NAMED]]
    lines += [f"Cannot be brought back: {one['path']}: {one['why']}" for one in lost[:_MOST_NAMED]]
    lines += [f"Not taken back: {found.lasting}"] if found.lasting else []
    return ToolResult(value=value, text="\n".join(lines))


def _names(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return ", ".join(display_name(path) for path in paths[:_MOST_NAMED]) + more
