"""approve: turns an `ask` into a yes or a no. Takes the judged call; gives back when it may run.

A person may edit the arguments: the edited call goes through validate, plan and judge again, and the approval counts
for exactly that call, unless its risk is higher than the one they saw, a hook asks for another reason, or the session
needs four eyes for it: then it is asked about once more, naming who edited it. Refuses with `policy_denied` (blocked),
`approval_denied`, or `interrupted`.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any, Final, cast

from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.decisions import AnsweredBy, Risk, Status, Verdict, is_riskier
from golem_forge.core.errors import ForgeError, error_name
from golem_forge.core.json import copy_json, restore_hidden_values, same_json, sha256_hex
from golem_forge.core.lazy_dataclass import replace
from golem_forge.events.serialization import iso_now
from golem_forge.orchestrator.call_state import CallScope, CallState, describe_changes
from golem_forge.orchestrator.hooks import CallHooks
from golem_forge.orchestrator.limits import wait_with_signal
from golem_forge.orchestrator.plan import PlanStage
from golem_forge.orchestrator.resolve import validate
from golem_forge.policy.approval_queue import MAX_EDITS, ApprovalResult, PendingApproval
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.evaluate import Evaluation, Judge, refusal_message
from golem_forge.policy.hooks import asks_of_hooks
from golem_forge.policy.request import ApprovalOffer, ApprovalRequest, build_request, choices, offers_from
from golem_forge.policy.reviewer import ReviewAnswer, Reviewer, Says
from golem_forge.policy.risk import grant_of
from golem_forge.policy.rules.model import Rule
from golem_forge.tools.forms import restore_secrets
from golem_forge.tools.validation import InputInvalid

_WAITED_FOR: Final = frozenset({AnsweredBy.PERSON, AnsweredBy.REVIEWER})
"""Sources of an answer that take time; after such an answer the decision is checked again."""
_DENIED: Final = Status.APPROVAL_DENIED


class ApprovalStage:
    def __init__(
        self, scope: CallScope, controller: ApprovalController, judge: Judge, hooks: CallHooks, plan_stage: PlanStage
    ) -> None:
        self._controller = controller
        self._hooks = hooks
        self._judge = judge
        self._plan_stage = plan_stage
        self._redactor = scope.services.redactor
        self._session_id = scope.services.id
        self._services = scope.services
        self._sandbox = scope.sandbox
        self._guest = bool(scope.guest)
        self._ancestors = scope.ancestors or _ancestors(scope.worker)
        self._on_kept = scope.on_kept
        self._walls = scope.walls

    async def approve(self, state: CallState) -> None:
        answer: ApprovalResult | None = None
        shown, shown_outside, asking = Risk.LOW, False, frozenset[tuple[str, str]]()
        edited = False
        for _ in range(MAX_EDITS):
            decision = _judged(state).decision
            if decision.verdict is Verdict.BLOCKED:
                raise _blocked(state)
            if decision.runs_unasked and answer is None:
                return
            hooks, unseen = asks_of_hooks(decision.sources), decision.only_a_person and not shown_outside
            level = self._services.four_eyes
            unseen = unseen or (edited and level is not None and not is_riskier(level, decision.risk))
            if answer is None or is_riskier(decision.risk, shown) or unseen or not hooks <= asking:
                shown, shown_outside, asking = decision.risk, decision.only_a_person, hooks
                answer = await self._ask(state)
                edited = answer.args is not None
                if answer.args is not None:
                    await self._edit(state, answer)
                    continue
            self._settle(state, answer)
            return
        raise ForgeError("The arguments were edited too often; the call was not run.", status=Status.APPROVAL_DENIED)

    async def _ask(self, state: CallState) -> ApprovalResult:
        decision, program = _judged(state).decision, state.program
        decision.asked_at = iso_now()
        if program is not None and (said := program.denied.get(decision.fingerprint)) is not None:
            decision.answered_by, decision.message = AnsweredBy.MEMORY, said
            raise ForgeError(f"{said} (this program was denied the same call before)", status=_DENIED, code="DENIED")
        listens = self._hooks.hooks is not None or self._services.reviewer is not None
        first = partial(self.before_person, state) if listens else None
        with program.asking() if program is not None else nullcontext():
            answer = await self._controller.approve(decision, state.tool.name, lambda: self._pending(state), first)
        decision.asked_at, decision.answered_at = answer.asked_at or decision.asked_at, answer.answered_at or iso_now()
        state.asked = state.asked or answer.by in _WAITED_FOR
        if not answer.approved:
            text = _note_denial(state, answer)
            decision.answered_by, decision.message = answer.by, text
            decision.answered_as, decision.door = answer.answered_as, answer.door
            state.stop_turn = answer.stop
            raise ForgeError(text, status=answer.status, code="DENIED")
        if answer.by is AnsweredBy.PERSON:  # the others answer at once
            # Threat: a rule that blocks was written while a person looked at the card; nobody's yes is above it.
            now = self._evaluate_after_wait(state)
            if now.decision.verdict is Verdict.BLOCKED:
                state.judged, state.decision = now, now.decision
                raise _blocked(state)
        return answer

    async def before_person(self, state: CallState, waiting: PendingApproval) -> ApprovalResult | None:
        """Asks the reviewer, if there is one, and starts the notification hooks. Returns the reviewer's answer, or None
        where a person has to answer.
        """
        request, reviewer = waiting.request, self._services.reviewer
        if reviewer is not None and not self._guest and not self._not_reviewable(reviewer, _judged(state)):
            said = await wait_with_signal(reviewer.review(request.to_wire(), self._hooks.processes), state.waiting)
            answer = self._reviewed(state, reviewer, said)
            self._hooks.tell_review(reviewer.name, said, state.call.id)
            if answer is not None:
                return answer
            why = f": {said.reason}" if said.reason else "."
            request.warnings = (*request.warnings, f"The reviewer '{reviewer.name}' said {said.says}{why}")
        self._hooks.notify(state.call.id, request.to_wire())
        return None

    def _reviewed(self, state: CallState, reviewer: Reviewer, said: ReviewAnswer) -> ApprovalResult | None:
        """Turns the reviewer's words into an answer; None means that a person has to answer. Raises ForgeError where a
        blocking rule was written meanwhile.
        """
        answer = ApprovalResult(approved=True, by=AnsweredBy.REVIEWER, answered_as=reviewer.name)
        if said.says is Says.DENY:
            why = f": {said.reason}" if said.reason else "."
            return replace(answer, approved=False, message=f"Denied by the reviewer '{reviewer.name}'{why}")
        if said.says is Says.UNSURE:
            return None
        # Threat: a rule was written while it thought. What blocks, blocks; what asks now is not its to answer.
        now = self._evaluate_after_wait(state)
        if now.decision.verdict is Verdict.BLOCKED:
            state.judged, state.decision = now, now.decision
            raise _blocked(state)
        if self._not_reviewable(reviewer, now):
            return None
        return answer

    def _not_reviewable(self, reviewer: Reviewer, judged: Evaluation) -> str:
        return reviewer.not_reviewable(judged, self._controller.mode, self._sandbox)

    def _evaluate_after_wait(self, state: CallState) -> Evaluation:
        if self._judge.rules is not None:
            self._judge.rules.expire()  # the files are read again, however quick the answer was
        return self._evaluate_again(state)

    def _evaluate_again(self, state: CallState, *, extra: tuple[Rule, ...] = (), extra_grant: str = "") -> Evaluation:
        judged = _judged(state)
        return self._judge.evaluate(
            state.tool, judged.facts, judged.base, judged.decision.keys, extra=extra, extra_grant=extra_grant
        )

    async def _edit(self, state: CallState, answer: ApprovalResult) -> None:
        before, asked = state.arguments.plain, _judged(state).decision
        assert answer.args is not None
        state.arguments, state.edited = validate(state.tool, answer.args), True
        redact, without_secrets = self._redactor.value, state.tool.without_secrets
        if note := describe_changes(redact(without_secrets(before)), redact(without_secrets(state.arguments.plain))):
            state.notes = (*state.notes, note)
            state.edits = (*state.edits, note.replace("The user", answer.answered_as or "The user", 1))
        await self._plan_stage.decide_again(state)
        decision = _judged(state).decision
        decision.edited, decision.asked_at, decision.answered_at = True, asked.asked_at, asked.answered_at

    def _settle(self, state: CallState, answer: ApprovalResult) -> None:
        decision = _judged(state).decision
        decision.answered_by = answer.by
        decision.answered_as, decision.door = answer.answered_as, answer.door
        decision.cached = answer.cached
        decision.answered_at = decision.answered_at or iso_now()
        state.approved_as = decision.fingerprint
        if (chosen := answer.choice) is not None:
            if decision.edited:  # the same choice, made from the edited call: what is kept must be what was approved
                offers = (each for each in self._offers(state) if each.id == chosen.id)
                exact = ApprovalOffer(id="exact", label="this exact call", scope="session", exact=True)
                chosen = next(offers, exact)
            self._keep(state, chosen, answer.answered_as)
        if state.tool.pin is not None and not state.tool.definition_approved and answer.by is AnsweredBy.PERSON:
            state.tool.pin()

    def _keep(self, state: CallState, offer: ApprovalOffer, author: str) -> None:
        decision, rules = _judged(state).decision, self._judge.rules
        if offer.grant:
            self._judge.grant(_judged(state).facts.worker, offer.grant)
            self._report_kept(state, "grant", {"grant": offer.grant})
        elif offer.exact or rules is None:
            what = f"{state.tool.name} {decision.args_key}"
            self._controller.keep(decision.fingerprint, what)
            self._report_kept(state, "exact", {"fingerprint": decision.fingerprint, "what": what})
        elif offer.scope == "always":
            rules.remember(offer.rules, author)
        else:
            for rule in offer.rules:
                rules.add_session_rule(rule)
                self._report_kept(state, "rule", {"rule": rule.to_yaml()})
        decision.remembered = offer.scope
        self._controller.judge_again()

    def _report_kept(self, state: CallState, kind: str, what: dict[str, Any]) -> None:
        if self._on_kept is not None:
            tool = state.tool
            who = {"worker": _judged(state).facts.worker, "tool": tool.name, "definition": tool.definition_digest}
            self._on_kept(kind, who | what)

    def _pending(self, state: CallState) -> PendingApproval:
        judged, given = _judged(state), state.arguments.given or state.arguments.plain
        tools = (
            {"id": call_id, "name": name, "depth": depth, "task": "", "tool": True}
            for depth, (call_id, name) in enumerate(state.callers)
        )
        request = build_request(
            state.call,
            state.tool,
            state.arguments.plain,
            state.plan,
            judged,
            self._redactor,
            choices=self._offers(state),
            previously_denied=self._controller.memory.denials(judged.decision.fingerprint),
        )
        request.worker_path = (*self._ancestors, *tools)
        request.warnings = (*request.warnings, *state.hook_lines, *state.edits)
        request.id = question_id(self._session_id, request)
        if self._walls is not None and (open_ := self._walls.exit_lines()):
            request.warnings = (*request.warnings, f"This session's walls are open for: {'; '.join(open_)}")
        return PendingApproval(
            request=request,
            check_edit=lambda args: _edit_problems(state, args),
            restore=partial(_restore_edit, request.fields, copy_json(request.args), given),
            redact=lambda problems: tuple((field, self._redactor.text(words)[:500]) for field, words in problems),
            reevaluate=lambda: self._covered(state),
            signal=state.waiting,
            is_edit=lambda args: not same_json(validate(state.tool, args).plain, state.arguments.plain),
            alone=judged.decision.only_a_person,
            on_answer=lambda answer: answer.approved or _note_denial(state, answer),
        )

    def _offers(self, state: CallState) -> tuple[ApprovalOffer, ...]:
        judged = _judged(state)
        if judged.decision.only_a_person or (state.plan is not None and state.plan.undoes_in):
            return ()
        by = judged.decision.decided_by
        rules = self._judge.rules
        offers = offers_from(
            choices(
                judged.facts,
                judged.left_to_allow,
                critical=judged.decision.risk is Risk.CRITICAL,
                explicit_ask=(by is not None and by.source in ("rules", "config"))
                or bool(asks_of_hooks(judged.decision.sources)),
                grant=self._possible_grant(state),
                would_lift=lambda extra: self._would_lift(state, extra=extra),
                remembered_file=rules.remembered_in if rules else "",
            )
        )
        texts = [text for offer in offers for text in (offer.label, offer.rule)]
        if any(self._redactor.redact_secrets(text) != text for text in texts):
            # A rule is written to a file and shown in lists: a call that holds a secret can only be kept as it is.
            label = "this exact call, this session"
            return (ApprovalOffer(id="exact:session", label=label, scope="session", exact=True),)
        if self._judge.mode is ApprovalMode.STRICT:  # no rule from a file lifts there, so none is offered
            return tuple(offer for offer in offers if offer.scope == "session")
        return offers

    def _possible_grant(self, state: CallState) -> str:
        """Returns the session grant that would let this call through, if there is exactly one."""
        bases = _judged(state).left_to_allow
        grants = {grant_of(each.effect) for each in bases if each.base is not Verdict.PRE_APPROVED}
        if len(grants) != 1 or not (grant := grants.pop()):
            return ""
        return grant if self._would_lift(state, extra_grant=grant) else ""

    def _would_lift(self, state: CallState, *, extra: tuple[Rule, ...] = (), extra_grant: str = "") -> bool:
        tried = self._evaluate_again(state, extra=extra, extra_grant=extra_grant)
        return tried.decision.verdict is Verdict.PRE_APPROVED

    def _covered(self, state: CallState) -> ApprovalResult | None:
        if _judged(state).decision.only_a_person:
            return None
        if answer := self._controller.remembered(_judged(state).decision.fingerprint):
            return answer
        return ApprovalResult(approved=True, by=AnsweredBy.RULE) if self._would_lift(state) else None


def question_id(session_id: str, request: ApprovalRequest) -> str:
    """Returns a stable id of the question, so that a process that takes over the call finds an answer already given."""
    return sha256_hex(f"{session_id} {request.call_id} {request.fingerprint} {request.diff}")[:32]


def _blocked(state: CallState) -> ForgeError:
    message = refusal_message(state.tool.name, _judged(state).decision)
    return ForgeError(message, status=Status.POLICY_DENIED, code="BLOCKED")


def _note_denial(state: CallState, answer: ApprovalResult) -> str:
    """Returns what the caller is told. Nobody is asked a second time about this call of its program."""
    text = answer.message
    if answer.unaskable and state.plan is not None and state.plan.unasked:
        text = state.plan.unasked
    if state.program is not None and answer.status is _DENIED:
        state.program.denied[_judged(state).decision.fingerprint] = text
    return text


def _judged(state: CallState) -> Evaluation:
    assert state.judged is not None  # only calls that were judged at length come to this stage
    return state.judged


def _restore_edit(
    fields: tuple[dict[str, Any], ...], shown: dict[str, Any], original: dict[str, Any], edited: dict[str, Any]
) -> dict[str, Any]:
    edited = restore_secrets(fields, edited, original)
    left_alone = {key for key in edited if key not in original and key in shown and same_json(edited[key], shown[key])}
    changed = {key: value for key, value in edited.items() if key not in left_alone}  # what was a default still is one
    return cast(dict[str, Any], copy_json(restore_hidden_values(changed, shown, original)))


def _edit_problems(state: CallState, args: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    try:
        validate(state.tool, args)
    except InputInvalid as error:
        return error.fields or (("", error.message),)
    except Exception as error:  # a validator of the tool's own
        return (("", f"could not be checked ({error_name(error)})"),)
    return ()


def _ancestors(worker: str) -> tuple[dict[str, Any], ...]:
    """Builds the ancestor records from a worker path, for a worker of which only the path is known."""
    names = worker.split("/")
    return tuple(
        {"id": "/".join(names[: depth + 1]), "name": name, "depth": depth, "task": ""}
        for depth, name in enumerate(names)
    )
