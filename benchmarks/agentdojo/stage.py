"""Stage: a suite's tools as ours, all acting on whichever environment is on the stage, behind one session's path.

`call` runs a tool as a model would and tells whether a person was asked; what the person answers is set beforehand.
`program` makes all calls of a task from inside one program instead. The session has the stated policy as its owner's
rules, no native tools but `run_code` where it is needed, and a journal.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agentdojo.functions_runtime import Function, FunctionsRuntime

from benchmarks.questions import PEOPLE, pick
from golem_forge import ApprovalRequest, Outcome, Tool
from golem_forge.agent.session import Session, open_session
from golem_forge.core.calls import Caller
from golem_forge.storage.home import ForgeHome

_PROGRAM: Final = """\
import json
from forge_tools import ToolError, call

for name, arguments in json.loads({calls!r}):
    try:
        call(name, **arguments)
    except ToolError as error:
        print(error)
"""
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
    programs: bool = False
    """Whether the calls of a task are made by one program."""
    inside: list[Played] = field(default_factory=list)
    """What became of the calls of the program that runs."""
    _answered: int = 0
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

    async def program(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Played]:
        """All of them from inside one program, which goes on after each that fails."""
        assert self.session is not None
        self.inside, self._answered = [], len(self.asked)
        wanted = json.dumps([[name, dict(args)] for name, args in calls])
        outcome = await self.session.call("run_code", {"code": _PROGRAM.format(calls=wanted)})
        assert outcome.ok, outcome.text
        return self.inside

    def note(self, outcome: Outcome) -> None:
        if self.programs and outcome.call.caller is Caller.TOOL:
            prompted, self._answered = len(self.asked) > self._answered, len(self.asked)
            self.inside.append(Played(tool=outcome.tool, prompted=prompted, outcome=outcome))

    def tool(self, function: Function[..., Any]) -> Tool:
        """Its schema is the suite's own; what the suite injects (the mailbox, the account) comes from the stage."""

        async def run(args: dict[str, Any]) -> Any:
            result, _ = self.runtime.run_function(self.environment, function.name, args, raise_on_error=True)
            return result

        about = (function.name, function.description)
        return Tool(*about, input_schema=function.parameters, execute=run, on_outcome=self.note)


@asynccontextmanager
async def stage_for(
    functions: list[Function[..., Any]], folder: Path, approval: str = "interactive", *, programs: bool = False
) -> AsyncIterator[Stage]:
    """`folder` is empty; home and project are made in it. `approval`: the mode. `programs`: calls are made by them."""
    home, project = ForgeHome(folder / "home"), folder / "project"
    project.mkdir()
    shutil.copyfile(POLICY, home.ensure() / "rules.yaml")
    stage = Stage(FunctionsRuntime(functions), programs=programs)
    tools = [stage.tool(function) for function in functions]
    async with open_session(
        project,
        tools=tools,
        toolsets={"code": {}} if programs else {},
        home=home,
        approval=approval,
        approval_callback=stage.answer,
    ) as session:
        missing = sorted({tool.name for tool in tools} - {tool.name for tool in session.catalog})
        assert not missing, f"not offered: {', '.join(missing)}; {session.notices}"
        stage.session = session
        yield stage
