"""The built-in slash commands by name, with the line `/help` has for each.

Each command takes an Invocation and returns what is said to the person, or an empty text; it raises CommandError. Tools
are run through the one path (`invocation.run_tool`).
"""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from golem_forge.agent.in_force import (
    ID_SHOWN,
    THIS_SESSION,
    NotRevoked,
    RuleInForce,
    approvals_in_force,
    effective_config,
    is_untrusted,
    revoke_in_session,
    rules_in_force,
)
from golem_forge.agent.recorded_sessions import (
    listed_sessions,
    priced_sessions,
    session_row,
    session_state,
    session_table,
    session_title,
    session_titles,
)
from golem_forge.agent.slash.invocation import (
    Invocation,
    RecordedDecision,
    SlashHost,
    call_and_show,
    find_prompt,
    find_tool,
    ordered_manual_tools,
    prompts_of,
    run_tool,
)
from golem_forge.agent.slash.parser import CommandError, callable_names, find_name
from golem_forge.agent.slash.session_commands import (
    NO_MODEL,
    changes_command,
    compact_command,
    cost_command,
    export_command,
    mode_command,
    model_command,
    ports_command,
    publish_command,
    redo_command,
    resume_command,
    rewind_command,
    undo_command,
    unpublish_command,
)
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.errors import ForgeError
from golem_forge.core.regex import regex
from golem_forge.core.text import (
    columns,
    cost_text,
    escape_control_chars,
    local_minute,
    nearest_remark,
    shorten_prose,
    slash_command,
)
from golem_forge.mcp.client.model import ServerStatus
from golem_forge.mcp.client.resources import ServerAccess
from golem_forge.policy.evaluate import asking_words
from golem_forge.policy.rules.book import rule_usage
from golem_forge.tools.forms import derive_fields
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.toolsets.plan import SessionPlans
from golem_forge.usertools.native_tools import CREATE_TOOL_NAME

if TYPE_CHECKING:
    from golem_forge.mcp.client.pool import Pool

_OTHER: Final = "Other"
_SHORT: Final = 64
_MAX_DESCRIPTION: Final = 500
_SOURCE_HEADINGS: Final = {SourceKind.NATIVE: "Built-in", SourceKind.MCP: "MCP"}


async def tools_command(call: Invocation) -> str:
    """Lists the tools by category, the person's own first; then those that cannot be offered, with the reason."""
    catalog = call.host.path.catalog
    groups: dict[str, list[Tool]] = {}
    for tool in ordered_manual_tools(catalog):
        groups.setdefault(_heading(tool), []).append(tool)
    headings = sorted(groups, key=lambda heading: heading == _OTHER)
    headings.sort(key=lambda heading: groups[heading][0].source in _SOURCE_HEADINGS)
    parts = [
        f"{heading}\n"
        + columns(((slash_command(tool.name), short_description(tool)) for tool in groups[heading]), indent="  ")
        for heading in headings
    ]
    if kept_out := catalog.quarantined():
        parts.append("Not offered\n" + columns(((each.name, each.reason) for each in kept_out), indent="  "))
    return "\n".join(parts) or "There is no tool that a person can run here."


async def tool_command(call: Invocation) -> str:
    if not call.parsed.tokens:
        raise CommandError("Which tool? /tool NAME [--option value …]; /tools lists them")
    name, *rest = call.parsed.tokens
    if await run_tool(call.host, name.text, rest) is None:
        return "Nothing was run."
    return ""  # its result was shown as every result is


def _heading(tool: Tool) -> str:
    if tool.source in _SOURCE_HEADINGS:
        return f"{_SOURCE_HEADINGS[tool.source]}: {tool.category or _OTHER}"
    # Threat: a category that would put a stranger's tool among Forge's own.
    taken = any(tool.category.casefold().startswith(word.casefold()) for word in _SOURCE_HEADINGS.values())
    return _OTHER if taken or not tool.category else tool.category


