"""What a model is sent of Forge's own tools: a short text, words for parameters, and which tools wait to be found.

A tool's own description and schema are for people, for MCP clients and for `tool_search`; calls are checked against
that schema. Every request of a session carries the texts below, so every word here is paid for in each of them
(`make bench --only wire` counts). A tool that is not listed is sent with its own words.

The texts leave out what the system prompt says once: how zones are addressed, and that output is data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from golem_forge.tools.schema import bare_schema
from golem_forge.tools.tool import SourceKind, Tool


class ToolText(NamedTuple):
    text: str
    """Empty: its own description."""
    parameters: Mapping[str, str] = {}
    """Words for those whose name does not say enough."""


_FROM_END: Final = "first line; negative: from the end"
_PATCH: Final = """\
Change files by a patch; all of it is applied, or nothing. The form:
*** Begin Patch
*** Add File: new.py
+line
*** Delete File: old.py
*** Update File: a.py
*** Move to: b.py
@@ def f():
 context
-old line
+new line
*** End Patch
`Move to` is optional. `@@` names a line above the change; every chunk after the first needs it. Context (about 3 lines)
and `-` lines must be exactly as in the file."""

MODEL_TEXTS: Final[Mapping[str, ToolText]] = {
    "read_file": ToolText(
        "Read a text file as lines `L<n>: text`; the last line says where to go on. Or look at a picture or PDF.",
        {"offset": _FROM_END, "limit": "lines, default 2000"},
    ),
    "list_files": ToolText("List one directory."),
    "file_exists": ToolText("Tell whether a path exists, and what it is."),
    "file_info": ToolText("Size, time, mode, media type, lines and SHA-256 of a file."),
    "write_file": ToolText("Create a file, or replace all of one that you have read: what you leave out is lost."),
    "delete_file": ToolText("Delete one file or link."),
    "exec_command": ToolText(
        "Run a shell script in the walls. What still runs after `yield_time_ms` goes on as a session for write_stdin.",
        {
            "tty": "a terminal with open input",
            "yield_time_ms": "default 10000",
            "timeout_ms": "default 1800000",
            "network": "hosts it needs: host or host:port",
            "justification": "one sentence for the person who is asked",
            "prefix_rule": "leading words of a rule you suggest",
        },
    ),
    "write_stdin": ToolText(
        "Type into a session of exec_command (with tty), signal it, or read its new output.",
        {"chars": "empty: only read; \\u0003 is Ctrl-C"},
    ),
    "apply_patch": ToolText(_PATCH),
    "list_dir": ToolText("List a directory tree; `/` lists the zones.", {"depth": "default 2"}),
    "grep_files": ToolText(
        "Search files by regular expression; mode `lines` gives `path:number: text`.",
        {"include": "glob: *.py, src/**/*.ts"},
    ),
    "update_plan": ToolText("Show your plan: every step each time, at most one in_progress."),
    "webfetch": ToolText(
        "Fetch a web page as text.", {"start_index": "where to go on in a long page", "raw": "the HTML source"}
    ),
    "read_output": ToolText(
        "Read a long or old output by its handle (out_…).",
        {"offset": _FROM_END, "grep": "only lines that match", "context": "lines around a match"},
    ),
    "tool_search": ToolText(""),
}

RARE: Final = frozenset(
    (
        "list_files",
        "file_exists",
        "file_info",
        "list_mcp_resources",
        "list_mcp_resource_templates",
        "read_mcp_resource",
        "get_memory",
        "save_memory",
        "create_custom_tool",
        "run_custom_tool",
        "git_push",
        "git_fetch",
        "publish_port",
    )
)
"""Of Forge's own tools those that wait for `tool_search`, where there are many: seldom used, or done by another one too
(`list_dir`, `exec_command`). They stay callable by name."""

RARE_IN_SMALL_CONTEXTS: Final = RARE | {"run_code", "write_stdin", "update_plan", "webfetch", "delete_file"}
"""Those that wait where a model has little room: what is left reads, searches, edits and runs commands."""


_OUTSIDE: Final = " `outside` runs one exact command without walls, if the person agrees."


def model_text(tool: Tool) -> str:
    if not _is_listed(tool):
        return tool.description
    more = _OUTSIDE if "outside" in tool.input_schema.get("properties", ()) else ""
    return (MODEL_TEXTS[tool.name].text or tool.description) + more


def short_schema(tool: Tool) -> dict[str, Any] | None:
    """Types, names and choices, with the words above; None: the tool is sent with its own schema."""
    if not _is_listed(tool):
        return None
    return _reworded(bare_schema(tool.input_schema), MODEL_TEXTS[tool.name].parameters)


def _reworded(part: dict[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """`words` are those of its properties; no other descriptions stay."""
    short = {keyword: value for keyword, value in part.items() if keyword != "description"}
    if properties := short.get("properties"):
        short["properties"] = {
            name: {**_reworded(child, {}), **({"description": words[name]} if name in words else {})}
            for name, child in properties.items()
        }
    if isinstance(items := short.get("items"), dict):
        short["items"] = _reworded(items, {})
    return short


def _is_listed(tool: Tool) -> bool:
    return tool.source is SourceKind.NATIVE and tool.name in MODEL_TEXTS
