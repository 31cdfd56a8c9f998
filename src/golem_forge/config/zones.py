"""Zones as written in a configuration file: named directories with a mode and verdicts, and the line they stand on.

Only the writing is checked here. Whether the directories exist, overlap or reach where no zone may is the sandbox's
check (`sandbox.zones.check_zones`); `origin` says which line its problems belong to.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from golem_forge.config.shape import Shape, flag, map_of, one_of, text
from golem_forge.config.yaml_file import YamlFile
from golem_forge.core.verdict import Verdict

VERDICT: Final = one_of(*(verdict.value for verdict in Verdict))
ZONES: Final = map_of(
    Shape(
        {
            "path": text,
            "mode": one_of("ro", "rw"),
            "approval": Shape({"write": VERDICT, "delete": VERDICT}),
            "at_host_path": flag,
        },
        required=("path",),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneEntry:
    name: str
    path: Path
    """Absolute host directory, as written: links are not resolved."""
    mode: Literal["ro", "rw"] = "rw"
    write: Verdict | None = None
    """None: nobody wrote one; it then is `ask`."""
    delete: Verdict | None = None
    at_host_path: bool = True
    """Inside walls it stands at its host path; False: at `/<name>` only."""
    origin: str = "default"
    """`forge.yaml:5`, or `default` for the workspace of a program that names no zones."""

    def is_inside(self, root: Path) -> bool:
        """Whether the real directory is `root` (a real path) or below it."""
        return Path(os.path.realpath(self.path)).is_relative_to(root)


def zone_entries(file: YamlFile, zones: dict[str, Any], start: Path) -> tuple[ZoneEntry, ...]:
    """The zones of one checked `sandbox` block; relative directories begin at `start`."""
    return tuple(
        ZoneEntry(
            name=name,
            path=Path(os.path.abspath(start / os.path.expanduser(block["path"]))),
            mode=block.get("mode", "rw"),
            write=_verdict(block, "write"),
            delete=_verdict(block, "delete"),
            at_host_path=block.get("at_host_path", True),
            origin=file.at(("sandbox", "zones", name)),
        )
        for name, block in zones.items()
        if "path" in block
    )


def _verdict(block: dict[str, Any], verb: str) -> Verdict | None:
    word = block.get("approval", {}).get(verb)
    return None if word is None else Verdict(word)
