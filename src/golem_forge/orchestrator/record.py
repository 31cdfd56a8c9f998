"""record: what happened and what it changed, to the journal first, to the change log, and then to whoever listens.

`Recorder` writes `proposed → decided → started → finished` and emits `toolStarted` and `toolResult`. A call whose start
cannot be written does not run (`JournalError` passes through); an end that cannot be written is noted on the Outcome.

`ChangeRecorder` records what a call changes in the zones, so that a person can see it and take it back. Around the run
stage of every call that may change files: before it, whatever could be lost is kept; after it, what changed is appended
to the session's change log and told (`filesChanged`). A file tool names its targets in its effects, so only those are
looked at; for a command everything in the zones that it can write is. A process that outlives its call keeps the call
open: what changes while it runs may be its work. It never fails a call: where nothing can be kept, `Walls.coverage`
says so and the calls ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from golem_forge.core.calls import Caller, Outcome
from golem_forge.core.changes import ChangeSet, PathChange, PathKind
from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.effects import ANY_HOST, Effect, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.json import copy_json
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.results import ToolResult
from golem_forge.core.text import display_name, shorten
from golem_forge.events.journal import CallStart, Journal
from golem_forge.events.journal_files import JournalError
from golem_forge.events.serialization import parse_raw_args
from golem_forge.orchestrator.call_state import CallScope, CallState, SessionServices
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.undo.log import SessionChangeLog
from golem_forge.sandbox.zones import USER_TOOLS, AccessMode, Zone
from golem_forge.tools.results import text_is_complete

if TYPE_CHECKING:
    from golem_forge.sandbox.handles import Parts
    from golem_forge.sandbox.undo.store import Span
    from golem_forge.sandbox.undo.zone_history import ZoneHistory

_log = logging.getLogger(__name__)


class Recorder:
    def __init__(self, services: SessionServices, worker: str, worker_id: str) -> None:
        """`worker` is the worker's path, for policy; `worker_id` is the id of its run, for events."""
        self._bus = services.bus
        self._journal = services.journal
        self._redactor = services.redactor
        self._worker = worker
        self._run = "" if worker_id == worker else worker_id  # written only where it says more
        self._shown_as = worker_id or worker

    def proposed(self, state: CallState) -> None:
        """Records the proposal of a call once, without waiting for the disk."""
        if self._journal is not None and not state.proposed:
            call = state.call
            args = _without_secrets(state, parse_raw_args(call.args))
            self._journal.propose(
                call.id, str(call.name)[:200], args, call.recorded_caller, self._worker, call.parent_id, self._run
            )
            state.proposed = True

    def before_waiting(self, state: CallState) -> None:
        """Flushes the proposal to disk before a person is asked, so that it survives a crash during the wait."""
        if self._journal is not None:
            self.proposed(state)
            self._journal.flush()

    def started(self, state: CallState) -> None:
        """Records the start of a call and returns when it is on disk. A call that never waited is written as one
        record.
        """
        call, tool, journal, seq = state.call, state.tool, self._journal, 0
        if journal is not None:
            args, decision = _without_secrets(state, state.arguments.plain), state.decision
            assert decision is not None
            if state.proposed:
                journal.decide(call.id, decision)
                seq = journal.start(call.id, tool.name, args, state.approved_as)
            else:
                begin = journal.begin_without_effects if tool.effects == () else journal.begin
                caller = call.caller._value_ if not call.caller_name else call.recorded_caller
                who = (caller, self._worker, call.parent_id, str(call.name))
                seq = begin(CallStart(call.id, tool.name, args, decision, *who, worker_id=self._run))
                state.proposed = True
        if self._bus is not None:
            self._bus.show("toolStarted", partial(self.started_data, state), self._shown_as, seq)

    @property
    def commits_later(self) -> bool:
        return self._journal is not None and self._journal.commits_later

    @property
    def admits(self) -> asyncio.Event | None:
        return None if self._journal is None else self._journal.admits

    async def committed(self, state: CallState) -> None:
        """Waits, where the journal is kept remotely, until the record of the start is stored and this process may still
        act. Raises JournalError, and ForgeError after an interrupt.
        """
        assert self._journal is not None
        await self._journal.committed()
        if state.waiting.reason is not None:
            raise ForgeError("Interrupted before it started.", status=Status.INTERRUPTED)

    def progress(self, call_id: str, progress: float, total: float | None, message: str) -> None:
        if self._bus is not None:
            data: dict[str, Any] = {"toolCallId": call_id, "progress": progress}
            if total is not None:
                data["total"] = total
            if message:
                data["message"] = str(message)[:2000]
            self._bus.emit("toolProgress", data, self._shown_as)

    def show(self, event: str, data: dict[str, Any]) -> None:
        """Emits a tool's own display event, e.g. `planUpdated`."""
        if self._bus is not None:
            self._bus.emit(event, cast(dict[str, Any], self._redactor.value(data)), self._shown_as)

    def finished(self, state: CallState, outcome: Outcome) -> Outcome:
        seq = 0
        if self._journal is not None:
            try:
                seq = self._write_end(self._journal, state, outcome)
            except JournalError as error:
                _log.error("the end of call %s could not be recorded: %s", outcome.call.id, error.message)
                outcome.notes = (*outcome.notes, f"This result was not recorded: {error.message}")
        if self._bus is not None:
            self._bus.show("toolResult", partial(self.result_data, state, outcome), self._shown_as, seq)
        tool = state.tool
        if tool is not None and tool.on_outcome is not None:
            try:
                tool.on_outcome(outcome)
            except Exception as error:  # a failing observer must not change what happened
                _log.warning("the outcome of '%s' was not noted: %s", tool.name, type(error).__name__)
        return outcome

    def _write_end(self, journal: Journal, state: CallState, outcome: Outcome) -> int:
        self.proposed(state)
        if outcome.decision is not None and not outcome.executed:
            journal.decide(outcome.call.id, outcome.decision)
        value, members = self._shown_value(state, outcome.result), _optional_members(outcome)
        ended = (outcome.status, outcome.duration_ms, outcome.error, outcome.output_handle)
        return journal.finish(outcome.call.id, *ended, value, members)

    def _shown_value(self, state: CallState, result: ToolResult | None) -> dict[str, Any] | None:
        """Returns the value without credentials, found by name; known secrets were redacted when the tool returned. The
        content of a secret file goes only to the caller it was approved for, not into a log.
        """
        if result is None:
            return None
        if state.reads_secret:
            return {"kind": "text", "content": "[the content of a secret file is not recorded]"}
        if text_is_complete(result):
            return result.value
        return cast(dict[str, Any], self._redactor.value(result.value))

    def shown_args(self, state: CallState, args: Any) -> Any:
        """Returns a copy of the arguments, so that a listener can change neither the call nor its Outcome."""
        return copy_json(self._redactor.value(_without_secrets(state, args)))

    def started_data(self, state: CallState) -> dict[str, Any]:
        call = state.call
        data = {
            "toolCallId": call.id,
            "toolName": state.tool.name,
            "args": self.shown_args(state, state.arguments.plain),
            "caller": call.caller.value,
            "workerId": self._shown_as,
        }
        return data | _given({"label": state.tool.label, "parentCallId": call.parent_id})

    def result_data(self, state: CallState, outcome: Outcome) -> dict[str, Any]:
        args = outcome.args if outcome.args is not None else parse_raw_args(outcome.call.args)
        decision = state.decision
        if decision is None:
            shown_decision = None
        elif state.judged is None:
            shown_decision = decision.without_keys()
        else:
            shown_decision = self._redactor.value(decision.to_json())
        data: dict[str, Any] = {
            "toolCallId": outcome.call.id,
            "toolName": outcome.tool,
            "args": self.shown_args(state, args),
            "status": outcome.status.value,
            "durationMs": round(outcome.duration_ms, 3),
            "decision": shown_decision,
            "truncated": False,
        }
        optional = {
            "value": copy_json(self._shown_value(state, outcome.result)),
            "error": outcome.error,
            "outputHandle": outcome.output_handle,
        }
        return data | _given(optional) | (_optional_members(outcome) or {})


