"""A server as data: its config, state, tools under both names, what is held back and why.

Values of variables and headers stay out: a secret may stand there.

Threat: every name and description here is a server's own words; whoever shows them makes them visible first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from golem_forge.mcp.client.tool import is_offered

if TYPE_CHECKING:
    from golem_forge.config.mcp.spec import ServerSpec
    from golem_forge.mcp.client.definitions.definition import HeldTool, RemoteTool
    from golem_forge.mcp.client.definitions.manifest import Manifest
    from golem_forge.mcp.client.definitions.names import Identity
    from golem_forge.workers.mcp.known import Known

_WITH_VALUES: Final = ("env", "headers")


def facts(known: Known) -> dict[str, Any]:
    """For `forge mcp list --json`, and the first part of the others."""
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


def whole_facts(known: Known, names: Mapping[Identity, str]) -> dict[str, Any]:
    """For `forge mcp show --json`."""
    from golem_forge.events.clock import iso

    spec, manifest, listing = known.spec, known.manifest, known.listing
    return facts(known) | {
        "config": config_shown(spec),
        "configDiff": known.config_diff or None,
        "server": dict(manifest.info) if manifest is not None else None,
        "listedAt": iso(manifest.fetched_at) if manifest is not None else None,
        "instructions": manifest.instructions if manifest is not None else None,
        "tools": tools_json(spec, listing.tools, names) if listing is not None else None,
        "held": held_json(listing.held, names) if listing is not None else [],
        "prompts": prompt_names(manifest) if manifest is not None else None,
        "resources": manifest.has_resources if manifest is not None else None,
        "diagnostics": list(listing.diagnostics) if listing is not None else [],
    }


def config_shown(spec: ServerSpec) -> dict[str, Any]:
    """What is agreed to when it is approved. A value of a variable or header that is more than `${NAME}` is null."""
    from golem_forge.mcp.client.trust.server_card import agreed

    described = agreed(spec.described)
    for key in _WITH_VALUES:
        if key in described:
            described[key] = {name: value if isinstance(value, str) else None for name, value in described[key].items()}
    return described


def prompt_names(manifest: Manifest) -> list[str]:
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
