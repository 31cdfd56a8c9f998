"""The `edit` toolset: one tool, `apply_patch`, that changes several files of the sandbox at once, or none of them.

The plan holds the very bytes that the run will write. What is wrong with the patch's text is `input_invalid`; what does
not fit the files fails while planning, so nobody is asked about a patch that cannot work. Cancelling while it runs puts
every file back before the call ends.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Final

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.core.lazy_module import asyncio, pydantic, pydantic_core
from golem_forge.core.results import ToolResult
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import Target
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import ToolsetContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import NeedsApproval, Tool
from golem_forge.toolsets.edit.apply import PatchApplication
from golem_forge.toolsets.edit.draft import Draft, fill_draft, patch_diff, patch_entries, patch_result
from golem_forge.toolsets.edit.patch import PatchFailed, PatchInvalid, has_padded_markers, parse_patch, patch_refused
from golem_forge.toolsets.file_access import FileAccess, FileTool, ZoneApproval, checked_overrides


class EditToolset:
    name = "edit"
    config = None

    def __init__(self, sandbox: Sandbox | None = None, *, zone_approval: ZoneApproval | None = None) -> None:
        self._sandbox = sandbox
        self._overrides = checked_overrides(sandbox, zone_approval or {})

    def get_tools(self, ctx: ToolsetContext | None = None) -> list[Tool]:
        access = FileAccess(self._sandbox or (ctx.sandbox if ctx else None), self._overrides)
        return [_APPLY_PATCH.create(access)]


def create_apply_patch_tool(sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    return _APPLY_PATCH.create(FileAccess(sandbox), needs_approval)


MAX_PATCH_BYTES: Final = 1024 * 1024
_MAX_ARGUMENTS: Final = 16 * 1024 * 1024
"""Above the patch's own limit, so that one just over it gets the answer that names that limit."""
_DESCRIPTION: Final = """\
Change files with a patch: all of it is applied, or nothing. At most 1 MiB and 200 operations. The form:
*** Begin Patch
*** Add File: path/new.py
+every line of the new file
*** Delete File: path/old.py
*** Update File: path/a.py
*** Move to: path/b.py
@@ def f():
 context line
-line to remove
+line to add
*** End Patch
`Move to` is optional. `@@ <line>` names a line above the change and may be stacked; every chunk after the first needs \
`@@`. Context and `-` lines must stand in the file as given, chunks in file order; about 3 lines of context each. \
`*** End of File` after a chunk: it matches at the end. Paths: /<zone>/…, or relative to the default zone."""


def _arguments() -> type[pydantic.BaseModel]:
    def small_enough(value: str) -> str:
        size = len(value.encode("utf-8", "surrogatepass"))
        if size > MAX_PATCH_BYTES:
            raise pydantic_core.PydanticCustomError(
                "too_large", "is {size} bytes; the limit is {limit}", {"size": size, "limit": MAX_PATCH_BYTES}
            )
        return value

    text = "The patch, from `*** Begin Patch` to `*** End Patch`."
    return pydantic.create_model(
        "apply_patch", input=(Annotated[str, pydantic.AfterValidator(small_enough)], pydantic.Field(description=text))
    )


def _plan(access: FileAccess, args: dict[str, Any], ctx: ToolContext) -> Plan:
    draft = _draft(access, args["input"], ctx)
    planned = PlannedPatch(draft, ctx)
    effects = draft.effects
    return Plan(run=planned.run, effects=effects, diff=planned.diff, recheck=planned.recheck, close=draft.close)


_APPLY_PATCH: Final = FileTool(
    name="apply_patch",
    description=_DESCRIPTION,
    label="Apply patch",
    arguments=_arguments,
    planner=_plan,
    always=Verb.WRITE,
    aliases={"patch": "input"},
    max_argument_bytes=_MAX_ARGUMENTS,
)


def _draft(access: FileAccess, text: str, ctx: ToolContext) -> Draft:
    """The patch as written; if that fits no file and some markers have blanks before them, with these as markers."""
    try:
        return _read_patch(access, text, ctx, padded=False)
    except (PatchInvalid, PatchFailed, SandboxError) as error:
        if not has_padded_markers(text):
            raise
        try:
            return _read_patch(access, text, ctx, padded=True)
        except (PatchInvalid, PatchFailed, SandboxError):
            raise error from None


def _read_patch(access: FileAccess, text: str, ctx: ToolContext, *, padded: bool) -> Draft:
    operations = parse_patch(text, padded=padded)

    def resolve(path: str, verb: Verb) -> Target:
        return access.target(path, verb, ctx)

    def is_hidden(virtual: str) -> bool:
        """Whether a rule keeps this file from being read unasked: then failures and diffs must not show its lines."""
        return any(
            Verb.READ in rule.access and rule.verdict is not Verdict.PRE_APPROVED and rule.matches(virtual)
            for rule in ctx.path_rules()
        )

    draft = Draft(resolve, lambda target: access.effect(target, ctx), is_hidden)
    try:
        fill_draft(draft, operations)
    except BaseException as error:
        draft.close()
        if isinstance(error, SandboxError):
            raise patch_refused(error) from None
        raise
    return draft


class PlannedPatch:
    """A draft as a call's plan runs it: all files are written, or none."""

    def __init__(self, draft: Draft, ctx: ToolContext) -> None:
        self._draft = draft
        self._ctx = ctx
        self._listed = patch_entries(draft)
        self.diff = patch_diff(self._listed)

    def recheck(self) -> None:
        for target in self._draft.targets():
            try:
                target.recheck()
            except SandboxError as error:
                raise patch_refused(error) from None

    async def run(self) -> ToolResult:
        """Runs in a thread and waits for it even if cancelled: then every file is put back first."""
        given_up: list[bool] = []
        application = PatchApplication(
            self._draft,
            home=self._ctx.home,
            call_id=self._ctx.call_id,
            cancelled=lambda: bool(given_up) or bool(self._ctx.cancel),
        )
        work = run_in_thread(application.apply)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            given_up.append(True)
            while not work.done():  # however often this wait is cancelled
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([work])
            if work.exception() is None:
                application.roll_back()
            raise
        if self._ctx.cancel:  # given after the last look, before anyone learned that it was done
            application.roll_back()
            raise asyncio.CancelledError
        application.finish()
        return patch_result(self._draft, self._listed, self.diff)
