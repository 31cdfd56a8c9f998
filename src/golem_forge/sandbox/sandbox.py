"""Sandbox: the zones one worker has, and the only way from the text of a path to something that can be opened.

Made by `open_sandbox` (a root worker) or `Sandbox.restricted` (a sub-worker, never wider). Returns Targets, refuses
whatever lies in no zone. Nothing here is process-global: two sandboxes in one process know nothing of each other.
`HostPaths` keeps host paths out of messages: a zone's directory is written as its address, other known directories
as `<outside>`; only whole path components count.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from golem_forge.core.decisions import Verdict, strictest
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.options import takes_options
from golem_forge.core.text import leads_to_root
from golem_forge.sandbox import errors
from golem_forge.sandbox.handles import DIRECTORY, Opener, best_opener
from golem_forge.sandbox.target import (
    FileKind,
    Target,
    ZonePath,
    below_tools_folder,
    kind_of,
    locate,
    normalize_parts,
    open_target,
    resolve_links,
)
from golem_forge.sandbox.zones import (
    USER_TOOLS,
    AccessMode,
    PlaceholderNotes,
    Zone,
    ZoneRequest,
    ZoneSpec,
    check_zones,
    choose_default_zone,
    open_zone,
    written_verbs,
    zone_specs,
)
from golem_forge.storage.home import forge_home as default_forge_home


class Sandbox:
    def __init__(
        self,
        zones: Sequence[Zone] = (),
        default_zone: str | None = None,
        *,
        has_block: bool = True,
        builtin_worker: bool = False,
        hidden: Sequence[str] = (),
        tools_folders: Sequence[str] = (),
    ) -> None:
        self.zones: Mapping[str, Zone] = MappingProxyType({zone.name: zone for zone in zones})
        self.default_zone = default_zone
        self.has_block = has_block
        """Whether the worker's file says `sandbox` at all; without it there is no file access."""
        self.builtin_worker = builtin_worker
        self._hidden = tuple(hidden)
        self._tools_folders = tuple(tools_folders)
        """Host paths of FORGE_HOME/tools, for a hint to whoever names one of them."""
        self._host_paths = HostPaths(zones, hidden)

    def target(self, path: object, access: Verb, *, follow_last: bool = True) -> Target:
        """Judge a path and hold what is there. For DELETE a link at the end is always the target itself."""
        return open_target(self.locate(path), access, self.zones, follow_last=follow_last)

    def locate(self, path: object) -> ZonePath:
        """The address a text means, without asking the disk. A refusal of the folder of user tools, spelt as people
        know it (`~/.forge/tools/x`), names its address."""
        below = below_tools_folder(path, self._tools_folders) if isinstance(path, str) else None
        try:
            if below is not None and str(path).startswith("$"):
                raise errors.invalid_path(str(path), "variables are not expanded")
            return locate(path, self.zones, self.default_zone, self._refusal)
        except errors.SandboxError as error:
            if below is None and error.code != "INVALID_PATH":
                raise
            hint = "" if below is None or error.code == "NO_SANDBOX" else self._tools_hint(below)
            raise errors.SandboxError(
                error.code, self.virtualise(error.message) + hint, path=self.virtualise(error.path), status=error.status
            ) from None

    def _tools_hint(self, below: tuple[str, ...]) -> str:
        if zone := self.zones.get(USER_TOOLS):
            return f". User tools are in /{USER_TOOLS}: use '{zone.virtual(below)}'"
        return (
            f". User tools are in /{USER_TOOLS}, which this worker does not have: "
            f"`user_tools: {{create: true}}` in its file gives it"
        )

    def describe_zones(self) -> str:
        """Returns a list of the zones: `/docs (ro), /workspace (rw)`."""
        return ", ".join(self.zones[name].label for name in sorted(self.zones)) or "none"

    def virtualise(self, text: str) -> str:
        """The text with host directories replaced: a zone's by its address, others that are known by `<outside>`."""
        return self._host_paths.replace_in(text)

    def restricted(
        self, worker: str, parent: str, requests: Sequence[ZoneRequest], *, default_zone: str | None = None
    ) -> Sandbox:
        """The sandbox of sub-worker `worker` of `parent` (this sandbox's worker): exactly the zones it asks for.

        Raises ZONE_ACCESS_DENIED for a zone the parent lacks, PERMISSION_ESCALATION for more than the parent has,
        and what is wrong with a subpath. This sandbox is not changed.
        """
        zones = [self._narrowed(worker, parent, request) for request in requests]
        names = [zone.name for zone in zones]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"Worker '{worker}' names zone '{name}' twice.")
        return Sandbox(
            zones,
            choose_default_zone(names, default_zone),
            hidden=self.known_directories(),
            tools_folders=self._tools_folders,
        )

    def without_zones(self) -> Sandbox:
        """The sandbox of a sub-worker whose file has no `sandbox` block."""
        return Sandbox(has_block=False, hidden=self.known_directories(), tools_folders=self._tools_folders)

    def with_user_tools(self, directory: Path) -> Sandbox:
        """Returns a sandbox that also has FORGE_HOME/tools as `/user_tools`, for workers that may create tools. Raises
        ConfigError.
        """
        spec = ZoneSpec(name=USER_TOOLS, path=directory, write=Verdict.ASK, delete=Verdict.ASK)
        opener = next((zone.opener for zone in self.zones.values()), best_opener())
        try:
            zone = open_zone(spec, opener)
        except OSError:
            raise ConfigError("The directory of user tools cannot be opened; check FORGE_HOME/tools.") from None
        return Sandbox(
            (*self.zones.values(), zone),
            self.default_zone,
            has_block=self.has_block,
            builtin_worker=self.builtin_worker,
            hidden=self._hidden,
            tools_folders=self._tools_folders,
        )

    def close(self) -> None:
        """Removes all zones. Targets already made keep the handles they need until they are closed."""
        self.zones = MappingProxyType({})
        self.default_zone = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def known_directories(self) -> tuple[str, ...]:
        """Returns the host directories of its zones and of the wider zones that they were narrowed from."""
        return (*(name for zone in self.zones.values() for name in (zone.host, *zone.aliases)), *self._hidden)

    def _refusal(self, path: str) -> errors.SandboxError:
        path = self.virtualise(path)
        if not self.has_block:
            return errors.no_sandbox(path, builtin=self.builtin_worker)
        return errors.zone_access_denied(path, self.describe_zones())

    def _narrowed(self, worker: str, parent: str, request: ZoneRequest) -> Zone:
        zone = self.zones.get(request.name)
        if zone is None or zone.name == USER_TOOLS:
            raise errors.zone_access_denied(f"/{request.name}", self.describe_zones())
        if request.mode is AccessMode.RW and zone.mode is AccessMode.RO:
            raise errors.permission_escalation(worker, parent, zone.name, "rw")
        narrowed = replace(
            zone,
            mode=request.mode or zone.mode,
            write=strictest((zone.write, request.write or zone.write)),
            delete=strictest((zone.delete, request.delete or zone.delete)),
            written=zone.written | written_verbs(request),
        )
        if not request.subpath:
            return narrowed
        try:
            return subzone(narrowed, request.subpath)
        except errors.SandboxError as error:
            if error.code in ("SYMLINK_ESCAPE", "INVALID_PATH"):
                raise errors.permission_escalation(worker, parent, zone.name, f"subpath '{request.subpath}'") from None
            raise


