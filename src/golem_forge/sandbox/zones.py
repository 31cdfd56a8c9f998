"""Zones: named directories that a worker may reach, each opened once and kept by handle.

Takes ZoneSpecs (from `forge.yaml` and the worker file), returns open Zones, refuses an inconsistent set: every load
problem names the zones involved. Threat: a zone that overlaps another one, FORGE_HOME or the home directory would
grant access that nobody wrote down. Directories are compared by identity, so a bind mount or another spelling hides
nothing.

`PlaceholderNotes` records the empty directories that Forge makes in zones as mount points for walls: one file per
zone in FORGE_HOME/placeholders, written before a directory is made, so that a killed Forge leaves a record. Write
while the zone's lock is shared, remove while it is exclusive. Threat: removing or hiding something the user made
since; so a directory is ours only while its inode and time of change are the recorded ones, and only empty ones are
removed. A FORGE_HOME that cannot be written costs the note, never the walls.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from golem_forge.core.decisions import ChoiceEnum, Verdict, strictest
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.options import options_from, require, takes_options
from golem_forge.core.regex import regex
from golem_forge.core.text import nearest_hint
from golem_forge.sandbox.errors import zone_gone, zone_replaced
from golem_forge.sandbox.handles import (
    CONTENT,
    DIRECTORY,
    Handle,
    Identity,
    Opener,
    best_opener,
    identity_of,
    path_identity,
)
from golem_forge.sandbox.protected import PROTECTED_NAMES, normal_name

USER_TOOLS: Final = "user_tools"
"""The zone on FORGE_HOME/tools. Only the custom-tool toolset hands it out; it is never mounted in walls."""

_NAME: Final = regex(r"[a-z][a-z0-9_-]{0,31}")
_SYSTEM_NAMES: Final = frozenset(
    {"bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "media", "mnt", "nix", "opt", "proc", "root", "run"}
    | {"sbin", "srv", "sys", "tmp", "usr", "var"}
)
"""Zones stand at `/<name>` inside walls, where these are taken."""


class AccessMode(ChoiceEnum, noun="mode"):
    """The access that a zone allows at most, whatever is approved."""

    RO = "ro"
    RW = "rw"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)  # for InitVar
class ZoneSpec:
    """A zone as written: a host directory under a name. None as a verdict means that nobody wrote one.

    Path, mode and verdicts may be given as text; `approval={"write": …, "delete": …}`, as in forge.yaml, says both
    verdicts. Raises ValueError for a mode or verdict that there is not.
    """

    name: str
    path: Path
    mode: AccessMode = AccessMode.RW
    write: Verdict | None = None
    delete: Verdict | None = None
    subpath: str = ""
    unprotect: tuple[str, ...] = ()
    at_host_path: bool = True
    approval: dataclasses.InitVar[Mapping[str, Verdict | str] | None] = None

    def __post_init__(self, approval: Mapping[str, Verdict | str] | None) -> None:
        for verb, said in options_from(approval, known=("write", "delete"), where="ZoneSpec: approval").items():
            if getattr(self, verb) is not None:
                raise TypeError(f"ZoneSpec: {verb} and approval[{verb!r}] are the same option; give one of them")
            object.__setattr__(self, verb, said)
        object.__setattr__(self, "path", Path(self.path))
        object.__setattr__(self, "mode", AccessMode(self.mode))
        for verb in ("write", "delete"):
            said = getattr(self, verb)
            object.__setattr__(self, verb, None if said is None else Verdict(said))


ZoneSpec.__init__ = takes_options("ZoneSpec", at=1)(ZoneSpec.__init__)  # type: ignore[method-assign]


def zone_specs(zones: object) -> list[ZoneSpec]:
    """Zones as Python or forge.yaml writes them: ZoneSpecs, mappings with a `name`, or one mapping of names to them.
    TypeError for another shape."""
    if isinstance(zones, Mapping):
        zones = [{**said, "name": name} if isinstance(said, Mapping) else said for name, said in zones.items()]
    like = "a list of zones, like [ZoneSpec(name='workspace', path='.')]"
    require(isinstance(zones, (list, tuple)), "open_sandbox: zones", like, zones)
    assert isinstance(zones, (list, tuple))
    for each in zones:
        one = "a ZoneSpec or a mapping {'name': …, 'path': …, 'mode': …}"
        require(isinstance(each, (ZoneSpec, Mapping)), "open_sandbox: a zone", one, each)
    return [each if isinstance(each, ZoneSpec) else ZoneSpec(**each) for each in zones]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneRequest:
    """A zone as a worker file names it. Mode None: the mode it has where it comes from."""

    name: str
    mode: AccessMode | None = None
    write: Verdict | None = None
    delete: Verdict | None = None
    subpath: str = ""
    origin: str = ""
    """Where its name is written, as the start of an error text: `main.worker:4: sandbox.zones[0].name: `."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """An open zone. The handle, not the path, is the zone: a directory put in its place on disk is not entered."""

    name: str
    mode: AccessMode
    write: Verdict
    delete: Verdict
    root: Handle = field(repr=False)
    host: str = field(repr=False)
    """The real host directory; for fingerprints, walls and mapping host paths. Never shown."""
    aliases: tuple[str, ...] = field(default=(), repr=False)
    """Other spellings of `host` that people use, such as the configured path when it goes through a link."""
    subpath: tuple[str, ...] = ()
    """The components at which this zone begins inside the configured one."""
    unprotect: tuple[str, ...] = ()
    at_host_path: bool = True
    """Inside walls it stands at its host path, so that paths baked into files hold on both sides; else at `/<name>`."""
    written: frozenset[Verb] = frozenset()
    """The verbs whose verdict somebody wrote down; that of the others is the default."""
    opener: Opener = field(repr=False)
    placeholders: PlaceholderNotes | None = field(default=None, repr=False)
    """The notes of the home that this zone's walls belong to; None if it never has placeholders."""

    @property
    def label(self) -> str:
        return f"/{self.name} ({self.mode})"

    def verdict(self, verb: Verb) -> Verdict:
        """The consent this zone gives; its mode is asked separately."""
        if verb is Verb.READ:
            return Verdict.PRE_APPROVED
        return self.delete if verb is Verb.DELETE else self.write

    def virtual(self, parts: Sequence[str]) -> str:
        return "/".join(("", self.name, *parts))

    def real(self, parts: Sequence[str]) -> str:
        return "/".join((self.host.rstrip("/"), *parts)) if parts else self.host

    def open(self, parts: Sequence[str], flags: int) -> Handle:
        """Open below the zone without following any link; raises OSError."""
        return Handle(self.opener(self.root.fd, parts, flags))

    def must_be_in_place(self, path: str) -> None:
        """Refuses a zone whose directory is no longer where it was opened: the handle would still serve a directory
        that was deleted, moved away or replaced, and nobody who looks at the path would see what is done there.
        `path` is the address that was asked for."""
        try:
            now = os.stat(self.host)
        except OSError:
            raise zone_gone(self.name, path) from None
        if identity_of(now) != self.root.identity():
            raise zone_replaced(self.name, path)

    def hides(self, entry: os.DirEntry[str]) -> bool:
        """Whether an entry of a directory in here is nothing of the person's: only walls need it, while they stand."""
        if entry.name not in PLACEHOLDER_NAMES:
            return False
        try:
            return self.is_placeholder(entry.name, entry.stat(follow_symlinks=False))
        except FileNotFoundError:  # gone since its directory was read
            return True
        except OSError:
            return False

    def is_placeholder(self, name: str, info: os.stat_result | None) -> bool:
        return (
            name in PLACEHOLDER_NAMES
            and self.placeholders is not None
            and info is not None
            and self.placeholders.include(info)
        )

    def inside(self, host_parts: Sequence[str]) -> tuple[str, ...] | None:
        """The part of an absolute host path (as components) that lies in this zone, or None."""
        given = tuple(host_parts)
        prefixes = (tuple(filter(None, spelling.split("/"))) for spelling in (self.host, *self.aliases))
        found = (given[len(prefix) :] for prefix in prefixes if given[: len(prefix)] == prefix)
        return min(found, key=len, default=None)


