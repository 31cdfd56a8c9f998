"""What a session must record to be resumed: where it ran and with what, and which approvals a person gave for it.

`record_run` and `kept_recorder` write it to the journal; `run_facts` and `kept_approvals` read it back. An approval is
restored only if what it was given for is unchanged: a changed tool asks again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.events.journal import Journal
from golem_forge.events.journal_records import join_records
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.facts import ANY_WALLED
from golem_forge.policy.rules.book import RuleBook
from golem_forge.policy.rules.load import make_rule
from golem_forge.policy.rules.model import RuleOrigin, rule_id

RUN_RECORD: Final = "run"
KEPT_RECORD: Final = "approvalKept"
REVOKED_RECORD: Final = "approvalRevoked"
_TYPES_INTO_PROCESSES: Final = "write_stdin"
_GRANTS_THAT_LAST: Final = frozenset({ANY_WALLED})
"""Threat: `input to session 3` means another process after a resume, so such a grant ends with its process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """How a run was started; a resumed session adds its own, and the last one counts."""

    name: str
    """The root worker's name."""
    worker_id: str
    """Of the root worker's run: its history is found by it."""
    directory: str
    """Where it was started, as a host path."""
    root: str
    """The program's."""
    worker: str = ""
    """Its file, as a host path; its name where it has none (the built-in worker)."""
    model: str = ""
    mode: str = ""
    approval_mode: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """Worker files by the names people know (relative to the root) → `file_digest`."""


def record_run(journal: Journal, facts: RunFacts) -> None:
    """Not redacted: the directory would come back as a zone's name. Nothing of it is an event or is exported."""
    journal.append_as_is(RUN_RECORD, asdict(facts))
    journal.flush()


def run_facts(records: Iterable[Mapping[str, Any]]) -> RunFacts | None:
    found: RunFacts | None = None
    for record in join_records(records):
        if record.get("type") == RUN_RECORD:
            found = read_facts(record) or found
    return found


def read_facts(record: Mapping[str, Any]) -> RunFacts | None:
    """Of a `run` record; None for one that lacks what is needed."""
    names = {each.name for each in fields(RunFacts)}
    try:
        return RunFacts(**{name: value for name, value in record.items() if name in names})
    except TypeError:
        return None


def file_digest(path: Path) -> str:
    """Empty for a file that is not there or cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def changed_files(facts: RunFacts) -> tuple[str, ...]:
    """The files, by the names people know, that are not what they were."""
    root = Path(facts.root)
    return tuple(name for name, digest in facts.files.items() if file_digest(root / name) != digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptApproval:
    """One approval for the rest of the session."""

    kind: str
    """`exact`, `rule` or `grant`."""
    worker: str
    tool: str
    definition: str
    """The digest of the tool's definition when it was given."""
    key: str
    """What it is revoked by: the fingerprint, the rule's id, the grant."""
    what: str = ""
    rule: Mapping[str, Any] = field(default_factory=dict)


def kept_recorder(journal: Journal | None) -> Callable[[str, dict[str, Any]], None]:
    """`on_kept` for the approve stage. It waits in memory: the start of the call it was given for takes it to disk."""

    def record(kind: str, data: dict[str, Any]) -> None:
        if journal is not None:
            journal.append(KEPT_RECORD, {"kind": kind, "key": _key(kind, data), **data})

    return record


def record_revoked(journal: Journal | None, kind: str, key: str, worker: str = "") -> None:
    """A person took it back; a grant is one worker's."""
    if journal is not None:
        journal.append(REVOKED_RECORD, {"kind": kind, "key": key, "worker": worker})
        journal.flush()


class KeptApprovals:
    """Takes records one by one; holds what was kept and not taken back, each once."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], dict[str, KeptApproval]] = {}
        """(kind, key) → its approvals, by all that tells one from another."""

    def take(self, record: Mapping[str, Any]) -> None:
        if record.get("type") == KEPT_RECORD:
            rule = record.get("rule")
            kept = KeptApproval(
                kind=str(record.get("kind")),
                worker=str(record.get("worker")),
                tool=str(record.get("tool")),
                definition=str(record.get("definition")),
                key=str(record.get("key")),
                what=str(record.get("what", "")),
                rule=rule if isinstance(rule, dict) else {},
            )
            self._kept.setdefault((kept.kind, kept.key), {}).setdefault(repr(kept), kept)
        elif record.get("type") == REVOKED_RECORD:
            place = (record.get("kind"), record.get("key"))
            left = {text: kept for text, kept in self._kept.pop(place, {}).items() if not _is_revoked(kept, record)}
            if left:
                self._kept[place] = left

    def approvals(self) -> tuple[KeptApproval, ...]:
        return tuple(kept for same in self._kept.values() for kept in same.values())


def kept_approvals(records: Iterable[Mapping[str, Any]]) -> tuple[KeptApproval, ...]:
    found = KeptApprovals()
    for record in join_records(records):
        found.take(record)
    return found.approvals()


def _is_revoked(kept: KeptApproval, by: Mapping[str, Any]) -> bool:
    same = (kept.kind, kept.key) == (by.get("kind"), by.get("key"))
    return same and (kept.kind != "grant" or kept.worker == by.get("worker"))


DefinitionOf = Callable[[str, str], str | None]
"""(worker path, tool name) → the digest of its definition as it is now; None: no such tool is known."""


def restore_approvals(
    kept: Iterable[KeptApproval],
    definition_of: DefinitionOf,
    *,
    controller: ApprovalController,
    rules: RuleBook | None,
    grants: dict[str, set[str]],
) -> tuple[KeptApproval, ...]:
    """Puts back those that still hold, and gives them. What is left out is asked again."""
    back = []
    for each in kept:
        if each.tool == _TYPES_INTO_PROCESSES or definition_of(each.worker, each.tool) not in (each.definition, None):
            continue
        if each.kind == "exact":  # its key holds the definition too, so an unknown tool's can wait for it
            controller.keep(each.key, each.what)
        elif definition_of(each.worker, each.tool) is None:
            continue
        elif each.kind == "grant" and each.key in _GRANTS_THAT_LAST:
            grants.setdefault(each.worker, set()).add(each.key)
        elif each.kind != "rule" or rules is None or not _restore_rule(each, rules):
            continue
        back.append(each)
    return tuple(back)


def _restore_rule(kept: KeptApproval, rules: RuleBook) -> bool:
    """Threat: a rule whose words were redacted would speak of something else; its id tells."""
    try:
        rule = make_rule(dict(kept.rule), RuleOrigin.SESSION)
    except ConfigError:
        return False
    if _key("rule", {"rule": kept.rule}) != kept.key:
        return False
    rules.add_session_rule(rule)
    return True


def _key(kind: str, data: Mapping[str, Any]) -> str:
    if kind == "rule":
        return rule_id(dict(data["rule"]))
    return str(data["fingerprint" if kind == "exact" else "grant"])
