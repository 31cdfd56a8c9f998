"""hooks: other people's judgement about a call, before it may run and after it ran.

`tighten` belongs to the judge stage. Takes the judged call; gives its evaluation with what `before_call` hooks said
added as sources that only tighten, so every later look at the call (an answer, an edit, a rule written meanwhile) keeps
them. A hook that fails is a `blocked`: the call is refused in every mode.

`run_after` belongs to the run stage, under the call's slot at the gate and inside its change set. Takes the Outcome;
adds what `after_call` hooks tell the model. Files that they change belong to the call. A call that only reads, an undo,
and a call whose changes nobody records leave the zones read-only for their hooks. Refuses nothing: the call has run.

Each run of a hook is an event `hookRan`, which the journal keeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.hooks_block import Hook, HookPoint
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import Outcome
from golem_forge.core.decisions import Status, Verdict, VerdictSource
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.text import escape_control_chars, shorten_middle
from golem_forge.policy.evaluate import Evaluation, Judge
from golem_forge.policy.hooks import (
    MOST_PATHS,
    HookAnswer,
    HookOrder,
    HookRun,
    HookSet,
    ReadyHook,
    hook_input,
    matching_paths,
    needs_paths,
    read_answer,
    told_model,
    verdict_source,
)
from golem_forge.policy.reviewer import ReviewAnswer
from golem_forge.sandbox.walls.model import Level
from golem_forge.tools.tool import Tool

if TYPE_CHECKING:
    from golem_forge.orchestrator.call_state import CallScope, CallState
    from golem_forge.orchestrator.record import ChangeRecorder, Recorder
    from golem_forge.policy.hook_process import HookProcesses
    from golem_forge.sandbox.walls.model import Coverage
    from golem_forge.sandbox.walls.walls import WalledChild

_MOST_RESULT: Final = 16_000
"""Maximum characters of a result that a hook receives."""
_MOST_AT_ONCE: Final = 20
_MOST_KNOWN: Final = 10_000
_TOUCHES_FILES: Final = frozenset({Verb.READ, Verb.WRITE, Verb.DELETE})
_CHANGES: Final = frozenset({Verb.WRITE, Verb.DELETE})


class HookTasks:
    """The background tasks of hooks whose end no call waits for; one for each session."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        if len(self._tasks) >= _MOST_AT_ONCE:  # a person who is asked so often is notified enough
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))


