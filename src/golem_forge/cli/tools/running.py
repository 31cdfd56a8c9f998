"""`forge tools run NAME`: a person runs one of their tools, on the one path like `forge call`, active or not.

A tool that is not trusted is shown first; `--debug` starts its source the way its language helps to find a mistake, in
the same walls. The name means the person's own tool here, whatever else has it, and exactly the version that was shown.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from golem_forge.cli.plain import can_ask, complain
from golem_forge.cli.tools.consent import BY_FLAG, DENIED, Answer
from golem_forge.cli.tools.shop import NO_SUCH_TOOL, entry_of
from golem_forge.core.visible import visible

if TYPE_CHECKING:
    from golem_forge.cli.call import Command
    from golem_forge.custom.entry import Entry
    from golem_forge.custom.workshop import Workshop
    from golem_forge.policy.request import ApprovalRequest
    from golem_forge.workers.session import Session

HELP: Final = """usage: forge tools run NAME [--param=value …] [--args-json JSON] [--debug] [--yes] [--json]
                       [--approval MODE] [-p DIR]

Runs one of your tools in the zones of this directory. One that is not active is built, shown, asked for and tested
first.

  --param value     an argument of the tool (--param=value, --flag, --no-flag; repeat for lists)
  --args-json JSON  all arguments as one JSON object; `-` reads it from standard input
  --debug           run its source: Python with -X dev, a shell script with -x, Go by `go run`; in the same walls
  --yes             the answer to the card of exactly this tool
  --json            the whole Outcome as JSON on standard output
  --approval MODE   interactive, strict, approve_all or auto_deny
  -p, --program DIR run in that directory instead of this one

Exit: 0 success, 1 failed, 2 bad arguments or config, 3 denied, 4 no such tool, 124 timed out, 130 interrupted."""
_VERB: Final = "run"


@dataclass(slots=True)
class _Asked:
    call: Command
    answer: Answer
    debug: bool


def run_run(words: list[str]) -> int:
    import asyncio

    from golem_forge.cli.call import UsageError

    try:
        asked = _parsed(words)
        if asked.call.help or not asked.call.name:
            print(HELP)
            return 0 if asked.call.help else 2
        return asyncio.run(_run(asked))
    except UsageError as error:
        complain(f"tools {_VERB}", str(error))
        return 2


def _parsed(words: list[str]) -> _Asked:
    """Flags of its own may stand anywhere before `--`; the rest is as `forge call` reads it."""
    from golem_forge.cli.call import parse

    end = words.index("--") if "--" in words else len(words)
    before, after = words[:end], words[end:]
    rest = [word for word in before if word not in ("--debug", "--yes")]
    return _Asked(parse([*rest, *after]), Answer.of("--yes" in before), "--debug" in before)


async def _run(asked: _Asked) -> int:
    from golem_forge.cli.call import call_in
    from golem_forge.workers.session import open_session

    command = asked.call
    asker = _asker(asked)
    async with open_session(command.program, approval=command.approval, approval_callback=asker) as session:
        assert session.user_tools is not None  # the built-in worker has them
        shop = session.user_tools.shop
        entry = entry_of(shop, _VERB, command.name)
        if entry is None:
            return NO_SUCH_TOOL
        if (code := await _may_go_on(session, shop, entry, asked)) != 0:
            return code
        _put_in(session, shop, entry, asked)
        return await call_in(session, command)


def _asker(asked: _Asked) -> Any:
    """`--yes` answers for the call the person typed; what that calls in turn is asked for by itself."""
    from golem_forge.cli.call import ask

    name = asked.call.name
    somebody = can_ask()

    def given(request: ApprovalRequest) -> dict[str, Any]:
        # It answered the card of the shown bytes before: one that asks again is about bytes that came since.
        if request.tool == name and request.caller == "human" and request.type != "definition":
            return {"approved": True}
        return ask(request) if somebody else {"approved": False, "reason": "nobody can be asked here"}

    if asked.answer is Answer.YES:
        return given
    return ask if somebody else None


async def _may_go_on(session: Session, shop: Workshop, entry: Entry, asked: _Asked) -> int:
    """0, or the exit code; it was said why. At a terminal the call's own card shows the tool and asks."""
    from golem_forge.config.modes import ApprovalMode
    from golem_forge.core.errors import ForgeError
    from golem_forge.custom.trust.promotion import card_for, must_be_promotable, readied

    name = entry.name
    if shop.book.retired(name):
        complain(f"tools {_VERB}", f"'{name}' is retired. `forge tools restore {name}` switches it on again.")
        return NO_SUCH_TOOL
    nobody = session.tree.controller.mode is ApprovalMode.AUTO_DENY
    if shop.trusts(entry) or (asked.answer is Answer.ASK and not nobody):
        return 0
    try:
        must_be_promotable(shop, entry)
        ready = await readied(shop, entry)
        print(visible(card_for(shop, ready).whole), file=sys.stderr)
        if nobody:
            complain(
                f"tools {_VERB}",
                f"'{name}' is not trusted and nobody is asked here. Read the text above, then run "
                f"`forge tools activate {name} --yes`, or this again with --yes.",
            )
            return DENIED
        shop.trust(entry, who=BY_FLAG)
    except ForgeError as error:
        complain(f"tools {_VERB}", error.message)
        return 1
    return 0


def _put_in(session: Session, shop: Workshop, entry: Entry, asked: _Asked) -> None:
    from golem_forge.custom.tool import as_built, for_debugging, user_tool

    session.refresh()  # what it says of the folder now must not take the place of what is put in next
    tool = user_tool(shop, entry, program=for_debugging if asked.debug else as_built)
    session.catalog.add(tool, replace=True)
