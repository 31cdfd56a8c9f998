"""Rules and approvals: what is allowed and by whom, how a call would be judged, and revoking a permission.

The same facts and actions as `/rules`, `forge rules explain` and `forge rules revoke`. A rule written by hand is
pointed to, never rewritten. Explaining runs nothing, asks nobody and records nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, model_validator

from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api.models import ActionResult
from golem_forge.ui.web.api.operation import ApiCall, RequestedSession, operation, requested_session
from golem_forge.ui.web.wire import ApiModel, ApiRefusal

if TYPE_CHECKING:
    from golem_forge.agent.explain import DryEvaluator, ExplainedCall

_MAX_ID: Final = 128
_MAX_COMMAND: Final = 65_536


class RuleShown(ApiModel, title="RuleShown"):
    id: str
    verdict: str
    what: str
    kept_in: str
    """`~/.forge/rules.yaml:3`, or `this session`."""
    scope: str
    reason: str
    origin: str
    """`builtin`, `user`, `remembered`, `project` or `session`."""
    hits: int
    last_used: str | None
    """ISO time; null: no call met it yet."""
    inactive: str
    """Why it does not act; empty if it does."""
    revocable: bool


class ApprovalShown(ApiModel, title="ApprovalShown"):
    """What was allowed for the rest of this session: one exact call, or something one worker may do."""

    id: str
    what: str
    worker: str
    """Empty: an exact call."""


class RuleList(ApiModel, title="RuleList"):
    rules: list[RuleShown]
    approvals: list[ApprovalShown]
    notices: list[str]
    """What a person must know: project rules that are there and do not count."""


class ExplainRequest(ApiModel, title="Wondered"):
    """Either a tool and its arguments, or the text of a command."""

    tool: str = Field(default="", max_length=500)
    args: dict[str, Any] = Field(default_factory=dict)
    command: str = Field(default="", max_length=_MAX_COMMAND)

    @model_validator(mode="after")
    def _one_of_both(self) -> ExplainRequest:
        if bool(self.tool) == bool(self.command):
            raise ValueError("give either tool and args, or command")
        return self


class ExplainAnswer(ApiModel, title="Explanation"):
    tool: str
    args: dict[str, Any]
    worker: str
    mode: str
    verdict: str | None
    """null: there is nothing to judge, `error` says why."""
    then: str = ""
    """What would become of the call, in a sentence."""
    effects: list[dict[str, Any]] | None = None
    """null: the tool does not say what it touches."""
    segments: list[dict[str, Any]] = Field(default_factory=list)
    decision: dict[str, Any] | None = None
    status: str = ""
    code: str = ""
    error: str = ""
    notices: list[str] = Field(default_factory=list)


@operation("GET", "/api/sessions/{id}/rules", "list_rules", answer=RuleList, tag="rules")
async def list_rules(call: ApiCall) -> RuleList:
    """Every rule with its file, scope and last use, and what was approved for the rest of this session."""
    from golem_forge.agent.in_force import approvals_in_force, open_rules, rules_in_force
    from golem_forge.policy.rules.usage import rule_usage

    subject = await requested_session(call)
    used = await run_in_thread(lambda: rule_usage(subject.home.path))
    runtime = subject.runtime
    book = runtime.rules if runtime is not None else await run_in_thread(lambda: open_rules(subject.home, subject.root))
    rules = rules_in_force(book, used)
    approvals = approvals_in_force(runtime) if runtime is not None else ()
    return RuleList.model_validate(
        subject.redact(
            {
                "rules": [asdict(each) | {"last_used": each.last_used or None} for each in rules],
                "approvals": [asdict(each) for each in approvals],
                "notices": book.notices,
            }
        )
    )


@operation(
    "DELETE",
    "/api/sessions/{id}/rules/{rule}",
    "revoke_rule",
    answer=ActionResult,
    tag="rules",
    refusals={404: "nothing with this id is remembered", 409: "somebody wrote it by hand; says where"},
)
async def revoke_rule(call: ApiCall) -> ActionResult:
    """Takes back a remembered rule, for every session, or an approval of this one. The next such call asks."""
    from golem_forge.agent.in_force import UNKNOWN_ID, NotRevoked, open_rules, revoke_in_session, revoke_remembered

    subject, id_ = await requested_session(call), call.path["rule"][:_MAX_ID]
    runtime = subject.runtime
    try:
        if runtime is not None:
            text = revoke_in_session(runtime, id_)
            runtime.ui.show_status(type="info", message=text, code="REVOKED")
        else:
            text = await run_in_thread(
                lambda: revoke_remembered(subject.home, open_rules(subject.home, subject.root), id_)
            )
    except NotRevoked as error:
        raise ApiRefusal(404 if error.code == UNKNOWN_ID else 409, subject.redact(error.message)) from None
    return ActionResult(text=subject.redact(text))


@operation(
    "POST", "/api/sessions/{id}/rules/explain", "explain_call", body=ExplainRequest, answer=ExplainAnswer, tag="rules"
)
async def explain_call(call: ApiCall) -> ExplainAnswer:
    """How a call would be judged now: what it touches, everybody who has a say, and who decides. Nothing is run."""
    subject = await requested_session(call)
    asked: ExplainRequest = call.body
    if subject.runtime is not None:
        from golem_forge.agent.explain import evaluator_for

        await subject.refresh_tools()
        told = await _explain(evaluator_for(subject.runtime), asked)
    else:
        told = await run_in_thread(lambda: asyncio.run(_explain_recorded(subject, asked)))
    told["args"] = subject.redactor.value(told["args"])
    return ExplainAnswer.model_validate(subject.redact(told))


async def _explain_recorded(subject: RequestedSession, asked: ExplainRequest) -> dict[str, Any]:
    from golem_forge.agent.explain import open_evaluator, plan_for_explain

    about = f"{asked.command} {asked.args}"
    async with open_evaluator(plan_for_explain(subject.home, subject.root), about=about) as dry:
        return await _explain(dry, asked)


async def _explain(dry: DryEvaluator, asked: ExplainRequest) -> dict[str, Any]:
    from golem_forge.agent.explain import explanation_json

    explained: ExplainedCall = (
        await dry.command(asked.command) if asked.command else await dry.tool_call(asked.tool, asked.args)
    )
    return explanation_json(explained, dry)
