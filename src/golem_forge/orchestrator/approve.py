"""approve: turns an `ask` into a yes or a no. Takes the judged call; gives back when it may run.

A person may edit the arguments: the edited call goes through validate, plan and judge again, and the approval counts
for exactly that call, unless its risk is higher than the one they saw. Refuses with `policy_denied` (blocked),
`approval_denied`, or `interrupted`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, cast

from golem_forge.config.modes import ApprovalMode
from golem_forge.core.copying import own_copy, same_json, with_hidden_restored
from golem_forge.core.decision import AnsweredBy
from golem_forge.core.errors import ForgeError, error_name
from golem_forge.core.verdict import Risk, Status, Verdict, is_riskier
from golem_forge.events.clock import iso_now
from golem_forge.events.redaction import Redactor
from golem_forge.orchestrator.travel import Travel, changes
from golem_forge.orchestrator.validate import validate
from golem_forge.policy.answers import Answer
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.desk import MAX_EDITS, Waiting
from golem_forge.policy.effects import grant_of
from golem_forge.policy.judge import Judge
from golem_forge.policy.judged import Judged
from golem_forge.policy.offers import Offer, offers_from
from golem_forge.policy.request import build_request
from golem_forge.policy.rules import Rule, choices, remember
from golem_forge.policy.sources import refusal
from golem_forge.tools.prefill import with_secrets_kept
from golem_forge.tools.validation import InputInvalid

Replan = Callable[[], Awaitable[None]]
"""Plans and judges the travel's present arguments anew."""
DescribePath = Callable[[str], tuple[dict[str, Any], ...]]
"""A worker's path (`main/analyzer`) → `{id, name, depth, task}` of each worker on it, root first."""
OnKept = Callable[[str, dict[str, Any]], None]
"""(`exact`, `rule` or `grant`; what it is): something was kept for this session, for whoever must know it later."""


