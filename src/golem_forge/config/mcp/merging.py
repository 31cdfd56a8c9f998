"""All configured MCP servers as they count now: the person's own, `.mcp.json`, and forge.yaml over it key by key.

Takes the three, checked and distrusted, and the zones there are; gives `McpSettings`, and adds to `problems` what
forge.yaml says and cannot mean. A program's server stands before the person's of the same name; `--set` alone also
speaks about the person's.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Final

from golem_forge.config.mcp.checking import Ground, ServerCheck
from golem_forge.config.mcp.json_file import JsonServers
from golem_forge.config.mcp.servers import McpFile
from golem_forge.config.mcp.shape import ServerBlock
from golem_forge.config.mcp.spec import Deferral, McpSettings, ServerSpec, Trust
from golem_forge.config.overrides import is_override
from golem_forge.core.verdict import Verdict

_PERSON: Final = ""
"""The scope of the person's own servers."""
_DEFERRAL: Final = {"defer_above": "above", "defer_tokens": "tokens", "always_load": "always_load"}
_AS_WRITTEN: Final = (
    "command",
    "cwd",
    "env",
    "zones",
    "network",
    "url",
    "headers",
    "auth",
    "enabled",
    "required",
    "connect_timeout",
    "idle_timeout",
    "total_timeout",
    "close_after",
    "protocol",
)
"""Keys that a spec has under the same name."""


def check_own_servers(file: McpFile, problems: list[str]) -> None:
    """The person's file must be right by itself, whatever program it is read for; only zones are the programs'."""
    for name, block in file.servers.items():
        check = ServerCheck(name, block, problems)
        check.transport()
        check.cwd()


def mcp_in_force(
    project: McpFile, foreign: JsonServers, person: McpFile, ground: Ground, problems: list[str]
) -> McpSettings:
    specs: dict[str, ServerSpec] = {}
    for name in sorted({*person.servers, *project.servers, *foreign.servers}):
        block, scope = _in_force(name, project, foreign, person, os.fspath(ground.root))
        if name in foreign.left_out and not _has_transport(block):
            continue
        check = ServerCheck(name, block, problems if name in project.servers else [])
        check.transport()
        check.directories(ground)
        if scope == _PERSON:
            check.zones_of_person(ground)
        else:
            check.zones_of_program(ground)
        check.cwd()
        specs[name] = _spec(check, scope)
    if problems and foreign.warnings and not foreign.servers:
        problems.append(foreign.warnings[0])  # what forge.yaml leans on may be what could not be read
    tools = {**person.tools, **project.tools}
    said = {field: tools[key] for key, field in _DEFERRAL.items() if key in tools}
    if "always_load" in said:
        said["always_load"] = tuple(said["always_load"])
    return McpSettings(servers=specs, deferral=Deferral(**said), warnings=foreign.warnings)


def _in_force(name: str, project: McpFile, foreign: JsonServers, person: McpFile, root: str) -> tuple[ServerBlock, str]:
    """The block that counts, and whose server it is."""
    block, below = project.servers.get(name), foreign.servers.get(name)
    if block is None:
        return (person.servers[name], _PERSON) if below is None else (below, root)
    if below is not None:
        return _overlaid(block, below), root
    if name in person.servers and all(is_override(origin) for origin in block.origins.values()):
        return _overlaid(block, person.servers[name]), _PERSON
    return block, root


def _overlaid(block: ServerBlock, below: ServerBlock) -> ServerBlock:
    return replace(
        block,
        keys={**below.keys, **block.keys},
        origins={**dict.fromkeys(below.keys, below.origin), **below.origins, **block.origins},
        problem="" if _has_transport(block) else below.problem,
    )


def _has_transport(block: ServerBlock) -> bool:
    return "command" in block.origins or "url" in block.origins


def _spec(check: ServerCheck, scope: str) -> ServerSpec:
    keys = check.keys
    approval: dict[str, Any] = keys.get("approval", {})
    tools: dict[str, Any] = keys.get("tools", {})
    return ServerSpec(
        name=check.name,
        scope=scope,
        origin=check.block.origin,
        args=tuple(keys.get("args", ())),
        pass_env=tuple(dict.fromkeys(keys.get("pass_env", ()))),
        trust=Trust(keys.get("trust", Trust.UNTRUSTED)),
        allow=tuple(tools.get("allow", ("*",))),
        deny=tuple(tools.get("deny", ())),
        always_load=tuple(keys.get("always_load", ())),
        approval_default=approval.get("default"),
        approval_tools=approval.get("tools", {}),
        sampling=Verdict(keys.get("sampling", Verdict.ASK)),
        problem=check.own_problem,
        **{key: keys[key] for key in _AS_WRITTEN if key in keys},
    )
