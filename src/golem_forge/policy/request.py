"""ApprovalRequest: everything a person needs to answer, taken from the values and bytes that will be used; and what
they may choose to have remembered.

`choices` makes candidate rules for a call, narrow to wide, and says which of them most people want. Each is tried
before it is offered (`would_lift`): a rule that would not let this very call through is never shown. A call that is
critical, or that a hand-written `ask` caught, can only be kept exactly as it is, for the session. `build_request` makes
the request; its offers are those choices, one line each: this rule, for this long, in this file.

Threat: whoever wrote the arguments wants a yes. Nothing is cut at the end, nothing can steer the terminal, secrets and
host paths are replaced before the request exists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any, Final

from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import NOT_COVERED, Effect, Verb
from golem_forge.core.errors import ConfigError
from golem_forge.core.ids import new_id
from golem_forge.core.json import copy_json
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.text import count_control_chars, escape_control_chars, shorten_prose
from golem_forge.events.redaction import Redactor
from golem_forge.policy.evaluate import Evaluation, plain_reason
from golem_forge.policy.facts import CallFacts
from golem_forge.policy.risk import ANY_WALLED, EffectVerdict
from golem_forge.policy.rules.load import SHELL_TOOLS, make_rule
from golem_forge.policy.rules.match import CallView
from golem_forge.policy.rules.model import PATH_VERBS, Rule, RuleKind, RuleOrigin, groups_with, host_and_port
from golem_forge.policy.shell.patterns import is_offered_prefix, is_saved_prefix, leads_offers, prefix_choices
from golem_forge.policy.shell.strict import Parsed, quote, render
from golem_forge.tools.context import Plan
from golem_forge.tools.forms import derive_fields, mask_secrets, prefill_fields
from golem_forge.tools.tool import Tool

_MAX_CHOICES: Final = 4
_MAX_SEGMENT_RULES: Final = 3
_MAX_TRIED: Final = 12
_MAX_FILE_RULES: Final = 40
"""A patch of more files can be kept exactly as it is; nobody reads a choice of a hundred rules."""
_SESSION: Final = ("session",)
_ALWAYS: Final = ("always",)
_BOTH: Final = ("session", "always")
_GROUP: Final = "group"
"""The id of the choice that a package registry's hosts are reached from this directory."""


class RememberKind(StrEnum):
    """What is stored when a choice is taken."""

    FINGERPRINT = "fingerprint"
    """For the session: this exact call with its directory and shell. Rules, if the choice has any, are used only for
    "always".
    """
    RULES = "rules"
    GRANT = "grant"
    """A grant for this worker and session that covers what carries no mark: any command inside the walls, or input to
    one running session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    id: str
    label: str
    keeps: RememberKind
    rules: tuple[Rule, ...] = ()
    """The rules without scope; `rules_for` returns them as they would be stored."""
    lifetimes: tuple[str, ...] = _SESSION
    worker: str = ""
    project: str = ""
    grant: str = ""
    suggested: bool = False
    """Whether the card shows the choice first: it covers similar calls, and nothing that deletes, installs, publishes
    or runs given code.
    """
    file: str = ""
    """The file that "always" would change; empty if the choice can be kept for the session only."""

    def rules_for(self, lifetime: str) -> tuple[Rule, ...]:
        """The rules to store: this worker's for the session, this project's and worker's for always."""
        if lifetime != "session":
            return _scoped(self.rules, RuleOrigin.REMEMBERED, self.worker, project=self.project)
        if self.keeps is RememberKind.FINGERPRINT:
            return ()
        return _scoped(self.rules, RuleOrigin.SESSION, self.worker)


def _scoped(rules: tuple[Rule, ...], origin: RuleOrigin, worker: str, **scope: str) -> tuple[Rule, ...]:
    scope = {"worker": escape_glob(worker), **scope}
    return tuple(make_rule({**rule.to_yaml(), "scope": scope}, origin) for rule in rules)


WouldLift = Callable[[tuple[Rule, ...]], bool]


