"""The YAML block of `shell`, checked: its rules in order, what holds where none matches, and the time limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Verdict
from golem_forge.toolsets.exec.settings import env_field
from golem_forge.toolsets.shell.rules import ShellRule
from golem_forge.toolsets.shell.words import split_words

if TYPE_CHECKING:
    from pydantic import BaseModel

    from golem_forge.sandbox.walls.environment import EnvBlock

TIMEOUT_S: Final = 30.0
SHORTEST_S: Final = 0.1
LONGEST_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    rules: tuple[ShellRule, ...] = ()
    default: Verdict | None = None
    """None: what no rule matches is blocked."""
    timeout_s: float = TIMEOUT_S
    env: EnvBlock | None = None


ASK_FOR_ALL: Final = ShellSettings(default=Verdict.ASK)
"""Of a tool without a block: an embedder's or the built-in worker's, where a person or a rule decides."""


def shell_settings(block: Any) -> ShellSettings:
    """From the validated block, an empty one allows nothing. None: there is no block at all."""
    if block is None:
        return ASK_FOR_ALL
    return ShellSettings(
        rules=tuple(
            ShellRule(
                pattern=rule.pattern,
                words=split_words(rule.pattern),
                approval=rule.approval,
                ask_if_args=tuple(rule.ask_if_args),
            )
            for rule in block.rules
        ),
        default=block.default.approval if block.default is not None else None,
        timeout_s=block.timeout_s,
        env=block.env,
    )


def shell_model() -> type[BaseModel]:
    from typing import Annotated

    from pydantic import AfterValidator, ConfigDict, Field, create_model

    strict = ConfigDict(extra="forbid")
    rule: Any = create_model(
        "rule",
        __config__=strict,
        pattern=(Annotated[str, AfterValidator(_usable_pattern)], Field(description="Leading words of a command.")),
        approval=(Verdict, Field(default=Verdict.ASK)),
        ask_if_args=(list[str], Field(default_factory=list, description="Words that make it ask.")),
    )
    default = create_model("default", __config__=strict, approval=(Verdict, Field(default=Verdict.ASK)))
    fields: dict[str, Any] = {
        "rules": (list[rule], Field(default_factory=list)),
        "default": (default | None, Field(default=None)),
        "timeout_s": (float, Field(default=TIMEOUT_S, ge=SHORTEST_S, le=LONGEST_S, allow_inf_nan=False)),
        "env": env_field(),
    }
    return create_model("shell", __config__=strict, **fields)


def _usable_pattern(pattern: str) -> str:
    try:
        words = split_words(pattern)
    except ForgeError as error:
        raise ValueError(error.message) from None
    if not words or not words[0]:
        raise ValueError("a pattern needs the name of a program")
    return pattern
