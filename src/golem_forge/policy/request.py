"""ApprovalRequest: everything a person needs to answer, taken from the values and bytes that will be used; and the
offers on it: what a person may choose to have remembered, one line each: this rule, for this long, in this file.

Threat: whoever wrote the arguments wants a yes. Nothing is cut at the end, nothing can steer the terminal, secrets and
host paths are replaced before the request exists.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.effects import NOT_COVERED, Verb
from golem_forge.core.ids import new_id
from golem_forge.core.json import copy_json
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.text import count_control_chars, escape_control_chars, shorten_prose
from golem_forge.events.redaction import Redactor
from golem_forge.policy.evaluate import Evaluation, plain_reason
from golem_forge.policy.rules.candidates import Choice, RememberKind
from golem_forge.policy.rules.model import Rule
from golem_forge.tools.context import Plan
from golem_forge.tools.forms import derive_fields, mask_secrets, prefill_fields
from golem_forge.tools.tool import Tool

_TYPES = {Verb.WRITE: "file_write", Verb.DELETE: "file_write", Verb.EXEC: "command", Verb.SPAWN: "worker"}


@dataclass(slots=True, kw_only=True)
class ApprovalRequest:
    tool: str
    args: dict[str, Any]
    fingerprint: str
    args_key: str
    risk: str
    why: str
    payload: str
    description: str
    type: str = "tool_call"
    id: str = field(default_factory=new_id)
    call_id: str = ""
    label: str = ""
    worker_path: tuple[dict[str, Any], ...] = ()
    diff: str = ""
    effects: tuple[str, ...] = ()
    """The effects as text. Where rules or defaults allow some of them, the others end with NOT_COVERED."""
    segments: tuple[dict[str, Any], ...] = ()
    risk_reasons: tuple[str, ...] = ()
    choices: tuple[ApprovalOffer, ...] = ()
    previously_denied: int = 0
    waiting: int = 1
    changed: str = ""
    model_note: str = ""
    warnings: tuple[str, ...] = ()
    expires_at: str = ""
    fields: tuple[dict[str, Any], ...] = ()
    """The form to edit the arguments with, filled in; secrets are left empty and stay as they are."""
    caller: str = ""
    """`human` if a person made the call."""
    field_errors: tuple[tuple[str, str], ...] = ()
    """Problems of the last edit; the request stays open with them."""

    def to_wire(self) -> dict[str, Any]:
        """Returns the data of an `approvalRequired` event."""
        optional = {
            "toolCallId": self.call_id,
            "diff": self.diff,
            "segments": list(self.segments),
            "changed": self.changed,
            "modelNote": self.model_note,
            "expiresAt": self.expires_at,
            "fields": list(self.fields),
            "caller": self.caller,
        }
        return {
            "requestId": self.id,
            "type": self.type,
            "description": self.description,
            "tool": self.tool,
            "args": self.args,
            "payload": self.payload,
            "effects": list(self.effects),
            "risk": self.risk,
            "riskReasons": list(self.risk_reasons),
            "why": self.why,
            "choices": [choice.to_wire() for choice in self.choices],
            "fingerprint": self.fingerprint,
            "argsKey": self.args_key,
            "previouslyDenied": self.previously_denied,
            "waiting": self.waiting,
            "warnings": [*self.warnings, *(f"{name}: {problem}" for name, problem in self.field_errors)],
            "workerPath": list(self.worker_path),
            **{name: value for name, value in optional.items() if value},
        }


def build_request(
    call: ToolCall,
    tool: Tool,
    args: dict[str, Any],
    plan: Plan | None,
    judged: Evaluation,
    redactor: Redactor,
    *,
    choices: tuple[ApprovalOffer, ...],
    previously_denied: int,
) -> ApprovalRequest:
    decision, effects = judged.decision, judged.facts.effects or ()
    fields = derive_fields(tool.input_schema)
    shown = copy_json(redactor.value(mask_secrets(fields, args)))  # a callback may do what it likes with its copy
    as_json = json.dumps(shown, indent=2, ensure_ascii=False, default=str)
    payload = redactor.text(plan.payload) if plan and plan.payload else as_json
    diff = redactor.text(plan.diff) if plan else ""
    fingerprint, key = decision.keys()

    def clean(text: str) -> str:
        return escape_control_chars(redactor.text(text))

    # each of them repeats what the others hold, and JSON has its own escapes
    hidden = max(count_control_chars(payload), count_control_chars(diff), sum(map(count_control_chars, _texts(shown))))
    warnings = list(plan.warnings) if plan else []
    if hidden:
        characters = "character is shown as an escape" if hidden == 1 else "characters are shown as escapes"
        warnings.append(f"{hidden} control or invisible {characters}")
    by = decision.decided_by
    why = plain_reason(by) if by else ""
    if decision.not_contained:
        why = f"asks because {'; '.join(decision.not_contained)}"
    definition = tool.definition
    uncovered = judged.uncovered if len(judged.uncovered) < len(effects) else ()
    marks = (NOT_COVERED if index in uncovered else "" for index in range(len(effects)))
    kind = next((_TYPES[effect.verb] for effect in effects if effect.verb in _TYPES), "tool_call")
    return ApprovalRequest(
        type=kind if definition.approved else "definition",
        description=escape_control_chars(
            f"{tool.label or tool.name}: {shorten_prose(tool.description.splitlines()[0], 200)}"
        ),
        tool=tool.name,
        label=tool.label,
        args=shown,
        call_id=call.id,
        caller=call.caller.value if call.caller is Caller.HUMAN else "",
        fingerprint=fingerprint,
        args_key=key,
        risk=decision.risk.value,
        risk_reasons=tuple(clean(reason) for reason in decision.risk_reasons),
        why=clean(why),
        payload=escape_control_chars(payload),
        diff=escape_control_chars(diff),
        effects=tuple(clean(effect.describe()) + mark for effect, mark in zip(effects, marks, strict=True)),
        segments=tuple(
            {"words": [clean(word) for word in effect.words], "proven": effect.proven, "dangers": list(effect.dangers)}
            for effect in effects
            if effect.words
        ),
        choices=tuple(replace(choice, label=clean(choice.label), rule=clean(choice.rule)) for choice in choices),
        previously_denied=previously_denied,
        changed="" if definition.approved else clean(definition.diff),
        model_note=clean(plan.model_note) if plan else "",
        warnings=tuple(warnings),
        fields=tuple(prefill_fields(fields, copy_json(shown))),
    )


def _texts(value: Any) -> Iterator[str]:
    """Yields every text in a value, member names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(name)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


