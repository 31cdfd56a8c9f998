"""What Tab can offer in a running session besides commands and options: names in the zones, models, servers and their
prompts, ids.

Each takes the runtime and gives a lister for `create_event_cli_adapter`. It may raise: completion then offers nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, Final

from golem_forge.core.effects import Verb
from golem_forge.mcp.client.pool_place import PoolPlace
from golem_forge.sandbox import files
from golem_forge.sandbox.target import Kind
from golem_forge.workers.models.names import PROVIDERS, models_with_a_key
from golem_forge.workers.runtime import WorkerRuntime
from golem_forge.workers.slash.policy_commands import revocable
from golem_forge.workers.slash.prompts import prompts_of

_MOST_SESSIONS: Final = 100


def zone_names(runtime: WorkerRuntime) -> Callable[[str], list[str]]:
    """(zone directory, `/` for the zones themselves) → what the root worker could list there."""

    def names(directory: str) -> list[str]:
        sandbox = runtime.path.sandbox
        if sandbox is None:
            return []
        with closing(sandbox.target(directory, Verb.READ)) as target:
            found = [entry for entry in files.list_dir(target) if entry.addressable]
        return [f"{entry.name}/" if entry.kind is Kind.DIRECTORY else entry.name for entry in found]

    return names


def model_names(runtime: WorkerRuntime) -> Callable[[], list[str]]:
    """Models that somebody named: the one in use, the program's, its workers', priced ones, a default where the key is
    set; then the providers as beginnings. No provider is asked what it has."""

    def names() -> list[str]:
        settings = runtime.program.run
        named = [runtime.model_name, settings.model, *(each.model for each in runtime.workers), *settings.pricing]
        named += models_with_a_key(settings.models, os.environ)
        return [*dict.fromkeys(name for name in named if name), *(f"{provider}:" for provider in PROVIDERS)]

    return names


def session_ids(runtime: WorkerRuntime) -> Callable[[], list[str]]:
    """The newest first."""

    def ids() -> list[str]:
        from golem_forge.events.index import Index

        return [each.id for each in Index(runtime.home.path).sessions(limit=_MOST_SESSIONS)]

    return ids


def rule_ids(runtime: WorkerRuntime) -> Callable[[], list[str]]:
    return lambda: revocable(runtime)


def server_names(runtime: WorkerRuntime) -> Callable[[], Iterable[str]]:
    """The MCP servers of the root worker."""
    return lambda: runtime.path.parts.get(PoolPlace).servers_of(runtime.path.worker)


def prompts(runtime: WorkerRuntime) -> Callable[[], list[dict[str, Any]]]:
    """Prompts of those servers, as commands."""
    return lambda: [{"name": name, "fields": each.fields} for name, each in prompts_of(runtime).items()]
