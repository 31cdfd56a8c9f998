"""Who decides about a tool's calls, in one sentence: the tool itself, what it touches, or the configuration."""

from __future__ import annotations

from golem_forge.core.verdict import Verdict
from golem_forge.policy.base import ApprovalBlocks, configured_base, decides_for_itself
from golem_forge.tools.tool import SourceKind, Tool


def who_decides(tool: Tool, blocks: ApprovalBlocks) -> str:
    if not decides_for_itself(tool):
        said = configured_base(tool.name, blocks)
        return f"{said.verdict.value} ({said.describe()})"
    stricter = [source for source in blocks.named(tool.name) if source.verdict is not Verdict.PRE_APPROVED]
    return "; ".join([_own(tool), *(f"{source.verdict.value} by {source.describe()}" for source in stricter)])


def _own(tool: Tool) -> str:
    own = tool.needs_approval
    if callable(own):
        return "the tool decides for each call"
    if isinstance(own, bool):
        return "ask (the tool always asks)" if own else "preApproved (the tool never asks)"
    if own is not None:
        return f"{Verdict(own).value} (the tool says so)"
    assert tool.source is SourceKind.NATIVE
    if tool.effects == ():
        return "preApproved (it touches nothing)"
    return "by what each call touches: reads inside zones run, the rest as zones and rules say"
