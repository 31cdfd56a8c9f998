"""Writes the pages of docs/reference that come from the code: commands, configuration keys, events, Python, web API;
and the schemas of the native tools, which are shipped so that no session has to build them.

`--check` changes nothing and exits with 1 if one of them is not what the code says. What the code cannot say, one
sentence and some defaults for each configuration key, stands in scripts/config_keys.yaml: a key without a sentence is
an error, and so is a sentence without a key.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
REFERENCE: Final = ROOT / "docs" / "reference"
SCHEMAS: Final = ROOT / "src" / "golem_forge" / "tools" / "native_schemas.json"
SENTENCES: Final = ROOT / "scripts" / "config_keys.yaml"
HEAD: Final = (
    "<!-- Written by scripts/write_reference.py from the code: run `make reference` instead of editing. -->\n\n"
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the pages of docs/reference that come from the code.")
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args()
    pages = {
        "cli.md": command_page,
        "config.md": config_page,
        "events.md": event_page,
        "python.md": python_page,
        "web-api.md": web_api_page,
    }
    texts = {REFERENCE / name: HEAD + write().rstrip() + "\n" for name, write in pages.items()}
    texts[SCHEMAS] = native_schemas()
    old: list[str] = []
    for page, text in texts.items():
        if page.is_file() and page.read_text() == text:
            continue
        old.append(str(page.relative_to(ROOT)))
        if not options.check:
            page.write_text(text)
    if old and options.check:
        print(f"{', '.join(old)}: not what the code says; run: make reference")
        return 1
    return 0


def native_schemas() -> str:
    """The schemas that come from models: one line for each tool."""
    from golem_forge.core.json import compact_json
    from golem_forge.mcp.client.resources import resource_tools
    from golem_forge.toolsets import TOOL_LIST
    from golem_forge.toolsets.tool_search import ToolSearchResult, create_tool_search_tool
    from golem_forge.usertools.native_tools import create_run_code_tool

    search = create_tool_search_tool(lambda _query, _limit: ToolSearchResult(tools=(), total=0, sources={}), {})
    tools = [*TOOL_LIST, *resource_tools(), create_run_code_tool(), search]
    lines = [f'"{tool.name}":{compact_json(tool.input.schema())}' for tool in sorted(tools, key=lambda tool: tool.name)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


# ---- commands


def command_page() -> str:
    """Every verb with the help that it prints."""
    from golem_forge.cli.main import VERBS

    text = [
        "# Command line",
        "",
        "Every verb of `forge` with the help that it prints. [The command line](../guides/command-line.md) shows them"
        " at work, and has the exit codes.",
        "",
        "```text",
        help_of(),
        "```",
    ]
    for verb, does in VERBS.items():
        text += ["", f"## forge {verb}", "", sentence(does), "", "```text", help_of(verb), "```"]
        for below in verbs_below(verb):
            text += ["", f"### forge {verb} {below}", "", "```text", help_of(verb, below), "```"]
    return "\n".join(text)


def help_of(*words: str) -> str:
    from golem_forge.cli.main import main as forge

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            code: Any = forge([*words, "--help"])
        except SystemExit as ended:
            code = ended.code
    if code:
        raise SystemExit(f"forge {' '.join(words)} --help exits with {code}")
    return said.getvalue().rstrip()


def verbs_below(verb: str) -> list[str]:
    """The verbs of a group (`forge tools`, `forge mcp`): their lines stand below a `VERB` in its help."""
    from golem_forge.cli.main import TEAM_VERBS, VERBS_ELSEWHERE

    if verb in TEAM_VERBS:  # their help shows all of them at once
        return []
    return list(getattr(import_module(f"golem_forge.cli.{VERBS_ELSEWHERE.get(verb, verb)}"), "VERBS", ()))


# ---- configuration keys


def config_page() -> str:
    """Every key of forge.yaml, config.yaml and worker files: type, default, one sentence."""
    from ruamel.yaml import YAML

    from golem_forge.agent.files import worker, worker_file
    from golem_forge.config.program import _SCHEMA

    words: dict[str, dict[str, Any]] = YAML(typ="safe").load(SENTENCES.read_text())
    blocks = {
        "custom": worker._CUSTOM_OFFERS,
        "user_tools": worker._USER_TOOLS,
        "mcp": worker._MCP,
        "external": worker._EXTERNAL,
        "workers": worker._WORKERS,
    }
    text = [
        "# Configuration keys",
        "",
        "Forge reads three kinds of YAML files. A key that is not listed here is an error; the message names the file,"
        " the line and the nearest key. `<name>` stands for a name that you choose, `[]` for each entry of a list.",
        "",
        "## `forge.yaml` and `config.yaml`",
        "",
        "`forge.yaml` stands at the root of a program. `~/.forge/config.yaml` takes the same keys: they are your own"
        " defaults, and `forge.yaml` stands over them. [Programs](../guides/workers.md#programs) explains them;"
        " [trust](../concepts/trust.md) says which of them count before you trusted the program.",
        "",
        *key_table(_SCHEMA, words.pop("program"), program_defaults()),
        "",
        "## Worker files",
        "",
        "The YAML between the two lines `---` of a `.worker` file."
        " [Write a worker](../guides/workers.md) explains them.",
        "",
        *key_table(worker_file._SHAPE, words.pop("worker"), worker_defaults()),
        "",
        "## Toolset blocks that bring tools of others",
        "",
        "Blocks below `toolsets:` of a worker file. [Built-in tools](tools.md) has the blocks of built-in toolsets.",
    ]
    for name, schema in blocks.items():
        text += ["", f"### `{name}`", "", *key_table(schema, words.pop(name), {})]
    if words:
        raise SystemExit(f"{SENTENCES.name}: no table is called {', '.join(words)}")
    return "\n".join(text)


def key_table(schema: Any, words: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    found = dict(keys_of(schema))
    missing, unused = found.keys() - words.keys(), words.keys() - found.keys()
    if missing or unused:
        raise SystemExit(
            f"{SENTENCES.name}: keys without a sentence: {', '.join(sorted(missing)) or 'none'}; "
            f"sentences without a key: {', '.join(sorted(unused)) or 'none'}"
        )
    lines = ["| key | type | default | what it does |", "|---|---|---|---|"]
    for key, (kind, required) in found.items():
        said = words[key]
        text, default = (said, None) if isinstance(said, str) else (said["text"], said.get("default"))
        if default is None:
            default = "required" if required else code(defaults.get(key))
        lines.append(f"| `{key}` | {cell(kind)} | {cell(default)} | {cell(text)} |")
    return lines


def keys_of(schema: Any, prefix: str = "") -> Iterator[tuple[str, tuple[str, bool]]]:
    """Dotted key → what it takes, whether it must be there."""
    from golem_forge.config.validation import MappingSchema

    assert isinstance(schema, MappingSchema)
    providers = _same_for_all(schema)
    for key, check in ({"<provider>": providers} if providers else schema.keys).items():
        name = f"{prefix}{key}"
        inner, form = item_of(check), ""
        if inner is not None and isinstance(inner[0], MappingSchema):
            form = inner[1]
            yield name, (form, key in schema.required)
            yield from keys_of(inner[0], f"{name}[]." if form.startswith("list") else f"{name}.<name>.")
        elif isinstance(below := _mapping(check), MappingSchema):
            yield name, ("mapping", key in schema.required)
            yield from keys_of(below, f"{name}.")
        else:
            yield name, (kind_of(check), key in schema.required)


def _same_for_all(schema: Any) -> Any:
    """The check of every provider, where the keys are their names."""
    from golem_forge.config.run_block import PROVIDER_NAMES

    return next(iter(schema.keys.values())) if tuple(schema.keys) == PROVIDER_NAMES else None


def _mapping(check: Any) -> Any:
    """The keys behind a check that is a function."""
    from golem_forge.agent.files.worker import approval_block
    from golem_forge.config import run_block
    from golem_forge.sandbox.walls import environment

    named = {
        run_block.approval_settings: run_block._APPROVAL,
        approval_block: run_block._APPROVAL,
        environment.env_block: environment._SHAPE,
    }
    return named.get(check, check) if inspect.isfunction(check) else check


def item_of(check: Any) -> tuple[Any, str] | None:
    """The check of an entry, for a list or a mapping with names of the person's own."""
    if not inspect.isfunction(check) or check.__name__ not in ("check_list", "check_map"):
        return None
    item = inspect.getclosurevars(check).nonlocals["item"]
    return item, "list of mappings" if check.__name__ == "check_list" else "mapping of names"


