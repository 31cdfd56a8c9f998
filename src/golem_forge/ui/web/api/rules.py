"""Rules and approvals: what is allowed and by whom, how a call would be judged, and revoking a permission.

The same facts and actions as `/rules`, `forge rules explain` and `forge rules revoke`. A rule written by hand is
pointed to, never rewritten. Explaining runs nothing, asks nobody and records nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any, Final

from pydantic import Field, model_validator

from golem_forge.agent import in_force
from golem_forge.agent.explain import (
    DryEvaluator,
    evaluator_for,
    explanation_json,
    open_evaluator,
    plan_for_explain,
)
from golem_forge.policy.rules.book import rule_usage
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api.operation import RequestedSession, operation
from golem_forge.ui.web.wire import ActionResult, ApiModel, ApiRefusal

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


@operation("GET", "/api/sessions/{id}/rules", "list_rules", tag="rules")
async def list_rules(subject: RequestedSession) -> RuleList:
    """Every rule with its file, scope and last use, and what was approved for the rest of this session."""
    used = await run_in_thread(lambda: rule_usage(subject.home.path))
    runtime = subject.runtime
    if runtime is not None:
        book, approvals = runtime.rules, in_force.approvals_in_force(runtime)
    else:
        book, approvals = await run_in_thread(lambda: in_force.open_rules(subject.home, subject.root)), ()
    found = {
        "rules": [asdict(rule) | {"last_used": rule.last_used or None} for rule in in_force.rules_in_force(book, used)],
        "approvals": [asdict(approval) for approval in approvals],
        "notices": book.notices,
    }
    return RuleList.model_validate(subject.redact(found))


@operation(
    "DELETE",
    "/api/sessions/{id}/rules/{rule}",
    "revoke_rule",
    tag="rules",
    refusals={404: "nothing with this id is remembered", 409: "somebody wrote it by hand; says where"},
)
async def revoke_rule(subject: RequestedSession, rule: str) -> ActionResult:
    """Takes back a remembered rule, for every session, or an approval of this one. The next such call asks."""
    id_, runtime = rule[:_MAX_ID], subject.runtime
    try:
        if runtime is not None:
            text = in_force.revoke_in_session(runtime, id_)
            runtime.ui.show_status(type="info", message=text, code="REVOKED")
        else:
            home, root = subject.home, subject.root
            text = await run_in_thread(lambda: in_force.revoke_remembered(home, in_force.open_rules(home, root), id_))
    except in_force.NotRevoked as error:
        status = 404 if error.code == in_force.UNKNOWN_ID else 409
        raise ApiRefusal(status, subject.redact(error.message)) from None
    return ActionResult(text=subject.redact(text))


@operation("POST", "/api/sessions/{id}/rules/explain", "explain_call", tag="rules")
async def explain_call(subject: RequestedSession, body: ExplainRequest) -> ExplainAnswer:
    """How a call would be judged now: what it touches, everybody who has a say, and who decides. Nothing is run."""
    if subject.runtime is not None:
        await subject.refresh_tools()
        found = await _explain(evaluator_for(subject.runtime), body)
    else:
        found = await run_in_thread(lambda: asyncio.run(_explain_recorded(subject, body)))
    found["args"] = subject.redactor.value(found["args"])
    return ExplainAnswer.model_validate(subject.redact(found))


async def _explain_recorded(subject: RequestedSession, asked: ExplainRequest) -> dict[str, Any]:
    about = f"{asked.command} {asked.args}"
    async with open_evaluator(plan_for_explain(subject.home, subject.root), about=about) as dry:
        return await _explain(dry, asked)


async def _explain(dry: DryEvaluator, asked: ExplainRequest) -> dict[str, Any]:
    call = dry.command(asked.command) if asked.command else dry.tool_call(asked.tool, asked.args)
    return explanation_json(await call, dry)
