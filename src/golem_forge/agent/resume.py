"""Resuming a session. Takes its id, the beginning of it or `last`; returns everything needed to continue.

Nothing is run and nothing is repeated. The history comes back complete: a call that the journal saw finish has its
result; one that was about to run is `interrupted`, `may have run before the crash`. Raises SessionNotFound,
SessionAmbiguous, SessionInUse, JournalDamaged, and NothingToResume for a session in which no worker ran.

A session that goes on by itself (its journal says so) has an `OpenTurn` instead: the turn that another process began,
with the calls that never started left open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.budget import Meter
from golem_forge.agent.history import HISTORY_RECORDS, History, apply_record, complete_results
from golem_forge.agent.model.interface import AssistantMessage, CallResult, Message, RequestedCall, TokenUsage, fenced
from golem_forge.agent.prompt import TOOLS_LOADED, loaded_tools
from golem_forge.agent.session_state import (
    RUN_RECORD,
    DefinitionOf,
    KeptApproval,
    KeptApprovals,
    RunFacts,
    SessionState,
    changed_files,
    read_facts,
    restore_approvals,
)
from golem_forge.agent.tool_inventory import TOOLKIT
from golem_forge.core.calls import Caller
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.results import semantic_value, text_of
from golem_forge.events.index import find_session
from golem_forge.events.journal import (
    ARGS_NOT_KEPT,
    HIDDEN_ARGS,
    MAY_HAVE_RUN,
    NEVER_RAN,
    Journal,
    SessionJournals,
    reopen,
)
from golem_forge.events.journal_records import CallRecord, CallRecords, RecordedState, RecordJoiner, read
from golem_forge.toolsets.plan import SessionPlans

SESSION_STOPPED: Final = "The session stopped before these finished; it was resumed."
_LONGEST_RESULT: Final = 100_000
_ENDED: Final = {Status.SUCCESS.value: "done"}
_CALLED: Final = "Calls that it made before that"
_STATUSES: Final = frozenset(status.value for status in Status)


class NothingToResume(ForgeError):
    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"session {session_id} has no conversation to resume (no worker ran in it); `forge sessions list` shows "
            "those that have one",
            code="NOTHING_TO_RESUME",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTurn:
    """A turn without an answer yet."""

    response: AssistantMessage | None = None
    """The model's last response, if its calls are not all done or it is the answer; None if the model is next."""
    known: Mapping[str, CallResult] = field(default_factory=dict)
    """Call id → what became of it; the others of `response` are still to be made."""
    note: str = ""
    """A text for the model with the results of these calls."""


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
    approvals: tuple[KeptApproval, ...]
    loaded: tuple[str, ...]
    """Names of the deferred tools that the root worker had loaded."""
    usage: Meter
    """The usage of all requests of the session so far."""
    unpriced: Sequence[tuple[str, TokenUsage]]
    """Model and usage of each request whose price was not known."""
    calls: int
    """How many calls its models made."""
    call_ids: frozenset[str]
    """The ids of all recorded calls of all workers."""
    turns: int
    """How many messages the person sent."""
    interrupted: tuple[CallRecord, ...]
    """Calls that the crash had left open, now closed."""
    changed: tuple[str, ...]
    """Worker files that are not what they were; they are used in their new form."""
    open_turn: OpenTurn | None = None
    """The turn to continue in a session that goes on by itself; None if nothing was said yet or the person is next."""

    @property
    def seq(self) -> int:
        return self.journal.seq

    @property
    def worker_id(self) -> str:
        return self.facts.worker_id

    @property
    def worker_reference(self) -> Path | str:
        """The worker's file, or its name if it has none."""
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
        """A warning about changed files; empty if there are none."""
        if not self.changed:
            return ""
        return f"changed since this session ran, used in their new form: {', '.join(self.changed)}"

    def restore_into(
        self, session_state: SessionState, definition_of: DefinitionOf | None = None
    ) -> tuple[KeptApproval, ...]:
        """Plans and approvals; gives the approvals that still hold.

        `definition_of` tells what the tools are now; without it only native ones are known, and what was kept for
        others, beyond exact calls, is asked again.
        """
        plans = session_state.parts.get(SessionPlans)
        for worker, steps in self.plans.items():
            plans.replace(worker, [dict(step) for step in steps])
        return restore_approvals(
            self.approvals,
            definition_of or native_definition,
            controller=session_state.controller,
            rules=session_state.rules,
            grants=session_state.grants,
        )


def native_definition(worker: str, tool: str) -> str | None:
    return TOOLKIT[tool].definition_digest if tool in TOOLKIT else None


