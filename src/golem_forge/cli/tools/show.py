"""`forge tools show NAME`: one tool in full: description, parameters, who decides about its calls.

Of a person's own tool also its folder, state, permissions, tests and ratings.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.session_plan import approval_blocks
from golem_forge.agent.trust import trust_store
from golem_forge.cli.command import fail, print_error, print_json, read_args
from golem_forge.cli.tools.list import (
    OF_THE_WORKER,
    find_in_session,
    not_offered,
    print_unread,
    take_inventory,
    tool_facts,
)
from golem_forge.config.program import load_program
from golem_forge.core.text import columns, escape_control_chars, nearest_remark, one_line
from golem_forge.policy.base import ApprovalBlock, ApprovalBlocks, who_decides
from golem_forge.storage.home import forge_home
from golem_forge.tools.catalog import DefinitionFormat, tool_definition
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.usertools.catalog_sync import user_tool
from golem_forge.usertools.overview import tool_details

if TYPE_CHECKING:
    from golem_forge.cli.tools.list import ToolInventory
    from golem_forge.usertools.folder import ToolEntry

HELP: Final = """usage: forge tools show NAME [--json] [--shape mcp|anthropic|openai]

Shows one tool: its description, who decides about its calls, its parameters; for a user tool also its folder, version,
state, digest, provenance, permissions, tests and ratings.

  --json    for programs: also the definition with its schemas, in MCP's shape
  --shape   that definition in the shape of a model provider

In a program it shows the tool that `forge call` uses there. It runs no tool and opens no session. If no other tool has
the name, it starts the modules of a trusted program, or an approved MCP server, asks them for the tool and ends them.
Exit: 0 done, 2 usage or configuration, 4 no such tool."""

PrintTool = Callable[["ToolInventory", "Tool", "ToolEntry | None", str], None]
"""Prints a tool; the last argument is what decides about its calls."""
_CALLERS: Final = {"llm": "for models", "manual": "for people", "both": "for models and people"}


def run_show(words: list[str]) -> int:
    asked = read_args("tools show", HELP, words, "NAME", "--json", "--shape mcp|anthropic|openai")
    if asked.json or asked.shape:
        return show(asked.name, ".", partial(_print_json, shape=asked.shape or "mcp"))
    return show(asked.name)


def show(name: str, directory: str = ".", tell: PrintTool | None = None) -> int:
    """Shows a tool of the worker that `forge call` there uses; else of all tools. Returns the exit code."""
    tell = tell or _print_tool
    here = asyncio.run(find_in_session(name, directory))
    if here is not None and here.tool is not None:
        own = _own_entry(here.seen, here.tool.name) if here.tool.source == "custom" else None
        tell(here.seen, here.tool, own, here.approval)
        return 0
    seen = take_inventory(directory)
    found = seen.catalog.aliases().get(name, name) if name not in seen.catalog else name
    own, tool = _own_entry(seen, name), seen.catalog.get(found)
    if tool is None and own is not None:
        assert seen.workshop is not None
        tool = user_tool(seen.workshop, own)
    if tool is None:
        print_unread(seen)
        return _not_found(seen, name, here.why_not if here is not None else "")
    if seen.has_entry:
        not_there = f"'{tool.name}' is not among the tools of this program's worker"
        print_error("tools", f"{not_there}; `forge run --dry-run` shows those.")
    tell(seen, tool, own, approval_note(tool, seen.approval, seen.directory))
    return 0


def _own_entry(seen: ToolInventory, name: str) -> ToolEntry | None:
    return seen.workshop.registry.entries.get(name) if seen.workshop is not None else None


def _details(seen: ToolInventory, entry: ToolEntry) -> dict[str, Any]:
    assert seen.workshop is not None
    return tool_details(seen.workshop, entry)


def _print_json(seen: ToolInventory, tool: Tool, own: ToolEntry | None, approval: str, *, shape: str) -> None:
    facts = tool_facts(seen.catalog, tool) | {
        "approval": approval,
        "definition": tool_definition(tool, DefinitionFormat(shape)),
    }
    if own is not None:
        about = _details(seen, own)
        facts |= about if tool.source is SourceKind.CUSTOM else {"waiting": about}
    print_json(facts)


def _print_tool(seen: ToolInventory, tool: Tool, own: ToolEntry | None, approval: str) -> None:
    traits = [tool.source.value, _CALLERS[tool.mode.value]]
    if aliases := tool_facts(seen.catalog, tool)["aliases"]:
        traits.append(f"also called {', '.join(aliases)}")
    print(f"{tool.name}  ({', '.join(traits)})\n")
    print("\n".join(f"  {line}".rstrip() for line in escape_control_chars(tool.description).splitlines()))
    print(f"\napproval: {escape_control_chars(approval)}")
    if own is not None:
        _print_about(_details(seen, own))
    rows = parameter_rows(tool.input_schema)
    print("\nparameters:" if rows else "\nparameters: none")
    if rows:
        print(columns(rows, indent="  "))


def _print_about(about: dict[str, Any]) -> None:
    why, ratings = about["skipped"], about["ratings"]
    lines = [
        ("folder", about["folder"]),
        ("version", about["version"]),
        ("state", about["state"] + (f" ({why['code']}: {why['message']})" if why else "")),
        ("digest", about["digest"]),
        ("provenance", about["author"]),
        ("runs", about["entrypoint"]),
        *about["permissions"].items(),
        ("tests", ", ".join(about["tests"]) or "no tests"),
        ("ratings", f"{ratings['good']} good, {ratings['bad']} bad" if ratings["good"] or ratings["bad"] else "none"),
        *(("note", note) for note in ratings["notes"]),
    ]
    for label, words in lines:
        print(one_line(f"{label}: {words}"))


def _not_found(seen: ToolInventory, name: str, why: str) -> int:
    """`why`: what the program's session knows of a name that no tool has now."""
    fault = next((each for each in seen.skipped if each.tool == name), None)
    if fault is not None:
        folder = seen.workshop.display_folder(name) if seen.workshop is not None else name
        return fail("tools", f"'{name}' ({folder}) is not a usable tool: {fault.text}", 4)
    reason = next((each.reason for each in not_offered(seen) if each.name == name), None)
    if reason is not None:
        return fail("tools", f"'{name}' is not offered until it is repaired: {reason}", 4)
    hint = nearest_remark(name, [*seen.catalog.names(), *(each.name for each in seen.program_tools)])
    more = f" But {OF_THE_WORKER}" if seen.has_entry else ""
    print_error("tools", f"no tool '{name}'{hint}. `forge tools list` shows them.{more}")
    if why:
        print_error("tools", why)
    return 4