class CallHooks:
    """Runs the hooks around one worker's calls."""

    def __init__(self, scope: CallScope, recorder: Recorder, judge: Judge) -> None:
        services = scope.services
        self._scope = scope
        self._recorder = recorder
        self._judge = judge
        self._redactor = services.redactor
        self._processes: HookProcesses | None = None
        self._known: dict[tuple[str, ...], tuple[tuple[ReadyHook, ...], tuple[ReadyHook, ...]]] = {}

    @property
    def processes(self) -> HookProcesses:
        if self._processes is None:
            from golem_forge.policy.hook_process import HookProcesses  # loads the walls

            self._processes = HookProcesses(self._scope.walls, self._scope.services.home, self._redactor)
        return self._processes

    @property
    def hooks(self) -> HookSet | None:
        return self._scope.services.hooks

    def before(self, state: CallState) -> tuple[ReadyHook, ...]:
        """Returns the `before_call` hooks that match this tool, before its arguments are looked at."""
        hooks = self._scope.services.hooks
        return () if hooks is None else self._for_call(state, hooks)[0]

    def after(self, state: CallState) -> tuple[ReadyHook, ...]:
        hooks = self._scope.services.hooks
        return () if hooks is None else self._for_call(state, hooks)[1]

    def _for_call(self, state: CallState, hooks: HookSet) -> tuple[tuple[ReadyHook, ...], tuple[ReadyHook, ...]]:
        """Returns (before, after) hooks of the call, cached by name: matching them anew would be a sixth of a quick
        call.
        """
        tool, requested = state.tool, state.call.name
        remote = tool.remote
        key = (tool.name, requested) if remote is None else (tool.name, requested, remote.server, remote.tool)
        known = self._known.get(key)
        if known is None:
            names = _tool_names(tool, str(requested))
            known = hooks.for_call(HookPoint.BEFORE_CALL, *names), hooks.for_call(HookPoint.AFTER_CALL, *names)
            if len(self._known) < _MOST_KNOWN:
                self._known[key] = known
        return known

    def asked_about(self, tool: Tool, requested: str, effects: tuple[Effect, ...] | None) -> tuple[Hook, ...]:
        """Returns the `before_call` hooks that such a call would start; used for explanations."""
        hooks = () if self.hooks is None else self.hooks.for_call(HookPoint.BEFORE_CALL, *_tool_names(tool, requested))
        return tuple(each.hook for each in hooks if call_paths(each.hook, effects) is not None)

    async def tighten(self, state: CallState, judged: Evaluation) -> Evaluation:
        if judged.decision.verdict is Verdict.BLOCKED:
            return judged
        said: list[VerdictSource] = []
        lines: list[str] = []
        for ready in self.before(state):
            hook, paths = ready.hook, call_paths(ready.hook, judged.facts.effects)
            if paths is None:
                continue
            facts = await self.facts(state, judged, paths)
            order = HookOrder(ready=ready, input=hook_input(hook, facts), paths=paths)
            run = await self.processes.run(order)
            answer = read_answer(hook, run)
            self.tell(hook, run, answer, state.call.id)
            if answer.to_person:
                lines.append(f"{hook.name}: {answer.to_person}")
            if (source := verdict_source(hook, answer)) is not None:
                said.append(source)
                if source.verdict is Verdict.BLOCKED:
                    break
        state.hook_lines = tuple(lines)
        if not said:
            return judged
        tightened = replace(judged.facts, handed=(*judged.facts.handed, *said))
        return self._judge.evaluate(state.tool, tightened, judged.base, judged.decision.keys)

    async def facts(self, state: CallState, judged: Evaluation, paths: list[str]) -> dict[str, Any]:
        """Builds the description of a call that a hook receives."""
        decision, effects = judged.decision, judged.facts.effects
        call, tool = state.call, state.tool
        return {
            **await self.place(),
            "call": call.id,
            "tool": tool.name,
            "requested": str(call.name)[:200],
            "arguments": self._redactor.value(tool.without_secrets(state.arguments.plain)),
            "effects": None if effects is None else [_effect(each) for each in effects[:MOST_PATHS]],
            "verdict": decision.verdict.value,
            "risk": decision.risk.value,
            "caller": call.caller.value,
            "paths": await self.processes.shown_paths(paths[:MOST_PATHS]),
        }

    async def place(self) -> dict[str, Any]:
        services = self._scope.services
        return {"session": services.id, "worker": self._scope.worker, "directory": await self.processes.directory()}

    def may_write(self, state: CallState) -> bool:
        """Whether hooks after this call may change files. Such a call holds a writer's slot, and its changes are
        recorded together with theirs. Not after an undo: what it brought back stays as it was.
        """
        if state.plan is not None and state.plan.undoes_in:
            return False
        if state.reads_only or state.read_only or not (state.tool.gated or state.parent is not None):
            return False
        above = state.parent
        while above is not None:
            if above.recording is not None:
                return all(paths is None for _, _, paths in above.recording.zones)
            above = above.parent
        return True

    async def run_after(self, state: CallState, outcome: Outcome, changes: ChangeRecorder) -> None:
        hooks = self.after(state)
        if outcome.status is Status.INTERRUPTED or state.signal:
            return
        recording = state.recording
        changed = await changes.changed_so_far(recording) if recording is not None else _effect_paths(state)
        may_write = self.may_write(state)
        for ready in hooks:
            hook = ready.hook
            paths = matching_paths(hook, changed)
            if needs_paths(hook) and not paths:
                continue
            facts = await self._after_facts(state, outcome, paths)
            coverage = await self._coverage() if may_write else None
            order = HookOrder(
                ready=ready,
                input=hook_input(hook, facts),
                paths=paths,
                may_write=may_write and (coverage is None or not coverage.problem),
                not_kept=coverage.not_kept if coverage is not None else (),
            )
            started: list[WalledChild] = []
            run = await self.processes.run(order, started)
            for walled in started:
                if recording is not None and recording.processes:  # else nobody can tell when the call itself wrote
                    recording.processes.append(walled.child)
                _add_aftermath(outcome, walled)
            answer = read_answer(hook, run)
            self.tell(hook, run, answer, state.call.id)
            if answer.to_model:
                outcome.hook_texts = (*outcome.hook_texts, told_model(hook, answer.to_model))

    async def _after_facts(self, state: CallState, outcome: Outcome, paths: list[str]) -> dict[str, Any]:
        redact, tool = self._redactor, state.tool
        text = "[the content of a secret file is not shown]" if state.reads_secret else outcome.text_without_leftovers
        return {
            **await self.place(),
            "call": state.call.id,
            "tool": tool.name,
            "requested": str(state.call.name)[:200],
            "arguments": redact.value(tool.without_secrets(state.arguments.plain)),
            "caller": state.call.caller.value,
            "outcome": {
                "status": outcome.status.value,
                "error": outcome.error,
                "text": shorten_middle(redact.redact_secrets(text), _MOST_RESULT, "\n … \n"),
            },
            "paths": await self.processes.shown_paths(paths[:MOST_PATHS]),
        }

    async def _coverage(self) -> Coverage | None:
        """Returns, in the mode `contained`, what could not be undone; hooks see that read-only. Returns None in other
        modes, where a person was asked or chose not to be asked.
        """
        walls = self._scope.walls
        if walls is None or self._judge.mode is not ApprovalMode.CONTAINED or await walls.level() is not Level.FULL:
            return None
        return await walls.coverage()

    def notify(self, call_id: str, card: dict[str, Any]) -> None:
        """Starts the notification hooks when a person is about to be asked; their end is not awaited and their output
        is ignored.
        """
        for ready in self.hooks.at(HookPoint.QUESTION) if self.hooks is not None else ():
            self._scope.services.parts.get(HookTasks).start(self._notify(ready, call_id, card))

    async def _notify(self, ready: ReadyHook, call_id: str, card: dict[str, Any]) -> None:
        facts = {
            **await self.place(),
            "call": call_id,
            "tool": card["tool"],
            "message": card["description"],
            "card": card,
        }
        run = await self.processes.run(HookOrder(ready=ready, input=hook_input(ready.hook, facts)))
        self.tell(ready.hook, run, read_answer(ready.hook, run), call_id)

    def tell(self, hook: Hook, run: HookRun, answer: HookAnswer, call_id: str = "") -> None:
        """Emits the event of a finished hook, with a line for the person where they should see one."""
        told = self._scope.services.told_hooks
        lines = [answer.to_person, *answer.warnings]
        says_something = answer.verdict or answer.to_model or any(lines)
        if answer.failure and (hook.name not in told or hook.on is HookPoint.BEFORE_CALL):
            told.add(hook.name)
            lines.append(answer.failure)
        if run.left_out:
            lines.append(f"{run.left_out} paths had no room in its command")
        if answer.verdict is Verdict.BLOCKED:
            lines.append(f"refused: {answer.reason}")
        data: dict[str, Any] = {
            "hook": hook.name,
            "on": hook.on.value,
            "status": "failed" if answer.failure else "said" if says_something else "ok",
            "durationMs": round(run.seconds * 1000, 1),
        }
        optional = {
            "toolCallId": call_id,
            "exitCode": run.exit_code,
            "line": escape_control_chars("; ".join(filter(None, lines))),
            "verdict": answer.verdict.value if answer.verdict is not None else "",
            "reason": answer.reason or answer.failure,
            "told": answer.to_model,
        }
        self._recorder.show(
            "hookRan", data | {name: value for name, value in optional.items() if value not in ("", None)}
        )

    def tell_review(self, name: str, said: ReviewAnswer, call_id: str) -> None:
        """Emits a `reviewed` event with the reviewer's answer."""
        data: dict[str, Any] = {"reviewer": name, "answer": said.says.value, "toolCallId": call_id}
        data |= {"durationMs": round(said.seconds * 1000, 1)} | ({"reason": said.reason} if said.reason else {})
        self._recorder.show("reviewed", data)


