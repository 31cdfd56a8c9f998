"""What a tool may do, in words: for the trust card, `forge tools show` and the documentation. Pure data, no decisions.

`permissions` takes a manifest and gives one Permission for each thing it can ask for, also for what it does not;
`compared` puts those of two versions beside each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from golem_forge.custom.manifest import DEFAULT_TIMEOUT_S, EnvVariable, Manifest
from golem_forge.sandbox.zones import Mode

NONE: Final = "none"
ALL_READ_ONLY: Final = "all zones, read-only"
WHOLE_NETWORK: Final = "the whole network of this machine, its own services on loopback included"

EXPLAINED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "zones": "directories it can see; `rw` ones it can change",
        "network": "hosts it can reach while it runs",
        "environment": "variables that are copied for it from the environment Forge was started in",
        "calls": "other tools it can call; each call is judged and asked for by itself",
        "build downloads": "hosts its dependencies are fetched from when it is built; its runs do not reach them",
        "timeout": "how long one call may take",
        "background": "whether it goes on running after its call has returned",
    }
)
"""Every label there is, and what it means."""


@dataclass(frozen=True, slots=True)
class Permission:
    label: str
    words: str
    always: bool = True
    """False: not worth a line where it says what is usual anyway."""

    @property
    def line(self) -> str:
        return f"{self.label}: {self.words}"


def permissions(manifest: Manifest, *, build_hosts: Sequence[str] = ()) -> tuple[Permission, ...]:
    unusual = manifest.timeout != DEFAULT_TIMEOUT_S
    return (
        Permission("zones", _zones(manifest.zones)),
        Permission("network", _network(manifest.network)),
        Permission("environment", _listed(_variable(one) for one in manifest.env)),
        Permission("calls", _listed(manifest.calls)),
        Permission("build downloads", _listed(build_hosts), always=bool(build_hosts)),
        Permission("timeout", f"{manifest.timeout:g} seconds", always=unusual),
        Permission("background", "goes on after its call" if manifest.background else "no", always=manifest.background),
    )


def compared(old: Sequence[Permission] | None, new: Sequence[Permission]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lines to show, a change as `network: none -> example.com`, and the labels of what changed. Without an old version
    nothing is a change."""
    before = {one.label: one.words for one in old or ()}
    lines, changed = [], []
    for one in new:
        was = before.get(one.label, one.words)
        if was != one.words:
            lines.append(f"{one.label}: {was} -> {one.words}")
            changed.append(one.label)
        elif one.always:
            lines.append(one.line)
    return tuple(lines), tuple(changed)


def _zones(zones: Mapping[str, str] | None) -> str:
    if zones is None:
        return ALL_READ_ONLY
    return _listed(f"/{name} ({'rw: written' if mode == Mode.RW else 'read-only'})" for name, mode in zones.items())


def _network(network: bool | tuple[str, ...]) -> str:
    if isinstance(network, bool):
        return WHOLE_NETWORK if network else NONE
    return _listed(network)


def _variable(one: EnvVariable) -> str:
    return f"{one.name} (required)" if one.required else one.name


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words) or NONE