def resume(
    home: Path,
    reference: str,
    *,
    root: Path | str = "",
    redact: Callable[[Any], Any] | None = None,
    journals: SessionJournals | None = None,
    asks_again: bool = False,
) -> Resumed:
    """`root`: the program whose `last` is meant; `redact` stands before everything that is recorded from now on.
    `journals`: where the journal is, if not in `home`; `reference` is a whole id then. `asks_again`: who was asked when
    the other process died is there again; the turn stays open for them."""
    past = _RecordedPast()
    if journals is not None:
        session_id, reopened = reference, journals.reopen(reference, redact, past.take)
    else:
        found = find_session(home, reference, root=root)
        if not found.worker:
            raise NothingToResume(found.id)
        session_id, reopened = found.id, reopen(home, found.id, redact=redact, take=past.take, asks_again=asks_again)
    try:
        journal, facts = reopened.journal, past.facts
        if facts is None:
            raise NothingToResume(session_id)
        interrupted = {call.id: call for call in reopened.interrupted}
        past.close_programs(reopened.interrupted)

        def record_of(call_id: str) -> CallRecord | None:
            return interrupted.get(call_id) or past.call(call_id, journal.path)

        recorded, open_turn = past.history(journal), None
        if reopened.goes_on:
            open_turn = _open_turn(recorded.messages, record_of, past.hidden)
            history = tuple(recorded.messages)
        else:
            history = _whole_history(recorded, record_of)
        asked = {call.id for each in history if isinstance(each, AssistantMessage) for call in each.calls}
        return Resumed(
            session_id=session_id,
            journal=journal,
            facts=facts,
            history=history,
            plans=past.plans,
            approvals=past.approvals.approvals(),
            loaded=loaded_tools(past.loaded.values(), facts.worker_id),
            usage=past.usage,
            unpriced=[(model or facts.model, usage) for model, usage in past.unpriced],
            calls=sum(past.by_model.values()) - len(past.open_calls(open_turn)),
            call_ids=frozenset(asked | past.by_model.keys()),
            turns=past.turns.get(facts.worker_id, 0),
            interrupted=tuple(reopened.interrupted),
            changed=changed_files(facts),
            open_turn=open_turn,
        )
    except BaseException:
        reopened.journal.release()
        raise


class _RecordedPast:
    """Collects the state of a session from its records, one by one. Its size does not grow with the length of the past:
    it holds the present history, the ids of calls, and results that no history has.
    """

    def __init__(self) -> None:
        self.facts: RunFacts | None = None
        self.approvals = KeptApprovals()
        self.loaded: dict[Any, Mapping[str, Any]] = {}
        """Worker id → its last record of loaded tools."""
        self.plans: dict[str, list[dict[str, str]]] = {}
        self.usage = Meter()
        self.unpriced: list[tuple[str, TokenUsage]] = []
        self._models: dict[Any, str] = {}
        """Worker id → the model that answers now."""
        self.turns: Counter[str] = Counter()
        """By the id of the worker that they were for."""
        self.by_model: dict[str, bool] = {}
        """Call id → whether a model made it."""
        self._joiner = RecordJoiner()
        self._messages: list[Message] = []
        self._passed_over: set[Any] = set()
        """Workers that had a history before they were known to be the root."""
        self._unreported: dict[str, CallRecord] = {}
        """Finished calls whose results are in no history yet."""
        self.hidden: set[str] = set()
        """Ids of calls whose arguments were not kept as they were."""
        self._inside: dict[str, Counter[tuple[str, str]]] = {}
        """Call that had not finished → (tool, status) of the calls that it made, counted."""

    def take(self, record: Mapping[str, Any], call: CallRecord | None) -> None:
        if call is not None:
            self._take_call(call)
            return
        whole = self._joiner.add(record)
        if whole is None:
            return
        kind = whole.get("type")
        if kind in HISTORY_RECORDS:
            self._take_history(whole)
        elif kind == RUN_RECORD:
            self._take_run(whole)
        elif kind == TOOLS_LOADED:
            self.loaded[whole.get("workerId")] = whole
        elif kind == "event":
            if whole.get("event") == "usageUpdated":
                data = whole["data"]
                usage = TokenUsage(**{key: data.get(key, 0) for key in ("input", "output", "cached")})
                self.usage.add(usage, data.get("cost"))
                if data.get("cost") is None:
                    self.unpriced.append((self._models.get(whole.get("workerId"), ""), usage))
                sums = data.get("session")
                self.usage.prices = str(sums.get("prices", "")) if isinstance(sums, dict) else ""
            elif whole.get("event") == "workerUpdate":
                self._models[whole.get("workerId")] = str(whole["data"].get("model", ""))
            elif whole.get("event") == "message" and whole["data"].get("message", {}).get("role") == "user":
                self.turns[str(whole.get("workerId"))] += 1
        else:
            self.approvals.take(whole)

    def _take_call(self, call: CallRecord) -> None:
        self.by_model[call.id] = call.caller == Caller.LLM
        if call.state is not RecordedState.FINISHED:
            return
        self._inside.pop(call.id, None)
        if call.parent:
            self._inside.setdefault(call.parent, Counter())[call.tool or call.requested, call.status] += 1
        if call.caller == Caller.LLM:
            self._unreported[call.id] = call
        value = call.value  # calls name workers by path, as plans do
        if call.status == Status.SUCCESS.value and isinstance(value, dict) and value.get("kind") == "plan.update":
            self.plans[call.worker] = [dict(step) for step in value.get("plan", ()) if isinstance(step, dict)]

    def _take_history(self, record: Mapping[str, Any]) -> None:
        self.hidden.update(record.get(HIDDEN_ARGS, ()))
        message = record.get("message")
        if isinstance(message, dict) and isinstance(results := message.get("results"), list | tuple):
            for each in results:
                self._unreported.pop(each.get("id", "") if isinstance(each, dict) else "", None)
        if self.facts is not None and record.get("workerId") == self.facts.worker_id:
            self._messages = apply_record(self._messages, record)
        else:
            self._passed_over.add(record.get("workerId"))

    def _take_run(self, record: Mapping[str, Any]) -> None:
        facts = read_facts(record)
        if facts is None:
            return
        if self.facts is not None and facts.worker_id != self.facts.worker_id:
            if self._messages:
                self._passed_over.add(self.facts.worker_id)
            self._messages = []
        self.facts = facts

    def close_programs(self, interrupted: Sequence[CallRecord]) -> None:
        """Says of each call that the crash cut off what it had called by then: nobody runs it again to find out."""
        for call in interrupted:
            if call.parent:
                self._inside.setdefault(call.parent, Counter())[call.tool or call.requested, call.error] += 1
        for call in interrupted:
            if inside := self._inside.get(call.id):
                said = (f"{tool}: {count} {_ENDED.get(status, status)}" for (tool, status), count in inside.items())
                call.error = f"{call.error}. {_CALLED}: {'; '.join(said)}"

    def history(self, journal: Journal) -> History:
        assert self.facts is not None
        if self.facts.worker_id in self._passed_over:  # of no journal that Forge writes; then it is read once more
            return History.restore(read(journal.path), self.facts.worker_id, journal)
        return History.recorded(journal, self.facts.worker_id, self._messages)

    def open_calls(self, turn: OpenTurn | None) -> list[str]:
        """Returns the recorded calls that are made again; they are counted then."""
        calls = turn.response.calls if turn is not None and turn.response is not None else ()
        return [call.id for call in calls if call.id in self.by_model and turn and call.id not in turn.known]

    def call(self, call_id: str, journal: Path) -> CallRecord | None:
        """The record of a call that finished; None for one that was never proposed."""
        if call_id in self._unreported or call_id not in self.by_model:
            return self._unreported.get(call_id)
        records = (record for record in read(journal) if record.get("call") == call_id)
        return CallRecords.from_records(records).calls.get(call_id)


