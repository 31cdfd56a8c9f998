"""ExecEnvironment: the sandbox and the walls that the commands of one call run in, and where they start.

`analyze_command` works out before anyone is asked what a command would touch, and whether walls can hold it at all.
Refuses (WALLS_UNAVAILABLE, without a prompt) what the walls of this machine cannot contain. Tools made for an embedder
may bring a sandbox of their own; its walls are built when first needed, once per session.

A command is started in other words than it was given where the walls need it, with the same meaning. Where zones stand
at their host directories only (level landlock, no walls), path operands are written that way. Where a command is proven
to only read, git is told to start no diff driver and to leave secret names out. Only texts that the strict parser reads
are touched; whatever it cannot read runs as it is, and finds no `/workspace` at those levels.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Effect, Mark, Verb, Walled
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.policy.containment import command_reasons, process_reasons, walls_reason
from golem_forge.policy.facts import SandboxWorld, command_facts
from golem_forge.policy.shell.arguments import file_words
from golem_forge.policy.shell.strict import REDIRECTIONS, Parsed, parse_strict, quote, render
from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.network.loopback import SessionLoopbacks, loopback_key
from golem_forge.sandbox.protected import is_secret_name
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import FileKind, Target
from golem_forge.sandbox.walls.bubblewrap import ripgrep_path
from golem_forge.sandbox.walls.environment import EnvBlock, exec_environment, reading_environment, resolve_env
from golem_forge.sandbox.walls.exits import NO_EXITS, Exits
from golem_forge.sandbox.walls.model import Level
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import USER_TOOLS, AccessMode
from golem_forge.storage.home import forge_home
from golem_forge.tools.context import ToolContext
from golem_forge.tools.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from golem_forge.policy.facts import CommandFacts
    from golem_forge.sandbox.network.loopback import SessionLoopback
    from golem_forge.sandbox.walls.model import Coverage, UncoveredPath

PRIVATE_DIRECTORY: Final = "/home/forge"
"""The empty private directory where commands of a worker without zones start."""


@dataclass(frozen=True, slots=True)
class ExecEnvironment:
    sandbox: Sandbox
    walls: Walls

    def command_world(self) -> SandboxWorld:
        """The machine as commands inside these walls find it."""
        return SandboxWorld(
            self.sandbox,
            self.walls.search_path(command=True),
            shipped_rg=ripgrep_path(),
            complete=lambda virtual, hidden: self.walls.scan_complete(virtual, hidden=hidden),
            rules=self.walls.path_rules,
        )

    def workspace(self, level: Level) -> str:
        """Returns the path of the default zone for commands; empty without one."""
        zone = self.sandbox.default_zone
        return self.walls.mount_point(zone, level) if zone is not None else ""

    def child_env(
        self,
        block: EnvBlock | None,
        analysis: CommandAnalysis,
        ctx: ToolContext,
        *,
        tty: bool = False,
        hosts: bool = False,
    ) -> dict[str, str]:
        """The variables of a child that is about to start. Raises ToolFailed for a secret that cannot be read."""
        level = analysis.level
        own = exec_environment(tty=tty, level=level, hosts=hosts, workspace=self.workspace(level))
        declared = {} if block is None else resolve_env(block, os.environ, ctx.redactor).values
        environ = own | (reading_environment(declared) if analysis.reads_only else declared)
        return self.walls.with_git_settings(environ) if level is Level.FULL else environ

    async def loopback(
        self, analysis: CommandAnalysis, env: Mapping[str, str], ctx: ToolContext
    ) -> SessionLoopback | None:
        """The one that a command without hosts shares with the others of its session; None: its own. What only reads
        needs none, and joins it where there is one: it may ask who listens."""
        if analysis.level is not Level.FULL or not self.walls.may_join(env):
            return None
        loopbacks, key = ctx.parts.get(SessionLoopbacks), loopback_key(self.walls, ctx.guest)
        return loopbacks.find(key) if analysis.reads_only else await loopbacks.get(key)

    @property
    def writable(self) -> bool:
        return any(
            zone.mode is AccessMode.RW and Verdict.BLOCKED not in (zone.write, zone.delete)
            for zone in self.sandbox.zones.values()
            if zone.name != USER_TOOLS
        )


class EmbedderWalls:
    """Walls around sandboxes that no session brought; a part of the session."""

    def __init__(self) -> None:
        self._built: dict[int, tuple[Sandbox, Walls]] = {}

    def walls_for(self, sandbox: Sandbox, ctx: ToolContext) -> Walls:
        if id(sandbox) not in self._built:
            home = ctx.home or forge_home().path
            walls = Walls(sandbox, forge_home=home, redactor=ctx.redactor, rules=ctx.path_rules)
            self._built[id(sandbox)] = (sandbox, walls)  # the sandbox is kept too, or its id would be used again
        return self._built[id(sandbox)][1]


def environment_of(sandbox: Sandbox | None, ctx: ToolContext) -> ExecEnvironment:
    """`sandbox`: the tool's own; None: that of the call."""
    meant = sandbox or ctx.sandbox or Sandbox(has_block=False)
    if ctx.walls is not None and meant is ctx.sandbox:
        return ExecEnvironment(meant, ctx.walls)
    return ExecEnvironment(meant, ctx.parts.get(EmbedderWalls).walls_for(meant, ctx))


