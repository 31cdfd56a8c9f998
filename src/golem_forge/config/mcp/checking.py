"""One server's block, all files put together, held against itself and the zones there are.

`ServerCheck` takes the block; its `keys` are what counts afterwards. What forge.yaml or config.yaml says and cannot
mean goes to `problems` with its line; what `.mcp.json` says, or the person's config about a zone that this program
lacks, is `own_problem`: that server is shown as failed and nothing else is touched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from golem_forge.config.mcp.json_file import MCP_JSON
from golem_forge.config.mcp.places import by_zones, zone_of
from golem_forge.config.mcp.shape import HTTP_KEYS, STDIO, STDIO_KEYS, ServerBlock
from golem_forge.config.mcp.spec import Auth, Login
from golem_forge.config.zones import ZoneEntry
from golem_forge.core.nearest import nearest

_NO_AUTH: Final = Auth()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What servers stand on."""

    root: Path
    """Real."""
    zones: tuple[ZoneEntry, ...]
    """As they count."""
    written: Mapping[str, Literal["ro", "rw"]]
    """Every zone that the program's own file may mean, with the mode it is written with, trusted or not."""


class ServerCheck:
    def __init__(self, name: str, block: ServerBlock, problems: list[str]) -> None:
        self.name = name
        self.block = block
        self.keys: dict[str, Any] = dict(block.keys)
        self.own_problem = block.problem
        self._problems = problems

    def transport(self) -> None:
        """Exactly one of the two, and no key of the other."""
        said = self.block.origins.keys() | self.keys.keys()
        if self.own_problem and self.block.origin == MCP_JSON:
            return  # it says itself what is wrong
        if "command" in said and "url" in said:
            self._say("url", "excludes `command`; keep one of the two")
            return
        if "command" not in said and "url" not in said:
            self._say("", "needs `command` (a program to start) or `url`")
            return
        if "type" in self.keys and (self.keys["type"] == STDIO) != ("command" in said):
            has, needs = ("command", "url") if "command" in said else ("url", "command")
            self._say("type", f"{self.keys['type']} needs `{needs}`, and this server has `{has}`; remove `type`")
        needed, others = ("command", HTTP_KEYS) if "command" in said else ("url", STDIO_KEYS)
        for key in others:
            if key not in said:
                continue
            self.keys.pop(key, None)
            if self.block.at(key) != MCP_JSON:
                self._say(key, f"has no effect for a server with `{needed}`")
        auth: Auth = self.keys.get("auth", _NO_AUTH)
        headers = self.keys.get("headers", {})
        if auth.kind is not Login.NONE and any(name.lower() == "authorization" for name in headers):
            self._say("auth", "excludes a header `Authorization`; keep one of the two")

    def directories(self, ground: Ground) -> None:
        """What `.mcp.json` names by host paths, said by zones. Where nobody wrote which zones the server has, it gets
        those, to read: its card says so, and `zones` in forge.yaml gives more."""
        if "command" not in self.keys:
            return
        unsaid = "zones" not in self.block.origins
        zones = tuple(zone for zone in ground.zones if unsaid or zone.name in self.keys.get("zones", {}))
        meant: list[str] = []
        if "args" in self.keys and self.block.at("args") == MCP_JSON:
            self.keys["args"], named = by_zones(self.keys["args"], zones)
            meant += named
        if "cwd" in self.keys and self.block.at("cwd") == MCP_JSON:
            cwd = self.keys["cwd"] = _address(self.keys["cwd"], ground) or self.keys["cwd"]
            there = {zone.name for zone in zones}
            meant += [zone for zone in cwd.split("/")[1:2] if zone in there]
        if unsaid and meant:
            self.keys["zones"] = dict.fromkeys(meant, "ro")

    def zones_of_program(self, ground: Ground) -> None:
        """A program names its own zones, so one that it lacks is a mistake in its file."""
        there = {zone.name for zone in ground.zones}
        for zone, mode in self.keys.get("zones", {}).items():
            if zone not in ground.written:
                self._say(f"zones.{zone}", _no_zone(zone, ground.written))
            elif mode == "rw" and ground.written[zone] == "ro":
                self._say(f"zones.{zone}", "expected ro: the zone itself is read-only")
            elif zone not in there:
                self._fail(f"zone {zone!r} is not used while the program is not trusted; run `forge trust`")
        self._no_wider(ground)

    def zones_of_person(self, ground: Ground) -> None:
        """The person's config is read for every program; not each has every zone."""
        there = {zone.name for zone in ground.zones}
        for zone in self.keys.get("zones", {}):
            if zone not in there:
                self._fail(f"{self.block.at(f'zones.{zone}')}: zones.{zone}: {_no_zone(zone, there)}")
        self._no_wider(ground)

    def cwd(self) -> None:
        """In a zone that the server has."""
        cwd: str = self.keys.get("cwd", "")
        if not cwd:
            return
        parts = cwd.split("/")
        zone = parts[1] if cwd.startswith("/") else ""
        if not zone or ".." in parts:
            self._say("cwd", "expected an address in one of the server's zones, like /workspace/sub")
        elif zone not in self.keys.get("zones", {}):
            fix = f"write `zones: {{{zone}: ro}}` for mcp.servers.{self.name}"
            self._say("cwd", f"this server was not given a zone {zone!r}; {fix}")

    def _no_wider(self, ground: Ground) -> None:
        if "zones" in self.keys:
            read_only = {zone.name for zone in ground.zones if zone.mode == "ro"}
            given = self.keys["zones"].items()
            self.keys["zones"] = {zone: "ro" if zone in read_only else mode for zone, mode in given}

    def _fail(self, problem: str) -> None:
        self.own_problem = self.own_problem or problem

    def _say(self, key: str, problem: str) -> None:
        """An error of the file that said it; of the server alone where that is a file of others."""
        at, where = self.block.at(key), f"mcp.servers.{self.name}" + (f".{key}" if key else "")
        if at == MCP_JSON:
            self._fail(f"{at}: {key}: {problem}")
        elif at.endswith(f" {where}"):  # `--set mcp.servers.x.url` names the place itself
            self._problems.append(f"{at}: {problem}")
        else:
            self._problems.append(f"{at}: {where}: {problem}")


def _no_zone(zone: str, known: Mapping[str, Any] | set[str]) -> str:
    close = nearest(zone, known)
    hint = f"did you mean {close!r}?" if close else f"its zones: {', '.join(sorted(known)) or 'none'}"
    return f"this program has no zone {zone!r}; {hint}"


def _address(written: str, ground: Ground) -> str:
    """The zone address of a directory of this machine; what is an address already, or nowhere, is left: empty."""
    if any(written == f"/{zone.name}" or written.startswith(f"/{zone.name}/") for zone in ground.zones):
        return ""
    place = zone_of(Path(os.path.normpath(ground.root / os.path.expanduser(written))), ground.zones)
    return "" if place is None else "/".join(("", *filter(None, place)))