MAX_OFFERS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalOffer:
    id: str
    label: str
    scope: str
    """`session` or `always`."""
    exact: bool
    """Whether only this exact call is remembered, by its fingerprint; no rule is made."""
    rules: tuple[Rule, ...] = ()
    grant: str = ""
    """The session grant for the worker; no rule is made."""
    file: str = ""
    rule: str = ""
    """The rules as a text for people."""
    suggested: bool = False
    """Whether a UI shows this choice before narrower ones, because most people want it."""

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"id": self.id, "label": self.label, "scope": self.scope}
        if self.rule:
            wire["rule"] = self.rule
        if self.file:
            wire["file"] = self.file
        if self.suggested:
            wire["suggested"] = True
        return wire


def offers_from(choices: Iterable[Choice]) -> tuple[ApprovalOffer, ...]:
    """Narrow to wide; a choice that can be kept for the session or for good becomes two offers, if there is room.

    Every choice is offered once before one is offered twice. For good, a rule comes before an exact command, which is
    seldom given again word for word.
    """

    def priority(each: tuple[Choice, str]) -> tuple[bool, bool]:
        choice, lifetime = each
        second = lifetime != choice.lifetimes[0]
        return second, second and choice.keeps is RememberKind.FINGERPRINT

    wanted = [(choice, lifetime) for choice in choices for lifetime in choice.lifetimes]
    offered = sorted(wanted, key=priority)[:MAX_OFFERS]
    return tuple(_make_offer(*each) for each in wanted if each in offered)


def _make_offer(choice: Choice, lifetime: str) -> ApprovalOffer:
    rules = choice.rules_for(lifetime)
    return ApprovalOffer(
        id=f"{choice.id}:{lifetime}",
        label=choice.label,
        scope=lifetime,
        exact=choice.keeps is RememberKind.FINGERPRINT and lifetime == "session",
        rules=rules,
        grant=choice.grant,
        file=choice.file if lifetime == "always" else "",
        rule="; ".join(rule.describe() for rule in rules),
        suggested=choice.suggested,
    )
