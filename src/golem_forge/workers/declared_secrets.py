"""Secrets that a program, its workers and the person's own tools declare, known to the Redactor from the start.

`learn_declared` takes them from the configuration: `env` blocks of every worker of the session, MCP servers, the keys
of models. Nothing is started and nothing is refused: what cannot be had now is told by whoever needs it. Tools of the
person's own are learned as their folders are read (`custom.workshop`). Threat: a value that the person pastes into the
first message is in the request, the event and the journal before the first process gets it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from golem_forge.config.home import ForgeHome
from golem_forge.config.mcp.expanding import declared_secrets, expanded
from golem_forge.config.mcp.spec import Login, ServerSpec
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.events.redaction import Redactor
from golem_forge.sandbox.host import person_environ
from golem_forge.sandbox.walls.environment import EnvBlock, learn_values, make_env_block
from golem_forge.workers.models.names import PROVIDERS, key_variable
from golem_forge.workers.tree import SessionTree


def learn_declared(tree: SessionTree, toolsets: Iterable[Mapping[str, Any] | None]) -> None:
    """`toolsets`: of every worker that may run in this session; sub-workers can be named before they start."""
    redactor = tree.redactor
    for blocks in toolsets:
        for block in _env_blocks(blocks):
            learn_values(block, os.environ, redactor)
    learn_servers(tree.program.mcp.servers.values(), redactor)
    models = tree.program.run.models
    for provider in {*PROVIDERS, *models}:
        variable = key_variable(provider, models)
        _learn(redactor, variable, os.environ.get(variable, ""))


def learn_servers(servers: Iterable[ServerSpec], redactor: Redactor) -> None:
    """What their configuration names, whether or not it is complete."""
    for spec in servers:
        for value in declared_secrets(spec, person_environ()):
            _learn(redactor, spec.name, value)


def learn_logins(servers: Iterable[ServerSpec], home: ForgeHome, redactor: Redactor) -> None:
    """The stored tokens of servers with `auth: oauth`. Blocks: a keyring may be asked."""
    for spec in servers:
        if spec.auth.kind is not Login.OAUTH:
            continue
        from golem_forge.mcp.client.oauth.vault import Vault, resource_of, secrets_of

        try:
            url = expanded(spec.url, person_environ(), zone=str)
        except ForgeError:
            continue
        for value in secrets_of(Vault(home).load(resource_of(url)) or {}):
            _learn(redactor, "OAUTH_TOKEN", value)


def has_logins(servers: Iterable[ServerSpec]) -> bool:
    return any(spec.auth.kind is Login.OAUTH for spec in servers)


def _learn(redactor: Redactor, name: str, value: str) -> None:
    if value and value not in redactor.secrets:
        redactor.add_secret(name, value)  # one that is too short cannot be kept out of anything


def _env_blocks(value: Any) -> Iterator[EnvBlock]:
    """Every `env` of a worker's blocks, whichever toolset it stands in."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(item, EnvBlock):
                yield item
            elif key == "env" and isinstance(item, Mapping):
                try:
                    yield make_env_block(dict(item))
                except ConfigError:
                    continue
            else:
                yield from _env_blocks(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _env_blocks(item)
