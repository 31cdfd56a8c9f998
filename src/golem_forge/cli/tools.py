"""`forge tools list | show NAME | search QUERY`: the tools there are, without opening a session or running anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from golem_forge.cli.plain import columns, complain, one_line, parser, print_json, shortened
from golem_forge.core.visible import visible

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from golem_forge.tools.catalog import Catalog
    from golem_forge.tools.tool import Tool

HELP: Final = """usage: forge tools list [--source native|custom|mcp] [--mode llm|manual|both] [--json]
       forge tools show NAME [--json] [--shape mcp|anthropic|openai]
       forge tools search QUERY… [--limit N] [--json]

  list      name, source, mode (who may call it) and first line of every tool; what cannot be offered, with the reason
  show      one tool: its description, who decides about its calls, its parameters
  search    the tools that fit the words best, best first

  --json    for programs; `show --json` has the definition with its schemas in MCP's shape,
            `--shape` gives that definition in the shape of a model provider

Nothing is run and no session is opened.
Exit: 0 done, 2 usage or configuration, 4 no such tool."""

_SOURCES: Final = ("native", "custom", "mcp")
_MODES: Final = ("llm", "manual", "both")
_SHAPES: Final = ("mcp", "anthropic", "openai")
_DESCRIPTION_WIDTH: Final = 100


def run(words: list[str]) -> int:
    verb, rest = (words[0], words[1:]) if words else ("", [])
    if not words or {"-h", "--help"} & set(words):
        print(HELP)
        return 0 if words else 2
    verbs = {"list": _list, "show": _show, "search": _search}
    if verb not in verbs:
        complain("tools", f"unknown verb '{verb}': list, show or search. `forge tools --help` says more.")
        return 2
    return verbs[verb](rest)


def _reader(verb: str) -> ArgumentParser:
    reader = parser(f"tools {verb}", HELP)
    reader.add_argument("--json", action="store_true")
    return reader


def _catalog() -> Catalog:
    from golem_forge.workers.catalog import build_catalog

    return build_catalog()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _list(words: list[str]) -> int:
    reader = _reader("list")
    reader.add_argument("--source", choices=_SOURCES)
    reader.add_argument("--mode", choices=_MODES)
    asked = reader.parse_args(words)
    catalog = _catalog()
    tools = catalog.list(source=asked.source, mode=asked.mode)
    quarantined = [each for each in catalog.quarantined() if asked.source in (None, str(each.source))]
    if asked.json:
        print_json(
            {
                "tools": [_facts(catalog, tool) for tool in tools],
                "quarantined": [
                    {"name": each.name, "source": str(each.source), "reason": each.reason} for each in quarantined
                ],
            }
        )
        return 0
    if tools:
        print(_table(tools))
    else:
        complain("tools", "no tool fits. `forge tools list` without options lists all of them.")
    if quarantined:
        print("\nnot offered until repaired:")
        print(columns(((each.name, str(each.source), each.reason) for each in quarantined), indent="  "))
    return 0


def _search(words: list[str]) -> int:
    reader = _reader("search")
    reader.add_argument("query", metavar="QUERY", nargs="+")
    reader.add_argument("--limit", type=_positive, default=10)
    asked = reader.parse_args(words)
    catalog = _catalog()
    found = catalog.find(" ".join(asked.query), limit=asked.limit)
    if asked.json:
        print_json({"tools": [_facts(catalog, tool) for tool in found.tools], "total": found.total})
    elif found.tools:
        print(_table(found.tools))
        if found.total > len(found.tools):
            print(f"… and {found.total - len(found.tools)} more; --limit shows them")
    else:
        complain("tools", "nothing fits. Try fewer or other words, or `forge tools list`.")
    return 0


def _show(words: list[str]) -> int:
    reader = _reader("show")
    reader.add_argument("name", metavar="NAME")
    reader.add_argument("--shape", choices=_SHAPES)
    asked = reader.parse_args(words)
    catalog = _catalog()
    tool = _named(catalog, asked.name)
    if tool is None:
        return _not_found(catalog, asked.name)
    from golem_forge.cli.approval_note import approval_note

    if asked.json or asked.shape:
        from golem_forge.tools.definitions import Shape, definition

        shape = Shape(asked.shape or "mcp")
        print_json(
            _facts(catalog, tool) | {"approval": approval_note(tool), "definition": definition(tool, shape)},
        )
        return 0
    print(f"{tool.name}  ({', '.join(_traits(catalog, tool))})\n")
    print("\n".join(f"  {line}".rstrip() for line in visible(tool.description).splitlines()))
    print(f"\napproval: {visible(approval_note(tool))}")
    rows = _parameter_rows(tool.input_schema)
    print("\nparameters:" if rows else "\nparameters: none")
    if rows:
        print(columns(rows, indent="  "))
    return 0


def _not_found(catalog: Catalog, name: str) -> int:
    from golem_forge.core.nearest import nearest

    reason = next((each.reason for each in catalog.quarantined() if each.name == name), None)
    if reason is not None:
        complain("tools", f"'{name}' is not offered until it is repaired: {reason}")
        return 4
    close = nearest(name, catalog.names())
    hint = f" (did you mean '{close}'?)" if close else ""
    complain("tools", f"no tool '{name}'{hint}. `forge tools list` shows them.")
    return 4


def _named(catalog: Catalog, name: str) -> Tool | None:
    return catalog.get(name) or catalog.get(catalog.aliases().get(name, name))


def _table(tools: Any) -> str:
    head = ("NAME", "SOURCE", "MODE", "DESCRIPTION")
    return columns([head, *((tool.name, tool.source.value, tool.mode.value, _first_line(tool)) for tool in tools)])


def _first_line(tool: Tool) -> str:
    lines = tool.description.strip().splitlines()
    return shortened(lines[0], _DESCRIPTION_WIDTH) if lines else ""


def _facts(catalog: Catalog, tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "source": tool.source.value,
        "mode": tool.mode.value,
        "label": tool.label,
        "category": tool.category,
        "description": tool.description,
        "aliases": [alias for alias, name in catalog.aliases().items() if name == tool.name],
    }


def _traits(catalog: Catalog, tool: Tool) -> list[str]:
    aliases = _facts(catalog, tool)["aliases"]
    callers = {"llm": "for models", "manual": "for people", "both": "for models and people"}
    traits = [tool.source.value, callers[tool.mode.value]]
    return traits + ([f"also called {', '.join(aliases)}"] if aliases else [])


def _parameter_rows(schema: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    required = schema.get("required", ())
    rows = []
    for name, field in schema.get("properties", {}).items():
        field = field if isinstance(field, dict) else {}
        need = "required" if name in required else "optional"
        if field.get("default") is not None:
            import json

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