def short_description(tool: Tool) -> str:
    """The first sentence of its description, as far as it fits beside a name."""
    lines = tool.description.strip().splitlines() or [""]
    sentence = lines[0].split(": ")[0].split(". ")[0].rstrip(".")
    return shorten_prose(sentence, _SHORT)


async def clear_command(call: Invocation) -> str:
    cleared = call.host.clear_history()
    if inspect.isawaitable(cleared):
        await cleared
    return "The history is empty."


async def exit_command(call: Invocation) -> str:
    call.leave()
    return ""


async def web_command(call: Invocation) -> str:
    if call.host.open_page is None:
        raise CommandError("This session cannot be shown in a browser from here; `forge run --ui web` starts one")
    return f"This session is at {await call.host.open_page()}; the printed link opens it once, within 5 minutes."


async def status_command(call: Invocation) -> str:
    host = call.host
    waiting = host.controller.pending
    limit = f" of {host.context_limit:,}" if host.context_limit else ""
    rows = [
        ("worker", host.worker.name),
        ("session", host.session_id),
        ("model", host.model_name or NO_MODEL),
        ("context", f"{host.context_used:,}{limit} tokens"),
        ("usage", format_usage(host.meter.sums())),
        ("approval", f"{host.controller.mode.value}, {waiting} waiting for an answer"),
    ]
    if servers := format_server_states(host):
        rows.append(("servers", servers))
    if skills := host.skills_summary:
        rows.append(("skills", skills))
    return columns(rows)


def format_usage(sums: dict[str, Any]) -> str:
    price = cost_text(sums.get("cost"), sums.get("prices"))
    price = f"cost {price}" if price.startswith("$") else price
    return f"{sums['input']:,} tokens in ({sums['cached']:,} cached), {sums['output']:,} out, {price}"


async def sessions_command(call: Invocation) -> str:
    """Off the loop: the index may have journals to read."""
    home, root, here = call.host.home.path, call.host.program.root, call.host.session_id
    settings = call.host.program.run

    def rows() -> list[tuple[str, ...]]:
        titles = session_titles(home)
        return [
            session_row(
                each, "this one" if each.id == here else session_state(home, each), root, session_title(each, titles)
            )
            for each in priced_sessions(home, listed_sessions(home), lambda: settings)
        ]

    found = await run_in_thread(rows)
    if not found:
        return "There was no conversation yet."
    return columns(session_table(found)) + "\n/resume ID goes on with one."


async def config_command(call: Invocation) -> str:
    host = call.host
    text = columns([("KEY", "VALUE", "FROM"), *effective_config(host)])
    trusted = (
        "\nThis program is not trusted. Forge ignores what only a trusted program may set."
        if is_untrusted(host)
        else ""
    )
    return text + trusted + "".join(f"\n  not used: {each}" for each in host.program.unused)


async def rules_command(call: Invocation) -> str:
    if not call.args:
        home = call.host.home.path
        used = await run_in_thread(lambda: rule_usage(home))
        rows = [*_approval_rows(call.host), *map(_rule_row, rules_in_force(call.host.rules, used))]
        if not rows:
            return "Nothing is remembered and there is no rule."
        text = columns([("ID", "VERDICT", "WHAT", "KEPT IN", "LAST USED", ""), *rows])
        return "\n".join([text, *call.host.rules.notices, "/rules revoke ID removes what was remembered."])
    verb, *ids = call.args
    if verb.lower() != "revoke" or not ids:
        raise CommandError("/rules lists what is allowed; /rules revoke ID removes one")
    try:
        return "\n".join([revoke_in_session(call.host, id_) for id_ in ids])
    except NotRevoked as error:
        raise CommandError(error.message) from None


def revocable_ids(host: SlashHost) -> list[str]:
    """The ids that `/rules revoke` takes, as `/rules` shows them."""
    return [
        *(each.id for each in approvals_in_force(host)),
        *(each.id for each in rules_in_force(host.rules, {}) if each.revocable),
    ]