def choices(
    facts: CallFacts,
    bases: tuple[EffectVerdict, ...],
    *,
    critical: bool,
    explicit_ask: bool,
    grant: str,
    would_lift: WouldLift,
    remembered_file: str = "",
) -> tuple[Choice, ...]:
    """`grant`: the session grant that would let this call through; empty if there is none."""
    exact_call = Choice(
        id="exact", label="this exact call, this session", keeps=RememberKind.FINGERPRINT, worker=facts.worker
    )
    if critical or explicit_ask:
        return (exact_call,)
    saving = bool(facts.project and remembered_file)
    offered = [*_exact_command(facts, bases, would_lift, remembered_file if saving else "")]
    for id_, label, written, session_only, suggested in _candidates(facts, bases):
        rules = _needed_rules(written, facts, would_lift)
        if not rules:
            continue
        always = saving and not session_only
        choice = Choice(
            id=id_,
            label=label,
            keeps=RememberKind.RULES,
            rules=rules,
            lifetimes=(_ALWAYS if id_ == _GROUP else _BOTH) if always else _SESSION,
            worker=facts.worker,
            project=facts.project,
            suggested=suggested,
            file=remembered_file if always else "",
        )
        if would_lift(choice.rules_for("session")):
            offered.append(choice)
    if grant:
        offered = offered[: _MAX_CHOICES - 1]
        label = f"{grant}, this session"
        offered.append(Choice(id="grant", label=label, keeps=RememberKind.GRANT, worker=facts.worker, grant=grant))
    unread = grant == ANY_WALLED and facts.command is not None and facts.command.parsed is None
    if not offered or (len(offered) == 1 and (facts.command is None or unread)):
        offered.insert(0, exact_call)
    return tuple(offered[:_MAX_CHOICES])


def _exact_command(
    facts: CallFacts, bases: tuple[EffectVerdict, ...], would_lift: WouldLift, file: str
) -> Iterator[Choice]:
    """A command as it stands. `file`: where a rule could be saved; empty if nowhere.

    A rule knows only the words of one segment: not the directory, nor what is piped into it. So the session keeps the
    call's fingerprint, and a rule is offered for always only where the words say it all.
    """
    command = facts.command
    if command is None or command.parsed is None:
        return
    rules: tuple[Rule, ...] = ()
    if file and _is_self_contained(facts, command.parsed):
        commands = _commands_to_allow(facts, bases)
        written = tuple(_allow_rule(RuleKind.COMMAND, list(words), exact=True) for words in commands)
        rules = _needed_rules(written, facts, would_lift)
        if rules and not would_lift(_scoped(rules, RuleOrigin.SESSION, facts.worker)):
            rules = ()
    yield Choice(
        id="exact",
        label=f"exactly {render(command.parsed)}",
        keeps=RememberKind.FINGERPRINT,
        rules=rules,
        lifetimes=_BOTH if rules else _SESSION,
        worker=facts.worker,
        project=facts.project,
        file=file if rules else "",
    )


def _is_self_contained(facts: CallFacts, parsed: Parsed, *, with_hosts: bool = False) -> bool:
    """Whether no segment reads the output of another and only the words decide what they do, not the directory, the
    shell or a terminal. `with_hosts`: network access is allowed, since it has rules of its own.
    """
    if any(segment.joined_by == "|" or segment.words[0] == "cd" for segment in parsed.segments):
        return False
    args = facts.args
    if args.get("tty") or args.get("login") or args.get("shell", "bash") != "bash":
        return False
    if args.get("network") and not with_hosts:
        return False
    return facts.command is not None and facts.command.cwd.count("/") == 1 and not args.get("workdir")


def _commands_to_allow(facts: CallFacts, bases: tuple[EffectVerdict, ...]) -> list[tuple[str, ...]]:
    """The words of each segment that does not run by itself."""
    unmatched = [
        segment.words
        for index, _, segment, _ in CallView(facts).segments
        if index < len(bases) and bases[index].base is not Verdict.PRE_APPROVED
    ]
    return list(dict.fromkeys(unmatched))


