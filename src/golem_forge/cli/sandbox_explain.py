"""`forge sandbox explain PATH | -- CMD`: what zones and walls would allow. Starts nothing.

A path is shown with its zone, its marks, and what a tool and a child process may do there. A command is shown as the
session's command tool sees it: each part, the program it would start, where its operands lead, and the verdict, which
is that of `forge rules explain`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from golem_forge.agent.explain import DryEvaluator, open_evaluator, plan_for_explain
from golem_forge.cli.format import fail, print_error, print_json
from golem_forge.cli.sandbox import SandboxArgs, parse_sandbox_args
from golem_forge.core.decisions import AnsweredBy, Verdict
from golem_forge.core.effects import Effect, Mark, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.text import columns, one_line
from golem_forge.policy.facts import floors_of
from golem_forge.policy.shell.strict import CommandWorld, quote
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.model import Refusal
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import USER_TOOLS, AccessMode
from golem_forge.storage.home import forge_home

_TOOLS: Final = {Verb.READ: "read_file", Verb.WRITE: "write_file", Verb.DELETE: "delete_file"}
"""Each stands for every tool that does the same to a path."""


def run_explain(words: list[str]) -> int:
    asked = parse_sandbox_args("sandbox explain", words)
    if bool(asked.path) == bool(asked.command):
        return fail("sandbox explain", "name one path, or a command after --", 2)
    said = asyncio.run(_explained(asked))
    if asked.json:
        print_json(said)
    else:
        print(columns(_lines(said)))
    return 0


async def _explained(asked: SandboxArgs) -> dict[str, Any]:
    about = " ".join((asked.path, *asked.command))
    async with open_evaluator(plan_for_explain(forge_home(), asked.program), about=about) as dry:
        for notice in dry.notices:
            print_error("sandbox explain", notice)
        sandbox, walls = dry.orchestrator.sandbox, dry.orchestrator.walls
        assert sandbox is not None
        assert walls is not None
        if asked.path:
            return await _about_path(dry, sandbox, walls, asked.path)
        return await _about_command(dry, sandbox, asked.command)


async def _about_path(dry: DryEvaluator, sandbox: Sandbox, walls: Walls, path: str) -> dict[str, Any]:
    said: dict[str, Any] = {"path": path, "virtual": "", "zone": "", "tools": {}, "walls": {}}
    for verb in _TOOLS:
        said["tools"][verb.value] = await _tool_says(dry, sandbox, path, verb, said)
    try:
        inside = walls.explain(path)
    except ForgeError as error:
        said["walls"] = {"read": error.message, "write": error.message}
        return said
    shows = {"shows": inside.stands} if inside.stands else {}
    allows = {"read": _refused(inside.read), "write": _refused(inside.write)}
    said["walls"] = {"place": inside.inner, **shows, **allows}
    return said


async def _tool_says(dry: DryEvaluator, sandbox: Sandbox, path: str, verb: Verb, said: dict[str, Any]) -> str:
    try:
        with sandbox.target(path, verb) as target:
            said["virtual"] = target.virtual
            said["zone"] = target.zone.label if target.zone else "the list of zones"
            judged = await dry.touching(_TOOLS[verb], path, target)
    except ForgeError as error:
        return error.message
    verdict, by = judged.decision.verdict.value, judged.decision.decided_by
    if judged.decision.answered_by is AnsweredBy.CONTAINED:
        return f"{verdict}: it would run, as it can be undone (mode contained)"
    if judged.decision.not_contained:
        return f"{verdict}: {'; '.join(judged.decision.not_contained)}"
    effects = judged.facts.effects or ()
    if floors := [why for each in effects for _, why in floors_of(each)] if verdict == Verdict.ASK else []:
        return f"{verdict}: {'; '.join(floors)}"
    return f"{verdict}: {by.describe()}" if by is not None and by.source == "rules" else verdict


def _refused(refusal: Refusal | None) -> str:
    if refusal is None:
        return "allowed"
    where = f", by {refusal.restricted}" if refusal.restricted and refusal.restricted != refusal.target else ""
    return f"refused ({refusal.why.value}{where})"


async def _about_command(dry: DryEvaluator, sandbox: Sandbox, command: list[str]) -> dict[str, Any]:
    text = command[0] if len(command) == 1 else " ".join(quote(word) for word in command)
    explained = await dry.command(text)
    if explained.judged is not None:
        by = explained.judged.decision.decided_by
        why = by.describe() if by else ""
    else:
        why = explained.refusal.message if explained.refusal is not None else ""
    facts = explained.judged.facts if explained.judged is not None else None
    effects = facts.effects or () if facts is not None else ()
    execs = [effect for effect in effects if effect.verb is Verb.EXEC]
    world = facts.command.world if facts is not None and facts.command is not None else None
    return {
        "command": text,
        "parts": [_part(effect, world) for effect in execs],
        "reads": [effect.target for effect in effects if effect.verb is Verb.READ],
        "network": "off; a call of exec_command can name hosts in `network`",
        "writes": sorted(
            f"/{each.name}"
            for each in sandbox.zones.values()
            if each.mode is AccessMode.RW and each.name != USER_TOOLS  # which stands in no walls
        ),
        "verdict": explained.verdict.value if explained.verdict else "none",
        "why": why,
    }


def _part(effect: Effect, world: CommandWorld | None) -> dict[str, Any]:
    if Mark.OPAQUE in effect.marks or world is None:
        return {"text": effect.target, "program": "", "is": "unknown: Forge cannot read it without running it"}
    found = world.program(effect.words[0])
    kind = "proven read-only" if effect.proven else "runs in the walls"
    if effect.dangers:
        kind += f"; dangerous: {', '.join(effect.dangers)}"
    if Mark.OUTSIDE_ZONE in effect.marks:
        kind += "; names something outside every zone"
    return {"text": effect.target, "program": _where(found), "is": kind}


def _where(found: Any) -> str:
    if found is None:
        return "not found on the walls' PATH"
    if found.shipped:
        return "Forge's own"
    return "of the system" if found.system else "in a zone" if found.zone else "of a toolchain"


def _lines(said: dict[str, Any], indent: str = "") -> list[tuple[str, str]]:
    """One line a fact, nested ones indented."""
    lines: list[tuple[str, str]] = []
    for name, value in said.items():
        if isinstance(value, dict):
            lines += [(f"{indent}{name}", ""), *_lines(value, indent + "  ")]
        elif isinstance(value, list):
            for number, item in enumerate(value):
                label = f"{indent}{name}" if number == 0 else ""
                shown = " — ".join(str(part) for part in item.values() if part) if isinstance(item, dict) else str(item)
                lines.append((label, one_line(shown)))
        elif value:
            lines.append((f"{indent}{name}", one_line(str(value))))
    return lines