def kind_of(check: Any) -> str:
    """What a check says that it expects: it is given a value that cannot fit, and its message is read."""
    from golem_forge.config.validation import ConfigProblems
    from golem_forge.config.yaml_file import parse_yaml

    if inner := item_of(check):
        each = kind_of(inner[0])
        return f"list: each {each}" if check.__name__ == "check_list" else f"mapping: each {each}"

    class Heard(ConfigProblems):
        def add(self, path: Any, problem: str) -> None:
            self.found.append(problem)

    heard = Heard(parse_yaml(b"{}", "reference"))
    check(_Nothing(), ("x",), heard)
    said = next((text for text in heard.found if text.startswith("expected ")), "")
    return re.sub(r", got .*$| \(.*\)$", "", said.removeprefix("expected ")) or "see the guide"


class _Nothing:
    """Fits no check."""

    def __repr__(self) -> str:
        return "nothing"


def program_defaults() -> dict[str, Any]:
    from golem_forge.config.program import InstructionSettings, OtelSettings, UiSettings
    from golem_forge.config.run_block import DelegationLimits, ProviderSettings, RunSettings
    from golem_forge.config.sandbox_block import ResourceLimits
    from golem_forge.core.changes import UndoSettings

    provider, limits, ui = ProviderSettings(), ResourceLimits(), UiSettings()
    return {
        "entry": RunSettings().entry,
        "worker_paths": list(RunSettings().worker_paths),
        **{f"delegation.{name}": value for name, value in members(DelegationLimits()).items()},
        **{f"models.<provider>.{name}": value for name, value in members(provider).items()},
        **{f"sandbox.limits.{name}": value for name, value in members(limits).items()},
        "instructions.project_files": InstructionSettings().project_files,
        "otel.content": OtelSettings().content,
        **{f"undo.{name}": value for name, value in members(UndoSettings()).items() if name != "keep"},
        "ui.web.notify": ui.web_notify,
    }