def subzone(zone: Zone, subpath: str) -> Zone:
    """The zone that begins at a directory inside another one."""
    asked = normalize_parts(subpath)
    found = resolve_links(zone, asked, follow_last=True)
    if found.entry is None:
        raise found.obstacle or errors.not_found(zone.virtual(asked))
    if kind_of(found.stat) is not FileKind.DIRECTORY:
        raise errors.not_a_directory(zone.virtual(asked))
    try:
        root = zone.open(found.parts, DIRECTORY)
    except OSError as error:
        raise errors.from_os_error(error, zone.virtual(asked)) from None
    return replace(
        zone,
        root=root,
        host=zone.real(found.parts),
        aliases=tuple(os.path.join(alias, *found.parts) for alias in zone.aliases),
        subpath=(*zone.subpath, *found.parts),
    )


@takes_options("open_sandbox", at=0)
def open_sandbox(
    zones: Sequence[ZoneSpec | Mapping[str, Any]] | Mapping[str, Any],
    default_zone: str | None = None,
    *,
    forge_home: Path | None = None,
    home: Path | None = None,
    has_block: bool = True,
    builtin_worker: bool = False,
    opener: Opener | None = None,
) -> Sandbox:
    """Check and open the zones of a root worker: ZoneSpecs, or mappings of their members. Raises ConfigError with every
    problem found, TypeError for what is no zone. All of it may be one mapping, `{"zones": [...]}`.

    `forge_home`: FORGE_HOME if not the usual one, which no zone may hold.
    `home` is the person's home directory if not the usual one; `opener` the way to open below a handle, if not the
    best one this kernel has.
    """
    specs = zone_specs(zones)
    forge_home = default_forge_home().path if forge_home is None else forge_home
    problems = [problem.text for problem in check_zones(specs, forge_home=forge_home, home=home or Path.home())]
    if problems:
        raise ConfigError(*problems)
    opened = []
    for spec in specs:
        try:
            zone = open_zone(spec, opener or best_opener(), PlaceholderNotes(forge_home))
            opened.append(subzone(zone, spec.subpath) if spec.subpath else zone)
        except OSError:
            problems.append(f"Zone '{spec.name}': the system refused access to its directory.")
        except errors.SandboxError as error:
            problems.append(f"Zone '{spec.name}', subpath '{spec.subpath}': {error.message}")
    default = choose_default_zone([spec.name for spec in specs], default_zone)
    if problems:
        raise ConfigError(*problems)
    hidden = (os.path.realpath(forge_home), *(os.path.realpath(spec.path) for spec in specs if spec.subpath))
    homes = dict.fromkeys((os.path.abspath(forge_home), os.path.realpath(forge_home)))
    return Sandbox(
        opened,
        default,
        has_block=has_block,
        builtin_worker=builtin_worker,
        hidden=hidden,
        tools_folders=[os.path.join(each, "tools") for each in homes],
    )


