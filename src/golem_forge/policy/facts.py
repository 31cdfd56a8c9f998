"""CallFacts: everything policy knows about one call before it is evaluated.

`command_facts` takes the text of a command and gives one `exec` effect per parsed segment, in order, then one `read`
effect per operand inside a zone. A text the strict parser cannot read is one opaque `exec` effect without words.
Dangers come from the lenient detector alone. `SandboxWorld` implements `CommandWorld`: `program` finds what a command
name would start, `operand` where a path leads. Both resolve links, because what is evaluated must be what is run or
read.

Threat: a writable directory on PATH would let anything pose as `ls`. Only directories that root owns and others cannot
write count as the system's, and a program inside a zone never does.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from golem_forge.core.decisions import Verdict, VerdictSource
from golem_forge.core.effects import AtMost, Effect, Mark, Verb, quote_target
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.text import process_link
from golem_forge.policy.shell.dangers import find_dangers
from golem_forge.policy.shell.prover import prove, segment_places
from golem_forge.policy.shell.strict import (
    CommandWorld,
    Operand,
    Parsed,
    ProgramFile,
    Segment,
    parse_strict,
    render,
)
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.git.formats import is_repository_root, keeps_its_work_tree
from golem_forge.sandbox.host import is_below
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import FileKind
from golem_forge.sandbox.walls.model import PathRule
from golem_forge.storage.home import open_private
from golem_forge.tools.tool import SourceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFacts:
    """The results of both parsers for a shell command."""

    text: str
    parsed: Parsed | None
    """None if the strict parser could not read the command."""
    world: CommandWorld
    cwd: str
    reads_only: bool = False
    """Every segment is proven to only read, if all zones are read-only for it: so must its walls be built."""
    started: Parsed | None = None
    """The exact words to start if `reads_only`; the proof holds for those words only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpName:
    server: str
    tool: str
    pinned: bool


@dataclass(slots=True, kw_only=True)
class CallFacts:
    tool: str
    source: SourceKind
    args: dict[str, Any]
    worker: str
    effects: tuple[Effect, ...] | None
    """None if the tool declares none."""
    command: CommandFacts | None = None
    mcp: McpName | None = None
    handed: tuple[VerdictSource, ...] = ()
    """Verdicts on tools that handed this call over; they can only make it stricter."""
    project: str = ""
    """Host directory of the program, for rules scoped to it."""
    rule_args: tuple[dict[str, Any], ...] = ()
    """Resolved arguments for rules; see `Plan.rule_args`."""

    @property
    def native(self) -> bool:
        """Effects of native tools are computed by Forge; those of other tools are only claimed."""
        return self.source is SourceKind.NATIVE


IsSecret = Callable[[str], bool]


_MAX_HASHED: Final = 64 << 20


def command_facts(
    text: str, world: CommandWorld, cwd: str, is_secret: IsSecret, *, full_walls: bool = False
) -> tuple[CommandFacts, tuple[Effect, ...]]:
    """`cwd` is the virtual working directory; `is_secret` tells by its name whether a path is a secret one; without
    `full_walls` (they hold, and no host is asked for) what is only proven inside them (git) is not."""
    parsed = parse_strict(text)
    found = danger_commands(text, is_secret)
    if not isinstance(parsed, Parsed):
        marks = (Mark.OPAQUE, Mark.DANGER) if found else (Mark.OPAQUE,)
        parts = tuple(found.values())
        limit = AtMost.WRITES if full_walls else None
        opaque = Effect(
            verb=Verb.EXEC, target=text, marks=marks, dangers=tuple(found), danger_parts=parts, at_most=limit
        )
        return CommandFacts(text=text, parsed=None, world=world, cwd=cwd), (opaque,)
    proof = prove(parsed, world, cwd)
    places = segment_places(parsed, world, cwd)
    shares = _dangers_by_segment(parsed, found, is_secret)
    reads_only = proof.proven and not found
    effects: list[Effect] = []
    started: list[Segment] = []
    for segment, part, share, where in zip(parsed.segments, proof.segments, shares, places, strict=True):
        outside = any(operand.kind == "outside" for operand in part.operands)
        started.append(replace(segment, words=part.started or segment.words))
        target = render(Parsed((Segment(segment.words),)))
        effects.append(
            Effect(
                verb=Verb.EXEC,
                target=target,
                real=_real_program(segment, where, world),
                words=segment.words,
                proven=part.proven and not share and (not part.needs_closed_zones or (reads_only and full_walls)),
                at_most=AtMost.WRITES if full_walls else None,
                dangers=tuple(share),
                danger_parts=_parts_inside(target, share),
                marks=((Mark.DANGER,) if share else ()) + ((Mark.OUTSIDE_ZONE,) if outside else ()),
            )
        )
    effects += (
        Effect(
            verb=Verb.READ,
            target=operand.virtual,
            real=operand.real,
            outer=operand.outer,
            zone_verdict=Verdict.PRE_APPROVED,
            marks=(Mark.SECRET_PATH,) if operand.secret else (),
        )
        for operand in proof.reads
    )
    facts = CommandFacts(
        text=text, parsed=parsed, world=world, cwd=cwd, reads_only=reads_only, started=Parsed(tuple(started))
    )
    return facts, tuple(effects)


