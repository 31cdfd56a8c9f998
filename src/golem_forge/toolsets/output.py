"""read_output: pages through an output that was too long for its caller and was kept whole.

Touches nothing but kept outputs, and of those only the ones of the calling worker and of workers below it (a person
at the keyboard: of any session). How lines, parts of long lines and matches are shown: `output_pages.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from golem_forge._version import __version__
from golem_forge.core.call import Caller
from golem_forge.core.errors import ToolFailed
from golem_forge.core.visible import visible
from golem_forge.tools.context import OutputLookup, ToolContext
from golem_forge.tools.tool import NeedsApproval, SourceKind, Tool
from golem_forge.toolsets.numbered import bare, offset_field, split_lines
from golem_forge.toolsets.output_pages import MAYBE_LONG, page, with_context

if TYPE_CHECKING:
    from pydantic import BaseModel

DEFAULT_LIMIT: Final = 200
_DESCRIPTION: Final = (
    "Read an output that was too long to be shown, by the handle in its `[… left out …]` line. Lines come back "
    "numbered as `L<n>: text`; the last line says where to continue. `grep` shows only matching lines."
)


def create_read_output_tool(outputs: OutputLookup | None = None, needs_approval: NeedsApproval | None = None) -> Tool:
    """Without `outputs`: those of the session that makes the call."""

    async def read_output(args: dict[str, Any], ctx: ToolContext) -> str:
        from golem_forge.tools.threads import run_in_thread
        from golem_forge.toolsets.line_search import search

        handle = args["handle"]
        store = outputs or ctx.outputs
        lines = await run_in_thread(lambda: _lines_of(store, handle, ctx))
        offset, limit = args.get("offset", 1), args.get("limit", DEFAULT_LIMIT)
        if not (pattern := args.get("grep", "")):
            return await run_in_thread(lambda: page(lines, offset, limit))
        found = await search(pattern, lines, MAYBE_LONG)
        wanted = with_context(found, args.get("context", 0))
        return await run_in_thread(lambda: page(lines, offset, limit, wanted))

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


def _lines_of(store: OutputLookup | None, handle: str, ctx: ToolContext) -> list[str]:
    kept = store.find(handle, ctx.worker, any_session=ctx.caller is Caller.HUMAN) if store else None
    try:
        data = kept.path.read_bytes() if kept else None
    except OSError:  # pruned a moment ago
        data = None
    if data is None:
        raise ToolFailed(f"No output '{visible(handle[:100])}'.", code="NO_OUTPUT")
    return [bare(line) for line in split_lines(data.decode("utf-8", "replace"))]