def parameter_rows(schema: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    required = schema.get("required", ())
    rows = []
    for name, field in schema.get("properties", {}).items():
        field = field if isinstance(field, dict) else {}
        need = "required" if name in required else "optional"
        if field.get("default") is not None:
            need = f"default {json.dumps(field['default'], ensure_ascii=False)}"
        rows.append((name, _type_name(field, schema), need, one_line(str(field.get("description", "")))))
    return rows


def _type_name(field: dict[str, Any], whole: dict[str, Any]) -> str:
    """`string`, `integer or null`, `list of string`, `one of a, b`: as people say it."""
    if reference := field.get("$ref"):
        name = str(reference).rsplit("/", 1)[-1]
        target = whole.get("$defs", {}).get(name)
        return _type_name(target, {}) if isinstance(target, dict) else name
    if "enum" in field or "const" in field:
        return f"one of {', '.join(map(str, field.get('enum', [field.get('const')])))}"
    for key in ("anyOf", "oneOf"):
        if isinstance(field.get(key), list):
            return " or ".join(dict.fromkeys(_type_name(part, whole) for part in field[key] if isinstance(part, dict)))
    kinds = field.get("type", "any")
    if kinds == "array":
        items = field.get("items")
        return f"list of {_type_name(items, whole)}" if isinstance(items, dict) and items else "list"
    return " or ".join(map(str, kinds)) if isinstance(kinds, list) else str(kinds)


def approval_note(tool: Tool, said: Mapping[str, ApprovalBlock] | None = None, directory: Path | str = ".") -> str:
    """`said`: by tool, what the block or server that brings it says."""
    home = forge_home()
    program = load_program(Path(directory).absolute(), home, trusted=trust_store(home).trusted)
    blocks = approval_blocks(program, {tool.name: tool}, [])
    return who_decides(tool, ApprovalBlocks(program=blocks.program, blocks={**blocks.blocks, **(said or {})}))
