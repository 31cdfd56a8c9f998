"""All configured MCP servers as they count now: the user's own, `.mcp.json`, and forge.yaml over it, key by key.

`effective_mcp` takes the three, checked and restricted, and the zones there are; it gives `McpSettings` and adds to
`problems` what forge.yaml says and cannot mean. A program's server wins over the user's of the same name; only `--set`
also changes the user's. `editor_servers` gives the servers that an editor names for one session.

`ServerCheck` checks one server's merged block; its `keys` are what counts afterwards. What forge.yaml or config.yaml
says and cannot mean goes to `problems` with its line. What `.mcp.json` says, or the user's config about a zone that
this program lacks, is `own_problem`: that server is shown as failed and nothing else is affected.

Other hosts start servers without walls, so `.mcp.json` holds host paths; `zone_containing` and `replace_zone_paths`
turn them into zone addresses. What lies in no zone stays as it is: nothing is opened for it. Threat: `..`, with which a
path seems to be where it is not.

`add_server` and `remove_server` edit one file, for `forge mcp add` and `remove`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from golem_forge.config.mcp_blocks import (
    FOREIGN_SERVERS_KEY,
    HTTP_KEYS,
    MCP_JSON,
    MCP_KEYS,
    STDIO,
    STDIO_KEYS,
    JsonServers,
    McpFile,
    ServerBlock,
    json_servers,
    mcp_file,
    normalise_keys,
)
from golem_forge.config.mcp_spec import (
    NAME_RULE,
    AuthKind,
    DeferralSettings,
    McpSettings,
    ServerAuth,
    ServerSpec,
    ServerTrust,
    is_server_name,
)
from golem_forge.config.sandbox_block import ZoneEntry
from golem_forge.config.validation import ConfigProblems, problem_message
from golem_forge.config.yaml_edit import put_entry, read_existing, remove_entry, replace_existing
from golem_forge.config.yaml_file import YamlFile, is_override, parse_yaml
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import nearest_hint

_USER_SCOPE: Final = ""
_EDITOR_SCOPE: Final = "editor:"
"""Prefix that no program root has, since roots are absolute."""
_DEFERRAL: Final = {"defer_above": "above", "defer_tokens": "tokens", "always_load": "always_load"}
_SAME_KEYS: Final = (
    *("command", "cwd", "env", "zones", "network", "url", "headers", "auth", "enabled", "required"),
    *("connect_timeout", "idle_timeout", "total_timeout", "close_after", "protocol"),
)
"""Keys that a spec has under the same name."""


def check_own_servers(file: McpFile, problems: list[str]) -> None:
    """The user's file must be right by itself; only zones depend on the program."""
    for name, block in file.servers.items():
        check = ServerCheck(name, block, problems)
        check.transport()
        check.cwd()


def effective_mcp(
    project: McpFile, foreign: JsonServers, person: McpFile, ground: ProgramZones, problems: list[str]
) -> McpSettings:
    specs: dict[str, ServerSpec] = {}
    for name in sorted({*person.servers, *project.servers, *foreign.servers}):
        block, scope = _effective_block(name, project, foreign, person, os.fspath(ground.root))
        if name in foreign.left_out and not _has_transport(block):
            continue
        check = ServerCheck(name, block, problems if name in project.servers else [])
        check.transport()
        check.directories(ground)
        if scope == _USER_SCOPE:
            check.zones_of_person(ground)
        else:
            check.zones_of_program(ground)
        check.cwd()
        specs[name] = _server_spec(check, scope)
    if problems and foreign.warnings and not foreign.servers:
        problems.append(foreign.warnings[0])  # what forge.yaml leans on may be what could not be read
    tools = {**person.tools, **project.tools}
    said = {field: tools[key] for key, field in _DEFERRAL.items() if key in tools}
    if "always_load" in said:
        said["always_load"] = tuple(said["always_load"])
    return McpSettings(servers=specs, deferral=DeferralSettings(**said), warnings=foreign.warnings)


