"""Ground for W6: a trusted program written as text, run to its end, and what can be seen of it from outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agent.conftest import Script, calls

from golem_forge.agent.run_result import RunResult
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.trust import trust_store
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.storage.home import forge_home

FILES = "toolsets: {filesystem: }\n"
ZONE = "sandbox: {zones: [{name: workspace}]}\n"
COMMANDS = "toolsets: {coding: }\n"
LIST = calls(("list_files", {"path": "/"}))


@dataclass(slots=True, kw_only=True)
class Seen:
    result: RunResult | None
    error: str
    """Why it did not start."""
    script: Script
    events: list[Any]

    def statuses(self, index: int = -1) -> list[str]:
        return [status for status, _ in self.script.results(index)]

    def texts(self, index: int = -1) -> str:
        return "\n".join(text for _, text in self.script.results(index))

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [dict(event.wire) for event in self.events if event.type == kind]

    @property
    def offered(self) -> dict[str, str]:
        """Tool name → description, as the model was told first."""
        return {tool.name: tool.description for tool in self.script.requests[0].tools}

    @property
    def ended(self) -> str:
        return self.error or (self.result.status.value if self.result else "")


@dataclass(slots=True)
class Ground:
    root: Path

    def write(self, name: str, content: str | bytes = "") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    async def run(
        self,
        turns: Sequence[Any],
        *,
        worker: str = FILES + ZONE,
        program: str = "",
        text: str = "go",
        attach: Sequence[str] = (),
        approval: str | None = "approve_all",
        named_model: bool = False,
        facts: dict[str, Any] | None = None,
        **options: Any,
    ) -> Seen:
        """`worker`, `program`: front matter of main.worker (without its name, unless given) and forge.yaml.

        `named_model`: the model comes from the files, not from `turns`.
        """
        head = "" if "name: " in worker.splitlines()[0] else "name: main\n"
        self.write("main.worker", f"---\n{head}{worker}---\nI am main.\n")
        self.write("forge.yaml", program)
        trust_store(forge_home()).give(self.root)
        script = Script(turns, **(facts or {}))
        events: list[Any] = []
        runtime = WorkerRuntime(
            directory=self.root,
            model=None if named_model else script.model,
            approval_mode=approval,
            on_event=events.append,
            **options,
        )
        result, error = None, ""
        try:
            await runtime.initialize()
            result = await runtime.run(text, [self.root / name for name in attach])
        except ConfigError as problem:
            error = str(problem)
        except ForgeError as problem:
            error = problem.message
        finally:
            await runtime.aclose()
        return Seen(result=result, error=error, script=script, events=events)

    async def command(self, cmd: str, *, program: str = "", **more: Any) -> str:
        """What the model reads of one command's outcome."""
        seen = await self.run(
            [calls(("exec_command", {"cmd": cmd})), "ok"], worker=COMMANDS + ZONE, program=program, **more
        )
        assert not seen.error, seen.error
        return seen.texts()


Case = Callable[[Ground], Awaitable[None]]
"""Asserts that two values of its keys do two things."""


class Cases(dict[str, Case]):
    """Key → the case that shows its effect; each key has one."""

    def key(self, *names: str) -> Callable[[Case], Case]:
        def keep(case: Case) -> Case:
            for name in names:
                assert name not in self, f"{name} has two cases"
                self[name] = case
            return case

        return keep
