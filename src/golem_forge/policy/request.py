"""ApprovalRequest: everything a person needs to answer, taken from the values and bytes that will be used.

Threat: whoever wrote the arguments wants a yes. Nothing is cut at the end, nothing can steer the terminal, secrets
and host paths are replaced before the request exists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from golem_forge.core.call import Caller
from golem_forge.core.copying import own_copy
from golem_forge.core.decision import Decision
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.ids import new_id
from golem_forge.core.visible import count_hidden, visible
from golem_forge.events.redaction import Redactor
from golem_forge.policy.offers import Offer
from golem_forge.tools.fields import derive_fields
from golem_forge.tools.plan import Plan
from golem_forge.tools.prefill import masked, prefilled
from golem_forge.tools.tool import Definition, Tool

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
    segments: tuple[dict[str, Any], ...] = ()
    risk_reasons: tuple[str, ...] = ()
    choices: tuple[Offer, ...] = ()
    previously_denied: int = 0
    waiting: int = 1
    changed: str = ""
    model_note: str = ""
    warnings: tuple[str, ...] = ()
    expires_at: str = ""
    fields: tuple[dict[str, Any], ...] = ()
    """The form to edit the arguments with, filled in; secrets are left empty and stay as they are."""
    caller: str = ""
    """`human`: a person made the call."""
    field_errors: tuple[tuple[str, str], ...] = ()
    """Problems of the last edit; the request stays open with them."""

    def to_wire(self) -> dict[str, Any]:
        """The data of an `approvalRequired` event."""
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
    *,
    tool: Tool,
    args: dict[str, Any],
    plan: Plan | None,
    decision: Decision,
    effects: tuple[Effect, ...] | None,
    call_id: str,
    caller: Caller,
    worker: str,
    redactor: Redactor,
    choices: tuple[Offer, ...],
    previously_denied: int,
    describe_path: Callable[[str], tuple[dict[str, Any], ...]],
) -> ApprovalRequest:
    fields = derive_fields(tool.input_schema)
    shown = own_copy(redactor.value(masked(fields, args)))  # a callback may do what it likes with its copy
    payload = redactor.text(plan.payload) if plan and plan.payload else _literal(shown)
    diff = redactor.text(plan.diff) if plan else ""
    fingerprint, key = decision.keys()

    def clean(text: str) -> str:
        return visible(redactor.text(text))

    # each of them repeats what the others hold, and JSON has its own escapes
    hidden = max(count_hidden(payload), count_hidden(diff), sum(map(count_hidden, _texts(shown))))
    warnings = list(plan.warnings) if plan else []
    if hidden:
        characters = "character is shown as an escape" if hidden == 1 else "characters are shown as escapes"
        warnings.append(f"{hidden} control or invisible {characters}")
    by = decision.decided_by
    definition = tool.definition
    return ApprovalRequest(
        type=_type_of(effects, definition),
        description=visible(f"{tool.label or tool.name}: {tool.description.splitlines()[0][:200]}"),
        tool=tool.name,
        label=tool.label,
        args=shown,
        call_id=call_id,
        caller=caller.value if caller is Caller.HUMAN else "",
        fingerprint=fingerprint,
        args_key=key,
        risk=decision.risk.value,
        risk_reasons=tuple(clean(reason) for reason in decision.risk_reasons),
        why=clean(by.describe()) if by else "",
        payload=visible(payload),
        diff=visible(diff),
        effects=tuple(clean(effect.describe()) for effect in effects or ()),
        segments=tuple(
            {"words": [clean(word) for word in effect.words], "proven": effect.proven, "dangers": list(effect.dangers)}
            for effect in effects or ()
            if effect.words
        ),
        choices=tuple(replace(choice, label=clean(choice.label), rule=clean(choice.rule)) for choice in choices),
        previously_denied=previously_denied,
        changed="" if definition.approved else clean(definition.diff),
        model_note=clean(plan.model_note) if plan else "",
        warnings=tuple(warnings),
        fields=tuple(prefilled(fields, own_copy(shown))),
        worker_path=describe_path(worker),
    )


def _type_of(effects: tuple[Effect, ...] | None, definition: Definition) -> str:
    if not definition.approved:
        return "definition"
    return next((_TYPES[e.verb] for e in effects or () if e.verb in _TYPES), "tool_call")


def _literal(args: dict[str, Any]) -> str:
    return json.dumps(args, indent=2, ensure_ascii=False, default=str)


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value, names of members too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _texts(name)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
