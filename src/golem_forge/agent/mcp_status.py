"""What is known of the configured MCP servers without starting any: configuration, trust records, cached manifests.

`read_inventory` reads the program around a directory (raises ConfigError); `ServerInventory.known` returns one server
as it would be at the start of a session, `known_in_session` as it is in a running one. Nothing is connected to and
nothing of the SDK is loaded. `server_summary` and `server_details` return it as JSON without the values of variables
and headers, which may be secrets.

Threat: manifests are a server's own words. Definitions are checked and compared with the pins here as everywhere, and
whoever displays names and descriptions escapes control characters first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.session_plan import read_program
from golem_forge.agent.trust import trust_store
from golem_forge.config.mcp_merge import editor_of_scope
from golem_forge.config.mcp_spec import ServerSpec, ServerTrust
from golem_forge.config.program import Program
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import nearest_remark
from golem_forge.events.serialization import iso_time
from golem_forge.mcp.client.approval_text import approved_description, described_card, description_diff, server_diff
from golem_forge.mcp.client.manifest import ManifestCache
from golem_forge.mcp.client.model import (
    SERVER_NOT_FOUND,
    Identity,
    ServerManifest,
    ServerState,
    ServerToolList,
    offer_unknown,
    tool_names,
)
from golem_forge.mcp.client.tool_source import is_offered
from golem_forge.mcp.client.trust_store import ServerApproval, ServerTrustStore
from golem_forge.storage.home import ForgeHome, forge_home

if TYPE_CHECKING:
    from golem_forge.agent.mcp_servers import SessionServers
    from golem_forge.mcp.client.model import HeldTool, RemoteTool


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownServer:
    spec: ServerSpec
    state: ServerState
    error: str = ""
    approved: bool
    config_diff: str = ""
    """Changes of its config since it was approved; empty if there are none or it was never approved."""
    manifest: ServerManifest | None = None
    listing: ServerToolList | None = None
    """Held against the pins. None: it was never listed, or that was more than a day ago."""

    @property
    def offered(self) -> int | None:
        """Number of tools that a session would offer; None if unknown."""
        return None if self.listing is None else sum(is_offered(self.spec, tool.name) for tool in self.listing.tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditorServer:
    """A server that an editor named (`forge acp`). Only its sessions use it."""

    name: str
    scope: str
    client: str
    named: ServerApproval
    approval: ServerApproval | None

    @property
    def approved(self) -> bool:
        return self.approval is not None and self.approval.digest == self.named.digest

    @property
    def state(self) -> ServerState:
        return ServerState.KNOWN if self.approved else ServerState.PENDING

    @property
    def origin(self) -> str:
        return f"the editor {self.client}"

    @property
    def note(self) -> str:
        return f"starts in sessions of {self.client}" if self.approved else f"run: forge mcp approve {self.name}"

    @property
    def card(self) -> str:
        return described_card(self.name, self.origin, self.named.described)

    @property
    def diff(self) -> str:
        """Changes since it was approved; empty if there are none or it was never approved."""
        return "" if self.approval is None else description_diff(self.approval.described, self.named.described)

    def summary(self) -> dict[str, Any]:
        """Returns the entry for `forge mcp list --json`."""
        return {
            "name": self.name,
            "state": self.state.value,
            "error": None if self.approved else self.note,
            "transport": "http" if "url" in self.named.described else "stdio",
            "origin": self.origin,
            "approved": self.approved,
            "trust": ServerTrust.UNTRUSTED.value,
            "required": False,
            "tools": None,
            "held": 0,
            "protocol": None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInventory:
    """A program's servers and what a person agreed to about them."""

    home: ForgeHome
    program: Program
    book: ServerTrustStore
    cache: ManifestCache

    def spec(self, name: str) -> ServerSpec:
        """Returns the config of a server. Raises ForgeError (`SERVER_NOT_FOUND`)."""
        servers = self.program.mcp.servers
        if name in servers:
            return servers[name]
        hint = nearest_remark(name, servers)
        raise ForgeError(f"no MCP server '{name}'{hint}. `forge mcp list` shows them.", code=SERVER_NOT_FOUND)

    def known(self, name: str) -> KnownServer:
        """Returns what is known of a server. Raises ForgeError (`SERVER_NOT_FOUND`)."""
        spec = self.spec(name)
        approved = self.book.approved(spec)
        state, error, diff = ServerState.KNOWN, "", ""
        manifest: ServerManifest | None = None
        if not spec.enabled:
            state = ServerState.DISABLED
        elif spec.problem:
            state, error = ServerState.FAILED, spec.problem
        elif not approved:
            diff = server_diff(self.book.approved_before(spec), spec)
            why = "its config changed since it was approved; " if diff else ""
            state, error = ServerState.PENDING, f"{why}run: forge mcp approve {spec.name}"
        elif (found := self.cache.load(spec, time.time())) is not None:
            manifest = found[0]
        else:
            state = ServerState.KNOWN if self.book.was_listed(spec.scope, spec.name) else ServerState.PENDING
            error = offer_unknown(spec.name)
        return KnownServer(
            spec=spec,
            state=state,
            error=error,
            approved=approved,
            config_diff=diff,
            manifest=manifest,
            listing=self.listing(spec, manifest) if manifest is not None else None,
        )

    def all(self) -> list[KnownServer]:
        """Returns all configured servers."""
        return [self.known(name) for name in self.program.mcp.servers]

    def named_by_editors(self) -> list[EditorServer]:
        """Servers that editors named for sessions of this program, by name."""
        found = [
            EditorServer(name=name, scope=scope, client=client, named=record.named, approval=record.approval)
            for (scope, name), record in self.book.named().items()
            if record.named is not None and (client := editor_of_scope(scope, self.program.root))
        ]
        return sorted(found, key=lambda each: (each.name, each.client))

    def editor_servers(self, name: str) -> list[EditorServer]:
        """Returns the editors' servers of that name; empty if a configured server has the name."""
        if name in self.program.mcp.servers:
            return []
        return [each for each in self.named_by_editors() if each.name == name]

    def listing(self, spec: ServerSpec, manifest: ServerManifest) -> ServerToolList:
        from golem_forge.mcp.client.tool_list import apply_pins, check_entries

        return apply_pins(check_entries(spec.name, manifest.tools, manifest.diagnostics), self.book, spec.scope)


