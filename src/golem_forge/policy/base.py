"""The base verdict: what a tool itself says, else what the configuration says, else `ask`.

Takes a tool, its validated arguments and the `approval:` blocks; gives a VerdictSource. A predicate
(`needs_approval`) that raises, times out or returns anything but a verdict refuses the call: a failed check is not
consent. `who_decides` says in one sentence where the verdict of a tool comes from.

Threat: a predicate that changes its arguments would change what is shown, recorded and run. It gets a copy.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import traceback
from collections.abc import Callable, Mapping
from copy import deepcopy
from time import monotonic
from typing import Any, Final

from golem_forge.config.validation import Setting
from golem_forge.core.decisions import Status, Verdict, VerdictSource
from golem_forge.core.errors import BlockedError, ForgeError, error_name
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.lazy_module import asyncio
from golem_forge.core.text import nearest_hint
from golem_forge.sandbox.errors import SandboxError
from golem_forge.tools.call_signature import predicate_wants_context
from golem_forge.tools.context import ToolContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import SourceKind, Tool

PREDICATE_SECONDS: Final = 5.0
_VERDICTS: Final[dict[Any, Verdict]] = {True: Verdict.ASK, False: Verdict.PRE_APPROVED} | {v.value: v for v in Verdict}
_log = logging.getLogger("golem_forge.policy.base")  # docs/guides/embed.md names it
_running_checks: set[asyncio.Future[Any]] = set()
"""Checks that have not ended: the loop keeps no reference to them."""
DEFAULT_ASK: Final = VerdictSource(source="base", verdict=Verdict.ASK, reason="no rule or setting allows it")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalBlock:
    """An `approval:` block of forge.yaml or of a toolset."""

    default: Setting[Verdict] | None = None
    tools: Mapping[str, Setting[Verdict]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ApprovalBlocks:
    """The program's block, and those of toolsets for the tools they expose; a toolset's block comes first."""

    program: ApprovalBlock = field(default_factory=ApprovalBlock)
    blocks: dict[str, ApprovalBlock] = field(default_factory=dict)

    def named(self, tool: str) -> list[VerdictSource]:
        """Returns what `approval.tools[name]` says, the toolset's block first."""
        return self._sources(tool, f"approval.tools.{tool}", lambda block: block.tools.get(tool))

    def default(self, tool: str) -> list[VerdictSource]:
        return self._sources(tool, "approval.default", lambda block: block.default)

    def for_tool(self, tool: str) -> list[VerdictSource]:
        """Returns the verdicts for a tool by its name, or the default of the block that exposes it."""
        block = self.blocks.get(tool)
        unnamed = block is not None and block.default is not None and tool not in block.tools
        return [*self.named(tool), *(self.default(tool)[:1] if unnamed else ())]

    def _sources(
        self, tool: str, key: str, setting_of: Callable[[ApprovalBlock], Setting[Verdict] | None]
    ) -> list[VerdictSource]:
        block = self.blocks.get(tool)
        return [
            VerdictSource(source="config", verdict=setting.value, id=key, file=setting.origin)
            for each in ((block, self.program) if block else (self.program,))
            if (setting := setting_of(each))
        ]


def decides_for_itself(tool: Tool) -> bool:
    """Whether the tool itself (its predicate, or the effects that Forge computes) gives the base verdict."""
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
            # For whoever wrote the check; the caller reads the type of the exception only. An exception that cannot be
            # formatted is still only one refused call.
            with contextlib.suppress(Exception):
                trace = "".join(traceback.format_exception(failure))
                _log.warning(
                    "approval check of '%s': %s", tool.name, ctx.redactor.text(trace) if ctx.redactor else trace
                )
            raise _check_failed(tool, error_name(failure)) from None
    return _read_verdict(tool, answer)


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
    """The answer, or what it raised. One that does not answer in time, or whose call is cancelled, is abandoned, even
    if it ignores being cancelled.
    """
    arguments = (deepcopy(values), ctx.without_calls()) if predicate_wants_context(predicate) else (deepcopy(values),)
    check = asyncio.ensure_future(_run_predicate(predicate, arguments))
    _running_checks.add(check)
    check.add_done_callback(_running_checks.discard)
    try:
        done, _ = await asyncio.wait((check,), timeout=PREDICATE_SECONDS)
    except asyncio.CancelledError:
        check.cancel()
        raise
    if done:
        return check.result()
    check.cancel()
    return None, TimeoutError()


async def _run_predicate(predicate: Any, arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    """Threat: a check that blocks the loop also blocks the timer that would end it. So its time is measured here."""
    started = monotonic()
    try:
        if inspect.iscoroutinefunction(predicate):
            answer, ended = await predicate(*arguments), monotonic()
        else:
            answer, ended = await run_in_thread(lambda: (predicate(*arguments), monotonic()))
            if inspect.isawaitable(answer):
                answer, ended = await answer, monotonic()
        return (answer, None) if ended - started <= PREDICATE_SECONDS else (None, TimeoutError())
    except BaseException as error:  # SystemExit too: a check ends no session
        return None, error


def _check_failed(tool: Tool, what: str) -> ForgeError:
    return ForgeError(
        f"Approval check of '{tool.name}' failed ({what}); the call was not run.",
        status=Status.POLICY_DENIED,
        code="APPROVAL_CHECK_FAILED",
    )


def check_block(block: ApprovalBlock, tools: Mapping[str, Tool]) -> tuple[list[str], list[str]]:
    """(errors, names that do not exist) of one approval block, compared with the tools it names."""
    errors: list[str] = []
    unknown: list[str] = []
    for name, setting in block.tools.items():
        tool, key = tools.get(name), f"{setting.origin}: approval.tools.{name}"
        if tool is None:
            unknown.append(f"{key}: no such tool{nearest_hint(name, tools)}")
        elif setting.value is Verdict.PRE_APPROVED and decides_for_itself(tool) and tool.needs_approval is not False:
            errors.append(f"{key}: preApproved has no effect, '{name}' decides for itself")
    return errors, unknown


def who_decides(tool: Tool, blocks: ApprovalBlocks) -> str:
    if not decides_for_itself(tool):
        base = configured_base(tool.name, blocks)
        return f"{base.verdict.value} ({base.describe()})"
    stricter = [source for source in blocks.named(tool.name) if source.verdict is not Verdict.PRE_APPROVED]
    return "; ".join(
        [_describe_own_verdict(tool), *(f"{each.verdict.value} by {each.describe()}" for each in stricter)]
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
    return "by what each call touches: reads inside zones run; zones and rules decide about the rest"