def _approval_rows(host: SlashHost) -> Iterator[tuple[str, ...]]:
    """Calls approved for the session word for word, and grants."""
    for each in approvals_in_force(host):
        what = f"{each.what} (worker {each.worker})" if each.worker else f"this exact call: {each.what}"
        yield each.id, "preApproved", what, THIS_SESSION, "", ""


def _rule_row(rule: RuleInForce) -> tuple[str, ...]:
    return (
        rule.id,
        rule.verdict,
        rule.what + (f" ({rule.scope})" if rule.scope else ""),
        rule.kept_in,
        local_minute(rule.last_used) if rule.last_used else "never",
        f"inactive: {rule.inactive}" if rule.inactive else "",
    )


async def why_command(call: Invocation) -> str:
    if len(call.args) > 1:
        raise CommandError("One call: /why CALL, or /why for the last one")
    if not call.args:
        last = call.decisions.last()
        return _format_decision(last) if last else "No call was made in this session yet."
    found = call.decisions.find(call.args[0])
    if not found:
        raise CommandError(f"No call '{call.args[0]}' among the last ones of this session; `forge log calls` has all")
    if len(found) > 1:
        raise CommandError(f"'{call.args[0]}' is the beginning of {len(found)} calls; give more of it")
    return _format_decision(found[0])


def _format_decision(decided: RecordedDecision) -> str:
    head = f"{decided.tool} ({decided.call_id}): {decided.status}"
    if decided.error:
        head += f", {decided.error.splitlines()[0][:300]}"
    if decided.decision is None:
        return f"{head}\nIt ended before anything was decided about it."
    return f"{head}\n" + columns(_decision_rows(decided.decision), indent="  ")


