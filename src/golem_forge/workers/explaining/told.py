"""A judgement in data and words: what becomes of the call, what it touches, and everybody who has a say."""

from __future__ import annotations

from typing import Any, Final

from golem_forge.config.modes import ApprovalMode
from golem_forge.core.effects import Effect
from golem_forge.core.verdict import Verdict, strictest
from golem_forge.policy.effects import floors_of, risk_of
from golem_forge.policy.rules import RuleOutcome
from golem_forge.workers.explaining.evaluator import DryEvaluator, Explained

_THEN: Final = {
    (Verdict.ASK, ApprovalMode.APPROVE_ALL): "it would run: the mode approves what asks",
    (Verdict.ASK, ApprovalMode.AUTO_DENY): "it would be denied: the mode asks nobody",
}


def then(explained: Explained, dry: DryEvaluator) -> str:
    """What becomes of the call, for the one who reads only one line."""
    verdict, mode = explained.verdict, dry.mode
    if verdict is Verdict.BLOCKED:
        return "it would be refused, in every mode, for every caller"
    if verdict is Verdict.PRE_APPROVED:
        return "it would run without a question"
    if explained.judged is not None and dry.granted(explained.judged.decision.fingerprint):
        return "it would run: this exact call was approved for this session"
    said = _THEN.get((Verdict.ASK, mode.value), "a person would be asked; without anybody to ask it is denied")
    if mode.value is ApprovalMode.STRICT and dry.unattended(explained) is Verdict.PRE_APPROVED:
        said = "a person would be asked; without anybody to ask the mode is auto_deny, and it would run"
    return f"{said} (mode {mode.value.value}, {mode.origin})"


def effects_of(explained: Explained) -> list[dict[str, Any]]:
    assert explained.judged is not None
    said = []
    for index, (effect, base) in enumerate(
        zip(explained.judged.facts.effects or (), (each.base for each in explained.judged.bases), strict=True)
    ):
        verdict = _verdict_of(index, effect, base, explained.outcome)
        notes = [mark.value for mark in effect.marks if mark.value != "danger"]
        notes += [f"danger:{danger}" for danger in effect.dangers]
        notes += ["proven read-only"] if effect.proven else []
        said.append(
            {
                "effect": effect.describe(),
                "verdict": verdict.value,
                "risk": risk_of(effect).value,
                "notes": ", ".join(notes),
                "words": list(effect.words),
            }
        )
    return said


def segments_of(explained: Explained) -> list[dict[str, Any]]:
    """Only where a command has several: a single one is its effect already."""
    found = [
        {"text": said["effect"].removeprefix("exec "), "verdict": said["verdict"], "words": said["words"]}
        for said in effects_of(explained)
        if said["words"]
    ]
    return found if len(found) > 1 else []


def _verdict_of(index: int, effect: Effect, base: Verdict, outcome: RuleOutcome | None) -> Verdict:
    """What one effect would be judged as, were it the whole call."""
    hits = [hit.rule for hit in outcome.hits if hit.index in (index, -1)] if outcome else []
    lifted = base
    if said := [rule.verdict for rule in hits]:
        strictest_rule = strictest(said)
        lifts = strictest_rule is Verdict.PRE_APPROVED and base is not Verdict.BLOCKED
        lifted = Verdict.PRE_APPROVED if lifts else strictest((base, strictest_rule))
    accepted = outcome.accepted if outcome else frozenset()
    floors = [id_ for id_, _ in floors_of(effect) if id_.removeprefix("danger:") not in accepted]
    return strictest((lifted, Verdict.ASK)) if floors else lifted


def as_json(explained: Explained, dry: DryEvaluator) -> dict[str, Any]:
    common: dict[str, Any] = {
        "tool": explained.tool,
        "args": explained.args,
        "worker": dry.worker,
        "mode": dry.mode.value.value,
        "verdict": explained.verdict.value if explained.verdict else None,
        "notices": dry.notices,
    }
    if explained.judged is None:
        refusal = explained.refusal
        assert refusal is not None
        return common | {"status": refusal.status.value, "code": refusal.code, "error": refusal.message}
    return common | {
        "then": then(explained, dry),
        "effects": effects_of(explained) if explained.judged.facts.effects is not None else None,
        "segments": segments_of(explained),
        "decision": explained.judged.decision.to_json(),
    }
