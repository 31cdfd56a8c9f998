"""The blocks `mcp` and `tools` of forge.yaml and config.yaml: MCP servers, and when their tools are too many to send.

Takes the checked top level of one file, gives an `McpFile` with the line of every value; `mcp_merge` puts the files
together. Threat: a stranger's program could say that a server's word about itself counts, or that nobody is asked, so
of an untrusted one `trust: trusted` and every `preApproved` do not count.
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
from golem_forge.core.verdict import Verdict

MCP_KEYS: Final[dict[str, Check]] = {
    "mcp": Shape({"servers": map_of(SERVER)}),
    "tools": Shape({"defer_above": whole, "defer_tokens": whole, "always_load": list_of(text)}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class McpFile:
    """One file's words."""

    servers: Mapping[str, ServerBlock] = field(default_factory=dict)
    tools: Mapping[str, Any] = field(default_factory=dict)
    """`defer_above`, `defer_tokens` and `always_load`, where written."""


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