def _decision_rows(decision: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "verdict", str(decision["verdict"])
    if by := decision["decidedBy"]:
        if words := asking_words(by["source"], by["reason"]):
            yield "why", words
        yield "decided by", _format_source(by)
    for source in decision["sources"]:
        yield "said", f"{source['verdict']} by {_format_source(source)}"
    yield "risk", ", ".join([decision["risk"], *decision["riskReasons"]])
    answered = decision["answeredBy"]
    if answered not in ("", "nobody"):
        who = str(decision.get("answeredAs") or answered)
        yield "answered by", who + (", from memory" if decision["cached"] else "")
    if decision["edited"]:
        yield "edited", "the arguments were changed before it ran"
    if decision["remembered"]:
        yield "remembered", decision["remembered"]
    if decision["message"]:
        yield "message", decision["message"]
    if decision["fingerprint"]:
        yield "fingerprint", f"{decision['fingerprint'][:ID_SHOWN]}, arguments {decision['argsKey']}"


def _format_source(source: Mapping[str, Any]) -> str:
    """Formats a verdict's source as on the card: `rules 1a2b: reason (~/.forge/rules.yaml:3)`."""
    label = f"{source['source']} {source['id']}".strip()
    place = (
        f" ({source['file']}:{source['line']})" if source["line"] else f" ({source['file']})" if source["file"] else ""
    )
    return f"{label}: {source['reason']}{place}" if source["reason"] else f"{label}{place}"


TRACE_LEVELS: Final = ("quiet", "summary", "normal", "debug")
_STEP_MARKS: Final = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
_RANGE: Final = regex(r"(?P<first>[1-9][0-9]{0,9})(?:-(?P<last>[1-9][0-9]{0,9}))?")
_MOST_LINES: Final = 2000


async def plan_command(call: Invocation) -> str:
    """Shows the plan; `on` and `off` begin and end plan mode."""
    host, path = call.host, call.host.path
    now = host.controller.mode is ApprovalMode.PLAN
    wish = call.args[0].lower() if call.args else "show" if now else "on"
    if len(call.args) > 1 or wish not in ("on", "off", "show"):
        raise CommandError("/plan begins plan mode, /plan show shows the plan, /plan off ends plan mode")
    if wish == "on" and not now:
        host.switch_approval(ApprovalMode.PLAN, "/plan")
    elif wish == "off" and now:
        host.leave_plan("/plan")
    steps = path.parts.get(SessionPlans).get(path.worker)
    if not steps:
        return "There is no plan." if wish == "show" else ""
    return "\n".join(f"{_STEP_MARKS[step['status']]} {step['step']}" for step in steps)


async def output_command(call: Invocation) -> str:
    """Shows an output through the tool `read_output`, which goes through all stages."""
    if not 1 <= len(call.args) <= 2:
        raise CommandError("/output HANDLE [FIRST-LAST], for example /output out_0123456789ab 100-180")
    args: dict[str, object] = {"handle": call.args[0]}
    if len(call.args) == 2:
        args |= _line_range(call.args[1])
    return await call_and_show(call.host, ToolCall("read_output", args, Caller.HUMAN))


def _line_range(typed: str) -> dict[str, object]:
    match = _RANGE.fullmatch(typed)
    if match is None:
        raise CommandError(f"'{typed}' is not a range of lines; write 100 or 100-180")
    first = int(match["first"])
    if match["last"] is None:
        return {"offset": first}
    count = int(match["last"]) - first + 1
    if not 1 <= count <= _MOST_LINES:
        raise CommandError(f"'{typed}': a range has 1 to {_MOST_LINES} lines")
    return {"offset": first, "limit": count}


async def trace_command(call: Invocation) -> str:
    """Checks the level. Each UI receives the same command and changes its own level."""
    if len(call.args) != 1:
        raise CommandError(f"/trace LEVEL, one of {', '.join(TRACE_LEVELS)}")
    level = call.args[0].lower()
    if level not in TRACE_LEVELS:
        hint = nearest_remark(level, TRACE_LEVELS)
        raise CommandError(f"'{call.args[0]}' is not a trace level{hint}: {', '.join(TRACE_LEVELS)}")
    return f"Trace level: {level}"


_RATE_USAGE: Final = "/rate NAME good|bad [note], for example /rate git-summarize good saves me a look"
_RATINGS: Final = {"good": True, "bad": False}


async def keep_command(call: Invocation) -> str:
    """Makes a tool through `create_custom_tool`, which goes through all stages and shows its card."""
    from golem_forge.usertools.kept_program import find_program
    from golem_forge.usertools.suggestions import tool_name

    host = call.host
    if len(call.args) > 1:
        raise CommandError("One name: /keep NAME, or /keep alone for a name made of what the program calls")
    if CREATE_TOOL_NAME not in host.path.catalog:
        raise CommandError("This worker makes no tools: its file needs `user_tools: {create: true}` below `toolsets`.")
    if (journal := host.journal) is None:
        raise CommandError("This session keeps no journal, so no program of it can be kept.")
    journal.flush()
    program = await run_in_thread(lambda: find_program(journal.path, "last"))
    name = call.args[0] if call.args else tool_name(program.called, host.path.catalog.names())
    about = f"Made from a program that calls {', '.join(program.called)}." if program.called else "Made from a program."
    args = {"name": name, "description": shorten_prose(about, _MAX_DESCRIPTION), "from_run": program.call}
    return await call_and_show(host, ToolCall(CREATE_TOOL_NAME, args, Caller.HUMAN))


async def rate_command(call: Invocation) -> str:
    """Rates a tool folder, also one that this worker does not see or that is switched off."""
    if len(call.args) < 2:
        raise CommandError(f"Which tool, and how is it? {_RATE_USAGE}")
    name, said, *note = call.args
    if said.lower() not in _RATINGS:
        raise CommandError(f"'{escape_control_chars(said[:40])}' is not good or bad: {_RATE_USAGE}")
    from golem_forge.usertools.registry import Registry
    from golem_forge.usertools.store import ToolStore

    registry = Registry(call.host.home)
    if registry.lookup(name) is None:
        registry.refresh()
        hint = nearest_remark(name, registry.entries)
        raise CommandError(f"There is no user tool '{escape_control_chars(name[:100])}'{hint}")
    book = ToolStore(call.host.home)
    try:
        book.rate(name, _RATINGS[said.lower()], " ".join(note))
        kept = book.ratings(name)
    finally:
        book.close()
    if not kept.good + kept.bad:
        raise CommandError("The rating could not be saved: the record of user tools cannot be written")
    return f"{name}: {kept.good} good, {kept.bad} bad"


_NO_SERVERS: Final = "No MCP server is configured for this worker."
_MCP_USAGE: Final = "/mcp shows the servers, /mcp reconnect NAME connects one again"


async def mcp_command(call: Invocation) -> str:
    match call.args:
        case []:
            return _format_servers(call.host)
        case ["reconnect", name]:
            return await _reconnect(call.host, name)
        case ["reconnect"]:
            raise CommandError("Which server? /mcp reconnect NAME")
    raise CommandError(_MCP_USAGE)


def format_server_states(host: SlashHost) -> str:
    """Returns the counts for `/status`: `2 ready, 1 failed`; empty if there are no servers."""
    pool, names = _servers(host)
    states = [pool.status(name).state.value for name in names] if pool is not None else []
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def _servers(host: SlashHost) -> tuple[Pool | None, tuple[str, ...]]:
    place = host.path.parts.get(ServerAccess)
    return place.pool, place.servers_of(host.path.worker)


def _format_servers(host: SlashHost) -> str:
    pool, names = _servers(host)
    if pool is None or not names:
        return _NO_SERVERS
    statuses = [pool.status(name) for name in names]
    text = columns(_server_row(status) for status in statuses)
    for status in statuses:
        if status.stderr:
            lines = "\n".join(f"  {escape_control_chars(line)}" for line in status.stderr)
            text += f"\nLast lines of stderr of {status.server}:\n{lines}"
    if prompts := {name: each for name, each in prompts_of(host).items() if each.server}:
        rows = [(f"/{name}", command.description.partition("\n")[0]) for name, command in sorted(prompts.items())]
        text += "\nPrompts\n" + columns(rows, indent="  ")
    return text


def _server_row(status: ServerStatus) -> tuple[str, ...]:
    tools = "" if status.tools is None else f"{status.tools} tool{'' if status.tools == 1 else 's'}"
    retry = datetime.fromtimestamp(status.retry_at).astimezone() if status.retry_at is not None else None
    again = f"again at {retry:%H:%M:%S}" if retry else ""
    return status.server, status.state.value, tools, status.protocol, ", ".join(filter(None, (status.error, again)))


async def _reconnect(host: SlashHost, name: str) -> str:
    pool, names = _servers(host)
    if pool is None or name not in names:
        hint = nearest_remark(name, names)
        raise CommandError(f"MCP server not found: {escape_control_chars(name[:100])}{hint}")
    await pool.reconnect(name)
    with contextlib.suppress(ForgeError):  # its state says why
        await pool.wait_connected(name)
    return columns([_server_row(pool.status(name))])


class BuiltInCommand(NamedTuple):
    usage: str
    does: str
    run: Callable[[Invocation], Awaitable[str]]
    """Gives what is said to the person; empty: nothing. Raises CommandError."""


async def help_command(call: Invocation) -> str:
    if not call.args:
        rows = [(each.usage, each.does) for each in BUILT_IN_COMMANDS.values()]
        return columns([*rows, ("/NAME …", "the same as /tool NAME …")]) + "\n/help NAME says more, of tools too."
    name = call.args[0].removeprefix("/")
    if (built_in := BUILT_IN_COMMANDS.get(name.lower())) is not None:
        text = f"{built_in.usage}\n{built_in.does}"
        if find_name(name, callable_names(call.host.path.catalog)):
            text += f"\nA tool has this name too: /tool {name} runs it."
        return text
    if (prompt := find_prompt(call.host, name)) is not None:
        words = prompt.description or f"a prompt of {prompt.server}"
        return _help_text(f"/{prompt.name}", words.strip(), prompt.fields)
    tool = find_tool(call.host.path.catalog, name)
    return _help_text(slash_command(tool.name), tool.description.strip(), derive_fields(tool.input_schema))


def _help_text(typed: str, words: str, fields: list[dict[str, Any]]) -> str:
    rows = [
        (
            f"--{field['name']}",
            field["type"] if field["type"] != "select" else "|".join(each["label"] for each in field["options"]),
            "required" if field["required"] else _default_text(field),
            field["description"],
        )
        for field in fields
    ]
    options = "\n" + columns(rows, indent="  ") if rows else "\nIt takes no options."
    return f"{typed}: {words}{options}\n-i opens a form."


def _default_text(field: dict[str, object]) -> str:
    default = field.get("default")
    if default is None or default == "":
        return ""
    return f"default {default if isinstance(default, str) else json.dumps(default, ensure_ascii=False)}"


BUILT_IN_COMMANDS: Final = {
    "help": BuiltInCommand("/help [NAME]", "list the commands, or explain a command or a tool", help_command),
    "tools": BuiltInCommand("/tools", "list the tools you can run", tools_command),
    "tool": BuiltInCommand("/tool NAME …", "run a tool; -i opens a form", tool_command),
    "t": BuiltInCommand("/t NAME …", "the same, shorter", tool_command),
    "model": BuiltInCommand("/model [NAME] [SETTING=VALUE…]", "show the models, or switch to one", model_command),
    "clear": BuiltInCommand("/clear", "empty the history", clear_command),
    "compact": BuiltInCommand("/compact [WHAT TO KEEP]", "condense the history into a summary", compact_command),
    "cost": BuiltInCommand("/cost", "show tokens and cost of this session, by worker and model", cost_command),
    "status": BuiltInCommand("/status", "show worker, model, context, cost and open questions", status_command),
    "config": BuiltInCommand("/config", "show the configuration in force and where it comes from", config_command),
    "rules": BuiltInCommand("/rules [revoke ID]", "show remembered choices and rules, or revoke one", rules_command),
    "mode": BuiltInCommand("/mode [NAME]", "show the approval mode, or change it for this session", mode_command),
    "changes": BuiltInCommand(
        "/changes [TURN|CALL|PATH]", "list the files this session changed, or show a diff", changes_command
    ),
    "undo": BuiltInCommand(
        "/undo [TURN|CALL|PATH …] [also PATH …]", "undo what the last turn changed, or another", undo_command
    ),
    "redo": BuiltInCommand("/redo", "take the last undo back", redo_command),
    "rewind": BuiltInCommand(
        "/rewind [N [conversation|files|both]]", "go back to an earlier message of yours", rewind_command
    ),
    "ports": BuiltInCommand("/ports", "list the ports that commands of this session listen on", ports_command),
    "publish": BuiltInCommand("/publish PORT", "get a link to one of those ports for your browser", publish_command),
    "unpublish": BuiltInCommand("/unpublish PORT", "end such a link", unpublish_command),
    "why": BuiltInCommand("/why [CALL]", "show what was decided about the last call, or another", why_command),
    "sessions": BuiltInCommand("/sessions", "recorded sessions", sessions_command),
    "resume": BuiltInCommand(
        "/resume [ID|last|NUMBER]", "go on with another session; alone it lists them", resume_command
    ),
    "export": BuiltInCommand("/export [FILE]", "write this session as Markdown, or as JSON", export_command),
    "plan": BuiltInCommand("/plan [show | off]", "plan mode: read and propose; `go` starts the work", plan_command),
    "output": BuiltInCommand("/output HANDLE [FIRST-LAST]", "show an output that was too long", output_command),
    "rate": BuiltInCommand("/rate NAME good|bad [note]", "rate one of your user tools", rate_command),
    "keep": BuiltInCommand("/keep [NAME]", "make a tool of the last program that worked", keep_command),
    "trace": BuiltInCommand("/trace [LEVEL]", "quiet, summary, normal or debug", trace_command),
    "mcp": BuiltInCommand("/mcp [reconnect NAME]", "show the MCP servers and their states", mcp_command),
    "web": BuiltInCommand("/web", "show this session in a browser too", web_command),
    "exit": BuiltInCommand("/exit", "end the session", exit_command),
}