def danger_commands(text: str, is_secret: IsSecret) -> dict[str, str]:
    """The id of each danger in a text, and the first command that has it, cut short; empty: the text as a whole."""
    found: dict[str, str] = {}
    for danger in find_dangers(text, is_secret=is_secret):
        found.setdefault(danger.id, danger.detail)
    return found


def _dangers_by_segment(parsed: Parsed, found: dict[str, str], is_secret: IsSecret) -> Iterator[dict[str, str]]:
    """The dangers of each segment, as `danger_commands` gives those of the text. One that only the whole has
    (`curl u | sh`) belongs to every segment of it."""
    if not found or len(parsed.segments) == 1:
        yield from (found for _ in parsed.segments)
        return
    texts = (render(Parsed((Segment(segment.words),))) for segment in parsed.segments)
    own = [danger_commands(text, is_secret) for text in texts]
    of_the_whole = dict.fromkeys((danger for danger in found if not any(danger in each for each in own)), "")
    for each in own:
        yield each | of_the_whole


def _parts_inside(target: str, found: dict[str, str]) -> tuple[str, ...]:
    """Returns the inner commands that a reason quotes if the segment (`bash -c '…'`) is too long to quote."""
    if quote_target(target) == target:
        return ()
    return tuple("" if target.startswith(part.removesuffix("…")) else part for part in found.values())


def _real_program(segment: Segment, places: tuple[str, ...], world: CommandWorld) -> str:
    """Returns the path of the program for the fingerprint; for a program inside a zone also its content hash, since it
    may be rewritten.
    """
    word = segment.words[0]
    if "/" not in word or word.startswith("/"):
        program = world.program(word)
        if program is None:
            return ""
        return _path_with_digest(program.path) if program.zone else program.path
    operands = [world.operand(word, place) for place in places]
    return _path_with_digest(operands[0].real) if [each.kind for each in operands] == ["inside"] else ""


def _path_with_digest(path: str) -> str:
    """Unreadable or huge: a random mark, so that the approval of this call is never the approval of another."""
    try:
        with open_private(path, _MAX_HASHED) as file:
            return f"{path} sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except FileNotFoundError:
        return path
    except OSError:
        return f"{path} {os.urandom(16).hex()}"


SYSTEM_PATH: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


_BINARIES: Final = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")


"""First bytes of programs for Linux and macOS."""


def is_system_directory(directory: str) -> bool:
    """Whether this is one of the usual program directories, owned by root and not writable by others."""
    try:
        status = os.stat(directory)
    except OSError:
        return False
    safe = status.st_uid == 0 and not status.st_mode & stat.S_IWOTH
    return directory in SYSTEM_PATH and stat.S_ISDIR(status.st_mode) and safe