def _without_secrets(state: CallState, args: Any) -> Any:
    """Removes the values of secret fields. `args` may be anything: the call may have been refused before validation."""
    tool = state.tool
    return args if tool is None or not tool.secret_fields else tool.without_secrets(args)


def _given(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value}


def _optional_members(outcome: Outcome) -> dict[str, Any] | None:
    """Returns the members of a `toolResult` that most results do not have."""
    if not (outcome.truncated or outcome.denials or outcome.protected_created or outcome.leftovers or outcome.media):
        return None
    lists = {
        "denials": list(outcome.denials),
        "protectedCreated": list(outcome.protected_created),
        "leftovers": [one.to_wire() for one in outcome.leftovers],
        "media": [one.to_wire() for one in outcome.media],
    }
    return {"truncated": outcome.truncated} | _given(lists)


_MOST_SHOWN: Final = 200
_MOST_WHAT: Final = 200
_ALIVE_EVERY_S: Final = 1.0
_CHANGES: Final = frozenset({Verb.WRITE, Verb.DELETE})


@dataclass(slots=True)
class CallRecording:
    """The file changes of one running call."""

    zones: list[tuple[ZoneHistory, Span, frozenset[Parts] | None]]
    """Each zone with the paths that the call names; None means that it may change any path."""
    facts: dict[str, Any]
    processes: list[Any] = field(default_factory=list)
    """Child processes of the call (`Child`), added by the tool that starts them."""
    told: list[tuple[ChangeSet, str]] = field(default_factory=list)
    """Change sets in the change log, with the hash of their line, that are not yet sent as events."""
    alive: asyncio.Task[None] | None = None
    """A heartbeat task. Without its mark, what changes after this process was killed is not counted as the call's."""
    ends: Awaitable[Any] | None = None
    """Set by a tool whose process outlives the call; completes when the process has exited."""

    def was_idle(self, time_ns: int) -> bool:
        """Whether none of the call's processes ran at that moment; False if it has no process."""
        return bool(self.processes) and all(one.was_idle(time_ns) for one in self.processes)


