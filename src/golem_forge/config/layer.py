"""ConfigLayer: what one file of the program says, forge.yaml or the user's own config.yaml.

A setting that counts is found by looking into the user's layer, then into the program's. A block of an untrusted
program is replaced by a stricter one first; what is left keeps its place in the file, so `at` still says where it was
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from golem_forge.config.approval_modes import Setting
from golem_forge.config.yaml_file import YamlFile
from golem_forge.core.lazy_dataclass import dataclass, field, replace

if TYPE_CHECKING:
    from golem_forge.config.mcp_blocks import McpFile
    from golem_forge.config.sandbox_block import ZoneEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLayer:
    """Without a file it says nothing."""

    mcp: McpFile
    file: YamlFile = field(default_factory=lambda: YamlFile("", {}, {}))
    data: bytes = b""
    """What was parsed."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The checked top level; what did not pass the check is not there."""
    folder: Path = Path()
    """Where its relative directories begin."""
    zones: tuple[ZoneEntry, ...] | None = None
    """None: it names no zones."""

    def block(self, *keys: str) -> dict[str, Any]:
        """A mapping below the top; empty where it says nothing."""
        found: Any = self.values
        for key in keys:
            found = found.get(key) or {}
        return dict(found)

    def at(self, *path: str | int) -> str:
        """`forge.yaml:7`, where it says something."""
        return self.file.at(path)

    def setting(self, *path: str) -> Setting[Any] | None:
        *above, key = path
        block = self.block(*above)
        return Setting(block[key], self.at(*path)) if key in block else None

    def with_blocks(self, blocks: Mapping[str, Any]) -> ConfigLayer:
        """The layer with these blocks instead of its own; of those that it has."""
        return replace(self, values={key: blocks.get(key, said) for key, said in self.values.items()})
