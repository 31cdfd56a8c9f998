"""`forge tools run NAME`: a person runs one of their tools, on the one path like `forge call`, active or not.

A tool that is not trusted is shown first. `--debug` starts its source in the debug mode of its language, in the same
walls. The name means the person's own tool here, whatever else has it, and exactly the version that was shown.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.session import open_session
from golem_forge.cli.args import BY_FLAG, DENIED, NOT_FOUND, CommandUsageError
from golem_forge.cli.call import CallCommand, ask_person, call_in_session, parse
from golem_forge.cli.format import fail, step_drawer
from golem_forge.cli.tools.workshop import find_entry, print_report
from golem_forge.config.approval_modes import ApprovalMode
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.signals import run_to_exit_code
from golem_forge.core.text import escape_control_chars
from golem_forge.ui.line_terminal import can_ask
from golem_forge.usertools.build import PreparedTool
from golem_forge.usertools.folder import ToolEntry
from golem_forge.usertools.tool import user_tool
from golem_forge.usertools.trust import check_promotable, make_ready, make_trust_card
from golem_forge.usertools.workshop import Workshop

if TYPE_CHECKING:
    from golem_forge.agent.session import Session
    from golem_forge.policy.request import ApprovalRequest

HELP: Final = """usage: forge tools run NAME [--param=value …] [--args-json JSON] [--debug] [--yes] [--json]
                       [--approval MODE] [-p DIR]

Runs one of your user tools in the zones of this directory. If the tool is not active, Forge first builds it, shows it,
asks you and tests it.

  --param value     an argument of the tool (--param=value, --flag, --no-flag; repeat for lists)
  --args-json JSON  all arguments as one JSON object; `-` reads it from standard input
  --debug           run its source: Python with -X dev, a shell script with -x, Go by `go run`; in the same walls
  --yes             answer yes to the card of this tool
  --json            the whole Outcome as JSON on standard output
  --approval MODE   interactive, strict, contained, plan, approve_all or auto_deny
  -p, --program DIR run in that directory instead of this one

Exit: 0 success, 1 failed, 2 bad arguments or config, 3 denied, 4 no such tool, 124 timed out, 130 interrupted."""


@dataclass(slots=True)
class _RunArgs:
    call: CallCommand
    yes: bool
    debug: bool


def run_run(words: list[str]) -> int:
    try:
        asked = _parse_args(words)
        if asked.call.help or not asked.call.name:
            print(HELP)
            return 0 if asked.call.help else 2
        return run_to_exit_code(_run(asked))
    except CommandUsageError as error:
        return fail("tools run", str(error), 2)


def _parse_args(words: list[str]) -> _RunArgs:
    """Flags of its own may stand anywhere before `--`; the rest is as `forge call` reads it."""
    end = words.index("--") if "--" in words else len(words)
    before, after = words[:end], words[end:]
    rest = [word for word in before if word not in ("--debug", "--yes")]
    return _RunArgs(parse([*rest, *after]), "--yes" in before, "--debug" in before)


async def _run(asked: _RunArgs) -> int:
    command = asked.call
    asker = _approval_callback(asked)
    async with open_session(command.program, approval=command.approval, approval_callback=asker) as session:
        assert session.user_tools is not None  # the built-in worker has them
        workshop = session.user_tools.workshop
        workshop.report, workshop.on_step = print_report, step_drawer()
        entry = find_entry(workshop, "run", command.name)
        if entry is None:
            return NOT_FOUND
        if (code := await _check_trust(session, workshop, entry, asked)) != 0:
            return code
        session.refresh()  # what it says of the folder now must not take the place of what is put in next
        program = PreparedTool.debug_program if asked.debug else PreparedTool.program
        session.catalog.add(user_tool(workshop, entry, program=program), replace=True)
        return await call_in_session(session, command)


def _approval_callback(asked: _RunArgs) -> Any:
    """`--yes` answers for the call the person typed; what that calls in turn is asked for by itself."""
    name = asked.call.name
    somebody = can_ask()

    def given(request: ApprovalRequest) -> dict[str, Any]:
        # It answered the card of the shown bytes before: one that asks again is about bytes that came since.
        if request.tool == name and request.caller == "human" and request.type != "definition":
            return {"approved": True}
        return ask_person(request) if somebody else {"approved": False, "reason": "Forge cannot ask you here"}

    if asked.yes:
        return given
    return ask_person if somebody else None


async def _check_trust(session: Session, workshop: Workshop, entry: ToolEntry, asked: _RunArgs) -> int:
    """0, or the exit code; it was said why. At a terminal the call's own card shows the tool and asks."""
    name = entry.name
    if workshop.store.is_retired(name):
        return fail("tools run", f"'{name}' is retired. `forge tools restore {name}` switches it on again.", NOT_FOUND)
    nobody = session.state.controller.mode is ApprovalMode.AUTO_DENY
    if workshop.trusts(entry) or not (asked.yes or nobody):
        return 0
    try:
        check_promotable(workshop, entry)
        ready = await make_ready(workshop, entry)
        print(escape_control_chars(make_trust_card(workshop, ready).full_text), file=sys.stderr)
        if nobody:
            then = f"Read the text above, then run `forge tools activate {name} --yes`, or this again with --yes."
            return fail("tools run", f"'{name}' is not trusted, and Forge cannot ask you here. {then}", DENIED)
        workshop.trust(entry, who=BY_FLAG)
    except ForgeError as error:
        return fail("tools run", error.message, 1)
    return 0