def _needed_rules(written: tuple[dict[str, Any], ...], facts: CallFacts, would_lift: WouldLift) -> tuple[Rule, ...]:
    """Leaves out what the call does not need, because existing rules cover that part of it. None if one cannot be
    written, or a command would need too many.

    Each rule is tried by evaluating the whole call again, so only a handful are: a patch may touch 200 files.
    """
    try:
        rules = tuple(make_rule(each, RuleOrigin.SESSION) for each in written)
    except ConfigError:  # e.g. an unusual file name, or a shell alone, which runs whatever it is given
        return ()
    for rule in rules if 1 < len(rules) <= _MAX_TRIED else ():
        rest = tuple(other for other in rules if other is not rule)
        if rest and would_lift(_scoped(rest, RuleOrigin.SESSION, facts.worker)):
            rules = rest
    return () if facts.command is not None and len(rules) > _MAX_SEGMENT_RULES else rules


_Candidate = tuple[str, str, tuple[dict[str, Any], ...], bool, bool]
"""(id, label, rules as written, session only, suggested)"""


def _candidates(facts: CallFacts, bases: tuple[EffectVerdict, ...]) -> Iterator[_Candidate]:
    if facts.command is not None:
        yield from _group_candidates(facts, bases)
        yield from _command_candidates(facts, bases)
    elif facts.mcp is not None:
        mcp = {"server": escape_glob(facts.mcp.server), "tool": escape_glob(facts.mcp.tool)}
        yield "tool", f"{facts.mcp.tool} of {facts.mcp.server}", (_allow_rule(RuleKind.MCP, mcp),), False, False
    elif facts.rule_args:
        yield _resolved_candidate(facts)
    elif facts.native and facts.effects:
        uncovered = [each.effect for each in bases if each.base is not Verdict.PRE_APPROVED]
        if uncovered and all(effect.verb in PATH_VERBS and effect.target.startswith("/") for effect in uncovered):
            yield from _path_candidates(uncovered)
        elif uncovered and all(effect.verb is Verb.NET for effect in uncovered):
            yield from _host_candidates(uncovered)
        elif facts.tool not in SHELL_TOOLS:
            yield _tool_candidate(facts)
    else:
        yield _tool_candidate(facts)


def _tool_candidate(facts: CallFacts) -> _Candidate:
    return "tool", f"every call of {facts.tool}", (_allow_rule(RuleKind.TOOL, facts.tool),), False, False


def _group_candidates(facts: CallFacts, bases: tuple[EffectVerdict, ...]) -> Iterator[_Candidate]:
    """A command that needs nothing but package registries: their groups, and the command as far as it may be kept."""
    nets = [each.effect for each in bases if each.effect.verb is Verb.NET and each.base is not Verdict.PRE_APPROVED]
    places = [place for effect in nets if (place := host_and_port(effect.target)) is not None]
    groups = groups_with(places) if places and len(places) == len(nets) else None
    command = facts.command
    if not groups or command is None or command.parsed is None:
        return
    if not _is_self_contained(facts, command.parsed, with_hosts=True):
        return
    rules = [_allow_rule(RuleKind.GROUP, group) for group in groups]
    for words in _commands_to_allow(facts, bases):
        saved = next(filter(is_saved_prefix, prefix_choices(words)), ())
        rules.append(_allow_rule(RuleKind.COMMAND, list(saved or words), **({} if saved else {"exact": True})))
    named = " and ".join(groups)
    label = f"{render(command.parsed)} with the hosts of group{'s' if len(groups) > 1 else ''} {named}"
    yield _GROUP, label, tuple(rules), False, True


def _resolved_candidate(facts: CallFacts) -> _Candidate:
    """Offers a rule for the arguments that the plan resolved, whatever the call's own arguments were."""
    args: dict[str, Any] = {}
    for name in facts.rule_args[0]:
        values = list(dict.fromkeys(one[name] for one in facts.rule_args))
        args[name] = values[0] if len(values) == 1 else {"one_of": values}
    said = (str(value) if not isinstance(value, dict) else " and ".join(value["one_of"]) for value in args.values())
    label = f"{facts.tool} {' '.join(said)}"
    return "tool", label, (_allow_rule(RuleKind.TOOL, facts.tool, args=args),), False, False