class ZoneProblem(NamedTuple):
    """Why a set of zones cannot be loaded; `zone` is the name whose lines in the file are at fault."""

    zone: str
    text: str


def check_zones(specs: Sequence[ZoneSpec], *, forge_home: Path, home: Path) -> list[ZoneProblem]:
    """Every load problem of a set of zones, in order. Reads directories' identities, opens nothing."""
    seen: dict[str, ZoneSpec] = {}
    return [
        ZoneProblem(spec.name, text)
        for spec in specs
        for text in (*_own_problems(spec), *_place_problems(spec, seen, forge_home, home))
    ]


def open_zone(spec: ZoneSpec, opener: Opener, placeholders: PlaceholderNotes | None = None) -> Zone:
    """Opens a checked zone. Raises OSError."""
    host = os.path.realpath(spec.path)
    written = os.path.abspath(spec.path)
    return Zone(
        name=spec.name,
        mode=spec.mode,
        write=spec.write or Verdict.ASK,
        delete=spec.delete or Verdict.ASK,
        root=Handle(os.open(host, DIRECTORY)),
        host=host,
        aliases=() if written == host else (written,),
        unprotect=spec.unprotect,
        at_host_path=spec.at_host_path,
        written=written_verbs(spec),
        opener=opener,
        placeholders=placeholders,
    )


