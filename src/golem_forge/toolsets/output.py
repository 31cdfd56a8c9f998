"""read_output: pages through an output that was too long for its caller and was kept whole.

Touches nothing but kept outputs, and of those only the ones of the calling worker and of workers below it (a person
at the keyboard: of any session). How lines, parts of long lines and matches are shown: `output_pages.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from golem_forge._version import __version__
from golem_forge.core.call import Caller
from golem_forge.core.errors import ToolFailed
from golem_forge.core.visible import visible
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import KeptText, OutputLookup, ToolContext
from golem_forge.tools.tool import NeedsApproval, SourceKind, Tool
from golem_forge.toolsets.numbered import offset_field
from golem_forge.toolsets.output_pages import Place, Wanted, find_place, line_at, page, with_context
from golem_forge.toolsets.output_rows import MAYBE_LONG, blocks_of

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel

DEFAULT_LIMIT: Final = 200
_DESCRIPTION: Final = (
    "Read an output that was too long to be shown, by the handle in its `[… left out …]` line. Lines come back "
    "numbered as `L<n>: text`; the last line says where to continue. `grep` shows only matching lines."
)


def create_read_output_tool(
    sandbox: Sandbox | None = None, needs_approval: NeedsApproval | None = None, *, outputs: OutputLookup | None = None
) -> Tool:
    """Without `outputs`: those of the session that makes the call. `sandbox` is there because every
    `create_<tool>_tool` has it; kept outputs are in no zone."""

    async def read_output(args: dict[str, Any], ctx: ToolContext) -> str:
        from golem_forge.tools.threads import run_in_thread

        handle = args["handle"]
        store = outputs or ctx.outputs
        kept = await run_in_thread(lambda: _find(store, handle, ctx))
        asked = _Asked(args.get("offset", 1), args.get("limit", DEFAULT_LIMIT), args.get("context", 0))
        try:
            if kept is not None:
                return await _answer(kept.path, asked, args.get("grep", ""))
        except OSError:  # pruned a moment ago
            pass
        raise ToolFailed(f"No output '{visible(handle[:100])}'.", code="NO_OUTPUT")

    return Tool(
        "read_output",
        _DESCRIPTION,
        input_schema=_arguments,
        execute=read_output,
        needs_approval=needs_approval,
        label="Read output",
        category="Output",
        read_only=True,
        effects=(),
        source=SourceKind.NATIVE,
        code_digest=__version__,
    )


def _arguments() -> type[BaseModel]:
    from typing import Annotated

    from pydantic import AfterValidator, Field, create_model
    from pydantic_core import PydanticCustomError

    from golem_forge.toolsets.line_search import LONGEST_PATTERN, pattern_problem

    def usable(pattern: str) -> str:
        if problem := pattern_problem(pattern):
            raise PydanticCustomError("pattern", "{problem}", {"problem": problem})
        return pattern

    grep = Field(
        default="", max_length=LONGEST_PATTERN, description="Show only lines that match this regular expression."
    )
    context = Field(default=0, ge=0, le=20, description="With `grep`: how many lines to show around each match.")
    return create_model(
        "read_output",
        handle=(str, Field(description="The handle, `out_` and 12 hexadecimal digits.")),
        offset=offset_field("show"),
        limit=(int, Field(default=DEFAULT_LIMIT, ge=1, le=2000, description="How many lines at most.")),
        grep=(Annotated[str, AfterValidator(usable)], grep),
        context=(int, context),
    )


class _Asked(NamedTuple):
    offset: int
    limit: int
    context: int


def _find(store: OutputLookup | None, handle: str, ctx: ToolContext) -> KeptText | None:
    return store.find(handle, ctx.worker, any_session=ctx.caller is Caller.HUMAN) if store else None


async def _answer(path: Path, asked: _Asked, pattern: str) -> str:
    """Every thread opens the file for itself: one that was abandoned must not read what its number means by then."""
    from golem_forge.tools.threads import run_in_thread
    from golem_forge.toolsets.line_search import Scope, is_plain, search, search_plain

    def whole_page() -> str:
        return page(blocks_of(path), find_place(blocks_of(path), asked.offset), asked.limit)

    def beginning() -> tuple[Place, Scope]:
        place = find_place(blocks_of(path), asked.offset)
        line = line_at(blocks_of(path), place)
        # A match in each line behind the first fills a page of `limit` rows, one more ends it.
        return place, Scope(first=max(0, line - asked.context), after=line, most=asked.limit + 1)

    def matching_page(place: Place, found: Wanted) -> str:
        return page(blocks_of(path), place, asked.limit, with_context(found, asked.context))

    def plain_page() -> str:
        place, scope = beginning()
        return matching_page(place, search_plain(pattern, blocks_of(path), scope))

    if not pattern:
        return await run_in_thread(whole_page)
    if is_plain(pattern):
        return await run_in_thread(plain_page)
    place, scope = await run_in_thread(beginning)
    found = await search(pattern, path, MAYBE_LONG, scope)
    return await run_in_thread(lambda: matching_page(place, found))