@dataclass(slots=True)
class OpenRecordings:
    """The recordings of a session whose processes still run after their call has ended."""

    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    histories: set[ZoneHistory] = field(default_factory=set)
    """Histories of the zones that this session's calls changed; kept so that the next call scans only what changed."""
    reached: set[tuple[int | str, str]] = field(default_factory=set)
    """Hosts that the change log names, each with its turn, or with the call if a person made it by hand."""
    prune: Callable[[], None] | None = None
    """Prunes old changes at the end of the session; set once something was recorded."""

    async def aclose(self) -> None:
        if self.tasks:  # their processes were ended before
            await asyncio.wait(self.tasks, timeout=5)
        if self.prune is not None:
            await asyncio.to_thread(self.prune)


class ChangeRecorder:
    def __init__(self, scope: CallScope, recorder: Recorder) -> None:
        services = scope.services
        self._scope = scope
        self._services = services
        self._recorder = recorder
        self._home = services.home.path if services.home is not None and services.journal is not None else None

    async def begin(self, state: CallState, *, everywhere: bool = False) -> CallRecording | None:
        """Starts to record a call's file changes. Returns None if the call changes no file of a zone or this session
        keeps no history. `everywhere`: hooks may change any file after the call.
        """
        if self._home is None or self._scope.sandbox is None:
            return None
        if _is_recorded(state):
            await self._note_reached(state)
            return None
        zones = self._touched(state, _effects(state))
        if everywhere:
            zones |= {zone.name: None for zone in self._scope.sandbox.zones.values() if _commands_write(zone)}
        if not zones:
            await self._note_reached(state)
            return None
        recording = await asyncio.to_thread(self._begin, state, zones)
        if any(paths is None for _, _, paths in recording.zones):
            recording.alive = asyncio.ensure_future(_stay_alive(recording))
        return recording

    async def _note_reached(self, state: CallState) -> None:
        """Writes the hosts that a call can reach, whose files are not recorded: each once in a turn."""
        if not any(map(_reaches_host, _effects(state))):
            return
        facts = self._facts(state)
        known = self._services.parts.get(OpenRecordings).reached
        new = {(facts["turn"] or facts["call"], host) for host in facts["reached"]} - known
        if new and self._home is not None:
            known |= new
            changes, log = ChangeSet(**_fields(facts)), SessionChangeLog(self._home, facts["session"])
            try:
                line = await asyncio.to_thread(log.append, changes)
            except OSError as error:
                _log.warning("the hosts of a call were not recorded: %s", type(error).__name__)
                return
            self._recorder.show("filesChanged", files_changed(changes, line))

    def _begin(self, state: CallState, zones: dict[str, frozenset[Parts] | None]) -> CallRecording:
        from golem_forge.sandbox.undo.restore import prune  # both load SQLite
        from golem_forge.sandbox.undo.zone_history import zone_history

        assert self._home is not None
        assert self._scope.sandbox is not None
        facts = self._facts(state)
        call = state.call.id
        label = f"{state.tool.name} ({call})"
        self._services.parts.get(OpenRecordings).prune = partial(prune, self._home, self._services.undo)
        opened: list[tuple[ZoneHistory, Span, frozenset[Parts] | None]] = []
        for name, paths in zones.items():
            history = zone_history(self._scope.sandbox.zones[name], self._home, self._services.undo)
            self._services.parts.get(OpenRecordings).histories.add(history)
            begin = history.begin if paths is None else partial(history.begin_at, paths)
            if (span := begin(self._services.id, call, label, facts)) is not None:
                opened.append((history, span, paths))
        return CallRecording(opened, facts)

    async def end(self, recording: CallRecording) -> None:
        """Ends the recording and writes the change log, also for a call that failed or was interrupted."""
        try:
            await asyncio.shield(self._ended(recording, goes_on=recording.ends is not None))
            if recording.ends is None and recording.alive is not None:
                recording.alive.cancel()
            if recording.ends is not None:
                open_ones = self._services.parts.get(OpenRecordings)
                task = asyncio.ensure_future(self._end_later(recording, recording.ends))
                open_ones.tasks.add(task)
                task.add_done_callback(open_ones.tasks.discard)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            _log.warning("the changes of a call were not recorded: %s", type(error).__name__)

    async def _end_later(self, recording: CallRecording, ends: Awaitable[Any]) -> None:
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await ends
        if recording.alive is not None:
            recording.alive.cancel()
        await self._ended(recording)
        self.tell(recording)

    async def _ended(self, recording: CallRecording, *, goes_on: bool = False) -> None:
        def look() -> tuple[list[PathChange], list[str], str]:
            made: list[PathChange] = []
            remade: list[str] = []
            problem = ""
            for history, span, paths in recording.zones:
                made += history.end(span, paths, goes_on=goes_on, was_idle=recording.was_idle)
                remade += history.take_remade(span)
                problem = problem or (f"/{history.name}: {history.problem}" if history.problem else "")
            return made, remade, problem

        made, remade, problem = await asyncio.to_thread(look)
        if made or remade or problem or recording.facts["reached"]:
            assert self._home is not None
            facts = _fields(recording.facts) | {"remade": tuple(remade)}
            changes = ChangeSet(**facts, changes=tuple(made), problem=problem)
            recording.facts["reached"] = []  # what goes on says it no second time
            recording.told.append((changes, SessionChangeLog(self._home, changes.session).append(changes)))

    async def changed_so_far(self, recording: CallRecording) -> list[str]:
        """Returns the virtual paths of the files that the running call has changed and not deleted."""

        def look() -> list[PathChange]:
            return [
                change
                for history, span, paths in recording.zones
                for change in history.changes_so_far(span, paths, recording.was_idle)
            ]

        made = await asyncio.to_thread(look)
        return [one.path for one in made if one.is_file and one.after.kind is not PathKind.ABSENT]

    def tell(self, recording: CallRecording) -> None:
        """Emits a `filesChanged` event for each recorded change set; called after the result of the call."""
        told, recording.told = recording.told, []
        for changes, line in told:
            self._recorder.show("filesChanged", files_changed(changes, line))

    def _facts(self, state: CallState) -> dict[str, Any]:
        by_hand = state.call.caller is Caller.HUMAN
        plan, redact = state.plan, self._services.redactor.redact_secrets
        what = plan.payload.strip().partition("\n")[0] if plan is not None and plan.payload else ""
        effects = _effects(state)
        if not what and effects:
            what = effects[0].describe()
        return {
            "session": (plan.undoes_in if plan is not None else "") or self._services.id,
            "call": state.call.id,
            "tool": state.tool.name,
            "worker": self._scope.worker,
            "turn": 0 if by_hand else self._services.turn,
            "what": redact(shorten(what, _MOST_WHAT)),
            "undoes": list(plan.undoes) if plan is not None else [],
            "reached": list(dict.fromkeys(redact(one.target) for one in effects if _reaches_host(one))),
        }

    def _touched(self, state: CallState, effects: tuple[Effect, ...]) -> dict[str, frozenset[Parts] | None]:
        """Returns the paths in each zone that the call names; None instead of paths means any path."""
        sandbox = self._scope.sandbox
        assert sandbox is not None
        runs = any(effect.verb is Verb.EXEC for effect in effects)
        undoes = state.plan is not None and bool(state.plan.undoes_in)  # refs and the index go back with the files
        if (runs and not state.read_only) or undoes:
            return {zone.name: None for zone in sandbox.zones.values() if _commands_write(zone)}
        found: dict[str, set[Parts]] = {}
        for effect in effects:
            if effect.verb in _CHANGES:
                with contextlib.suppress(SandboxError):
                    place = sandbox.locate(effect.target)
                    if place.zone is not None and place.zone.name != USER_TOOLS and place.zone.mode is AccessMode.RW:
                        found.setdefault(place.zone.name, set()).add((*place.zone.subpath, *place.parts))
        return {name: frozenset(paths) for name, paths in found.items()}