class Approval:
    """The stage with what it needs; one per session."""

    def __init__(
        self,
        controller: ApprovalController,
        judge: Judge,
        redactor: Redactor,
        describe_path: DescribePath,
        on_kept: OnKept | None = None,
    ) -> None:
        self._controller = controller
        self._judge = judge
        self._redactor = redactor
        self._describe_path = describe_path
        self._on_kept = on_kept

    async def approve(self, travel: Travel, replan: Replan) -> None:
        answer: Answer | None = None
        shown = Risk.LOW
        for _ in range(MAX_EDITS):
            decision = _judged(travel).decision
            if decision.verdict is Verdict.BLOCKED:
                raise _blocked(travel)
            if decision.verdict is Verdict.PRE_APPROVED and answer is None:
                return
            if travel.approved_as and travel.approved_as == decision.fingerprint:
                return  # planned anew after a wait, and still the call that was approved
            if answer is None or is_riskier(decision.risk, shown):
                shown = decision.risk
                answer = await self._ask(travel)
                if answer.args is not None:
                    await self._edit(travel, answer.args, replan)
                    continue
            self._settle(travel, answer)
            return
        raise ForgeError("The arguments were edited too often; the call was not run.", status=Status.APPROVAL_DENIED)

    async def _ask(self, travel: Travel) -> Answer:
        decision = _judged(travel).decision
        decision.asked_at = iso_now()
        answer = await self._controller.approve(decision, travel.tool.name, lambda: self._waiting(travel))
        decision.answered_at = iso_now()
        travel.asked = travel.asked or answer.by is AnsweredBy.PERSON
        if not answer.approved:
            text = answer.message
            if answer.by is AnsweredBy.MODE and travel.plan is not None and travel.plan.unasked:
                text = travel.plan.unasked
            decision.answered_by, decision.message = answer.by, text
            travel.stop_turn = answer.stop
            raise ForgeError(text, status=answer.status, code="DENIED")
        if answer.by is AnsweredBy.PERSON:  # the others answer at once
            self._refuse_what_is_blocked_by_now(travel)
        return answer

    def _refuse_what_is_blocked_by_now(self, travel: Travel) -> None:
        """Threat: a rule that blocks was written while a person looked at the card; nobody's yes is above it."""
        judged = _judged(travel)
        now = self._judge.weigh(travel.tool, judged.facts, judged.base, judged.decision.keys)
        if now.decision.verdict is Verdict.BLOCKED:
            travel.judged, travel.decision = now, now.decision
            raise _blocked(travel)

    async def _edit(self, travel: Travel, args: dict[str, Any], replan: Replan) -> None:
        before, asked = travel.arguments.plain, _judged(travel).decision
        travel.arguments, travel.edited = validate(travel.tool, args), True
        shown, of_others = self._redactor.value, travel.tool.without_secrets
        if note := changes(shown(of_others(before)), shown(of_others(travel.arguments.plain))):
            travel.notes = (*travel.notes, note)
        await replan()
        decision = _judged(travel).decision
        decision.edited, decision.asked_at, decision.answered_at = True, asked.asked_at, asked.answered_at

    def _settle(self, travel: Travel, answer: Answer) -> None:
        decision = _judged(travel).decision
        decision.answered_by = answer.by
        decision.cached = answer.cached
        decision.answered_at = decision.answered_at or iso_now()
        travel.approved_as = decision.fingerprint
        if answer.choice is not None:
            self._keep(travel, self._for_edited(travel, answer.choice) if decision.edited else answer.choice)
        if travel.tool.pin is not None and not travel.tool.definition_approved and answer.by is AnsweredBy.PERSON:
            travel.tool.pin()

    def _for_edited(self, travel: Travel, chosen: Offer) -> Offer:
        """The same choice, made from the edited call: what is kept must be what was approved."""
        offers = self._offers(travel)
        same = next((offer for offer in offers if offer.label == chosen.label and offer.scope == chosen.scope), None)
        return same or Offer(id="exact", label="this exact call", scope="session", exact=True)

    def _keep(self, travel: Travel, offer: Offer) -> None:
        decision, rules = _judged(travel).decision, self._judge.rules
        if offer.grant:
            self._judge.grant(_judged(travel).facts.worker, offer.grant)
            self._tell(travel, "grant", {"grant": offer.grant})
        elif offer.exact or rules is None:
            what = f"{travel.tool.name} {decision.args_key}"
            self._controller.keep(decision.fingerprint, what)
            self._tell(travel, "exact", {"fingerprint": decision.fingerprint, "what": what})
        elif offer.scope == "always":
            remember(rules.home, offer.rules)
            rules.reread()
        else:
            for rule in offer.rules:
                rules.add_session_rule(rule)
                self._tell(travel, "rule", {"rule": rule.to_yaml()})
        decision.remembered = offer.scope
        self._controller.judge_again()

    def _tell(self, travel: Travel, kind: str, what: dict[str, Any]) -> None:
        if self._on_kept is not None:
            tool = travel.tool
            who = {"worker": _judged(travel).facts.worker, "tool": tool.name, "definition": tool.definition_digest}
            self._on_kept(kind, who | what)

    def _waiting(self, travel: Travel) -> Waiting:
        request = build_request(
            tool=travel.tool,
            args=travel.arguments.plain,
            plan=travel.plan,
            decision=_judged(travel).decision,
            effects=_judged(travel).facts.effects,
            call_id=travel.call.id,
            caller=travel.call.caller,
            worker=_judged(travel).facts.worker,
            redactor=self._redactor,
            choices=self._offers(travel),
            previously_denied=self._controller.memory.denials(_judged(travel).decision.fingerprint),
            describe_path=lambda worker: (*self._describe_path(worker), *_calling_tools(travel)),
        )
        return Waiting(
            request=request,
            check_edit=lambda args: _problems(travel, args),
            restore=partial(
                _restored, request.fields, own_copy(request.args), travel.arguments.given or travel.arguments.plain
            ),
            clean=lambda problems: tuple((field, self._redactor.text(words)[:500]) for field, words in problems),
            covered=lambda: self._covered(travel),
            signal=travel.waiting,
        )

    def _offers(self, travel: Travel) -> tuple[Offer, ...]:
        judged = _judged(travel)
        by = judged.decision.decided_by
        rules = self._judge.rules
        offers = offers_from(
            choices(
                judged.facts,
                judged.bases,
                critical=judged.decision.risk is Risk.CRITICAL,
                explicit_ask=by is not None and by.source in ("rules", "config"),
                grant=self._possible_grant(travel),
                would_lift=lambda extra: self._would_lift(travel, extra),
                remembered_file=rules.home.shown(rules.home.remembered) if rules else "",
            )
        )
        offers = self._without_secrets(offers)
        if self._judge.mode is ApprovalMode.STRICT:  # no rule from a file lifts there, so none is offered
            return tuple(offer for offer in offers if offer.scope == "session")
        return offers

    def _without_secrets(self, offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
        """A rule is written to a file and shown in lists: where words of the call hold a secret, only the call itself
        can be kept."""
        texts = [text for offer in offers for text in (offer.label, offer.rule)]
        if all(self._redactor.secrets_out(text) == text for text in texts):
            return offers
        return (Offer(id="exact:session", label="this exact call, this session", scope="session", exact=True),)

    def _possible_grant(self, travel: Travel) -> str:
        """The one session grant that, given, would let this call through."""
        judged = _judged(travel)
        asking = (said.effect for said in judged.bases if said.base is not Verdict.PRE_APPROVED)
        grants = {grant_of(effect) for effect in asking}
        if len(grants) != 1 or not (grant := grants.pop()):
            return ""
        tried = self._judge.weigh(travel.tool, judged.facts, judged.base, judged.decision.keys, extra_grant=grant)
        return grant if tried.decision.verdict is Verdict.PRE_APPROVED else ""

    def _would_lift(self, travel: Travel, extra: tuple[Rule, ...]) -> bool:
        tried = self._judge.weigh(
            travel.tool, _judged(travel).facts, _judged(travel).base, _judged(travel).decision.keys, extra=extra
        )
        return tried.decision.verdict is Verdict.PRE_APPROVED

    def _covered(self, travel: Travel) -> Answer | None:
        decision = _judged(travel).decision
        if self._controller.memory.granted(decision.fingerprint):
            return Answer(approved=True, by=AnsweredBy.MEMORY, cached=True)
        if self._would_lift(travel, ()):
            return Answer(approved=True, by=AnsweredBy.RULE)
        return None


def _blocked(travel: Travel) -> ForgeError:
    words = refusal(travel.tool.name, _judged(travel).decision)
    return ForgeError(words, status=Status.POLICY_DENIED, code="BLOCKED")


def _judged(travel: Travel) -> Judged:
    assert travel.judged is not None  # only calls that were judged at length come to this stage
    return travel.judged


def _calling_tools(travel: Travel) -> Iterator[dict[str, Any]]:
    """The tools between the worker and this call, for `worker › a › b`."""
    for depth, (call_id, name) in enumerate(travel.callers):
        yield {"id": call_id, "name": name, "depth": depth, "task": "", "tool": True}


def _restored(
    fields: tuple[dict[str, Any], ...], shown: dict[str, Any], original: dict[str, Any], edited: dict[str, Any]
) -> dict[str, Any]:
    edited = with_secrets_kept(fields, edited, original)
    left_alone = {key for key in edited if key not in original and key in shown and same_json(edited[key], shown[key])}
    changed = {key: value for key, value in edited.items() if key not in left_alone}  # what was a default still is one
    return cast(dict[str, Any], own_copy(with_hidden_restored(changed, shown, original)))


def _problems(travel: Travel, args: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    try:
        validate(travel.tool, args)
    except InputInvalid as error:
        return error.fields or (("", error.message),)
    except Exception as error:  # a validator of the tool's own
        return (("", f"could not be checked ({error_name(error)})"),)
    return ()


def worker_path(worker: str) -> tuple[dict[str, Any], ...]:
    """For a worker of which nothing but its path is known."""
    names = worker.split("/")
    return tuple(
        {"id": "/".join(names[: depth + 1]), "name": name, "depth": depth, "task": ""}
        for depth, name in enumerate(names)
    )
