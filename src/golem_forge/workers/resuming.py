"""Resuming: an earlier session goes on. Takes its id, the beginning of it or `last`; gives all there is to go on with.

Nothing is run and nothing repeated. The history comes back complete: a call that the journal saw finish has its result,
one that was about to run is `interrupted`, `may have run before the crash`. Refuses with SessionNotFound,
SessionAmbiguous, SessionInUse, JournalDamaged, and NothingToResume for a session in which no worker ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.call import Caller
from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.events.call_states import CallRecord, CallStates
from golem_forge.events.finding import find_session
from golem_forge.events.journal import Journal
from golem_forge.events.recovery import MAY_HAVE_RUN, NEVER_RAN, reopen
from golem_forge.tools.results import semantic_value, text_of
from golem_forge.toolsets.plan import Plans
from golem_forge.workers.completing import completed
from golem_forge.workers.deferring import loaded_tools
from golem_forge.workers.fencing import fenced
from golem_forge.workers.history import History
from golem_forge.workers.messages import AssistantMessage, CallResult, Message, RequestedCall
from golem_forge.workers.models.layer import Usage
from golem_forge.workers.session_facts import (
    DefinitionOf,
    Kept,
    RunFacts,
    changed_files,
    kept_approvals,
    restore_approvals,
    run_facts,
)

if TYPE_CHECKING:
    from golem_forge.workers.tree import SessionTree

SESSION_STOPPED: Final = "The session stopped before these finished; it was resumed."
_LONGEST_RESULT: Final = 100_000
_STATUSES: Final = frozenset(status.value for status in Status)


class NothingToResume(ForgeError):
    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"session {session_id} has no conversation to resume (no worker ran in it); `forge sessions list` shows "
            "those that have one",
            code="NOTHING_TO_RESUME",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedUsage:
    """What all requests of the session took so far."""

    usage: Usage = field(default_factory=Usage)
    requests: int = 0
    cost: float | None = None
    """None before the first request, and where the price of one was not known."""


@dataclass(slots=True, kw_only=True)
class Resumed:
    session_id: str
    journal: Journal
    """Open, locked, and numbered on from `journal.seq`."""
    facts: RunFacts
    history: tuple[Message, ...]
    """The root worker's, every call with its result."""
    plans: Mapping[str, Sequence[Mapping[str, str]]]
    """Worker path → the steps of its plan."""
    approvals: tuple[Kept, ...]
    loaded: tuple[str, ...]
    """Names of the deferred tools that the root worker had loaded."""
    usage: RecordedUsage
    calls: int
    """How many calls its models made."""
    call_ids: frozenset[str]
    """Of every call on record, of all workers."""
    interrupted: tuple[CallRecord, ...]
    """Calls that the crash had left open, now closed."""
    changed: tuple[str, ...]
    """Worker files that are not what they were; they are used in their new form."""

    @property
    def seq(self) -> int:
        return self.journal.seq

    @property
    def worker_id(self) -> str:
        return self.facts.worker_id

    @property
    def worker_reference(self) -> Path | str:
        """Its file, or the name of one that has none."""
        worker = self.facts.worker or self.facts.name
        return Path(worker) if worker.startswith("/") else worker

    @property
    def directory(self) -> str:
        return self.facts.directory

    @property
    def model(self) -> str:
        return self.facts.model

    @property
    def warning(self) -> str:
        """Empty if the files are what they were."""
        if not self.changed:
            return ""
        return f"changed since this session ran, used in their new form: {', '.join(self.changed)}"

    def restore_into(self, tree: SessionTree, definition_of: DefinitionOf | None = None) -> tuple[Kept, ...]:
        """Plans and approvals; gives the approvals that still hold.

        `definition_of` tells what the tools are now; without it only native ones are known, and what was kept for
        others, beyond exact calls, is asked again.
        """
        plans = tree.parts.get(Plans)
        for worker, steps in self.plans.items():
            plans.replace(worker, [dict(step) for step in steps])
        return restore_approvals(
            self.approvals,
            definition_of or native_definition,
            controller=tree.controller,
            rules=tree.rules,
            grants=tree.grants,
        )


