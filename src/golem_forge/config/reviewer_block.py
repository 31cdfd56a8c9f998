"""`approval.reviewer`: who answers small questions before a person does.

    approval:
      reviewer: {run: /home/me/bin/review, up_to: medium}
      reviewer: {model: "provider:name", up_to: high, budget: {max_requests: 100, max_cost_usd: 0.5}}

Only the person names one, in their own config.yaml or on the command line. Threat: a program that brings its own
reviewer would approve its own calls. So nothing of forge.yaml counts here, and neither do the addresses and prices of
models that a program writes, trusted or not.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any, Final

from golem_forge.config.layer import ConfigLayer
from golem_forge.config.run_block import Price, ProviderSettings, effective_run
from golem_forge.config.sandbox_block import whole_number
from golem_forge.config.schema import Check, ConfigProblems, MappingSchema, one_of, positive, text
from golem_forge.config.yaml_file import is_override
from golem_forge.core.decisions import Risk
from golem_forge.core.lazy_dataclass import dataclass, field

_PATH: Final = ("approval", "reviewer")
UP_TO: Final = ("low", "medium", "high")
REVIEWER_CHECK: Final[Check] = MappingSchema(
    {
        "run": text,
        "model": text,
        "up_to": one_of(*UP_TO),
        "budget": MappingSchema({"max_requests": whole_number, "max_cost_usd": positive}),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewerSettings:
    run: tuple[str, ...] = ()
    """A program by its absolute path, and its arguments."""
    model: str = ""
    """Or a model, `provider:name`."""
    up_to: Risk = Risk.MEDIUM
    max_requests: int = 200
    """In one session."""
    max_cost_usd: float | None = None
    models: Mapping[str, ProviderSettings] = field(default_factory=dict)
    """How the person reaches providers; what a program says does not count."""
    pricing: Mapping[str, Price] = field(default_factory=dict)
    origin: str = ""

    @property
    def name(self) -> str:
        """As cards and records name it."""
        return os.path.basename(self.run[0]) if self.run else self.model


def check_reviewer(values: dict[str, Any], problems: ConfigProblems) -> None:
    approval = values.get("approval")
    said = approval.get("reviewer") if isinstance(approval, dict) else None
    if not isinstance(said, dict) or not said:
        return
    if ("run" in said) is ("model" in said):
        problems.add(_PATH, "name either `run`, a program, or `model`, and not both")
    elif "run" in said:
        try:
            words = shlex.split(os.path.expanduser(said["run"]))
        except ValueError:
            words = []
        if not words or not os.path.isabs(words[0]):
            problems.add((*_PATH, "run"), "begins with the absolute path of a program")
        if "max_cost_usd" in said.get("budget", {}):
            problems.add((*_PATH, "budget", "max_cost_usd"), "has no effect on a program; it belongs to `model`")
    elif ":" not in said["model"]:
        problems.add((*_PATH, "model"), "expected `provider:name`")


def effective_reviewer(project: ConfigLayer, person: ConfigLayer) -> ReviewerSettings | None:
    """The command line's, else the person's own."""
    for layer, counts in ((project, is_override(project.at(*_PATH))), (person, True)):
        if not counts or layer.setting(*_PATH) is None:
            continue
        said = layer.block(*_PATH)
        if not said:
            return None  # switched off, by whoever may
        own = effective_run(ConfigLayer(mcp=person.mcp), person)
        return ReviewerSettings(
            run=tuple(shlex.split(os.path.expanduser(said.get("run", "")))),
            model=said.get("model", ""),
            up_to=Risk(said.get("up_to", "medium")),
            **said.get("budget", {}),
            models=own.models,
            pricing=own.pricing,
            origin=layer.at(*_PATH),
        )
    return None


def reviewer_notice(project: ConfigLayer) -> str:
    """Of a program that names one."""
    if project.setting(*_PATH) is None or is_override(project.at(*_PATH)):
        return ""
    where = project.at(*_PATH)
    return f"{where}: approval.reviewer is ignored: only your own config.yaml or the command line can name one."
