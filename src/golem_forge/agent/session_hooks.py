"""The hooks of a session: what they run from, and those around a session and its turns.

`prepare_hooks` takes the program as it was read and gives the HookSet of a session. What a program's hook names is read
once, at the session's start, compared with what trust covers, and kept as a snapshot: a model that changes such a file
in a zone changes no hook of a session that runs. Raises ConfigError where the files changed while they were read.

`TurnHooks` runs the hooks at `session_start`, `turn_start`, `turn_end` and `session_end` of a root worker with a model.
What they tell the model is fenced like the output of a tool. They deny a turn, or send the model back to work a few
times; nothing that fails here ends a turn, and the person hears of it once. Hooks around calls are in
`orchestrator/hooks.py`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.model.interface import fenced
from golem_forge.agent.session_changes import read_changes
from golem_forge.agent.trust import import_folders, scan_command
from golem_forge.config.hooks_block import Hook, HookPoint, command_words
from golem_forge.config.program import Program
from golem_forge.config.trust import TrustStore
from golem_forge.core.changes import ChangeSet, PathKind
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.core.text import shorten_middle
from golem_forge.policy.hooks import (
    MOST_PATHS,
    HookAnswer,
    HookOrder,
    HookSet,
    ReadyHook,
    hook_input,
    matching_paths,
    needs_paths,
    read_answer,
)
from golem_forge.storage.content_store import ContentStore
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import ModelNotes

if TYPE_CHECKING:
    from golem_forge.agent.run_result import RunResult
    from golem_forge.agent.worker_scope import WorkerScope

_MOST_MESSAGE: Final = 16_000
"""Characters of a message or an answer that a hook is told."""


def prepare_hooks(program: Program, trust: TrustStore, home: ForgeHome, *, dry: bool = False) -> HookSet | None:
    """Returns the hooks of a program; None if there are none. `dry`: nothing is written, and none of them can run."""
    if not program.hooks:
        return None
    return HookSet(tuple(_ready(each, program, trust, home, dry=dry) for each in program.hooks))


def _ready(hook: Hook, program: Program, trust: TrustStore, home: ForgeHome, *, dry: bool) -> ReadyHook:
    if hook.own or dry:
        return ReadyHook(hook=hook)
    files, _ = scan_command(program.root, hook.run)
    if not files:
        return ReadyHook(hook=hook)
    if not trust.trusted_with(program.root, files):
        raise ConfigError(f"{hook.origin}: a file that the hook '{hook.name}' names changed just now; start again")
    executable = [name for name in files if os.access(program.root / name, os.X_OK)]
    snapshot = ContentStore(home).put(files, executable=executable)
    named = [word for word in command_words(hook.run) or () if os.path.isfile(program.root / word)]
    folders = dict.fromkeys(folder for word in named for folder in import_folders(program.root, Path(word)))
    return ReadyHook(hook=hook, snapshot=snapshot, folders=tuple(folders))


class TurnHooks:
    """Runs the hooks around the turns of a session's root worker."""

    def __init__(self, scope: WorkerScope, *, resumed: bool) -> None:
        self._scope = scope
        self._resumed = resumed
        self._began = False
        self._rounds: Counter[str] = Counter()
        self._last: RunResult | None = None

    async def begin_turn(self, message: str) -> str:
        """Runs the hooks before a turn. Returns why the turn is denied; empty if it is not."""
        self._rounds.clear()
        facts: dict[str, Any] = {"message": self._clean(message)}
        if not self._began:
            self._began = True
            if denied := await self._before(HookPoint.SESSION_START, {**facts, "resumed": self._resumed}):
                self._began = False  # the next message asks again
                return denied
        return await self._before(HookPoint.TURN_START, facts)

    async def _before(self, point: HookPoint, facts: Mapping[str, Any]) -> str:
        notes = self._scope.state.parts.get(ModelNotes)
        for ready in self._at(point):
            answer = await self._run(ready, facts)
            if answer.verdict is Verdict.BLOCKED:
                return f"The hook '{ready.hook.name}' denied this turn: {answer.reason}"
            if answer.to_model:
                notes.add(_told(ready.hook, answer.to_model))
        return ""

    async def end_turn(self, result: RunResult) -> str:
        """Runs the hooks after a turn. Returns what the model has to answer first; empty if the turn is over."""
        self._last = result
        told: list[str] = []
        state = self._scope.state
        made = [each for each in self._changes() if each.turn == state.turn]
        for ready in self._at(HookPoint.TURN_END):
            hook = ready.hook
            facts = self._end_facts(result, made) | {"round": self._rounds[hook.name]}
            answer = await self._run(ready, facts, _changed_paths(made))
            if not answer.to_model:
                continue
            if not answer.sends_back:
                state.parts.get(ModelNotes).add(_told(hook, answer.to_model))
            elif self._rounds[hook.name] < hook.max_rounds:
                self._rounds[hook.name] += 1
                told.append(_told(hook, answer.to_model))
                said = f"sent the model back to work ({self._rounds[hook.name]} of {hook.max_rounds})"
                self._say(f"The hook '{hook.name}' {said}.")
            else:
                self._say(f"The hook '{hook.name}' still complains after {hook.max_rounds} rounds; the turn ends.")
        return "\n".join(told)

    async def end_session(self) -> None:
        if self._last is None:  # nothing ran
            return
        made = self._changes()
        for ready in self._at(HookPoint.SESSION_END):
            await self._run(ready, self._end_facts(self._last, made))

    def _at(self, point: HookPoint) -> tuple[ReadyHook, ...]:
        hooks = self._scope.state.hooks
        return () if hooks is None else hooks.at(point)

    async def _run(self, ready: ReadyHook, facts: Mapping[str, Any], changed: Iterable[str] = ()) -> HookAnswer:
        hooks, hook = self._scope.orchestrator.hooks, ready.hook
        paths = matching_paths(hook, changed)
        if needs_paths(hook) and not paths:
            return HookAnswer()
        said = {**await hooks.place(), **facts}
        if hook.on is HookPoint.TURN_END:
            said["paths"] = await hooks.processes.shown_paths(paths[:MOST_PATHS])
        run = await hooks.processes.run(HookOrder(ready=ready, input=hook_input(hook, said), paths=paths))
        answer = read_answer(hook, run)
        hooks.tell(hook, run, answer)
        return answer

    def _end_facts(self, result: RunResult, made: Iterable[ChangeSet]) -> dict[str, Any]:
        used = result.usage
        return {
            "summary": self._clean(result.response),
            "status": result.status.value,
            "cost": result.cost,
            "tokens": {"input": used.input, "output": used.output},
            "changed": _changed_paths(made)[:MOST_PATHS],
        }

    def _changes(self) -> tuple[ChangeSet, ...]:
        state = self._scope.state
        return read_changes(state.home.path, state.id) if state.journal is not None else ()

    def _clean(self, text: str) -> str:
        return shorten_middle(self._scope.state.redactor.redact_secrets(text), _MOST_MESSAGE, "\n … \n")

    def _say(self, text: str) -> None:
        self._scope.emit("status", {"type": "info", "message": text, "code": "HOOK"})


def _changed_paths(made: Iterable[ChangeSet]) -> list[str]:
    """Returns the changed files that still exist, as far as the change sets tell, in the order of their
    first change.
    """
    last = {one.path: one for each in made for one in each.changes if one.is_file}
    return [path for path, one in last.items() if one.after.kind is not PathKind.ABSENT]


def _told(hook: Hook, text: str) -> str:
    return f"The hook '{hook.name}' says:\n{fenced(text)}"
