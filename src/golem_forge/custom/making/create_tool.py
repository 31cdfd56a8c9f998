"""`create_custom_tool`: scaffolds a tool folder, all files or none, after a person saw every one of them.

Refuses (`input_invalid`, nothing written) a name that is no name, is taken or reserved, and a twin of what exists.
Threat: argument text never becomes part of code; a source is written as it was given, or is a constant template.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.call import Caller
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.result import ToolResult
from golem_forge.core.verdict import Verdict
from golem_forge.custom.book.records import Author, AuthorKind
from golem_forge.custom.manifest import MANIFEST
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.tool import Mode, Planner, SourceKind, Tool
from golem_forge.tools.validation import InputInvalid

if TYPE_CHECKING:
    from golem_forge.custom.making.scaffold import NewTool
    from golem_forge.custom.workshop import Workshop

NAME: Final = "create_custom_tool"
_OBJECT: Final[dict[str, Any]] = {"type": "object"}
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Letters, digits, '-' and '_', starting with a letter"},
        "description": {"type": "string", "description": "One line: what the tool does"},
        "language": {"enum": ["python", "shell", "go"], "default": "python"},
        "usage": {"type": "string", "description": "How to use it, for whoever calls it later"},
        "parameters": {
            "type": "array",
            "items": _OBJECT,
            "description": "Each {name, type, description, required?, default?, enum?, …}",
        },
        "source": {"type": "string", "description": "The whole source; without it a template is written"},
        "tests": {
            "type": "array",
            "items": _OBJECT,
            "description": "Each {name, arguments, files?, expect: {stdout | stdout_contains | json | exit_code}}",
        },
        "version": {"type": "string", "default": "1.0.0"},
    },
    "required": ["name", "description"],
    "additionalProperties": False,
}


def create_create_custom_tool(shop: Workshop, catalog: Catalog) -> Tool:
    return _tool(partial(_plan, shop, catalog))


def shown_create_custom_tool() -> Tool:
    """The same for a list of what there is, where nothing is called."""
    return _tool(_never)


def _tool(planner: Planner) -> Tool:
    return Tool(
        NAME,
        "Create a new custom tool that stays for later sessions: a folder in /user_tools with its tool.yaml and "
        "source. Edit the files, declare parameters and at least one test, then call run_custom_tool.",
        input_schema=_SCHEMA,
        planner=planner,
        redirect=_missing_first,
        mode=Mode.BOTH,
        source=SourceKind.NATIVE,
        category="Custom tools",
        always=Verb.WRITE,
    )


def _missing_first(args: dict[str, Any]) -> None:
    """In the words people know; an empty text is as missing as none."""
    for name in ("name", "description"):
        if not args.get(name):
            raise InputInvalid(
                f"{NAME}: {name}: missing required parameter", fields=((name, "missing required parameter"),)
            )


def _never(args: dict[str, Any], ctx: ToolContext) -> Plan:
    raise AssertionError("it is only shown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """A tool that may be made as it was asked for."""

    shop: Workshop
    order: NewTool
    files: dict[str, bytes]
    alike: tuple[str, ...]
    author: Author


def checked(shop: Workshop, catalog: Catalog, args: Mapping[str, Any], author: Author) -> Creation:
    """Writes nothing. Raises InputInvalid, in the words of this tool."""
    from golem_forge.custom.making.scaffold import NewTool, creation_problem, scaffold
    from golem_forge.custom.trust.promotion import alike, twin

    shop.registry.refresh()
    order = NewTool.read(args)
    name = order.name
    existing = {*shop.registry.entries, *(each.tool for each in shop.registry.diagnostics)}
    taken = {*catalog.names(), *catalog.aliases(), *shop.native} - existing
    if problem := creation_problem(name, order.description, taken, existing):
        raise InputInvalid(f"{NAME}: {problem}")
    files = scaffold(order)
    if same := twin(shop, name, files):
        raise InputInvalid(f"{NAME}: identical to custom tool '{same}'")
    return Creation(shop=shop, order=order, files=files, alike=alike(shop, name, order.description), author=author)


async def _plan(shop: Workshop, catalog: Catalog, args: dict[str, Any], ctx: ToolContext) -> Plan:
    by_person = ctx.caller is Caller.HUMAN
    author = Author(
        kind=AuthorKind.MANUAL if by_person else AuthorKind.AGENT, session=ctx.session_id, worker=ctx.worker
    )
    creation = checked(shop, catalog, args, author)
    name, files = creation.order.name, creation.files
    address = f"/user_tools/{name}"

    async def run() -> ToolResult:
        return _created(creation)

    return Plan(
        run=run,
        effects=tuple(
            Effect(
                verb=Verb.WRITE,
                target=f"{address}/{file}",
                real=str(shop.home.path / "tools" / name / file),
                zone_verdict=Verdict.ASK,
            )
            for file in files
        ),
        diff="".join(_as_new(f"{address}/{file}", data) for file, data in files.items()),
        warnings=(f"similar tools: {', '.join(creation.alike)}",) if creation.alike else (),
    )


def put(creation: Creation) -> str:
    """Makes the folder and notes who did; gives the name of the source in it. Raises InputInvalid."""
    from golem_forge.custom.making.scaffold import put_in_place

    shop, name = creation.shop, creation.order.name
    try:
        put_in_place(shop.home, name, creation.files)
    except FileExistsError:
        raise InputInvalid(f"{NAME}: tool '{name}' already exists at /user_tools/{name}") from None
    author = creation.author
    suggestion, sequence_ms = shop.suggested.made_into(creation.order)
    shop.made_here.add(name)
    shop.book.created(name, author, suggestion=suggestion, sequence_ms=sequence_ms)
    if author.kind is AuthorKind.AGENT:
        shop.book.agent_wrote(name, author.session, author.worker)
    shop.registry.refresh()
    shop.changes += 1
    return next(file for file in creation.files if file != MANIFEST)


def remarks(creation: Creation) -> str:
    """What whoever made it should know besides."""
    text = ""
    if creation.order.language == "go" and not creation.shop.builder.has_go():
        text += " Go was not found on this machine; the tool cannot be built here."
    if creation.alike:
        text += f" Similar tools: {', '.join(creation.alike)}"
    return text


def _created(creation: Creation) -> ToolResult:
    order, source = creation.order, put(creation)
    text = (
        f"Created custom tool '{order.name}' (draft) in /user_tools/{order.name}: tool.yaml, {source}. "
        "Edit the source, declare parameters and at least one test in tool.yaml, then call run_custom_tool."
        + remarks(creation)
    )
    data = {"tool_name": order.name, "version": order.version, "source_file": source, "state": "draft"}
    return ToolResult({"kind": "tool.created", "data": data, "summary": text}, text=text, structured=data)


def _as_new(address: str, data: bytes) -> str:
    lines = data.decode("utf-8", "replace").splitlines()
    return f"--- /dev/null\n+++ {address}\n@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)
