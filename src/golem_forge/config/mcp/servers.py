"""The blocks `mcp` and `tools` of forge.yaml and config.yaml: MCP servers, and when their tools are too many to send.

Takes the checked top level of one file, gives an `McpFile` with the line of every value; `mcp_merge` puts the files
together. `mcp_servers`, as other programs write it, is another spelling of `mcp.servers`. Threat: a stranger's program
could say that a server's word about itself counts, or that nobody is asked, so of an untrusted one `trust: trusted` and
every `preApproved` do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from golem_forge.config.mcp.names import NAME_RULE, is_server_name, server_name
from golem_forge.config.mcp.shape import SERVER, ServerBlock, server_block
from golem_forge.config.mcp.spec import Trust
from golem_forge.config.modes import Setting
from golem_forge.config.overrides import is_override
from golem_forge.config.shape import Check, Problems, Shape, list_of, map_of, text
from golem_forge.config.walls import whole
from golem_forge.config.yaml_file import YamlFile
from golem_forge.core.errors import ConfigError
from golem_forge.core.verdict import Verdict

MCP_KEYS: Final[dict[str, Check]] = {
    "mcp": Shape({"servers": map_of(SERVER)}),
    "tools": Shape({"defer_above": whole, "defer_tokens": whole, "always_load": list_of(text)}),
}
SERVERS_ELSEWHERE: Final = "mcp_servers"
"""The key by which other programs call `mcp.servers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpFile:
    """One file's words."""

    servers: Mapping[str, ServerBlock] = field(default_factory=dict)
    tools: Mapping[str, Any] = field(default_factory=dict)
    """`defer_above`, `defer_tokens` and `always_load`, where written."""


def with_our_keys(file: YamlFile) -> YamlFile:
    """The file with its `mcp_servers` at `mcp.servers`, every line kept. Raises ConfigError where both say something
    and not the same."""
    if SERVERS_ELSEWHERE not in file.value:
        return file
    value = {key: said for key, said in file.value.items() if key != SERVERS_ELSEWHERE}
    said, mcp = file.value[SERVERS_ELSEWHERE], value.get("mcp")
    if isinstance(mcp, dict) and mcp.get("servers") is not None and mcp["servers"] != said:
        raise ConfigError(
            f"{file.at((SERVERS_ELSEWHERE,))}: {SERVERS_ELSEWHERE}: is another spelling of `mcp.servers`, "
            f"and that says something else ({file.at(('mcp', 'servers'))}); keep one of the two"
        )
    if mcp is not None and not isinstance(mcp, dict):
        return replace(file, value=value)  # `mcp` itself is a mistake, and is told of
    value["mcp"] = {**(mcp or {}), "servers": {} if said is None else said}
    moved = {
        ("mcp", "servers", *path[1:]): line for path, line in file.lines.items() if path[:1] == (SERVERS_ELSEWHERE,)
    }
    return replace(file, value=value, lines={**file.lines, **moved})


def mcp_file(values: Mapping[str, Any], problems: Problems) -> McpFile:
    """From the checked top level; a name that no server can have is one problem more."""
    servers: dict[str, ServerBlock] = {}
    for name, checked in values.get("mcp", {}).get("servers", {}).items():
        path = ("mcp", "servers", name)
        if is_server_name(name):
            servers[name] = server_block(checked, path, problems)
        else:
            problems.add(path, f"not a name of a server ({NAME_RULE}); for example {server_name(name)!r}")
    return McpFile(servers=servers, tools=values.get("tools", {}))


def distrusted_mcp(file: McpFile, unused: list[str]) -> McpFile:
    """What of a stranger's words still counts, and what the command line said; the rest goes to `unused`."""
    return replace(file, servers={name: _distrusted(name, block, unused) for name, block in file.servers.items()})


def _distrusted(name: str, block: ServerBlock, unused: list[str]) -> ServerBlock:
    where = f"mcp.servers.{name}"
    keys = dict(block.keys)

    def asking(said: Setting[Verdict], what: str) -> Setting[Verdict]:
        if said.value is not Verdict.PRE_APPROVED or is_override(said.origin):
            return said
        unused.append(f"{said.origin}: {where}.{what}: preApproved counts as ask")
        return Setting(Verdict.ASK, said.origin)

    if keys.get("trust") == Trust.TRUSTED.value and not is_override(block.at("trust")):
        unused.append(f"{block.at('trust')}: {where}.trust: trusted")
        del keys["trust"]
    if "sampling" in keys:
        keys["sampling"] = asking(Setting(Verdict(keys["sampling"]), block.at("sampling")), "sampling").value.value
    if "approval" in keys:
        said: dict[str, Any] = keys["approval"]
        tools = {tool: asking(each, f"approval.tools.{tool}") for tool, each in said["tools"].items()}
        default = {"default": asking(said["default"], "approval.default")} if "default" in said else {}
        keys["approval"] = {"tools": tools, **default}
    return replace(block, keys=keys)
