"""`/rules [revoke ID]` and `/why [CALL]`: what was allowed, by whom, and how to take it back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from golem_forge.core.canonical import sha256_hex
from golem_forge.policy.rules import Origin, RuleLine, revoke
from golem_forge.policy.rules.usage import Usage, rule_usage
from golem_forge.tools.threads import run_in_thread
from golem_forge.workers.session_facts import record_revoked
from golem_forge.workers.slash.decisions import Decided
from golem_forge.workers.slash.host import Invocation, SlashHost
from golem_forge.workers.slash.table import columns, local_time
from golem_forge.workers.slash.tokens import CommandError

_ID_SHOWN: Final = 12
_SESSION: Final = "this session"


async def rules(call: Invocation) -> str:
    if not call.args:
        home = call.host.home.path
        return _listed(call.host, await run_in_thread(lambda: rule_usage(home)))
    verb, *ids = call.args
    if verb.lower() != "revoke" or not ids:
        raise CommandError("/rules lists what is allowed; /rules revoke ID takes one back")
    return "\n".join([_revoked(call.host, id_) for id_ in ids])


def revocable(host: SlashHost) -> list[str]:
    """The ids that `/rules revoke` takes, as `/rules` shows them."""
    kept = (Origin.SESSION, Origin.REMEMBERED)
    return [
        *(fingerprint[:_ID_SHOWN] for fingerprint in host.controller.memory.grants()),
        *(id_ for id_, _, _ in _grants(host)),
        *(line.rule.id for line in host.rules.list() if line.rule.origin in kept),
    ]


def _listed(host: SlashHost, used: Mapping[str, Usage]) -> str:
    lines = host.rules.list()
    rows = [*_exact_rows(host), *_grant_rows(host), *(_rule_row(line, used.get(line.rule.id)) for line in lines)]
    if not rows:
        return "Nothing is remembered and there is no rule."
    text = columns([("ID", "VERDICT", "WHAT", "KEPT IN", "LAST USED", ""), *rows])
    return "\n".join([text, *host.rules.notices, "/rules revoke ID takes back what was remembered."])


def _exact_rows(host: SlashHost) -> Iterator[tuple[str, ...]]:
    """Calls approved for the session, word for word."""
    for fingerprint, what in host.controller.memory.grants().items():
        yield fingerprint[:_ID_SHOWN], "preApproved", f"this exact call: {what}", _SESSION, "", ""


def _grant_rows(host: SlashHost) -> Iterator[tuple[str, ...]]:
    for id_, worker, what in _grants(host):
        yield id_, "preApproved", f"{what} (worker {worker})", _SESSION, "", ""


def _grants(host: SlashHost) -> Iterator[tuple[str, str, str]]:
    """(id to revoke it by, worker, what it was allowed)."""
    for worker, granted in host.path.judge.grants().items():
        for what in sorted(granted):
            yield sha256_hex(f"{worker} {what}")[:_ID_SHOWN], worker, what


def _rule_row(line: RuleLine, usage: Usage | None) -> tuple[str, ...]:
    rule = line.rule
    kept_in = _SESSION if rule.origin is Origin.SESSION else f"{rule.file}:{rule.line}" if rule.line else rule.file
    scope = rule.scope.describe()
    return (
        rule.id,
        rule.verdict.value,
        rule.describe() + (f" ({scope})" if scope else ""),
        kept_in or rule.origin.value,
        local_time(usage.last) if usage is not None else "never",
        f"inactive: {line.inactive}" if line.inactive else "",
    )


def _revoked(host: SlashHost, id_: str) -> str:
    """Calls by the beginning of their fingerprint, rules and grants by their whole id. A resumed session stays without
    it too."""
    memory = host.controller.memory
    exact = [fingerprint for fingerprint in memory.grants() if len(id_) >= 4 and fingerprint.startswith(id_)]
    if len(exact) > 1:
        raise CommandError(f"'{id_}' is the beginning of {len(exact)} approvals; give more of it")
    if exact:
        memory.revoke(exact[0])
        record_revoked(host.journal, "exact", exact[0])
        return f"Revoked {id_}: that call asks again."
    if host.rules.remove([id_]):
        record_revoked(host.journal, "rule", id_)
        return f"Revoked {id_}: it held for this session."
    for grant, worker, what in _grants(host):
        if grant == id_:
            host.path.judge.take_back(worker, what)
            record_revoked(host.journal, "grant", what, worker)
            return f"Revoked {id_}: {what} (worker {worker})."
    if os.path.lexists(host.home.remembered) and revoke(host.home, [id_]):
        host.rules.reread()
        return f"Revoked {id_}: removed from {host.home.shown(host.home.remembered)}."
    written = next((line.rule for line in host.rules.list() if line.rule.id == id_), None)
    if written is not None and written.origin is Origin.BUILTIN:
        raise CommandError(
            f"{id_} is builtin; to drop it write `builtin_off: [{id_}]` in {host.home.shown(host.home.rules)}"
        )
    if written is not None:
        raise CommandError(f"{written.file}:{written.line}: {id_} was written by hand; remove it there")
    raise CommandError(f"Nothing with the id '{id_}' is remembered; /rules lists what is")


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
        yield "fingerprint", f"{decision['fingerprint'][:_ID_SHOWN]}, arguments {decision['argsKey']}"


def _source(source: Mapping[str, Any]) -> str:
    """As the card said it: `rules 1a2b: reason (~/.forge/rules.yaml:3)`."""
    label = f"{source['source']} {source['id']}".strip()
    place = (
        f" ({source['file']}:{source['line']})" if source["line"] else f" ({source['file']})" if source["file"] else ""
    )
    return f"{label}: {source['reason']}{place}" if source["reason"] else f"{label}{place}"