async def _stay_alive(recording: CallRecording) -> None:
    while True:
        await asyncio.sleep(_ALIVE_EVERY_S)
        for history, _, _ in recording.zones:
            history.store.mark_alive()


def files_changed(changes: ChangeSet, line: str) -> dict[str, Any]:
    """Builds the data of a `filesChanged` event."""
    added, removed = changes.lines
    files = [one for one in changes.changes if one.is_file]
    return {
        "callId": changes.call,
        "tool": changes.tool,
        "turn": changes.turn,
        "files": [_file(one) for one in files[:_MOST_SHOWN]],
        "count": len(files),
        "added": added,
        "removed": removed,
        "logHash": line,
        **({"undoes": list(changes.undoes)} if changes.undoes else {}),
        **({"problem": changes.problem} if changes.problem else {}),
        **({"remade": [display_name(name) for name in changes.remade]} if changes.remade else {}),
        **({"reached": [display_name(name) for name in changes.reached]} if changes.reached else {}),
        **({} if changes.changes else {"undoable": False}),
    }


def _file(one: PathChange) -> dict[str, Any]:
    lines = {"added": one.added, "removed": one.removed} if one.added is not None else {}
    selected = not one.others and not one.before.lost
    return {"path": display_name(one.path), "verb": one.verb, **lines, "selected": selected}


def _fields(facts: dict[str, Any]) -> dict[str, Any]:
    return {**facts, **{name: tuple(facts.get(name, ())) for name in ("undoes", "reached")}}


def _reaches_host(effect: Effect) -> bool:
    """Whether its target is a host, and no git command or a port of this session."""
    return (
        effect.verb is Verb.NET and effect.at_most is None and (" " not in effect.target or effect.target == ANY_HOST)
    )


def _effects(state: CallState) -> tuple[Effect, ...]:
    return (state.judged.facts.effects if state.judged is not None else state.tool.effects) or ()


def _is_recorded(state: CallState) -> bool:
    """Whether the call that this one is a part of is recorded."""
    above = state.parent
    while above is not None:
        if above.recording is not None:
            return True
        above = above.parent
    return False


def _commands_write(zone: Zone) -> bool:
    return zone.name != USER_TOOLS and zone.mode is AccessMode.RW and Verdict.BLOCKED not in (zone.write, zone.delete)
