"""The base verdict: what a tool itself says, else what the configuration says, else `ask`.

Takes a tool, its validated arguments and the `approval:` blocks; gives a Source. A predicate (`needs_approval`) that
raises, times out or returns anything but a verdict refuses the call: a failed check is not consent. `who_decides` says
in one sentence where the verdict of a tool comes from.

Threat: a predicate that changes its arguments would change what is shown, recorded and run. It gets a copy.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Mapping
from copy import deepcopy
from time import monotonic
from typing import Any, Final

from golem_forge.config.approval_modes import Setting
from golem_forge.core.decisions import Status, Verdict, VerdictSource
from golem_forge.core.errors import BlockedError, ForgeError, error_name
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import closest_match
from golem_forge.sandbox.errors import SandboxError
from golem_forge.tools.context import ToolContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import SourceKind, Tool

PREDICATE_SECONDS: Final = 5.0
_VERDICTS: Final[dict[Any, Verdict]] = {True: Verdict.ASK, False: Verdict.PRE_APPROVED} | {v.value: v for v in Verdict}
_log = logging.getLogger("golem_forge.policy.base")  # docs/python.md names it
_running_checks: set[asyncio.Future[Any]] = set()
"""Checks that have not ended: the loop itself would not keep them."""
DEFAULT_ASK: Final = VerdictSource(source="base", verdict=Verdict.ASK, reason="nothing says it may run unasked")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalBlock:
    """An `approval:` block of forge.yaml or of a toolset."""

    default: Setting[Verdict] | None = None
    tools: Mapping[str, Setting[Verdict]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ApprovalBlocks:
    """The program's block, and those of toolsets for the tools they expose; a toolset's word beats the program's."""

    program: ApprovalBlock = field(default_factory=ApprovalBlock)
    blocks: dict[str, ApprovalBlock] = field(default_factory=dict)

    def named(self, tool: str) -> list[VerdictSource]:
        """What `approval.tools[name]` says, toolset first."""
        return [
            VerdictSource(source="config", verdict=said.value, id=f"approval.tools.{tool}", file=said.origin)
            for block in self._blocks_of(tool)
            if (said := block.tools.get(tool))
        ]

    def default(self, tool: str) -> list[VerdictSource]:
        return [
            VerdictSource(source="config", verdict=said.value, id="approval.default", file=said.origin)
            for block in self._blocks_of(tool)
            if (said := block.default)
        ]

    def for_tool(self, tool: str) -> list[VerdictSource]:
        """What is said of a tool by name, or by the default of the very block that exposes it."""
        block = self.blocks.get(tool)
        unnamed = block is not None and block.default is not None and tool not in block.tools
        return [*self.named(tool), *(self.default(tool)[:1] if unnamed else ())]

    def _blocks_of(self, tool: str) -> tuple[ApprovalBlock, ...]:
        block = self.blocks.get(tool)
        return (block, self.program) if block else (self.program,)


def decides_for_itself(tool: Tool) -> bool:
    """True where the tool (its predicate, or Forge's computed effects) gives the base verdict."""
    return tool.needs_approval is not None or tool.source is SourceKind.NATIVE


def configured_base(tool: str, settings: ApprovalBlocks) -> VerdictSource:
    """Tier 2: `approval.tools[name]`, then `approval.default`, then `ask`; `blocked` at either step blocks."""
    for step in (settings.named(tool), settings.default(tool)):
        if step:
            return next((source for source in step if source.verdict is Verdict.BLOCKED), step[0])
    return DEFAULT_ASK


async def predicate_base(tool: Tool, values: dict[str, Any], ctx: ToolContext) -> VerdictSource:
    """Tier 1: the tool's `needs_approval`, evaluated on the validated arguments."""
    answer: Any = tool.needs_approval
    if callable(answer):
        try:
            answer, failure = await _run_with_timeout(answer, values, ctx)
        except Exception as error:  # arguments that cannot be copied, a signature that cannot be read, no thread left
            answer, failure = None, error
        if isinstance(failure, (BlockedError, SandboxError)):  # what Forge itself refuses on the way says so itself
            raise failure
        if failure is not None:
            _log_failure(tool, failure, ctx)
            raise _check_failed(tool, error_name(failure)) from None
    return _read_verdict(tool, answer)