def written_verbs(said: ZoneSpec | ZoneRequest) -> frozenset[Verb]:
    voices = ((Verb.WRITE, said.write), (Verb.DELETE, said.delete))
    return frozenset(verb for verb, verdict in voices if verdict is not None)


def worker_zones(worker: str, program: Sequence[ZoneSpec], requests: Sequence[ZoneRequest]) -> list[ZoneSpec]:
    """The zones a root worker's file names, out of those `forge.yaml` has and never wider. Raises ConfigError.

    A verdict of the program is the floor of the worker's; one that only the worker wrote counts as written.
    """
    known = {spec.name: spec for spec in program}
    problems: list[str] = []
    chosen: dict[str, ZoneSpec] = {}
    for request in requests:
        spec = known.get(request.name)
        if spec is None:
            hint = nearest_hint(request.name, known)
            problems.append(
                f"{request.origin}Worker '{worker}' names zone '{request.name}', which forge.yaml does not have"
                f"{f'{hint} Or add' if hint else '. Add'} to forge.yaml:\n"
                f"sandbox:\n  zones:\n    {request.name}: {{path: ./{request.name},"
                f" mode: {request.mode or AccessMode.RW}}}"
            )
            continue
        if request.mode is AccessMode.RW and spec.mode is AccessMode.RO:
            problems.append(f"Worker '{worker}' asks for zone '{request.name}' rw; forge.yaml has it ro.")
        if request.name in chosen:
            problems.append(f"Worker '{worker}' names zone '{request.name}' twice.")
        # The program's verdicts are for its rw: with ro, only the worker's own would be a mistake.
        closed = request.mode is AccessMode.RO
        chosen[request.name] = replace(
            spec,
            mode=request.mode or spec.mode,
            write=request.write if closed else _stricter_written(spec.write, request.write),
            delete=request.delete if closed else _stricter_written(spec.delete, request.delete),
            subpath=request.subpath,
        )
    if problems:
        raise ConfigError(*problems)
    return list(chosen.values())


def choose_default_zone(names: Sequence[str], wanted: str | None) -> str | None:
    """Returns the zone where relative paths begin: as written, else `workspace`, else the first one. Raises
    ConfigError.
    """
    if wanted is not None and wanted not in names:
        have = ", ".join(names) or "none"
        raise ConfigError(f"default_zone '{wanted}' is not among this worker's zones ({have}).")
    return wanted or ("workspace" if "workspace" in names else next(iter(names), None))


def _stricter_written(floor: Verdict | None, written: Verdict | None) -> Verdict | None:
    voices = [verdict for verdict in (floor, written) if verdict is not None]
    return strictest(voices) if voices else None


def is_zone_name(name: str) -> bool:
    return name != USER_TOOLS and name not in _SYSTEM_NAMES and _NAME.fullmatch(name) is not None


