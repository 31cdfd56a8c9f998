"""One in-process call of `add`, as an async tool and as a sync one: our whole path beside what the peers do.

A sync tool is handed to a thread, here and by the peers; a tool that is allowed to block the loop would be no match.
`add` is declared to touch nothing (`effects=()`), which is so. With the journal off something listens on the bus; with
it on the journal itself keeps the events, and a listener beside it is a row of its own. The last row is a session whose
hooks speak about other tools, beside one without hooks.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from benchmarks.harness import Call, Pace, race_calls
from benchmarks.ours import session_with
from benchmarks.peers import BARE_TOOLSET, CALLS, OPENAI_AGENTS, TOOL_MANAGER
from benchmarks.rows import Goal, Row, at_most, below_peer, row
from benchmarks.subject import ANSWER, ARGS, KINDS, Function
from golem_forge.core.calls import ToolCall
from golem_forge.tools.factory import tool

JOURNAL_OFF = "journal off"
JOURNAL_ON = "journal on"
UNHEARD = "journal off, nobody listening"
BOTH = "journal on and a listener"
HOOKED = "hooks for other tools"
HOOKS = """\
hooks:
  - {on: before_call, tools: [exec_command], run: /bin/true}
  - {on: after_call, tools: [write_file], run: /bin/true}
"""
COMPARED = {
    JOURNAL_OFF: tuple(CALLS),
    JOURNAL_ON: (TOOL_MANAGER, OPENAI_AGENTS),
    UNHEARD: (TOOL_MANAGER,),
    BOTH: (TOOL_MANAGER,),
    HOOKED: (JOURNAL_OFF,),
}
GOALS: dict[tuple[str, str], Goal] = {
    **{(JOURNAL_OFF, peer): below_peer() for peer in CALLS if peer != BARE_TOOLSET},
    (JOURNAL_ON, TOOL_MANAGER): at_most(1.5),
    (HOOKED, JOURNAL_OFF): at_most(1.1),
}


async def rows(pace: Pace) -> list[Row]:
    found: list[Row] = []
    for kind, function in KINDS.items():
        async with AsyncExitStack() as stack:
            calls = {
                JOURNAL_OFF: whole_path(function, stack, journal=False),
                JOURNAL_ON: whole_path(function, stack, journal=True, listener=False),
                BOTH: whole_path(function, stack, journal=True),
                UNHEARD: whole_path(function, stack, journal=False, listener=False),
                HOOKED: whole_path(function, stack, journal=False, config=HOOKS),
                **{name: await setup(function, stack) for name, setup in CALLS.items()},
            }
            for name, call in calls.items():
                assert ANSWER in str(await call()), f"{name} did not add"
            microseconds = {name: value * 1e6 for name, value in (await race_calls(calls, pace)).items()}
        found += [
            row(
                f"one {kind} call, {ours} (µs)",
                microseconds[ours],
                peer=microseconds[peer],
                peer_name="without hooks" if ours is HOOKED else peer,
                goal=GOALS.get((ours, peer)),
            )
            for ours, peers in COMPARED.items()
            for peer in peers
        ]
    return found


def whole_path(
    function: Function, stack: AsyncExitStack, *, journal: bool, listener: bool = True, config: str = ""
) -> Call:
    add = tool(name="add", needs_approval=False, effects=())(function)
    path = stack.enter_context(session_with([add], journal=journal, listener=listener, config=config)).path

    async def call() -> object:
        return await path.call(ToolCall("add", ARGS))

    return call
