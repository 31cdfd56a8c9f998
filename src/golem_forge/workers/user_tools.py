"""The person's own tools in a session: one Workshop for all workers, and for each of them what its block lets it see.

What `custom/` may not import is handed to it here: the built-in tools by name, the way a `background` tool goes on
after its call (the sessions of `exec_command`), and where changes are told.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from golem_forge.core.call import Caller, ToolCall
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.verdict import Verdict
from golem_forge.custom.offering import Offer, Refreshed, UserTools
from golem_forge.custom.workshop import Workshop, open_workshop
from golem_forge.policy.base import ApprovalBlock
from golem_forge.policy.ruled_reach import hosts_in
from golem_forge.sandbox.host import person_environ
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.zones import USER_TOOLS
from golem_forge.workers.blocks import UserToolsBlock
from golem_forge.workers.native_toolsets import TOOL_LIST
from golem_forge.workers.surroundings import DEFAULT_WORKER
from golem_forge.workers.tree import SessionTree

if TYPE_CHECKING:
    from golem_forge.core.finished import Finished
    from golem_forge.orchestrator.path import OnEffects
    from golem_forge.sandbox.walls.walled_child import WalledChild
    from golem_forge.tools.context import ToolContext
    from golem_forge.workers.station import Station

_ZONE: Final = f"/{USER_TOOLS}/"
_FIRST_WAIT_MS: Final = 10_000
_FIRST_TOKENS: Final = 10_000


def workshop_of(tree: SessionTree) -> Workshop:
    """The session's one."""
    return tree.parts.get(Workshop, lambda: _opened(tree))


def _opened(tree: SessionTree) -> Workshop:
    return open_workshop(
        tree.home,
        native={tool.name: tool.description.partition("\n")[0] for tool in TOOL_LIST},
        session_id=tree.id,
        redactor=tree.redactor,
        environ=person_environ(),
        settings=tree.program.walls,
        run_on=run_on,
        zones=[os.path.realpath(path) for path in (tree.program.root, *(zone.path for zone in tree.program.zones))],
        host_rule=hosts_in(tree.rules, str(tree.program.root), DEFAULT_WORKER),
    )


def with_zone(sandbox: Sandbox, block: UserToolsBlock | None, tree: SessionTree) -> Sandbox:
    """The sandbox of a worker that may make tools. Raises ConfigError."""
    if block is None or not block.create:
        return sandbox
    folder = tree.tools_folder()
    return sandbox if folder is None else sandbox.with_user_tools(folder)


def user_tools_for(station: Station, block: UserToolsBlock) -> UserTools:
    shop = workshop_of(station.tree)
    built_in: dict[str, ApprovalBlock] = {}
    """What the worker's blocks say of built-in tools whose names ours have."""

    def placed(names: tuple[str, ...]) -> None:
        said = station.path.judge.blocks.blocks
        for name in filter(shop.shadows, names):
            built_in.setdefault(name, said.get(name) or ApprovalBlock())
        if block.approval.default or block.approval.tools or built_in:
            station.admit((), {name: _instead_of(built_in.get(name), block.approval, name) for name in names})

    def returned(name: str) -> None:
        if (before := built_in.pop(name, None)) is not None:
            station.admit((), {name: before})

    offer = Offer(tools=block.tools, create=block.create)
    tools = UserTools(shop, offer, station.catalog, on_placed=placed, on_returned=returned)
    station.deferring.user_tools = tools
    return tools


def _instead_of(built_in: ApprovalBlock | None, approval: ApprovalBlock, name: str) -> ApprovalBlock:
    """What is said of a tool that stands in for a built-in one: nothing that loosens that one, and what blocks it."""
    said = (built_in.tools.get(name) or built_in.default) if built_in is not None else None
    if said is None or said.value is not Verdict.BLOCKED:
        return approval
    return replace(approval, tools={**approval.tools, name: said})


def opening_notices(tools: UserTools) -> list[str]:
    """The first look, for the person at the start."""
    news = tools.refresh()
    return [] if news is None else [*news.warnings, *news.announcements]


def told(station: Station, news: Refreshed) -> None:
    """What changed, to whoever watches this session."""
    if news.added or news.changed or news.removed or news.diagnostics:
        station.emit(
            "catalogChanged",
            {
                "added": list(news.added),
                "changed": list(news.changed),
                "removed": list(news.removed),
                "diagnostics": list(news.diagnostics),
            },
        )
    for text in news.warnings:
        station.emit("status", {"type": "warning", "message": text})
    for text in news.announcements:
        station.emit("status", {"type": "info", "message": text})


def noting_writes(tree: SessionTree, worker: Callable[[], str]) -> OnEffects:
    """Whatever an agent wrote into a tool's folder counts as an agent's work, whoever made the tool."""

    def note(call: ToolCall, effects: tuple[Effect, ...]) -> None:
        if call.caller is Caller.HUMAN:
            return
        for effect in effects:
            if effect.verb in (Verb.WRITE, Verb.DELETE) and effect.target.startswith(_ZONE):
                name = effect.target.removeprefix(_ZONE).partition("/")[0]
                workshop_of(tree).book.agent_wrote(name, tree.id, worker())

    return note


async def run_on(start: Callable[[], Awaitable[WalledChild]], ctx: ToolContext, seconds: float) -> Finished:
    """A tool that goes on after its call is a session, read and ended with `write_stdin`."""
    from golem_forge.toolsets.exec.running import first_wait
    from golem_forge.toolsets.exec.sessions import ExecSessions, Started

    kind = Started(owner=ctx.owner, tty=False, timeout_s=seconds)
    args = {"yield_time_ms": _FIRST_WAIT_MS, "max_output_tokens": _FIRST_TOKENS}
    return await first_wait(ctx.parts.get(ExecSessions), start, kind, args, ctx)