def _own_problems(spec: ZoneSpec) -> Iterator[str]:
    name = spec.name
    if name == USER_TOOLS:
        yield f"Zone '{name}' has the name of Forge's own zone for user tools; choose another name."
    elif name in _SYSTEM_NAMES:
        yield f"Zone '{name}' has the name of the system directory /{name}; choose another name."
    elif not _NAME.fullmatch(name):
        yield f"Zone '{name}': a name is a small letter, then up to 31 of a-z, 0-9, _ and -."
    if spec.mode is AccessMode.RO:
        for key, verdict in (("write", spec.write), ("delete", spec.delete)):
            if verdict is not None:
                yield f"Zone '{name}' is mode: ro, so approval.{key} has no effect; remove one of the two."
    for entry in spec.unprotect:
        if normal_name(entry) not in PROTECTED_NAMES:
            yield f"Zone '{name}': unprotect '{entry}' is not a protected name. Names: {' '.join(PROTECTED_NAMES)}"


def _place_problems(spec: ZoneSpec, seen: dict[str, ZoneSpec], forge_home: Path, home: Path) -> Iterator[str]:
    """Yields the problems of a zone's directory. `seen`: the zones before it; the zone is added."""
    if spec.name in seen:
        yield f"Zone '{spec.name}' is named twice; give each zone its own name."
        return
    if not os.path.isdir(spec.path):
        yield f"Zone '{spec.name}': its directory does not exist; create it."
        return
    if relation := _relation(spec.path, forge_home):
        yield f"Zone '{spec.name}' {relation} FORGE_HOME, which no zone may reach; choose another directory."
    if spec.mode is AccessMode.RW and path_identity(spec.path) in identities_above(home):
        what = "is" if path_identity(spec.path) == path_identity(home) else "contains"
        yield f"Zone '{spec.name}' {what} the home directory and is rw; name a project directory, or use mode: ro."
    for other in seen.values():
        if relation := _relation(spec.path, other.path):
            what = f"Zones '{spec.name}' and '{other.name}' overlap: '{spec.name}' {relation} '{other.name}'."
            yield f"{what} Choose directories that lie beside each other, or remove one of the two."
    seen[spec.name] = spec


def _relation(one: Path, other: Path) -> str:
    """Describes how two directories lie to each other; empty if they are apart."""
    first, second = path_identity(one), path_identity(other)
    if first is not None and first == second:
        return "is the same directory as"
    if first in identities_above(other):
        return "contains"
    return "lies in" if second in identities_above(one) else ""


def identities_above(path: Path | str) -> set[Identity]:
    """The real directory and all that contain it; of a path that does not exist yet, those that do."""
    real = Path(os.path.realpath(path))
    return {found for step in (real, *real.parents) if (found := path_identity(step)) is not None}


GIT: Final = ".git"
HOOKS: Final = "hooks"
HEAD: Final = "HEAD"
PLACEHOLDER_NAMES: Final = frozenset({GIT, HOOKS, HEAD})
"""The names of placeholders, except those at paths that git's settings name."""
_NOTES_FOLDER: Final = "placeholders"
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LARGEST_NOTES_FILE: Final = 1 << 16
_NOT_MADE_YET: Final = 0
_BEFORE_NS: Final = 50_000_000
"""Nanoseconds that the clock of the file system may be behind the system clock."""
_AFTER_NS: Final = 1_000_000_000


class PlaceholderNote(NamedTuple):
    zone: str
    """The host directory of the zone."""
    parts: tuple[str, ...]
    inode: int = _NOT_MADE_YET
    """The inode; a note without one says what was about to be made, and when."""
    changed: int = 0
    """Nanoseconds since the epoch."""
    file: bool = False
    """An empty file, where git would stumble over a directory."""

    def is_about(self, info: os.stat_result) -> bool:
        if not (stat.S_ISREG(info.st_mode) and info.st_size == 0 if self.file else stat.S_ISDIR(info.st_mode)):
            return False
        if self.inode == _NOT_MADE_YET:
            return -_BEFORE_NS <= info.st_ctime_ns - self.changed <= _AFTER_NS
        return (info.st_ino, info.st_ctime_ns) == (self.inode, self.changed)