def editor_servers(
    entries: Mapping[str, Any], client: str, root: Path, zones: Sequence[ZoneEntry]
) -> dict[str, ServerSpec]:
    """The servers that an editor names for a session of this program, by name; `entries` as in `.mcp.json`. Each has a
    scope of its own: what was agreed to for a server of a file says nothing of the editor's."""
    ground = ProgramZones(root=root, zones=tuple(zones), written={zone.name: zone.mode for zone in zones})
    found = effective_mcp(McpFile(), json_servers(dict(entries)), McpFile(), ground, []).servers
    return {
        name: replace(
            spec,
            scope=editor_scope(client, root),
            origin=f"the editor {client}",
            problem=spec.problem.removeprefix(f"{MCP_JSON}: "),
        )
        for name, spec in found.items()
    }


def editor_scope(client: str, root: Path) -> str:
    return f"{_EDITOR_SCOPE}{client}:{os.fspath(root)}"


def editor_of_scope(scope: str, root: Path) -> str:
    """The client whose servers have this scope; empty: it is no editor's, or another program's."""
    if not scope.startswith(_EDITOR_SCOPE):
        return ""
    client, place = scope.removeprefix(_EDITOR_SCOPE), f":{os.fspath(root)}"  # the name of a client may hold a colon
    return client.removesuffix(place) if client.endswith(place) else ""


def _effective_block(
    name: str, project: McpFile, foreign: JsonServers, person: McpFile, root: str
) -> tuple[ServerBlock, str]:
    """The block that counts, and whose server it is."""
    block, below = project.servers.get(name), foreign.servers.get(name)
    if block is None:
        return (person.servers[name], _USER_SCOPE) if below is None else (below, root)
    if below is not None:
        return _overlay_blocks(block, below), root
    if name in person.servers and all(is_override(origin) for origin in block.origins.values()):
        return _overlay_blocks(block, person.servers[name]), _USER_SCOPE
    return block, root


def _overlay_blocks(block: ServerBlock, below: ServerBlock) -> ServerBlock:
    return replace(
        block,
        keys={**below.keys, **block.keys},
        origins={**dict.fromkeys(below.keys, below.origin), **below.origins, **block.origins},
        problem="" if _has_transport(block) else below.problem,
    )


def _has_transport(block: ServerBlock) -> bool:
    return "command" in block.origins or "url" in block.origins


