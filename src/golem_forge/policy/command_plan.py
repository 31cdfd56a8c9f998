"""A shell command as a Plan: what it would touch and what identifies it, for whoever wants it judged or run.

One place for the tool that runs commands and for everything that only asks what would become of one. `run` is the
caller's; nothing here starts anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from golem_forge.policy.commands import command_facts
from golem_forge.policy.shell import canonical_text
from golem_forge.policy.world import SandboxWorld
from golem_forge.sandbox.protected import is_secret_name
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.plan import Plan


def command_plan(text: str, sandbox: Sandbox, cwd: str, run: Callable[[], Any]) -> Plan:
    """`cwd` is the virtual working directory the command would start in."""
    world = SandboxWorld(sandbox, complete=partial(_seen_by_walls, sandbox))
    facts, effects = command_facts(text, world, cwd, is_secret_name)
    place = world.operand(cwd, "/")
    return Plan(
        run=run,
        effects=effects,
        command=facts,
        payload=text,
        fingerprint_args={"cmd": canonical_text(text)},
        targets=(f"cwd {place.real or cwd}",),
    )


def _seen_by_walls(sandbox: Sandbox, virtual: str) -> bool:
    from golem_forge.config.home import forge_home
    from golem_forge.sandbox.walls.walls import Walls

    return Walls(sandbox, forge_home=forge_home().path).scan_complete(virtual)
