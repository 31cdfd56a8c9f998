"""`forge sandbox explain PATH | -- CMD`: what zones and walls would allow. Starts nothing, not even a probe.

A path is shown with its zone, its marks, and what a tool and a child process may do there. A command is shown as the
analysers see it: each part, the program it would start, and where its operands lead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from golem_forge.cli.plain import columns, complain, one_line, print_json
from golem_forge.cli.sandbox.words import ShortCommand, read_words
from golem_forge.config.home import forge_home
from golem_forge.config.program import load_program
from golem_forge.core.effects import Effect, Mark, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.policy.command_plan import command_plan
from golem_forge.policy.effects import base_verdict, floors_of
from golem_forge.policy.rules import RuleBook
from golem_forge.policy.rules.path_rules import path_rules
from golem_forge.policy.shell import quote
from golem_forge.policy.world import SandboxWorld
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.plan import Refusal
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import USER_TOOLS, Mode
from golem_forge.workers.surroundings import DEFAULT_WORKER, with_tools_zone, worker_sandbox
from golem_forge.workers.trust_cover import trust_store

_TOOLS: Final = {"read": Verb.READ, "write": Verb.WRITE, "delete": Verb.DELETE}


def run(words: list[str]) -> int:
    asked = read_words("sandbox explain", words)
    if isinstance(asked, int):
        return asked
    if bool(asked.path) == bool(asked.command):
        complain("sandbox explain", "name one path, or a command after --")
        return 2
    ground = _open(asked)
    try:
        said = _about_path(ground, asked.path) if asked.path else _about_command(ground, asked.command)
    finally:
        ground.sandbox.close()
    if asked.json:
        print_json(said)
    else:
        print(columns(_lines(said)))
    return 0


@dataclass(frozen=True, slots=True)
class _Ground:
    sandbox: Sandbox
    walls: Walls


def _open(asked: ShortCommand) -> _Ground:
    home = forge_home()
    trust = trust_store(home)
    program = load_program(Path(asked.program), home, trusted=trust.trusted, trusted_with=trust.trusted_with)
    notices: list[str] = []
    sandbox = worker_sandbox(program, home, notices)
    for notice in notices:
        complain("sandbox explain", notice)
    book = RuleBook(home, project_root=program.root, project_trusted=lambda: trust.trusted(program.root))

    def rules() -> Any:
        return path_rules(book.current(), DEFAULT_WORKER, str(program.root))

    walls = Walls(sandbox, program.walls, forge_home=home.path, rules=rules)
    return _Ground(with_tools_zone(sandbox, home), walls)


def _about_path(ground: _Ground, path: str) -> dict[str, Any]:
    said: dict[str, Any] = {"path": path, "virtual": "", "zone": "", "tools": {}, "walls": {}}
    for name, verb in _TOOLS.items():
        said["tools"][name] = _tool_says(ground.sandbox, path, verb, said)
    try:
        inside = ground.walls.explain(path)
    except ForgeError as error:
        said["walls"] = {"read": error.message, "write": error.message}
        return said
    shows = {"shows": inside.stands} if inside.stands else {}
    allows = {"read": _refused(inside.read), "write": _refused(inside.write)}
    said["walls"] = {"place": inside.inner, **shows, **allows}
    return said


def _tool_says(sandbox: Sandbox, path: str, verb: Verb, said: dict[str, Any]) -> str:
    try:
        with sandbox.target(path, verb) as target:
            said["virtual"] = target.virtual
            said["zone"] = target.zone.label if target.zone else "the list of zones"
            effect = target.effect()
            floors = [why for _, why in floors_of(effect)]
            verdict = base_verdict(effect).value
            return f"ask: {'; '.join(floors)}" if floors else verdict
    except ForgeError as error:
        return error.message


def _refused(refusal: Refusal | None) -> str:
    if refusal is None:
        return "allowed"
    where = f", by {refusal.restricted}" if refusal.restricted and refusal.restricted != refusal.target else ""
    return f"refused ({refusal.why.value}{where})"


def _about_command(ground: _Ground, command: list[str]) -> dict[str, Any]:
    text = command[0] if len(command) == 1 else " ".join(quote(word) for word in command)
    zone = ground.sandbox.default_zone
    world = SandboxWorld(ground.sandbox, ground.walls.search_path())
    plan = command_plan(text, ground.sandbox, f"/{zone}" if zone else "/", lambda: None)
    effects = plan.effects or ()
    execs = [effect for effect in effects if effect.verb is Verb.EXEC]
    return {
        "command": text,
        "parts": [_part(effect, world) for effect in execs],
        "reads": [effect.target for effect in effects if effect.verb is Verb.READ],
        "network": "off; exec_command names hosts in `network`",
        "writes": sorted(
            f"/{each.name}"
            for each in ground.sandbox.zones.values()
            if each.mode is Mode.RW and each.name != USER_TOOLS  # which stands in no walls
        ),
        "verdict": "forge rules explain -- … says whether it would be asked about",
    }


def _part(effect: Effect, world: SandboxWorld) -> dict[str, Any]:
    if Mark.OPAQUE in effect.marks:
        return {"text": effect.target, "program": "", "is": "not readable without running it"}
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
