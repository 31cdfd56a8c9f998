"""CallFacts: everything policy knows about one call before it is evaluated; its fingerprint and its effects' verdicts.

For each effect: its base verdict, its risk and its floors. A floor is something that always needs a person. Only
`danger:<id>`, `secret_path` and `obeyed_path` can be accepted by a rule, and only by name in the person's own rules
file.

A fingerprint is the identity of one call: an approval is for a fingerprint, and for nothing else. `args_key` (16 hex)
is shown to people and is the same for the same call anywhere. `fingerprint` (64 hex) also holds the tool's definition,
the worker and the resolved targets; host paths exist only inside the hash. A directory that lies elsewhere on each
machine of a session has a name of its own there (`DirectoryNames`): an answer counts on all of them.

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
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from golem_forge.core.decisions import Risk, Verdict, VerdictSource, highest_risk
from golem_forge.core.effects import AtMost, Effect, Mark, Verb, Walled, quote_target
from golem_forge.core.json import canonical, quoted, sha256_hex
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.text import process_link
from golem_forge.policy.shell.dangers import DANGER_SIDES, Side, find_dangers
from golem_forge.policy.shell.prover import prove, segment_places
from golem_forge.policy.shell.strict import (
    CommandWorld,
    Opaque,
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


def args_key(tool: str, args: dict[str, Any]) -> str:
    return sha256_hex(f"{tool}:{canonical(args)}")[:16]


def fingerprint(*, tool: str, definition: str, args: dict[str, Any], worker: str, targets: Iterable[str]) -> str:
    return both_keys(tool=tool, definition=definition, args=args, worker=worker, targets=targets)[0]


def both_keys(
    *, tool: str, definition: str, args: dict[str, Any], worker: str, targets: Iterable[str]
) -> tuple[str, str]:
    """(fingerprint, args_key). The fingerprint hashes the canonical JSON of six members, joined by hand: its keys
    never change."""
    written = canonical(args)
    resolved = canonical(sorted(set(targets))) if targets else "[]"
    whole = (
        f'{{"args":{written},"definition":{quoted(definition)},"targets":{resolved},'
        f'"tool":{quoted(tool)},"v":1,"worker":{quoted(worker)}}}'
    )
    return sha256_hex(whole), sha256_hex(f"{tool}:{written}")[:16]


DirectoryNames = Mapping[str, str]
"""Host directory → its name in fingerprints."""


def targets_of(
    effects: Iterable[Effect], further: Iterable[str] = (), names: DirectoryNames | None = None
) -> list[str]:
    found = {*(effect.fingerprint_target() for effect in effects), *further}
    for directory, name in (names or {}).items():
        found = {_renamed(each, directory, name) for each in found}
    return sorted(found)


def _renamed(target: str, directory: str, name: str) -> str:
    """`write /srv/clone/a.txt` → `write workspace:3f2a/a.txt`; only a whole path, behind the verb."""
    verb, blank, path = target.partition(" ")
    inside = path == directory or path.startswith(f"{directory}/")
    return f"{verb}{blank}{name}{path[len(directory) :]}" if inside else target


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectVerdict:
    effect: Effect
    base: Verdict


_CRITICAL_MARKS: Final = frozenset(
    {Mark.PROTECTED_PATH, Mark.SECRET_PATH, Mark.OUTSIDE_ZONE, Mark.DANGER, Mark.NO_WALLS}
)
_VERB_RISK: Final = {
    Verb.READ: Risk.LOW,
    Verb.WRITE: Risk.MEDIUM,
    Verb.DELETE: Risk.HIGH,
    Verb.EXEC: Risk.HIGH,
    Verb.NET: Risk.HIGH,
    Verb.SPAWN: Risk.MEDIUM,
}
_LIMITED_RISK: Final = {AtMost.READS: Risk.LOW, AtMost.WRITES: Risk.MEDIUM}
_HIGH_MARKS: Final = frozenset({Mark.OBEYED_PATH, Mark.OPAQUE, Mark.DESTRUCTIVE})
_FLOOR_REASONS: Final = {
    Mark.PROTECTED_PATH: "{target} is protected: other programs run or obey what is in it",
    Mark.SECRET_PATH: "{target} looks like a secret",
    Mark.OBEYED_PATH: "other programs read {target} and obey it on their own",
    Mark.OUTSIDE_ZONE: "{target} {does} outside every zone",
    Mark.DESTRUCTIVE: "{target} says that this tool destroys or overwrites",
    Mark.NO_WALLS: "NO WALLS: {because}",
}

_SWITCHED_OFF: Final = "the command would run without isolation"

ANY_WALLED: Final = "any command inside the walls"
"""The session grant that covers every effect with `Walled.OFFERED`."""


def base_verdict(effect: Effect, granted: Container[str] = ()) -> Verdict:
    """`granted`: what a person allowed this worker for the session, in the words of the choice they made."""
    if effect.zone_verdict is not None:
        return effect.zone_verdict
    if effect.said is not None:
        return effect.said
    if effect.walled is Walled.GIVEN or (grant_of(effect) and grant_of(effect) in granted):
        return Verdict.PRE_APPROVED
    if effect.verb is Verb.READ or effect.proven:
        return Verdict.PRE_APPROVED
    return Verdict.ASK


def grant_of(effect: Effect) -> str:
    """The session grant that would cover this effect; empty if there is none."""
    return ANY_WALLED if effect.walled is Walled.OFFERED else effect.grant


def risk_of(effect: Effect) -> Risk:
    """Returns the risk of an effect: by its marks, then by its declared limit, then by the worst that
    its verb can do.
    """
    if not _CRITICAL_MARKS.isdisjoint(effect.marks):
        return Risk.CRITICAL
    if not _HIGH_MARKS.isdisjoint(effect.marks) and not _is_contained_text(effect):
        return Risk.HIGH
    if effect.proven and effect.verb is Verb.EXEC:
        return Risk.LOW  # its reads are effects of their own
    return _VERB_RISK[effect.verb] if effect.at_most is None else _LIMITED_RISK[effect.at_most]


def risk_of_all(effects: tuple[Effect, ...] | None) -> Risk:
    """Returns the highest risk of the effects; HIGH if they are unknown (None)."""
    return Risk.HIGH if effects is None else highest_risk(risk_of(effect) for effect in effects)


def leaves_of(effect: Effect) -> tuple[str, ...]:
    """Why this effect is not contained; empty: it is. What only reads inside the zones is, whoever looked."""
    if effect.leaves is not None:
        return effect.leaves
    reads = effect.verb is Verb.READ and effect.zone_verdict is Verdict.PRE_APPROVED
    if reads or effect.proven or effect.at_most is AtMost.READS:
        return ()
    if effect.verb is Verb.NET:
        return (f"it reaches {effect.quoted}",)
    return (f"this mode does not cover {effect.verb.value} {effect.quoted}",)


def stays_inside(floor: str) -> bool:
    """Whether full walls and undo protect against what this floor is about."""
    return floor == Mark.OPAQUE or DANGER_SIDES.get(floor.removeprefix("danger:")) is Side.INSIDE


def _is_contained_text(effect: Effect) -> bool:
    """A text that nobody can read, in walls that nothing leaves, over zones that can be brought back."""
    return effect.leaves == () and effect.verb is Verb.EXEC and effect.marks == (Mark.OPAQUE,)


def floors_of(effect: Effect, granted: Container[str] = ()) -> Iterator[tuple[str, str]]:
    """(floor id, why) for each fact that needs a person. A text that cannot be read needs none where it is contained,
    or where a person allowed this worker any command inside the walls."""
    readable = _is_contained_text(effect) or (effect.walled is Walled.OFFERED and ANY_WALLED in granted)
    for mark in effect.marks:
        if mark is Mark.OPAQUE and readable:
            continue
        if mark is Mark.DANGER:
            for danger, part in zip_longest(effect.dangers, effect.danger_parts[: len(effect.dangers)]):
                yield f"danger:{danger}", f"{part or effect.quoted!r} is on the danger list ({danger})"
        elif mark is Mark.OPAQUE:
            parsed = parse_strict(effect.target)
            why = f"it has {parsed.reason}" if isinstance(parsed, Opaque) else "what it stands for is not known"
            yield mark.value, f"the command cannot be checked: {why}"
        elif mark in _FLOOR_REASONS:
            does = "reaches" if effect.verb is Verb.EXEC else "is"
            because = effect.no_walls_because or _SWITCHED_OFF
            yield mark.value, _FLOOR_REASONS[mark].format(target=effect.quoted, does=does, because=because)


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