OUTSIDE = "<outside>"
_ENDS_A_WORD = r"\s'\"`=:,;()<>|&\[\]{}"
_REST = rf"(?P<rest>/[^{_ENDS_A_WORD}]*)?"
_BOUNDARY = r"(?![\w+@~-])(?!\.\w)"
"""A position where the name ends; punctuation ends a name too, so that no path before a `!` is missed."""


class HostPaths:
    """The directories one sandbox knows and what to write instead."""

    def __init__(self, zones: Sequence[Zone], hidden: Sequence[str]) -> None:
        self._names = {directory: OUTSIDE for directory in hidden if directory != "/"}
        for zone in zones:
            self._names |= dict.fromkeys(
                (spelling for spelling in (zone.host, *zone.aliases) if spelling != "/"), zone.virtual(())
            )

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self._names, key=len, reverse=True)
        return re.compile(rf"(?P<host>{'|'.join(map(re.escape, longest_first))}){_BOUNDARY}{_REST}")

    def replace_in(self, text: str) -> str:
        if not any(directory in text for directory in self._names):
            return text
        return self._pattern.sub(self._replacement, text)

    def _replacement(self, match: re.Match[str]) -> str:
        if not _starts_a_path(match.string, match.start()):
            return match.group()
        name = self._names[match["host"]]
        return name if name == OUTSIDE else name + (match["rest"] or "")


def _starts_a_path(text: str, start: int) -> bool:
    """Whether the path really begins here. `-I/srv/app`, `file:///srv/app` and `/proc/self/root/srv/app` do,
    `/data/srv/app` goes on."""
    before = re.search(rf"[^{_ENDS_A_WORD}]*\Z", text[max(0, start - 4096) : start])
    word = before.group() if before else ""
    if "/" not in word or (word == "//" and text[: start - 2].endswith(":")):
        return True
    return leads_to_root(word[word.index("/") :])