def native_definition(worker: str, tool: str) -> str | None:
    from golem_forge.workers.native_toolsets import TOOLKIT

    return TOOLKIT[tool].definition_digest if tool in TOOLKIT else None


def resume(home: Path, reference: str, *, root: Path | str = "", redact: Callable[[Any], Any] | None = None) -> Resumed:
    """`root`: the program whose `last` is meant; `redact` stands before everything that is recorded from now on."""
    found = find_session(home, reference, root=root)
    if not found.worker:
        raise NothingToResume(found.id)
    reopened = reopen(home, found.id, redact=redact)
    try:
        records, journal = reopened.records, reopened.journal
        facts = run_facts(records)
        if facts is None:
            raise NothingToResume(found.id)
        history = _whole_history(History.restore(records, facts.worker_id, journal), reopened.calls)
        asked = {call.id for each in history if isinstance(each, AssistantMessage) for call in each.calls}
        made = reopened.calls.calls
        return Resumed(
            session_id=found.id,
            journal=journal,
            facts=facts,
            history=history,
            plans=_plans(reopened.calls),
            approvals=kept_approvals(records),
            loaded=loaded_tools(records, facts.worker_id),
            usage=_usage(records),
            calls=sum(call.caller == Caller.LLM for call in made.values()),
            call_ids=frozenset(asked | made.keys()),
            interrupted=tuple(reopened.interrupted),
            changed=changed_files(facts),
        )
    except BaseException:
        reopened.journal.release()
        raise


def _whole_history(history: History, calls: CallStates) -> tuple[Message, ...]:
    """What had to be put in is recorded, so that resuming twice finds the same."""
    whole = completed(history.messages, lambda call: _what_became_of(call, calls), SESSION_STOPPED)
    have = len(history.messages)
    if whole[:have] == history.messages:
        for message in whole[have:]:
            history.add(message)
    else:
        history.replace_all(whole)
    return tuple(history.messages)


def _what_became_of(call: RequestedCall, calls: CallStates) -> CallResult:
    record = calls.calls.get(call.id)
    if record is None:  # never proposed: no effect can have happened
        status, text = (Status.INPUT_INVALID, call.problem) if call.problem else (Status.INTERRUPTED, NEVER_RAN)
        return CallResult(id=call.id, name=call.name, status=status, text=text)
    return CallResult(
        id=call.id,
        name=call.name,
        status=Status(record.status) if record.status in _STATUSES else Status.INTERRUPTED,
        text=_told(record),
        output_handle=record.output_handle,
    )


def _told(record: CallRecord) -> str:
    """As the loop would have told it; what a tool said is fenced, because others may have written it."""
    value = semantic_value(record.value)
    said = text_of(value) if value is not None else str(record.value or "")
    if len(said) > _LONGEST_RESULT:
        where = f" read_output handle={record.output_handle}" if record.output_handle else ""
        said = f"{said[:_LONGEST_RESULT]}\n[… {len(said) - _LONGEST_RESULT} characters left out{where}]"
    told = "\n".join(part for part in (record.error, said) if part)
    return fenced(told) if record.started_at and record.error != MAY_HAVE_RUN else told


def _plans(calls: CallStates) -> dict[str, list[dict[str, str]]]:
    """From the calls, because they name workers by path, as plans do."""
    plans: dict[str, list[dict[str, str]]] = {}
    for call in calls.calls.values():
        value = call.value
        if call.status == Status.SUCCESS.value and isinstance(value, dict) and value.get("kind") == "plan.update":
            plans[call.worker] = [dict(step) for step in value.get("plan", ()) if isinstance(step, dict)]
    return plans


def _usage(records: Iterable[Mapping[str, Any]]) -> RecordedUsage:
    usage, requests, cost, unpriced = Usage(), 0, 0.0, False
    for record in records:
        if record.get("type") != "event" or record.get("event") != "usageUpdated":
            continue
        data = record["data"]
        usage += Usage(input=data.get("input", 0), output=data.get("output", 0), cached=data.get("cached", 0))
        requests += 1
        unpriced = unpriced or data.get("cost") is None
        cost += data.get("cost") or 0.0
    return RecordedUsage(usage=usage, requests=requests, cost=cost if requests and not unpriced else None)