def worker_defaults() -> dict[str, Any]:
    from golem_forge.agent.files.worker import AttachmentPolicy, BatchSettings, Worker

    return {
        **members(Worker(name="x")),
        **{f"attachment_policy.{name}": value for name, value in members(AttachmentPolicy()).items()},
        **{f"batch.{name}": value for name, value in members(BatchSettings()).items()},
    }


def members(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in type(record).__dataclass_fields__}


def code(value: Any) -> str:
    if value is None or value in ("", (), [], {}):
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"`{value >> 30}GiB`" if value % (1 << 30) == 0 else f"`{value >> 20}MiB`"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, list | tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`" if isinstance(value, int | float | str) else "–"


# ---- events, web API


def event_page() -> str:
    """Every event and action, from the schemas of the OpenAPI document."""
    schemas = document()["components"]["schemas"]
    text = [
        "# Events",
        "",
        "Events go from the runtime to its UIs: the bus carries them, the journal keeps most of them. Actions go from a"
        " UI to the runtime. `forge run --json` prints events, one a line; the [web API](web-api.md) sends the same"
        " ones. A reader ignores types and members that it does not know.",
        "",
        "An event is `{type, seq, ts, sessionId, workerId, data}`. The tables list the members of `data`.",
    ]
    for prefix, title in (("event.", "Events"), ("action.", "Actions")):
        text += ["", f"## {title}"]
        for name, schema in schemas.items():
            if not name.startswith(prefix):
                continue
            own = schema["properties"].get("data", {}) if prefix == "event." else schema
            own = schemas[own["$ref"].rpartition("/")[2]] if "$ref" in own else own
            if prefix == "action." and "data" in own.get("properties", {}):
                own = own["properties"]["data"]
                own = schemas[own["$ref"].rpartition("/")[2]] if "$ref" in own else own
            text += ["", f"### {name.removeprefix(prefix)}", ""]
            about = " ".join((schema.get("description") or own.get("description") or "").split())
            text += [sentence(about), ""] if about else []
            text += member_table(own)
    return "\n".join(text)


def member_table(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required", ())
    rows = [
        f"| `{name}` | {cell(type_of(member))} | {'yes' if name in required else 'no'} | "
        f"{cell(' '.join(member.get('description', '').split()))} |"
        for name, member in schema.get("properties", {}).items()
    ]
    return ["| member | type | always there | meaning |", "|---|---|---|---|", *rows] if rows else ["No members."]


def web_api_page() -> str:
    """Every request, from the OpenAPI document."""
    told = document()
    text = [
        "# Web API",
        "",
        told["info"]["description"].replace("docs/guides/own-ui.md", "[Your own UI](../guides/own-ui.md)"),
    ]
    text += ["", "`GET /api/openapi.json` gives the whole description as OpenAPI 3.1; this page is made from it."]
    text += request_text(told["paths"])
    text += ["", "## The team's page", ""]
    text += [
        "`forge web --team` answers these as well. A program sends a person's token with every request: "
        "`Authorization: Bearer forge_…`. A browser logs in with it: it is the `code` of `POST /api/login`. "
        "What the person's role does not allow is refused and recorded."
    ]
    teams = document(team=True)
    text += request_text({path: each for path, each in teams["paths"].items() if path not in told["paths"]})
    text += ["", "## Schemas"]
    for name, schema in sorted((teams["components"]["schemas"] | told["components"]["schemas"]).items()):
        if name.startswith(("event.", "action.")) or not schema.get("properties"):
            continue
        text += ["", f"### {name}", ""]
        about = " ".join(schema.get("description", "").split())
        text += [sentence(about), ""] if about else []
        text += member_table(schema)
    return "\n".join(text)


def request_text(paths: Mapping[str, Any]) -> list[str]:
    text: list[str] = []
    for path, operations in paths.items():
        for method, operation in operations.items():
            text += ["", f"## `{method.upper()} {path}`", ""]
            about = operation.get("summary") or operation.get("description") or ""
            text += [sentence(" ".join(about.split())), ""] if about else []
            parameters = operation.get("parameters", ())
            if parameters:
                text += ["| parameter | in | type | required | meaning |", "|---|---|---|---|---|"]
                text += [
                    f"| `{each['name']}` | {each['in']} | {cell(type_of(each.get('schema', {})))} | "
                    f"{'yes' if each.get('required') else 'no'} | "
                    f"{cell(' '.join(each.get('description', '').split()))} |"
                    for each in parameters
                ]
                text.append("")
            for body in operation.get("requestBody", {}).get("content", {}).items():
                text += [f"Body, `{body[0]}`: {type_of(body[1].get('schema', {}))}", ""]
            text += ["| status | answer |", "|---|---|"]
            text += [
                f"| {status} | {cell(answer_of(answer))} |" for status, answer in operation.get("responses", {}).items()
            ]
    return text


def answer_of(answer: Mapping[str, Any]) -> str:
    kinds = [type_of(body.get("schema", {})) for body in answer.get("content", {}).values()]
    return " ".join([" ".join(answer.get("description", "").split()), *(f"({kind})" for kind in kinds if kind)])


def document(*, team: bool = False) -> dict[str, Any]:
    from golem_forge.ui.web.api.openapi import openapi_document
    from golem_forge.ui.web.api.team import team_operations

    return openapi_document("forge", team_operations() if team else ())


def type_of(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(type_of(each) for each in schema[key]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


# ---- Python


def python_page() -> str:
    """Every public name; the generator of the site puts signature and docstring in its place."""
    import golem_forge

    groups: dict[str, list[str]] = {}
    for name in golem_forge.__all__:
        if not name.startswith("__"):
            groups.setdefault(golem_forge._HOME_OF[name].split(".")[1], []).append(name)
    text = [
        "# Python API",
        "",
        "Every public name of the package `golem_forge`, with its signature and docstring. Import each of them from"
        " `golem_forge`. [Embed in Python](../guides/embed.md) shows them at work.",
    ]
    for package in ("agent", "tools", "toolsets", "sandbox", "policy", "orchestrator", "events", "ui", "core"):
        text += ["", f"## {TITLES[package]}", ""]
        text += [f"::: golem_forge.{name}\n" for name in sorted(groups.pop(package), key=str.lower)]
    if groups:
        raise SystemExit(f"write_reference.py: no title for {', '.join(groups)}")
    return "\n".join(text)


TITLES: Final = {
    "agent": "Sessions and workers",
    "tools": "Tools",
    "toolsets": "Built-in toolsets",
    "sandbox": "Zones",
    "policy": "Approval",
    "orchestrator": "The path",
    "events": "Events",
    "ui": "User interfaces",
    "core": "Calls, results, errors",
}


# ---- text


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":")) else ".")


def cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit(main())