def _command_candidates(facts: CallFacts, bases: tuple[EffectVerdict, ...]) -> Iterator[_Candidate]:
    commands = _commands_to_allow(facts, bases)
    if len(commands) > 1:
        prefixes = [prefix for words in commands for prefix in prefix_choices(words)[:1]]
        if len(prefixes) == len(commands):
            yield _prefix_candidate("prefix", prefixes)
        return
    for words in commands:
        prefixes = prefix_choices(words)
        # What the model proposed, if it is a prefix of what it wants to run and does not allow nearly anything.
        suggestion = facts.args.get("prefix_rule")
        if isinstance(suggestion, list) and suggestion and tuple(suggestion) == words[: len(suggestion)]:
            prefixes += [tuple(suggestion)] if is_offered_prefix(tuple(suggestion)) else []
        for prefix in sorted(dict.fromkeys(prefixes), key=len, reverse=True):
            yield _prefix_candidate(f"prefix{len(prefix)}", [prefix])


def _prefix_candidate(id_: str, prefixes: list[tuple[str, ...]]) -> _Candidate:
    label = " and ".join(f"{' '.join(map(quote, prefix))} …" for prefix in prefixes)
    rules = tuple(_allow_rule(RuleKind.COMMAND, list(prefix)) for prefix in prefixes)
    return id_, label, rules, not all(map(is_saved_prefix, prefixes)), all(map(leads_offers, prefixes))


def _path_candidates(effects: list[Effect]) -> Iterator[_Candidate]:
    access: dict[str, list[str]] = {}
    for effect in effects:
        verbs = access.setdefault(effect.target, [])
        if effect.verb.value not in verbs:
            verbs.append(effect.verb.value)
    if len(access) > _MAX_FILE_RULES:
        return
    files = tuple(_allow_rule(RuleKind.PATH, escape_glob(path), access=verbs) for path, verbs in access.items())
    if len(access) > 1:
        only_writes = all(verbs == [Verb.WRITE.value] for verbs in access.values())
        yield "files", "its files: " + ", ".join(access), files, False, only_writes
        return
    path, verbs = next(iter(access.items()))
    what = " and ".join(verbs)
    yield "file", f"{what} {path}", files, False, False
    directory, _, name = path.rpartition("/")
    if not directory:
        return
    stem, dot, extension = name.rpartition(".")
    if stem and dot and extension:
        glob = f"{escape_glob(directory)}/*.{escape_glob(extension)}"
        rule = _allow_rule(RuleKind.PATH, glob, access=verbs)
        yield "extension", f"{what} {directory}/*.{extension}", (rule,), False, False
    rule = _allow_rule(RuleKind.PATH, f"{escape_glob(directory)}/**", access=verbs)
    is_zone = directory.count("/") == 1
    yield "directory", f"{what} {directory}/**", (rule,), False, verbs == [Verb.WRITE.value] and not is_zone


def _host_candidates(effects: list[Effect]) -> Iterator[_Candidate]:
    places = [host_and_port(effect.target) for effect in effects]
    known = list(dict.fromkeys(place for place in places if place is not None))
    if None in places:
        return
    rules = tuple(_allow_rule(RuleKind.HOST, host, ports=[port]) for host, port in known)
    yield "host", " and ".join(host for host, _ in known), rules, False, True
    host, port = known[0]
    labels = host.split(".")
    if len(known) == 1 and len(labels) >= 3 and ":" not in host and not labels[-1].isdigit():
        parent = "*." + ".".join(labels[1:])
        yield "domain", parent, (_allow_rule(RuleKind.HOST, parent, ports=[port]),), True, False


def _allow_rule(kind: RuleKind, pattern: Any, **keys: Any) -> dict[str, Any]:
    return {kind.value: pattern, "verdict": Verdict.PRE_APPROVED.value, **keys}


def escape_glob(text: str) -> str:
    """Returns the glob that matches exactly this text."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)


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
    # and a diff shows the line ends of a file where they change, not where all of them are CR LF
    texts = [payload, *_texts(shown)]
    if diff and "\r" not in diff:
        texts = [text.replace("\r\n", "\n") for text in texts]
    counts = [count_control_chars(text) for text in texts]
    hidden = max(counts[0], count_control_chars(diff), sum(counts[1:]))
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
    summary = shorten_prose(next(iter(tool.description.splitlines()), ""), 200)
    kind = next((_TYPES[effect.verb] for effect in effects if effect.verb in _TYPES), "tool_call")
    return ApprovalRequest(
        type=kind if definition.approved else "definition",
        description=escape_control_chars(": ".join(part for part in (tool.label or tool.name, summary) if part)),
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