@lru_cache(maxsize=64)
def zone_key(host: str) -> str:
    """The name of what Forge keeps for a zone in FORGE_HOME or in the cache. Every start of walls asks for it five
    times, 10 µs each."""
    from hashlib import sha256  # slow to load, and few processes come here

    return sha256(os.fsencode(host)).hexdigest()[:32]


class PlaceholderNotes:
    def __init__(self, forge_home: Path) -> None:
        self._folder = os.path.join(forge_home, _NOTES_FOLDER)

    def make(self, zone: str, parts: tuple[str, ...], parent: int, *, file: bool = False) -> None:
        """Make the directory (or empty file) `parts[-1]` in `parent` unless something stands there. Raises OSError for
        its sake, not for the note's."""
        name = parts[-1]
        with contextlib.suppress(FileNotFoundError):
            os.stat(name, dir_fd=parent, follow_symlinks=False)
            return
        with self._opened(zone) as notes:
            note = PlaceholderNote(zone, parts, changed=time.time_ns(), file=file)
            _append_note(notes, note)
            if file:
                os.close(os.open(name, _NEW_FILE, 0o644, dir_fd=parent))
            else:
                os.mkdir(name, 0o755, dir_fd=parent)
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
            _append_note(notes, note._replace(inode=info.st_ino, changed=info.st_ctime_ns))

    def include(self, info: os.stat_result) -> bool:
        """Whether this directory is a placeholder that nobody touched since, of whichever Forge with this home."""
        return any(
            note.inode == info.st_ino and note.is_about(info) for file in self._files() for note in _read_notes(file)
        )

    def know(self, zone: str) -> bool:
        return os.path.exists(self._file(zone))

    def zones(self) -> Iterator[str]:
        for file in self._files():
            yield from {note.zone for note in _read_notes(file)}

    def remove(self, zone: str, root: int, removed: Collection[tuple[str, ...]] = ()) -> None:
        """Remove the noted directories of a zone that are still ours, and the note. `root`: the zone's directory;
        `removed`: places where nothing is left to do."""
        file = self._file(zone)
        latest = {note.parts: note for note in _read_notes(file)}  # of what was about to be made, and was made
        for note in sorted(latest.values(), key=lambda note: len(note.parts), reverse=True):
            if note.parts in removed:
                continue
            with contextlib.suppress(OSError):
                parent = Handle(best_opener()(root, note.parts[:-1], DIRECTORY))
                if note.is_about(os.stat(note.parts[-1], dir_fd=parent.fd, follow_symlinks=False)):
                    (os.unlink if note.file else os.rmdir)(note.parts[-1], dir_fd=parent.fd)
        _unlink(file)

    def forget(self, zone: str) -> None:
        """Removes the note of a zone whose directory is gone."""
        _unlink(self._file(zone))

    @contextlib.contextmanager
    def _opened(self, zone: str) -> Iterator[int | None]:
        path = self._file(zone)
        try:
            try:
                file = os.open(path, _APPEND, 0o600)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(self._folder), mode=0o700, exist_ok=True)
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                file = os.open(path, _APPEND, 0o600)
        except OSError:
            yield None
            return
        try:
            yield file
        finally:
            os.close(file)

    def _file(self, zone: str) -> str:
        return os.path.join(self._folder, zone_key(zone))

    def _files(self) -> list[str]:
        try:
            return [os.path.join(self._folder, name) for name in os.listdir(self._folder)]
        except OSError:
            return []


def _append_note(file: int | None, note: PlaceholderNote) -> None:
    """One write per line: several Forges may have the same file open."""
    if file is not None:
        with contextlib.suppress(OSError):
            os.write(file, json.dumps(note._asdict()).encode() + b"\n")


def _read_notes(file: str) -> list[PlaceholderNote]:
    try:
        handle = Handle(os.open(file, CONTENT))
        lines = os.read(handle.fd, _LARGEST_NOTES_FILE).splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said = json.loads(line)
            parts, inode, changed = tuple(map(str, said["parts"])), int(said["inode"]), int(said["changed"])
            note = PlaceholderNote(str(said["zone"]), parts, inode, changed, said.get("file") is True)
            found += [note] if parts else []
    return found


def _unlink(file: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(file)
