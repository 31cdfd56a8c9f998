"""What is allowed in a session, by whom it was said, and taking it back: the data behind `/rules` and the rules page.

Rules come from files and from answers; approvals of single calls and grants live in the session alone. `revoke` takes
back what was remembered, records it so that a resumed session stays without it too, and refuses (NotRevoked) what a
person wrote by hand: it says where that stands.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.core.canonical import sha256_hex
from golem_forge.core.errors import ForgeError
from golem_forge.policy.rules import Origin, RuleBook, RuleLine, revoke
from golem_forge.policy.rules.usage import Usage
from golem_forge.workers.session_facts import record_revoked

if TYPE_CHECKING:
    from golem_forge.config.home import ForgeHome
    from golem_forge.workers.slash.host import SlashHost

ID_SHOWN: Final = 12
SESSION: Final = "this session"
_KEPT: Final = (Origin.SESSION, Origin.REMEMBERED)
_NEVER: Final = Usage()
_SHORTEST_PREFIX: Final = 4


class NotRevoked(ForgeError):
    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message, code=code)


UNKNOWN: Final = "UNKNOWN_ID"
AMBIGUOUS: Final = "AMBIGUOUS_ID"
BY_HAND: Final = "WRITTEN_BY_HAND"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalInForce:
    """What a person allowed for the rest of this session, beside rules."""

    id: str
    what: str
    worker: str = ""
    """Whose; empty: it is one exact call, which names its worker by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleInForce:
    id: str
    verdict: str
    what: str
    scope: str
    reason: str
    origin: str
    kept_in: str
    """`~/.forge/rules.yaml:3`, or `this session`."""
    hits: int
    last_used: str
    """Empty: never."""
    inactive: str
    """Why it does not act; empty if it does."""
    revocable: bool


def approvals_in_force(host: SlashHost) -> tuple[ApprovalInForce, ...]:
    """Exact calls first, then grants."""
    exact = (
        ApprovalInForce(id=fingerprint[:ID_SHOWN], what=what)
        for fingerprint, what in host.controller.memory.grants().items()
    )
    grants = (
        ApprovalInForce(id=_grant_id(worker, what), what=what, worker=worker)
        for worker, granted in host.path.judge.grants().items()
        for what in sorted(granted)
    )
    return (*exact, *grants)


def rules_in_force(rules: RuleBook, used: Mapping[str, Usage]) -> tuple[RuleInForce, ...]:
    """`used`: what the journals say of each id (`rule_usage`)."""
    return tuple(_rule(line, used.get(line.rule.id, _NEVER)) for line in rules.list())


def _rule(line: RuleLine, usage: Usage) -> RuleInForce:
    rule = line.rule
    kept_in = SESSION if rule.origin is Origin.SESSION else f"{rule.file}:{rule.line}" if rule.line else rule.file
    return RuleInForce(
        id=rule.id,
        verdict=rule.verdict.value,
        what=rule.describe(),
        scope=rule.scope.describe(),
        reason=rule.reason,
        origin=rule.origin.value,
        kept_in=kept_in or rule.origin.value,
        hits=usage.hits,
        last_used=usage.last,
        inactive=line.inactive,
        revocable=rule.origin in _KEPT,
    )


def open_book(home: ForgeHome, directory: Path) -> RuleBook:
    """The rules as a session started in `directory` would have them."""
    from golem_forge.config.program import find_root
    from golem_forge.workers.trust_cover import trust_store

    root = find_root(directory) or directory.resolve()
    trust = trust_store(home)
    return RuleBook(home, project_root=root, project_trusted=lambda: trust.trusted(root))


def revoke_here(host: SlashHost, id_: str) -> str:
    """Calls by the beginning of their fingerprint, rules and grants by their whole id. Gives what was taken back, in
    words. Raises NotRevoked."""
    memory = host.controller.memory
    exact = [each for each in memory.grants() if len(id_) >= _SHORTEST_PREFIX and each.startswith(id_)]
    if len(exact) > 1:
        raise NotRevoked(f"'{id_}' is the beginning of {len(exact)} approvals; give more of it", code=AMBIGUOUS)
    if exact:
        memory.revoke(exact[0])
        record_revoked(host.journal, "exact", exact[0])
        return f"Revoked {id_}: that call asks again."
    if host.rules.remove([id_]):
        record_revoked(host.journal, "rule", id_)
        return f"Revoked {id_}: it held for this session."
    for worker, granted in host.path.judge.grants().items():
        for what in sorted(granted):
            if _grant_id(worker, what) == id_:
                host.path.judge.take_back(worker, what)
                record_revoked(host.journal, "grant", what, worker)
                return f"Revoked {id_}: {what} (worker {worker})."
    return revoke_remembered(host.home, host.rules, id_)


def revoke_remembered(home: ForgeHome, rules: RuleBook, id_: str) -> str:
    """An "always" answer, for every session. Raises NotRevoked."""
    if os.path.lexists(home.remembered) and revoke(home, [id_]):
        rules.reread()
        return f"Revoked {id_}: removed from {home.shown(home.remembered)}."
    written = next((line.rule for line in rules.list() if line.rule.id == id_), None)
    if written is not None and written.origin is Origin.BUILTIN:
        raise NotRevoked(
            f"{id_} is builtin; to drop it write `builtin_off: [{id_}]` in {home.shown(home.rules)}", code=BY_HAND
        )
    if written is not None:
        raise NotRevoked(f"{written.file}:{written.line}: {id_} was written by hand; remove it there", code=BY_HAND)
    raise NotRevoked(f"Nothing with the id '{id_}' is remembered; /rules lists what is", code=UNKNOWN)


def _grant_id(worker: str, what: str) -> str:
    return sha256_hex(f"{worker} {what}")[:ID_SHOWN]