def _open_turn(
    messages: Sequence[Message], record_of: Callable[[str], CallRecord | None], hidden: set[str]
) -> OpenTurn | None:
    last = messages[-1] if messages else None
    if last is None:
        return None
    if not isinstance(last, AssistantMessage) or last.interrupted:
        return OpenTurn()
    known = {}
    for call in last.calls:
        record = record_of(call.id)
        if record is not None and record.finished_at:
            known[call.id] = _recorded_result(call, record)
        elif call.id in hidden:
            known[call.id] = CallResult(id=call.id, name=call.name, status=Status.INTERRUPTED, text=ARGS_NOT_KEPT)
    return OpenTurn(response=last, known=known)


def _whole_history(history: History, record_of: Callable[[str], CallRecord | None]) -> tuple[Message, ...]:
    """Adds missing results to the history and records them, so that a second resume finds the same."""
    whole = complete_results(history.messages, lambda call: _recorded_result(call, record_of(call.id)), SESSION_STOPPED)
    have = len(history.messages)
    if whole[:have] == history.messages:
        for message in whole[have:]:
            history.add(message)
    else:
        history.replace_all(whole)
    return tuple(history.messages)


def _recorded_result(call: RequestedCall, record: CallRecord | None) -> CallResult:
    if record is None:  # never proposed: no effect can have happened
        status, text = (Status.INPUT_INVALID, call.problem) if call.problem else (Status.INTERRUPTED, NEVER_RAN)
        return CallResult(id=call.id, name=call.name, status=status, text=text)
    return CallResult(
        id=call.id,
        name=call.name,
        status=Status(record.status) if record.status in _STATUSES else Status.INTERRUPTED,
        text=_record_text(record),
        output_handle=record.output_handle,
    )


def _record_text(record: CallRecord) -> str:
    """Returns the result text as the loop would have written it; a tool's text is fenced, because others may have
    written it.
    """
    value = semantic_value(record.value)
    said = text_of(value) if value is not None else str(record.value or "")
    if len(said) > _LONGEST_RESULT:
        where = f" read_output handle={record.output_handle}" if record.output_handle else ""
        said = f"{said[:_LONGEST_RESULT]}\n[… {len(said) - _LONGEST_RESULT} characters left out{where}]"
    text = "\n".join(part for part in (record.error, said) if part)
    return fenced(text) if record.started_at and not record.error.startswith(MAY_HAVE_RUN) else text