class SandboxWorld:
    """Implements `CommandWorld`. `path` is the walls' PATH, in order; `shipped_rg` the ripgrep that Forge brings;
    `complete` tells of a virtual directory whether the walls know all that lies below it (None: they do not); `rules`
    are those that hold inside the walls."""

    def __init__(
        self,
        sandbox: Sandbox,
        path: Sequence[str] = SYSTEM_PATH,
        *,
        shipped_rg: str = "",
        complete: Callable[[str, bool], bool] | None = None,
        rules: Callable[[], Sequence[PathRule]] = tuple,
    ) -> None:
        self._rules = rules
        self._complete = complete
        self._sandbox = sandbox
        self._path = tuple(path)
        self._shipped_rg = shipped_rg

    def program(self, name: str) -> ProgramFile | None:
        if "/" in name:
            return self._program_at(name)
        for directory in self._path:
            found = os.path.join(directory, name)
            if _is_program(found):
                return self._described(found, system=is_system_directory(directory))
        if name == "rg" and _is_program(self._shipped_rg):
            return ProgramFile(os.path.realpath(self._shipped_rg), system=False, zone=False, shipped=True)
        return None

    def scan_complete(self, virtual: str, *, hidden: bool = True) -> bool:
        return self._complete is not None and self._complete(virtual, hidden)

    def work_tree(self, place: str) -> str | None:
        here = self.operand(place, "/")
        if here.kind != "inside":
            return place
        parts = here.virtual.strip("/").split("/")
        while parts:
            virtual = f"/{'/'.join(parts)}"
            real = self.operand(virtual, "/").real
            if is_repository_root(real):
                return virtual if keeps_its_work_tree(real, self._host_path) else None
            parts.pop()
        return f"/{here.virtual.split('/')[1]}"

    def _host_path(self, path: str) -> str:
        try:
            place = self._sandbox.locate(path)
        except SandboxError:
            return path
        return place.zone.real(place.parts) if place.zone else path

    def has_read_rules(self) -> bool:
        return any(
            Verb.READ in rule.access and rule.verdict is not Verdict.PRE_APPROVED and self._touches(rule)
            for rule in self._rules()
        )

    def _touches(self, rule: PathRule) -> bool:
        roots = (self.operand(zone.virtual(()), "/") for zone in self._sandbox.zones.values())
        places = [name for root in roots for name in (root.virtual, root.outer) if name]
        near = any(is_below(rule.literal, place) or is_below(place, rule.literal) for place in places)
        return near or not rule.literal

    def operand(self, path: str, cwd: str) -> Operand:
        link = process_link(path)
        if link is not None and link.name == "cwd" and link.own and ".." not in path.split("/"):
            given = f"{cwd.rstrip('/')}/{link.rest}"
        else:
            given = path if path.startswith("/") else f"{cwd.rstrip('/')}/{path}"
        try:
            with self._sandbox.target(given, Verb.READ) as target:
                if target.zone is None:
                    return Operand("outside", target.virtual)
                return Operand(
                    "inside",
                    target.virtual,
                    real=target.real,
                    secret=Mark.SECRET_PATH in target.marks,
                    directory=target.kind is FileKind.DIRECTORY,
                    outer=target.effect().outer,
                    exists=target.exists,
                )
        except SandboxError as error:
            shown = self._sandbox.virtualise(path)
            escapes = ".." in path.split("/")  # above the root of zones there is still something in the walls
            return Operand("bad", shown) if error.code == "INVALID_PATH" and not escapes else Operand("outside", shown)

    def _program_at(self, path: str) -> ProgramFile | None:
        """An absolute path: of a zone if one addresses it, else of the host. A relative one is never found here."""
        if not path.startswith("/"):
            return None
        try:
            with self._sandbox.target(path, Verb.READ) as target:
                runs = target.zone is not None and target.kind is FileKind.FILE
                return ProgramFile(target.real, system=False, zone=True) if runs else None
        except SandboxError as error:
            if error.code not in ("ZONE_ACCESS_DENIED", "NO_SANDBOX"):
                return None
        if not _is_program(path):
            return None
        return self._described(path, system=is_system_directory(os.path.dirname(path)))

    def _described(self, found: str, *, system: bool) -> ProgramFile:
        real = os.path.realpath(found)
        zone = any(is_below(real, zone.host) for zone in self._sandbox.zones.values())
        return ProgramFile(real, system=system and not zone, zone=zone, script=_is_script(real))


def _is_program(path: str) -> bool:
    return bool(path) and os.path.isfile(path) and os.access(path, os.X_OK)


def _is_script(path: str) -> bool:
    """Whether the file is no known binary, with or without `#!`. An unreadable file counts as a script."""
    try:
        with open(path, "rb") as file:
            return file.read(4) not in _BINARIES
    except OSError:
        return True
