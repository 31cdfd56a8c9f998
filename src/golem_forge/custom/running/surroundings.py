"""Surroundings: the environment one run of a tool finds, complete. Nothing of Forge's own reaches it but what is here.

Takes the manifest, where the tool stands and the call's facts; gives variables for a Job. Refuses (ToolFailed, before
anything starts) a required variable that is not set. Threat: the values of declared variables are secrets, so the
Redactor knows each before anybody else has it, and one that it cannot keep out of output is not handed over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from golem_forge.core.errors import ToolFailed
from golem_forge.custom.entry import Entry
from golem_forge.custom.manifest import Manifest
from golem_forge.events.credential_names import IS, credential

if TYPE_CHECKING:
    from golem_forge.events.redaction import Redactor

_UNNAMED: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a run is told of where and when it runs."""

    workspace: str = ""
    """Where the default zone stands inside the walls; empty without one."""
    tool_dir: str
    session_id: str = ""
    call_id: str = ""
    timeout: float


def declared_values(manifest: Manifest, environ: Mapping[str, str], redactor: Redactor | None) -> dict[str, str]:
    """The manifest's `env` as it is right now. Call it when planning too: what is missing needs no prompt, and a card
    is shown only after its values are known as secrets. Raises ToolFailed."""
    values: dict[str, str] = {}
    for declared in manifest.env:
        value = environ.get(declared.name)
        if value is None:
            if declared.required:
                raise ToolFailed(f"environment variable {declared.name} is not set", code="VARIABLE_NOT_SET")
            continue
        _keep_out(declared.name, value, redactor)
        values[declared.name] = value
    return values


def learn_values(manifest: Manifest, environ: Mapping[str, str], redactor: Redactor | None) -> None:
    """When a tool's folder is read: what its manifest declares is a secret from then on, whether or not it ever runs.
    What is not named like one must be long enough not to be an ordinary word."""
    for declared in manifest.env:
        value = environ.get(declared.name, "")
        long_enough = len(value.strip()) >= _UNNAMED or credential(declared.name) == IS
        if redactor is not None and long_enough and value not in redactor.secrets:
            redactor.add_secret(declared.name, value)


def environment(entry: Entry, place: Place, declared: Mapping[str, str]) -> dict[str, str]:
    """What a custom tool's Job declares, on top of what every child gets. `declared`: of `declared_values`, or a
    test's own."""
    return {
        **declared,
        **({"FORGE_WORKSPACE": place.workspace} if place.workspace else {}),
        "FORGE_TOOL_NAME": entry.name,
        "FORGE_TOOL_DIR": place.tool_dir,
        "FORGE_TOOL_VERSION": entry.manifest.version,
        "FORGE_SESSION_ID": place.session_id,
        "FORGE_CALL_ID": place.call_id,
        # Whole seconds, as `date +%s` counts them, and never one that is over before the time is.
        "FORGE_DEADLINE": str(math.ceil(time.time() + place.timeout)),
    }


def _keep_out(name: str, value: str, redactor: Redactor | None) -> None:
    if redactor is None or not value or value in redactor.secrets:
        return
    from golem_forge.events.redaction import MIN_SECRET

    problem = redactor.add_secret(name, value)
    # `DEBUG=1` is no secret, and taking every 1 out of every text would help nobody.
    harmless = len(value.strip()) < MIN_SECRET and credential(name) != IS
    if problem is not None and not harmless:
        raise ToolFailed(
            f"environment variable {name} cannot be kept out of output: its value is too short or too long. "
            "Nothing was started.",
            code="SECRET_UNRESOLVED",
        )
