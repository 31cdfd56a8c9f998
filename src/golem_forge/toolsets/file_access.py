"""What the file tools share: the sandbox they work in, what an embedder says about its zones' consent, the `path`
argument, and the plan of a tool that only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.options import require
from golem_forge.core.text import nearest_hint
from golem_forge.policy.containment import path_reasons, walls_reason
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import Target
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import native_tool
from golem_forge.tools.inputs import DeclaredParameter, ModelInput, PlainInput
from golem_forge.tools.tool import MAX_ARGUMENT_BYTES, NeedsApproval, Tool

if TYPE_CHECKING:
    from pydantic import BaseModel

ZoneApproval = Mapping[str, Mapping[str, Verdict | str]]
"""Zone name → `write` or `delete` → verdict."""
_VERBS = {"write": Verb.WRITE, "delete": Verb.DELETE}


@dataclass(frozen=True, slots=True)
class FileAccess:
    sandbox: Sandbox | None = None
    """None: the one of each call's context."""
    overrides: Mapping[tuple[str, Verb], Verdict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fits = self.sandbox is None or isinstance(self.sandbox, Sandbox)
        require(fits, "sandbox", "made by open_sandbox([ZoneSpec(name='workspace', path='.')])", self.sandbox)

    def target(self, path: str, verb: Verb, ctx: ToolContext, *, follow_last: bool = True) -> Target:
        sandbox = self.sandbox or ctx.sandbox or Sandbox(has_block=False)
        return sandbox.target(path, verb, follow_last=follow_last)

    def effect(self, target: Target, ctx: ToolContext | None = None) -> Effect:
        """An override replaces the zone's consent, never its `blocked`, nor any mark. Without `ctx`: of reading."""
        effect = target.effect()
        said = self.overrides.get((target.zone.name, target.access)) if target.zone else None
        if said is not None and effect.zone_verdict is not Verdict.BLOCKED:
            effect = replace(effect, zone_verdict=said)
        if ctx is None or not ctx.contains or target.access is Verb.READ:
            return effect
        return replace(effect, leaves=tuple(self._leaves(target, said, ctx)))

    def _leaves(self, target: Target, said: Verdict | None, ctx: ToolContext) -> Iterator[str]:
        if self.sandbox is not None and self.sandbox is not ctx.sandbox:
            yield "its zones are not those of the session, so nothing is kept to undo it"
        elif ctx.walls is None:
            yield "nothing is kept here to undo it"
        elif ctx.coverage is None:
            report = ctx.walls.known_report
            yield walls_reason(report) if report is not None else "nobody knows whether there are full walls"
        else:
            if said is Verdict.ASK:
                yield f"its setting for {target.virtual} says ask"
            yield from path_reasons(target.zone, target.parts, target.access, ctx.coverage)


def checked_overrides(
    sandbox: Sandbox | None, zone_approval: ZoneApproval, called: str = "zone_approval"
) -> dict[tuple[str, Verb], Verdict]:
    """Raises ConfigError for a zone, a verb or a verdict that does not exist. `called`: the option's name."""
    overrides: dict[tuple[str, Verb], Verdict] = {}
    problems: list[str] = []
    given: Any = zone_approval
    if not isinstance(given, Mapping):
        raise ConfigError(f"{called}: must be a mapping, like {{'workspace': {{'write': 'ask'}}}}, not {given!r}")
    for zone, verdicts in given.items():
        if sandbox is not None and zone not in sandbox.zones:
            problems.append(f"{called}: no zone '{zone}'{_suggestion(zone, sandbox.zones)}")
        if not isinstance(verdicts, Mapping):
            problems.append(f"{called}.{zone}: must be a mapping of write and delete to verdicts")
            continue
        for verb, verdict in verdicts.items():
            if verb not in _VERBS:
                problems.append(f"{called}.{zone}: no '{verb}' there; only write and delete ask for consent")
            elif verdict not in tuple(Verdict):
                known = [each.value for each in Verdict]
                hint = _suggestion(str(verdict), known)
                problems.append(f"{called}.{zone}.{verb}: '{verdict}' is not a verdict{hint}")
            else:
                overrides[zone, _VERBS[verb]] = Verdict(verdict)
    if problems:
        raise ConfigError(*problems)
    return overrides


def _suggestion(word: str, known: Mapping[str, object] | list[str]) -> str:
    return nearest_hint(word, known, f". There are: {', '.join(sorted(known)) or 'none'}")


FilePlanner = Callable[[FileAccess, dict[str, Any], ToolContext], Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTool:
    """A native tool that works on files; `create` makes it for one sandbox."""

    name: str
    description: str
    label: str
    arguments: Callable[[], type[BaseModel] | PlainInput]
    planner: FilePlanner
    always: Verb | None = None
    """None: it only reads."""
    category: str = "Files"
    aliases: Mapping[str, str] = field(default_factory=lambda: {"file_path": "path"})
    max_argument_bytes: int = MAX_ARGUMENT_BYTES

    def create(self, access: FileAccess, needs_approval: NeedsApproval | None = None) -> Tool:
        return native_tool(
            self.name,
            self.description,
            input_schema=self.arguments,
            planner=partial(self.planner, access),
            needs_approval=needs_approval,
            label=self.label,
            category=self.category,
            read_only=self.always is None,
            always=self.always,
            argument_aliases=self.aliases,
            max_argument_bytes=self.max_argument_bytes,
        )


def path_field(what: str, default: Any = ...) -> tuple[type[str], Any]:
    """For pydantic's `create_model`; required unless `default` is given."""
    from pydantic import Field

    return str, Field(default=default, description=_path_text(what))


def _path_text(what: str) -> str:
    return f"{what}: /<zone>/…, or relative to the default zone."


def path_arguments(name: str, what: str, default: Any = ...) -> Callable[[], PlainInput]:
    """The schema of a tool that takes a path and nothing else."""

    def build_model() -> ModelInput:
        from pydantic import create_model

        return ModelInput(create_model(name, path=path_field(what, default)))

    return lambda: PlainInput({"path": DeclaredParameter(str, default, _path_text(what))}, build_model)


def reading_plan(access: FileAccess, target: Target, run: Callable[[], Any]) -> Plan:
    return Plan(run=run, effects=(access.effect(target),), read_only=True, recheck=target.recheck, close=target.close)