def start_directory(workdir: str, sandbox: Sandbox) -> Target | None:
    """The directory to start in, held open; None: the private one of a worker without zones. Refuses what is none."""
    if not workdir and sandbox.default_zone is None:
        return None
    target = sandbox.target(workdir or f"/{sandbox.default_zone}", Verb.READ)
    try:
        if target.zone is None:
            raise ToolFailed(f"workdir '/' is in no zone. Zones: {sandbox.describe_zones()}")
        if target.zone.name == USER_TOOLS:
            name = target.parts[0] if target.parts else "<name>"
            raise ToolFailed(f"Forge builds user tools itself; call run_custom_tool '{name}'.")
        if target.kind is not FileKind.DIRECTORY:
            is_none = "is not a directory" if target.exists else "does not exist"
            raise ToolFailed(f"workdir '{target.virtual}' {is_none}.")
    except ToolFailed:
        target.close()
        raise
    return target


def to_host_path(word: str, cwd: str, sandbox: Sandbox) -> str:
    """A path operand as it is written where zones stand at their host directories only."""
    if not word.startswith("/") and ".." not in word.split("/"):
        return word
    try:
        place = sandbox.locate(word if word.startswith("/") else f"{cwd}/{word}")
    except SandboxError:
        return word
    return place.zone.real(place.parts) if place.zone else word


NETWORK_NEEDS_WALLS: Final = "network access needs full walls"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnalysis:
    facts: CommandFacts
    effects: tuple[Effect, ...]
    level: Level
    reads_only: bool
    """Every segment is proven to only read, if all zones are read-only for it."""
    exits: Exits = NO_EXITS
    """Host devices and sockets that the command gets."""
    outside: bool = False
    """Whether it asks to run outside the walls."""
    coverage: Coverage | None = None
    """What could not be undone if the command changed it; set in the approval mode `contained`."""

    @property
    def no_walls(self) -> bool:
        """Whether nothing confines it; then input that is typed later has the same risk as its start."""
        return self.level is Level.OFF or bool(self.exits.sockets)

    def not_kept(self, ctx: ToolContext) -> tuple[tuple[str, UncoveredPath], ...]:
        """Returns what is read-only for this call, because nobody was asked and it could not be undone."""
        return self.coverage.not_kept if ctx.contained and self.coverage is not None else ()


async def analyze_command(
    text: str,
    environment: ExecEnvironment,
    cwd: str,
    *,
    hosts: Sequence[str] = (),
    walled: Verdict,
    contains: bool = False,
    asks: str = "",
    outside: bool = False,
) -> CommandAnalysis:
    """`hosts` are `host:port` in normal form; `walled` is what the toolset's block says of commands in full walls;
    `contains`: the effects say what leaves the walls or cannot be undone; `asks`: which hand-written setting makes the
    command ask, whatever stays inside; `outside`: it asks to run without walls."""
    if outside:
        return await _analyze_outside(text, environment, cwd)
    report = await environment.walls.report()
    level = report.level
    if level is Level.NONE:
        raise walls_unavailable(report.cause, report.fix)
    if level is Level.LANDLOCK and hosts:
        raise walls_unavailable(NETWORK_NEEDS_WALLS, report.fix)
    full = level is Level.FULL and not hosts
    facts, effects = await run_in_thread(
        lambda: command_facts(text, environment.command_world(), cwd, is_secret_name, full_walls=full)
    )
    reads_only = facts.reads_only
    if level is Level.LANDLOCK and not reads_only and environment.writable:
        cause = "this machine has read-only walls, and the command is not proven to only read"
        raise walls_unavailable(f"{cause} ({report.cause})" if report.cause else cause, report.fix)
    # What is proven to only read needs no device and no socket, and gets none.
    exits = environment.walls.exits() if level is Level.FULL and not reads_only else NO_EXITS
    marked = tuple(_mark_effects(effects, level, walled if not hosts else None, exits))
    nets = tuple(Effect(verb=Verb.NET, target=host) for host in dict.fromkeys(hosts))
    effects, coverage = (*marked, *nets), None
    if asks and not reads_only:
        effects = tuple(replace(each, by_hand=asks) if each.verb is Verb.EXEC else each for each in effects)
    if contains and not reads_only:
        reasons = [reason for reason in (walls_reason(report), asks, *exits.leaves()) if reason]
        if level is Level.FULL:
            known = coverage = await environment.walls.coverage()
            sandbox = environment.sandbox
            reasons += process_reasons(sandbox.zones.values(), known)
            reasons += await run_in_thread(lambda: tuple(command_reasons(text, sandbox, cwd, known)))
        effects = tuple(_with_reasons(effects, tuple(dict.fromkeys(reasons))))
    return CommandAnalysis(
        facts=facts, effects=effects, level=level, reads_only=reads_only, coverage=coverage, exits=exits
    )


