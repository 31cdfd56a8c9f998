"""What a directory means for a worker: its zones and what its files say about approval. Nothing is run or recorded.

`session_plan` builds on this, and so does `forge doctor`, which must see what a session would.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from golem_forge.config.home import ForgeHome
from golem_forge.config.modes import Setting
from golem_forge.config.program import Program
from golem_forge.core.errors import ConfigError
from golem_forge.core.verdict import Verdict
from golem_forge.policy.base import ApprovalBlock, ApprovalBlocks, check_block
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.zones import Mode, ZoneSpec, check_zones
from golem_forge.tools.tool import Tool

DEFAULT_WORKER = "default"
NO_ZONE_HERE = "No zone here: this is your home directory or an ancestor of it. Start forge in a project directory."


def approval_blocks(program: Program, tools: Mapping[str, Tool], notices: list[str]) -> ApprovalBlocks:
    """The program's `approval` block, held against the tools there are. Unknown names become notices; a name of a
    configured MCP server is held against that server's list, once it is known."""
    block = ApprovalBlock(default=program.approval.default, tools=program.approval.tools)
    waiting = names_of_servers(program)
    now = {name: said for name, said in block.tools.items() if name in tools or name not in waiting}
    errors, unknown = check_block(replace(block, tools=now), tools)
    if errors:
        raise ConfigError(*errors)
    notices += unknown
    return ApprovalBlocks(program=block)


def names_of_servers(program: Program) -> dict[str, Setting[Verdict]]:
    """What `approval.tools` says about tools of configured MCP servers, there or not."""
    starts = tuple(f"{server}__" for server in program.mcp.servers)
    return {name: said for name, said in program.approval.tools.items() if name.startswith(starts)}


def worker_sandbox(program: Program, home: ForgeHome, notices: list[str]) -> Sandbox:
    """The zones of the built-in worker, opened; none in the home directory of a person."""
    if is_home_without_program(program):
        notices.append(NO_ZONE_HERE)
        return Sandbox(has_block=False, builtin_worker=True)
    return opened_zones(program, home, zone_specs(program), builtin_worker=True)


def opened_zones(
    program: Program,
    home: ForgeHome,
    specs: Sequence[ZoneSpec],
    default_zone: str | None = None,
    *,
    builtin_worker: bool = False,
) -> Sandbox:
    """Zones of the program, opened, after a look at where they really lie. Raises ConfigError with the lines."""
    try:
        sandbox = open_sandbox(
            specs, default_zone, forge_home=home.path, home=Path.home(), builtin_worker=builtin_worker
        )
    except ConfigError as error:
        raise ConfigError(*(zone_problems(program, home) or error.problems)) from None
    if problems := [*_led_outside(program, sandbox), *_within_reach(home, sandbox)]:
        sandbox.close()
        raise ConfigError(*problems)
    return sandbox


def _led_outside(program: Program, sandbox: Sandbox) -> Iterator[str]:
    """Zones written as inside the program whose opened directory is elsewhere: a link was put there, or swapped in."""
    for entry in program.zones:
        if entry.name not in sandbox.zones:
            continue
        opened = Path(os.readlink(f"/proc/self/fd/{sandbox.zones[entry.name].root.fd}"))
        written_inside = entry.path.is_relative_to(program.root) or not program.trusted
        if written_inside and not opened.is_relative_to(program.root):
            yield (
                f"{entry.origin}: zone '{entry.name}': its directory is reached through a link that leads outside the "
                "program; name the real directory"
            )


def _within_reach(home: ForgeHome, sandbox: Sandbox) -> Iterator[str]:
    """Rules, grants and trust that a link keeps inside a zone: whoever writes there would decide what may run."""
    for path in (home.config, home.rules, home.remembered, home.trust_dir):
        real = os.path.realpath(path)
        for zone in sandbox.zones.values():
            if real == zone.host or real.startswith(zone.host.rstrip("/") + "/"):
                yield f"{home.shown(path)} is a link into zone '{zone.name}', where tools could change it; move it out"


def zone_problems(program: Program, home: ForgeHome) -> list[str]:
    """Why the zones cannot be used, each with the line that says so (`forge.yaml:5: …`)."""
    origins = {zone.name: zone.origin for zone in program.zones}
    found = check_zones(zone_specs(program), forge_home=home.path, home=Path.home())
    return [f"{origins[problem.zone]}: {problem.text}" for problem in found]


def is_home_without_program(program: Program) -> bool:
    person = Path(os.path.realpath(Path.home()))
    return program.file is None and (program.root == person or program.root in person.parents)


def zone_specs(program: Program) -> list[ZoneSpec]:
    return [
        ZoneSpec(
            name=zone.name,
            path=zone.path,
            mode=Mode(zone.mode),
            write=zone.write,
            delete=zone.delete,
            unprotect=program.unprotect,
            at_host_path=zone.at_host_path,
        )
        for zone in program.zones
    ]
