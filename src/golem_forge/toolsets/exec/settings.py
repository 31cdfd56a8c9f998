"""The YAML block of `exec`, checked, and the `env` part that `shell` has too.

A model is built when a block is read; importing this loads nothing. What an `env` block may say, and what it means at
the moment a child is started, is `sandbox.walls.environment`'s business.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.errors import ConfigError
from golem_forge.core.verdict import Verdict

if TYPE_CHECKING:
    from pydantic import BaseModel

    from golem_forge.sandbox.walls.environment import EnvBlock
    from golem_forge.tools.context import ToolContext

ALIASES: Final = {"command": "cmd", "working_dir": "workdir"}
"""Other names of arguments of exec_command that models know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecSettings:
    walled: Verdict = Verdict.ASK
    """`preApproved`: what full walls contain and carries no mark runs unasked."""
    env: EnvBlock | None = None


def exec_settings(block: Any) -> ExecSettings:
    """From the validated block; None stands for an empty one."""
    return ExecSettings() if block is None else ExecSettings(walled=Verdict(block.walled), env=block.env)


def exec_model() -> type[BaseModel]:
    from typing import Literal

    from pydantic import ConfigDict, Field, create_model

    walled = "What holds for commands that full walls contain."
    fields: dict[str, Any] = {
        "walled": (Literal["ask", "preApproved"], Field(default="ask", description=walled)),
        "env": env_field(),
    }
    return create_model("exec", __config__=ConfigDict(extra="forbid"), **fields)


def env_field() -> tuple[Any, Any]:
    """`env: {pass, set, secrets}`, as the EnvBlock it stands for."""
    from typing import Annotated

    from pydantic import BeforeValidator, Field

    return Annotated[Any, BeforeValidator(_checked_env)], Field(default=None, description="Variables for commands.")


def declared_env(block: EnvBlock | None, ctx: ToolContext) -> dict[str, str]:
    """The variables of one child that is about to be started. Raises ToolFailed for a secret that cannot be had."""
    from golem_forge.sandbox.walls.environment import resolve

    return {} if block is None else resolve(block, os.environ, ctx.redactor).values


def _checked_env(value: Any) -> Any:
    from golem_forge.sandbox.walls.environment import EnvBlock, make_env_block

    if value is None or isinstance(value, EnvBlock):
        return value
    try:
        return make_env_block(value)
    except ConfigError as error:
        raise ValueError("; ".join(error.problems)) from None
