"""`forge run --dry-run`: prints what a session would have to work with. No model is asked, no process started.

Takes the words of the command line; gives the exit code. Text for people, or with `--json` the same as one object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from golem_forge.cli.plain import columns, print_json
from golem_forge.cli.run.looking import look
from golem_forge.cli.run.words import Asked
from golem_forge.core.visible import visible

_TRUST: Final = {None: "no program: nothing to trust", True: "trusted", False: "not trusted"}


def show(asked: Asked) -> int:
    facts = look(asked)
    if asked.json:
        print_json(facts)
    else:
        print("\n".join(_lines(facts)))
    return 0


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    yield "dry run: no model is asked, nothing is started"
    yield columns(_head(facts))
    yield "\nzones" if facts["zones"] else "\nzones: none, so no file can be reached"
    yield from _table(_zone(zone) for zone in facts["zones"])
    yield "\ntools, before their arguments are known"
    yield from _table([("NAME", "TOOLSET", "VERDICT", "SO A CALL", "WHY"), *map(_tool, facts["tools"])])
    if facts["workers"]:
        yield "\nworkers it may hand work to"
        yield from _table([("NAME", "VERDICT", "SO A CALL", "MODEL", "ZONES", ""), *map(_worker, facts["workers"])])
    if facts["rules"]:
        yield f"\n{facts['rules']} rules may change single verdicts; `forge rules explain` judges one call with them"
    for notice in facts["notices"]:
        yield f"\nnote: {visible(notice)}"


def _head(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    worker, program, model = facts["worker"], facts["program"], facts["model"]
    yield "worker", f"{worker['name']} ({worker['file'] or 'built in'}), {worker['mode']}"
    yield "program", f"{program['directory']}, {_TRUST[program['trusted']]}"
    if program["start"]:
        yield "", program["start"]
    if model["name"]:
        key = f", key in {model['key']}" if model["key"] else ""
        yield "model", f"{model['name']} (from {model['from']}{key})"
    if model["problem"]:
        yield "" if model["name"] else "model", model["problem"]
    yield "approval", f"{facts['approval']['mode']} (from {facts['approval']['from']})"
    for whose, limits in facts["budget"].items():
        if limits:
            yield f"budget of the {whose}", ", ".join(f"{name} {value:g}" for name, value in limits.items())


def _zone(zone: Mapping[str, Any]) -> tuple[str, ...]:
    consent = f"write {zone['write']}, delete {zone['delete']}" if "write" in zone else "read only"
    default = "; relative paths begin here" if zone["default"] else ""
    return f"/{zone['name']}", zone["mode"], consent, f"{zone['directory']}{default}"


def _tool(tool: Mapping[str, Any]) -> tuple[str, ...]:
    return tool["name"], ", ".join(tool["toolsets"]), tool["verdict"], tool["then"] or "depends", tool["why"]


def _worker(worker: Mapping[str, Any]) -> tuple[str, ...]:
    zones = ", ".join(f"/{name}" for name in worker["zones"]) or "none"
    then = "refused" if worker["refused"] else worker["then"]
    return worker["name"], worker["verdict"], then, worker["model"] or "none", zones, worker["refused"]


def _table(rows: Any) -> Iterator[str]:
    rows = list(rows)
    if rows:
        yield columns(rows, indent="  ")