def _server_spec(check: ServerCheck, scope: str) -> ServerSpec:
    keys = check.keys
    approval: dict[str, Any] = keys.get("approval", {})
    tools: dict[str, Any] = keys.get("tools", {})
    return ServerSpec(
        name=check.name,
        scope=scope,
        origin=check.block.origin,
        args=tuple(keys.get("args", ())),
        pass_env=tuple(dict.fromkeys(keys.get("pass_env", ()))),
        trust=ServerTrust(keys.get("trust", ServerTrust.UNTRUSTED)),
        allow=tuple(tools.get("allow", ("*",))),
        deny=tuple(tools.get("deny", ())),
        always_load=tuple(keys.get("always_load", ())),
        approval_default=approval.get("default"),
        approval_tools=approval.get("tools", {}),
        sampling=Verdict(keys.get("sampling", Verdict.ASK)),
        problem=check.own_problem,
        **{key: keys[key] for key in _SAME_KEYS if key in keys},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramZones:
    root: Path
    """The real path."""
    zones: tuple[ZoneEntry, ...]
    """The zones in force."""
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
            self._add_problem("url", "cannot be used together with `command`; keep one of the two")
            return
        if "command" not in said and "url" not in said:
            self._add_problem("", "needs `command` (a program to start) or `url`")
            return
        if "type" in self.keys and (self.keys["type"] == STDIO) != ("command" in said):
            has, needs = ("command", "url") if "command" in said else ("url", "command")
            self._add_problem(
                "type", f"{self.keys['type']} needs `{needs}`, and this server has `{has}`; remove `type`"
            )
        needed, others = ("command", HTTP_KEYS) if "command" in said else ("url", STDIO_KEYS)
        for key in others:
            if key not in said:
                continue
            self.keys.pop(key, None)
            if self.block.at(key) != MCP_JSON:
                self._add_problem(key, f"has no effect for a server with `{needed}`")
        auth: ServerAuth = self.keys.get("auth", ServerAuth())
        headers = self.keys.get("headers", {})
        if auth.kind is not AuthKind.NONE and any(name.lower() == "authorization" for name in headers):
            self._add_problem("auth", "cannot be used together with a header `Authorization`; keep one of the two")

    def directories(self, ground: ProgramZones) -> None:
        """Replaces host paths of `.mcp.json` by zones. If the server's zones are not set, it gets these read-only: its
        card says so, and `zones` in forge.yaml gives more.
        """
        if "command" not in self.keys:
            return
        unsaid = "zones" not in self.block.origins
        zones = tuple(zone for zone in ground.zones if unsaid or zone.name in self.keys.get("zones", {}))
        meant: list[str] = []
        if "args" in self.keys and self.block.at("args") == MCP_JSON:
            self.keys["args"], named = replace_zone_paths(self.keys["args"], zones)
            meant += named
        if "cwd" in self.keys and self.block.at("cwd") == MCP_JSON:
            cwd = self.keys["cwd"] = _zone_address(self.keys["cwd"], ground) or self.keys["cwd"]
            there = {zone.name for zone in zones}
            meant += [zone for zone in cwd.split("/")[1:2] if zone in there]
        if unsaid and meant:
            self.keys["zones"] = dict.fromkeys(meant, "ro")

    def zones_of_program(self, ground: ProgramZones) -> None:
        """A program names its own zones, so one that it lacks is a mistake in its file."""
        there = {zone.name for zone in ground.zones}
        for zone, mode in self.keys.get("zones", {}).items():
            if zone not in ground.written:
                self._add_problem(f"zones.{zone}", _unknown_zone(zone, ground.written))
            elif mode == "rw" and ground.written[zone] == "ro":
                self._add_problem(f"zones.{zone}", "expected ro: the zone itself is read-only")
            elif zone not in there:
                self._fail(f"zone {zone!r} is not used while the program is not trusted; run `forge trust`")
        self._no_wider(ground)

    def zones_of_person(self, ground: ProgramZones) -> None:
        """The person's config is read for every program; not each has every zone."""
        there = {zone.name for zone in ground.zones}
        for zone in self.keys.get("zones", {}):
            if zone not in there:
                self._fail(f"{self.block.at(f'zones.{zone}')}: zones.{zone}: {_unknown_zone(zone, there)}")
        self._no_wider(ground)

    def cwd(self) -> None:
        """Checks that the working directory lies in a zone of the server."""
        cwd: str = self.keys.get("cwd", "")
        if not cwd:
            return
        parts = cwd.split("/")
        zone = parts[1] if cwd.startswith("/") else ""
        if not zone or ".." in parts:
            self._add_problem("cwd", "expected an address in one of the server's zones, like /workspace/sub")
        elif zone not in self.keys.get("zones", {}):
            fix = f"write `zones: {{{zone}: ro}}` for mcp.servers.{self.name}"
            self._add_problem("cwd", f"this server was not given a zone {zone!r}; {fix}")

    def _no_wider(self, ground: ProgramZones) -> None:
        if "zones" in self.keys:
            read_only = {zone.name for zone in ground.zones if zone.mode == "ro"}
            given = self.keys["zones"].items()
            self.keys["zones"] = {zone: "ro" if zone in read_only else mode for zone, mode in given}

    def _fail(self, problem: str) -> None:
        self.own_problem = self.own_problem or problem

    def _add_problem(self, key: str, problem: str) -> None:
        """An error of the file that said it; of the server alone where that is a file of others."""
        at, where = self.block.at(key), f"mcp.servers.{self.name}" + (f".{key}" if key else "")
        if at == MCP_JSON:
            self._fail(f"{at}: {key}: {problem}")
        else:
            self._problems.append(problem_message(at, where, problem))


def _unknown_zone(zone: str, known: Mapping[str, Any] | set[str]) -> str:
    hint = nearest_hint(zone, known, f"; its zones: {', '.join(sorted(known)) or 'none'}")
    return f"this program has no zone {zone!r}{hint}"


def _zone_address(written: str, ground: ProgramZones) -> str:
    """The zone address of a directory of this machine; what is an address already, or nowhere, is left: empty."""
    if any(written == f"/{zone.name}" or written.startswith(f"/{zone.name}/") for zone in ground.zones):
        return ""
    place = zone_containing(Path(os.path.normpath(ground.root / os.path.expanduser(written))), ground.zones)
    return "" if place is None else "/".join(("", *filter(None, place)))


_OPTION_PATH: Final = regex(r"(--?[A-Za-z][A-Za-z0-9_.-]*=)?(/.*)", re.DOTALL)


def zone_containing(path: Path, zones: Iterable[ZoneEntry]) -> tuple[str, str] | None:
    """(name of the innermost zone, path below it or empty). Links count as they are spelled, then as they lead."""
    for spelled in dict.fromkeys((path, Path(os.path.realpath(path)))):
        found = [
            (len(place.parts), zone.name, os.path.relpath(spelled, place))
            for zone in zones
            for place in {zone.path, Path(os.path.realpath(zone.path))}
            if spelled.is_relative_to(place)
        ]
        if found:
            _, name, below = max(found)
            return name, "" if below == "." else below
    return None


def replace_zone_paths(args: Sequence[str], zones: Sequence[ZoneEntry]) -> tuple[list[str], tuple[str, ...]]:
    """The arguments with `${zone:x}` for every path in a zone, and the names of those zones."""
    said: list[str] = []
    named: dict[str, None] = {}
    for word in args:
        match = _OPTION_PATH.fullmatch(word)
        place = zone_containing(Path(match[2]), zones) if match and ".." not in match[2].split("/") else None
        if match is None or place is None:
            said.append(word)
            continue
        name, below = place
        named[name] = None
        said.append(f"{match[1] or ''}${{zone:{name}}}" + (f"/{below}" if below else ""))
    return said, tuple(named)


def add_server(file: Path, name: str, block: Mapping[str, Any]) -> None:
    """Puts one server's block into forge.yaml or config.yaml, which is made where there is none. The rest of the file
    keeps its meaning, its comments and its mode, and the new text replaces the old one in one step. Raises ConfigError
    and writes nothing for a name that is taken or invalid, a block that would not read, and a file that does not read
    as it stands, is a link to somewhere else or was changed meanwhile."""
    if not is_server_name(name):
        raise ConfigError(f"{name!r} is not a name of a server: {NAME_RULE}")
    data = read_existing(file)
    before, path = _parse_servers(data, file.name)
    servers = _servers_in(before)
    if name in servers:
        line = before.line(("mcp", "servers", name))
        raise ConfigError(f"{file.name}:{line}: server {name!r} exists already; remove it first or choose another name")
    expected = _ExpectedFile(before, {**servers, name: dict(block)}, name)
    replace_existing(file, data, put_entry(data.decode("utf-8-sig"), path, name, block, expected.check))


def remove_server(file: Path, name: str) -> None:
    data = read_existing(file)
    before, path = _parse_servers(data, file.name)
    there = _servers_in(before)
    if name not in there:
        raise ConfigError(f"{file.name}: has no server {name!r}{nearest_hint(name, there)}")
    expected = _ExpectedFile(before, {key: block for key, block in there.items() if key != name})
    replace_existing(file, data, remove_entry(data.decode("utf-8-sig"), path, name, expected.check))


def _parse_servers(data: bytes, name: str) -> tuple[YamlFile, tuple[str, ...]]:
    """The file by our keys, and where its own text has the servers."""
    written = parse_yaml(data, name)
    there = FOREIGN_SERVERS_KEY in written.value
    return normalise_keys(written), (FOREIGN_SERVERS_KEY,) if there else ("mcp", "servers")


def _servers_in(file: YamlFile) -> dict[str, Any]:
    block = file.value.get("mcp")
    servers = block.get("servers") if isinstance(block, dict) else None
    if (block is not None and not isinstance(block, dict)) or (servers is not None and not isinstance(servers, dict)):
        raise ConfigError(f"{file.at(('mcp', 'servers'))}: mcp: expected {{servers: {{…}}}}; nothing was written")
    return servers or {}


@dataclass(frozen=True, slots=True)
class _ExpectedFile:
    before: YamlFile
    servers: dict[str, Any]
    added: str = ""

    def check(self, text: str) -> None:
        """Raises ConfigError for a text that means anything else."""
        after = normalise_keys(parse_yaml(text, self.before.name))
        problems = ConfigProblems(after)
        checked = mcp_file({"mcp": MCP_KEYS["mcp"](after.value.get("mcp"), ("mcp",), problems)}, problems)
        if self.added in checked.servers:
            ServerCheck(self.added, checked.servers[self.added], problems.found).transport()
        problems.raise_if_any()
        rest = [{key: value for key, value in each.value.items() if key != "mcp"} for each in (self.before, after)]
        if _servers_in(after) != self.servers or rest[0] != rest[1]:
            raise ConfigError(f"{after.name}: cannot be edited without changing other parts of it; do it by hand")
