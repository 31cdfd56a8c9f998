"""`/rules [revoke ID]` and `/why [CALL]`: what was allowed, by whom, and how to take it back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from golem_forge.policy.rules.usage import Usage, rule_usage
from golem_forge.tools.threads import run_in_thread
from golem_forge.workers.approvals_in_force import (
    ID_SHOWN,
    SESSION,
    NotRevoked,
    RuleInForce,
    approvals_in_force,
    revoke_here,
    rules_in_force,
)
from golem_forge.workers.slash.decisions import Decided
from golem_forge.workers.slash.host import Invocation, SlashHost
from golem_forge.workers.slash.table import columns, local_time
from golem_forge.workers.slash.tokens import CommandError


async def rules(call: Invocation) -> str:
    if not call.args:
        home = call.host.home.path
        return _listed(call.host, await run_in_thread(lambda: rule_usage(home)))
    verb, *ids = call.args
    if verb.lower() != "revoke" or not ids:
        raise CommandError("/rules lists what is allowed; /rules revoke ID takes one back")
    try:
        return "\n".join([revoke_here(call.host, id_) for id_ in ids])
    except NotRevoked as error:
        raise CommandError(error.message) from None


def revocable(host: SlashHost) -> list[str]:
    """The ids that `/rules revoke` takes, as `/rules` shows them."""
    return [
        *(each.id for each in approvals_in_force(host)),
        *(each.id for each in rules_in_force(host.rules, {}) if each.revocable),
    ]


def _listed(host: SlashHost, used: Mapping[str, Usage]) -> str:
    rows = [*_approval_rows(host), *map(_rule_row, rules_in_force(host.rules, used))]
    if not rows:
        return "Nothing is remembered and there is no rule."
    text = columns([("ID", "VERDICT", "WHAT", "KEPT IN", "LAST USED", ""), *rows])
    return "\n".join([text, *host.rules.notices, "/rules revoke ID takes back what was remembered."])


def _approval_rows(host: SlashHost) -> Iterator[tuple[str, ...]]:
    """Calls approved for the session word for word, and grants."""
    for each in approvals_in_force(host):
        what = f"{each.what} (worker {each.worker})" if each.worker else f"this exact call: {each.what}"
        yield each.id, "preApproved", what, SESSION, "", ""


def _rule_row(rule: RuleInForce) -> tuple[str, ...]:
    return (
        rule.id,
        rule.verdict,
        rule.what + (f" ({rule.scope})" if rule.scope else ""),
        rule.kept_in,
        local_time(rule.last_used) if rule.last_used else "never",
        f"inactive: {rule.inactive}" if rule.inactive else "",
    )


async def why(call: Invocation) -> str:
    if len(call.args) > 1:
        raise CommandError("One call: /why CALL, or /why for the last one")
    if not call.args:
        last = call.decisions.last()
        return _told(last) if last else "No call was made in this session yet."
    found = call.decisions.find(call.args[0])
    if not found:
        raise CommandError(f"No call '{call.args[0]}' among the last ones of this session; `forge log calls` has all")
    if len(found) > 1:
        raise CommandError(f"'{call.args[0]}' is the beginning of {len(found)} calls; give more of it")
    return _told(found[0])


def _told(decided: Decided) -> str:
    head = f"{decided.tool} ({decided.call_id}): {decided.status}"
    if decided.error:
        head += f", {decided.error.splitlines()[0][:300]}"
    if decided.decision is None:
        return f"{head}\nIt ended before anything was decided about it."
    return f"{head}\n" + columns(_rows(decided.decision), indent="  ")


def _rows(decision: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "verdict", str(decision["verdict"])
    if by := decision["decidedBy"]:
        yield "decided by", _source(by)
    for source in decision["sources"]:
        yield "said", f"{source['verdict']} by {_source(source)}"
    yield "risk", ", ".join([decision["risk"], *decision["riskReasons"]])
    answered = decision["answeredBy"]
    if answered not in ("", "nobody"):
        yield "answered by", answered + (", from memory" if decision["cached"] else "")
    if decision["edited"]:
        yield "edited", "the arguments were changed before it ran"
    if decision["remembered"]:
        yield "remembered", decision["remembered"]
    if decision["message"]:
        yield "message", decision["message"]
    if decision["fingerprint"]:
        yield "fingerprint", f"{decision['fingerprint'][:ID_SHOWN]}, arguments {decision['argsKey']}"


def _source(source: Mapping[str, Any]) -> str:
    """As the card said it: `rules 1a2b: reason (~/.forge/rules.yaml:3)`."""
    label = f"{source['source']} {source['id']}".strip()
    place = (
        f" ({source['file']}:{source['line']})" if source["line"] else f" ({source['file']})" if source["file"] else ""
    )
    return f"{label}: {source['reason']}{place}" if source["reason"] else f"{label}{place}"
