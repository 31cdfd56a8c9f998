"""A tool's definition as plain data: what a module host says of its tools, and the same read back by Forge.

`described` runs inside the host and raises ToolDefinitionError for a schema that cannot be built. Forge reads it with
`Described.read`, which refuses (ValueError) what a host could not have said honestly: the code in there is not Forge's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from golem_forge.core.effects import Effect, Verb
from golem_forge.core.verdict import Verdict
from golem_forge.tools.inputs import Defaults, SchemaInput
from golem_forge.tools.tool import MAX_ARGUMENT_BYTES, Mode, Tool

_LONGEST_TEXT: Final = 64 * 1024
PREDICATE: Final = "predicate"

OwnVerdict = bool | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    export: str
    """What the host knows it by."""
    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    mode: Mode = Mode.LLM
    label: str = ""
    category: str = ""
    annotations: dict[str, Any] = field(default_factory=dict)
    timeout: float | None = None
    idle_timeout: float | None = None
    read_only: bool = False
    approval: OwnVerdict | Literal["predicate"] = None
    """Its own `needs_approval`: None if it has none, `predicate` if the host must be asked for each call."""
    aliases: dict[str, str] = field(default_factory=dict)
    max_argument_bytes: int = MAX_ARGUMENT_BYTES
    effects: tuple[Effect, ...] | None = None
    always_load: bool = False
    fills_defaults: bool = False
    """Its host fills in the defaults of the schema: what is left out is what the schema says."""

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Described:
        texts = {key: str(said.get(key, ""))[:_LONGEST_TEXT] for key in ("export", "name", "description")}
        effects = said.get("effects")
        approval = said.get("approval")
        if not isinstance(approval, (bool, str, type(None))) or (
            isinstance(approval, str) and approval not in (PREDICATE, *Verdict)
        ):
            raise ValueError("a verdict that is none")
        return cls(
            **texts,
            input_schema=dict(said["input_schema"]),
            output_schema=None if said.get("output_schema") is None else dict(said["output_schema"]),
            mode=Mode(said["mode"]),
            label=str(said.get("label", ""))[:200],
            category=str(said.get("category", ""))[:200],
            annotations=dict(said.get("annotations") or {}),
            timeout=_seconds(said.get("timeout")),
            idle_timeout=_seconds(said.get("idle_timeout")),
            read_only=said.get("read_only") is True,
            always_load=said.get("always_load") is True,
            fills_defaults=said.get("fills_defaults") is True,
            approval=approval,
            aliases={str(key): str(value) for key, value in (said.get("aliases") or {}).items()},
            max_argument_bytes=min(int(said.get("max_argument_bytes") or MAX_ARGUMENT_BYTES), MAX_ARGUMENT_BYTES),
            effects=None
            if effects is None
            else tuple(Effect(verb=Verb(verb), target=str(target)) for verb, target in effects),
        )


def described(export: str, tool: Tool) -> dict[str, Any]:
    own = tool.needs_approval
    return {
        "export": export,
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "mode": tool.mode.value,
        "label": tool.label,
        "category": tool.category,
        "annotations": tool.annotations,
        "timeout": tool.timeout,
        "idle_timeout": tool.idle_timeout,
        "read_only": tool.read_only,
        "always_load": tool.always_load,
        "fills_defaults": not isinstance(tool.input, SchemaInput) or tool.input.defaults is Defaults.FILLED,
        "approval": PREDICATE if callable(own) else own,
        "aliases": dict(tool.argument_aliases or {}),
        "max_argument_bytes": tool.max_argument_bytes,
        "effects": None if tool.effects is None else [[each.verb, each.target] for each in tool.effects],
    }


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None