def _tool_names(tool: Tool, requested: str) -> tuple[str, ...]:
    """Returns the names that a hook may match: the tool's own, the requested one, and `server/tool` of an MCP tool."""
    remote = f"{tool.remote.server}/{tool.remote.tool}" if tool.remote is not None else ""
    return (tool.name, requested if requested != tool.name else "", remote)


def call_paths(hook: Hook, effects: tuple[Effect, ...] | None) -> list[str] | None:
    """Returns the call's paths that the hook matches, by the program's names; None if the hook does not match the call.
    A call with unknown paths matches every hook.

    Threat: a worker whose zone begins deeper has other names for its files. A hook is asked by the program's names too.
    """
    files = (each for each in effects or () if each.verb in _TOUCHES_FILES and each.target.startswith("/"))
    named = ((each.outer or each.target, each.target) for each in files)
    paths = [names[0] for names in named if matching_paths(hook, names)]
    if paths or not hook.paths:
        return paths
    open_ended = effects is None or any(each.verb not in _TOUCHES_FILES and not each.proven for each in effects)
    return [] if open_ended else None


def _effect(effect: Effect) -> dict[str, Any]:
    return {"verb": effect.verb.value, "target": effect.target, "marks": [mark.value for mark in effect.marks]}


def _effect_paths(state: CallState) -> list[str]:
    """Returns the paths that an unrecorded call declared it would change, by the program's names."""
    effects = state.judged.facts.effects if state.judged is not None else state.tool.effects
    changes = (each for each in effects or () if each.verb in _CHANGES and each.target.startswith("/"))
    return [each.outer or each.target for each in changes]


def _add_aftermath(outcome: Outcome, walled: WalledChild) -> None:
    """Adds to the call's Outcome the protected files and leftover processes of a hook."""
    after = walled.aftermath()
    outcome.protected_created = tuple(dict.fromkeys((*outcome.protected_created, *after.protected_created)))
    outcome.leftovers = tuple(dict.fromkeys((*outcome.leftovers, *after.leftovers)))