def _log_failure(tool: Tool, failure: BaseException, ctx: ToolContext) -> None:
    """For whoever wrote the check: the caller reads the type of the exception only."""
    try:
        told = "".join(traceback.format_exception(failure))
    except Exception:  # an exception that cannot be read is still only one refused call
        return
    _log.warning("approval check of '%s': %s", tool.name, ctx.redactor.text(told) if ctx.redactor else told)


def constant_base(tool: Tool) -> VerdictSource:
    """Tier 1 for a `needs_approval` that is no function."""
    return _read_verdict(tool, tool.needs_approval)


def _read_verdict(tool: Tool, answer: Any) -> VerdictSource:
    verdict = _VERDICTS.get(answer) if isinstance(answer, (bool, str)) else None
    if verdict is None:
        raise _check_failed(tool, f"answered {type(answer).__name__}")
    return VerdictSource(source="base", verdict=verdict, id=tool.name, reason=f"the tool says {verdict.value}")


async def _run_with_timeout(
    predicate: Any, values: dict[str, Any], ctx: ToolContext
) -> tuple[Any, BaseException | None]:
    """The answer, or what it raised. One that does not answer in time is left behind, even if it ignores being
    cancelled; so it is when the call itself is.

    Threat: a check that changes its arguments would change what is shown, recorded and run. It gets a copy.
    """
    own = deepcopy(values)
    asking = asyncio.ensure_future(
        _run_predicate(predicate, (own, ctx.without_calls()) if _wants_context(predicate) else (own,))
    )
    _running_checks.add(asking)
    asking.add_done_callback(_running_checks.discard)
    try:
        done, _ = await asyncio.wait((asking,), timeout=PREDICATE_SECONDS)
    except asyncio.CancelledError:
        asking.cancel()
        raise
    if done:
        return asking.result()
    asking.cancel()
    return None, TimeoutError()


async def _run_predicate(predicate: Any, arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    """Threat: a check that blocks the loop blocks the clock that would end it too. So its time is taken here."""
    started = monotonic()
    try:
        if inspect.iscoroutinefunction(predicate):
            answer = await predicate(*arguments)
        else:
            answer, ended = await run_in_thread(lambda: (predicate(*arguments), monotonic()))
            if not inspect.isawaitable(answer):
                return _in_time(answer, ended - started)
            answer = await answer
        return _in_time(answer, monotonic() - started)
    except BaseException as error:  # SystemExit too: a check ends no session
        return None, error


def _in_time(answer: Any, seconds: float) -> tuple[Any, BaseException | None]:
    return (answer, None) if seconds <= PREDICATE_SECONDS else (None, TimeoutError())


def _wants_context(predicate: Any) -> bool:
    try:
        parameters = inspect.signature(predicate).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def _check_failed(tool: Tool, what: str) -> ForgeError:
    return ForgeError(
        f"Approval check of '{tool.name}' failed ({what}); the call was not run.",
        status=Status.POLICY_DENIED,
        code="APPROVAL_CHECK_FAILED",
    )


def check_block(block: ApprovalBlock, tools: Mapping[str, Tool]) -> tuple[list[str], list[str]]:
    """(errors, names that do not exist) of one approval block, held against the tools it speaks of."""
    errors: list[str] = []
    unknown: list[str] = []
    for name, said in block.tools.items():
        tool = tools.get(name)
        if tool is None:
            close = closest_match(name, tools)
            hint = f"; did you mean {close!r}?" if close else ""
            unknown.append(f"{said.origin}: approval.tools.{name}: no such tool{hint}")
        elif said.value is Verdict.PRE_APPROVED and decides_for_itself(tool) and tool.needs_approval is not False:
            errors.append(
                f"{said.origin}: approval.tools.{name}: preApproved has no effect, '{name}' decides for itself"
            )
    return errors, unknown


def who_decides(tool: Tool, blocks: ApprovalBlocks) -> str:
    if not decides_for_itself(tool):
        said = configured_base(tool.name, blocks)
        return f"{said.verdict.value} ({said.describe()})"
    stricter = [source for source in blocks.named(tool.name) if source.verdict is not Verdict.PRE_APPROVED]
    return "; ".join(
        [_describe_own_verdict(tool), *(f"{source.verdict.value} by {source.describe()}" for source in stricter)]
    )


def _describe_own_verdict(tool: Tool) -> str:
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