_OUTSIDE: Final = "this one command would run outside the walls, as you: with your files, your network, and no undo"


async def _analyze_outside(text: str, environment: ExecEnvironment, cwd: str) -> CommandAnalysis:
    """Analyses a command without walls: only its dangers matter, and that only a person lets it run."""
    facts, effects = await run_in_thread(
        lambda: command_facts(text, environment.command_world(), cwd, is_secret_name, full_walls=False)
    )
    marked = tuple(
        replace(
            effect,
            proven=False,
            marks=(*effect.marks, Mark.NO_WALLS, Mark.OUTSIDE_WALLS),
            no_walls_because=_OUTSIDE,
            leaves=("it runs outside the walls",),
        )
        for effect in effects
        if effect.verb is Verb.EXEC
    )
    facts = replace(facts, reads_only=False, started=None)
    return CommandAnalysis(facts=facts, effects=marked, level=Level.OFF, reads_only=False, outside=True)


def _with_reasons(effects: tuple[Effect, ...], reasons: tuple[str, ...]) -> Iterator[Effect]:
    """Each part of a command stands in the same walls, so what leaves them leaves with all of it. A host is a way out
    for the whole tree, and says so itself."""
    for effect in effects:
        yield replace(effect, leaves=reasons) if effect.verb is Verb.EXEC else effect


def _mark_effects(effects: tuple[Effect, ...], level: Level, walled: Verdict | None, exits: Exits) -> Iterator[Effect]:
    """`walled` None: whatever the block says, full walls alone are not enough for this call."""
    given = Walled.GIVEN if walled is Verdict.PRE_APPROVED else Walled.OFFERED
    for effect in effects:
        if effect.verb is not Verb.EXEC:
            yield effect
        elif level is Level.OFF:
            yield replace(effect, marks=(*effect.marks, Mark.NO_WALLS))
        elif exits.no_walls_because:
            yield replace(
                effect, marks=(*effect.marks, Mark.NO_WALLS), no_walls_because=exits.no_walls_because, at_most=None
            )
        elif level is Level.FULL and walled is not None and not effect.marks:
            yield replace(effect, walled=given)
        elif level is Level.FULL and walled is not None and effect.marks == (Mark.OPAQUE,):
            yield replace(effect, walled=Walled.OFFERED)  # what nobody could read only a person allows
        else:
            yield effect


_TOKEN: Final = regex(
    r"(?P<operator>&&|\|\||;|\|)"
    rf"|(?P<redirection>(?:{'|'.join(map(re.escape, REDIRECTIONS))})(?=[ ;|&]|$))"
    r"|(?P<word>(?:'[^']*'|\"[^\"]*\"|[^ ;|&'\"])+)"
)
_QUOTED_PART: Final = regex(r"'([^']*)'|\"([^\"]*)\"")


def rewrite_paths(text: str, host_path: Callable[[str], str]) -> str:
    """`host_path` gives a path operand as the host knows it, or unchanged."""
    parsed = parse_strict(text)
    if not isinstance(parsed, Parsed):
        return text
    if parsed.segments[0].shells:  # `bash -c '…'` around the whole: the script inside is what runs
        words = [_unquote(match["word"]) for match in _TOKEN.finditer(text) if match["word"]]
        return rewrite_paths(words[2], host_path)
    segments = iter(parsed.segments)
    files = _file_operands(next(segments).words)
    pieces: list[str] = []
    end = 0
    for match in _TOKEN.finditer(text):
        pieces.append(text[end : match.start()])
        end = match.end()
        written = match[0]
        if match["operator"]:
            files = _file_operands(next(segments).words)
        elif match["word"] and (word := _unquote(written)) in files and (path := host_path(word)) != word:
            written = quote(path)
        pieces.append(written)
    return "".join(pieces) + text[end:]


def proven_text(facts: CommandFacts) -> str:
    """The spelling of a command that was proven to only read."""
    if facts.started is None or facts.started == facts.parsed:
        return facts.text
    return render(facts.started)


def rewrite_word_paths(words: tuple[str, ...], host_path: Callable[[str], str]) -> tuple[str, ...]:
    files = _file_operands(words)
    return tuple(host_path(word) if word in files else word for word in words)


def _file_operands(words: tuple[str, ...]) -> frozenset[str]:
    program = words[:1] if "/" in words[0] else ()
    return frozenset((*program, *file_words(posixpath.basename(words[0]), words[1:])))


def _unquote(word: str) -> str:
    return _QUOTED_PART.sub(lambda match: match[1] or match[2] or "", word)
