"""`forge mcp add` and its opposite: one server's block put into forge.yaml or config.yaml, or taken out again.

Takes the file, a name and the block; the rest of the file keeps its meaning and its comments. Refuses
(ConfigError), and writes nothing: a name that is taken or is none, a block that would not read, a file that does not
read as it stands, a file that is a link to somewhere else, one that somebody changed meanwhile. The new text takes the
old one's place at once, with its mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from golem_forge.config.mcp_blocks import FOREIGN_SERVERS_KEY, MCP_KEYS, mcp_file, normalise_keys
from golem_forge.config.mcp_merge import ServerCheck
from golem_forge.config.mcp_spec import NAME_RULE, is_server_name
from golem_forge.config.schema import ConfigProblems
from golem_forge.config.yaml_edit import put_entry, read_existing, remove_entry, replace_existing
from golem_forge.config.yaml_file import YamlFile, parse_yaml
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import nearest_hint


def add_server(file: Path, name: str, block: Mapping[str, Any]) -> None:
    """The file is made where there is none."""
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