def read_inventory(directory: Path | str = ".", home: ForgeHome | None = None) -> ServerInventory:
    """Reads the servers of a program. Raises ConfigError."""
    home = home or forge_home()
    program = read_program(directory, home, trust_store(home))
    return ServerInventory(home=home, program=program, book=ServerTrustStore(home), cache=ManifestCache(home))


def offered_names(listings: Iterable[ServerToolList | None]) -> Mapping[Identity, str]:
    """Returns the names of the tools for callers, computed over all servers as in a session."""
    return tool_names([identity for listing in listings if listing is not None for identity in listing.identities])


def known_in_session(servers: SessionServers, name: str) -> KnownServer:
    """Returns what the pool of a running session knows of a server. Raises ForgeError (`SERVER_NOT_FOUND`)."""
    pool, book = servers.pool, servers.book
    status = pool.status(name)
    spec = pool.specs[name]
    approved = book.approved(spec)
    return KnownServer(
        spec=spec,
        state=status.state,
        error=status.error,
        approved=approved,
        config_diff="" if approved else server_diff(book.approved_before(spec), spec),
        manifest=pool.manifest(name),
        listing=pool.listing(name),
    )


_WITH_VALUES: Final = ("env", "headers")


def server_summary(known: KnownServer) -> dict[str, Any]:
    """Returns the entry for `forge mcp list --json`, which is also the first part of the others."""
    spec = known.spec
    return {
        "name": spec.name,
        "state": known.state.value,
        "error": known.error or None,
        "transport": "http" if spec.is_http else "stdio",
        "origin": spec.origin,
        "approved": known.approved,
        "trust": spec.trust.value,
        "required": spec.required,
        "tools": known.offered,
        "held": len(known.listing.held) if known.listing is not None else 0,
        "protocol": known.manifest.protocol if known.manifest is not None else None,
    }


def server_details(known: KnownServer, names: Mapping[Identity, str]) -> dict[str, Any]:
    """Returns the data of `forge mcp show --json`."""
    spec, manifest, listing = known.spec, known.manifest, known.listing
    return server_summary(known) | {
        "config": shown_config(spec),
        "configDiff": known.config_diff or None,
        "server": dict(manifest.info) if manifest is not None else None,
        "listedAt": iso_time(manifest.fetched_at) if manifest is not None else None,
        "instructions": manifest.instructions if manifest is not None else None,
        "tools": tools_json(spec, listing.tools, names) if listing is not None else None,
        "held": held_json(listing.held, names) if listing is not None else [],
        "prompts": prompt_names(manifest) if manifest is not None else None,
        "resources": manifest.has_resources if manifest is not None else None,
        "diagnostics": list(listing.diagnostics) if listing is not None else [],
    }


def shown_config(spec: ServerSpec) -> dict[str, Any]:
    """Returns the config that an approval covers. A value of a variable or header that is more than
    `${NAME}` is null.
    """
    described = approved_description(spec.described)
    for key in _WITH_VALUES:
        if key in described:
            described[key] = {name: value if isinstance(value, str) else None for name, value in described[key].items()}
    return described


def prompt_names(manifest: ServerManifest) -> list[str]:
    return [str(each["name"]) for each in manifest.prompts if isinstance(each, dict) and "name" in each]


def tools_json(spec: ServerSpec, tools: Iterable[RemoteTool], names: Mapping[Identity, str]) -> list[dict[str, Any]]:
    return [
        {
            "name": names[tool.identity],
            "tool": tool.name,
            "title": tool.title,
            "description": tool.description,
            "pin": tool.familiarity.value,
            "offered": is_offered(spec, tool.name),
            "digest": tool.digest,
            "annotations": dict(tool.annotations),
        }
        for tool in tools
    ]


def held_json(held: Iterable[HeldTool], names: Mapping[Identity, str]) -> list[dict[str, Any]]:
    return [
        {
            "name": names[each.identity],
            "tool": each.name,
            "reason": each.reason.value,
            "message": each.message,
            "diff": each.diff or None,
        }
        for each in held
    ]
