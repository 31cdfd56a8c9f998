"""Stage: a suite's tools as ours, all acting on whichever environment is on the stage, behind one session's path.

`call` runs a tool as a model would and tells whether a person was asked; what the person answers is set beforehand.
The session has the stated policy as its owner's rules, no native tools, and a journal.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agentdojo.functions_runtime import Function, FunctionsRuntime

from benchmarks.questions import PEOPLE, pick
from golem_forge import ApprovalRequest, Outcome, Tool
from golem_forge.agent.session import Session, open_session
from golem_forge.storage.home import ForgeHome

POLICY: Final = Path(__file__).with_name("policy.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One call that went down the path."""

    tool: str
    prompted: bool
    outcome: Outcome
    card: Mapping[str, Any] | None = None
    """What the person was shown; None: nothing."""


@dataclass(slots=True)
class Stage:
    runtime: FunctionsRuntime
    environment: Any = None
    answers_yes: bool = True
    person: str = PEOPLE[0]
    """Who answers: which choices this person takes."""
    asked: list[str] = field(default_factory=list)
    """The tools a person was asked about, in order."""
    session: Session | None = None
    card: Mapping[str, Any] | None = None
    """The last one."""

    def answer(self, request: ApprovalRequest) -> dict[str, Any]:
        self.asked.append(request.tool)
        self.card = request.to_wire()
        choice = pick(self.person, [(each.id, each.scope) for each in request.choices]) if self.answers_yes else ""
        return {"approved": self.answers_yes, **({"choice": choice} if choice else {})}

    async def call(self, name: str, args: Mapping[str, Any]) -> Played:
        assert self.session is not None
        before = len(self.asked)
        outcome = await self.session.call(name, dict(args))
        prompted = len(self.asked) > before
        return Played(tool=name, prompted=prompted, outcome=outcome, card=self.card if prompted else None)

    def tool(self, function: Function[..., Any]) -> Tool:
        """Its schema is the suite's own; what the suite injects (the mailbox, the account) comes from the stage."""

        async def run(args: dict[str, Any]) -> Any:
            result, _ = self.runtime.run_function(self.environment, function.name, args, raise_on_error=True)
            return result

        return Tool(function.name, function.description, input_schema=function.parameters, execute=run)


@asynccontextmanager
async def stage_for(
    functions: list[Function[..., Any]], folder: Path, approval: str = "interactive"
) -> AsyncIterator[Stage]:
    """`folder` is empty; home and project are made in it. `approval`: the mode."""
    home, project = ForgeHome(folder / "home"), folder / "project"
    project.mkdir()
    shutil.copyfile(POLICY, home.ensure() / "rules.yaml")
    stage = Stage(FunctionsRuntime(functions))
    tools = [stage.tool(function) for function in functions]
    async with open_session(
        project, tools=tools, toolsets={}, home=home, approval=approval, approval_callback=stage.answer
    ) as session:
        missing = sorted({tool.name for tool in tools} - {tool.name for tool in session.catalog})
        assert not missing, f"not offered: {', '.join(missing)}; {session.notices}"
        stage.session = session
        yield stage
