"""The code blocks about tools in the documents Golem Forge grew from, in Python spelling, each with what it does.

*Tool extensibility* (definition, approval config, tools of a module), *Tools and UI* (definition, approval, zones,
modes, filtering, command parser, fields, results) and *Tools package guide* (unified format, router). The names are
theirs.
"""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

import golem_forge
from golem_forge import (
    TOOL_LIST,
    TOOLKIT,
    ApprovalController,
    BlockedError,
    Caller,
    ConfigError,
    FilesystemToolset,
    NamedTool,
    Orchestrator,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    ToolRouter,
    WorkerRuntime,
    ZoneSpec,
    classify_command,
    create_delete_file_tool,
    create_read_file_tool,
    create_write_file_tool,
    define_mcp_tool,
    derive_fields_from_schema,
    get_llm_tools,
    get_manual_tools,
    is_command,
    is_manual_tool,
    load_custom_tools,
    open_sandbox,
    open_session,
    parse_command,
    tool,
)
from golem_forge.agent.trust import trust_store
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.storage.home import forge_home
from golem_forge.tools.factory import ToolsetContext
from golem_forge.tools.results import display_hints
from golem_forge.tools.validation import InputInvalid, ToolDefinitionError


class GitPush(BaseModel):
    remote: Literal["origin", "upstream"] = "origin"
    branch: str = Field(description="Target branch")
    force: bool = Field(default=False, description="Force push")


async def exec_git(remote: str, branch: str, force: bool) -> list[str]:
    return ["push", "-f", remote, branch] if force else ["push", remote, branch]


GIT_PUSH: dict[str, Any] = {
    "name": "git_push",
    "description": "Push commits to remote repository",
    "input_schema": GitPush,
    "execute": exec_git,
    "needs_approval": lambda force: force,
    "manual_execution": {"mode": "manual", "label": "Push to Remote", "category": "Git"},
}
"""*Tools and UI*, "Example: Git Push Tool", as the object literal it is there."""


def called(path: Orchestrator, name: str, args: dict[str, Any] | None = None, caller: Caller = Caller.LLM) -> Any:
    return path.call(ToolCall(name, args or {}, caller))


# Tools and UI: definition


@pytest.mark.parametrize("spelling", ["keywords", "mapping", "their own mapping"])
async def test_the_git_push_example(spelling: str, make_path: Any, asked: Any) -> None:
    theirs = {"input_schema": "inputSchema", "needs_approval": "needsApproval", "manual_execution": "manualExecution"}
    literal = {theirs.get(key, key): value for key, value in GIT_PUSH.items()}
    made = {
        "keywords": lambda: NamedTool(**GIT_PUSH),
        "mapping": lambda: NamedTool(GIT_PUSH),
        "their own mapping": lambda: NamedTool(literal),
    }[spelling]()
    assert isinstance(made, NamedTool) and NamedTool is Tool
    assert (made.mode, made.label, made.category) == ("manual", "Push to Remote", "Git")
    ask = asked()
    path = make_path(made, ask=ask)
    assert (await called(path, "git_push", {"branch": "main"})).status == "tool_not_found"  # a model cannot push
    pushed = await called(path, "git_push", {"branch": "main"}, Caller.HUMAN)
    assert (pushed.result.value["data"], len(ask)) == (["push", "origin", "main"], 0)
    forced = await called(path, "git_push", {"branch": "main", "force": True}, Caller.HUMAN)
    assert (forced.result.value["data"], len(ask)) == (["push", "-f", "origin", "main"], 1)


def both_given(args: Any, options: Any) -> Any:
    return [args["branch"], options.tool_call_id, bool(options.abort_signal)]


async def both_later(args: Any, options: Any) -> Any:
    return both_given(args, options)


def by_name(branch: str, remote: str, force: bool, options: Any) -> Any:
    return [branch, options.tool_call_id, bool(options.abort_signal)]


def by_our_name(args: Any, *, ctx: ToolContext) -> Any:
    return both_given(args, ctx)


def as_the_model(args: GitPush, options: Any) -> Any:
    return both_given({"branch": args.branch}, options)


def anything(**fields: Any) -> Any:
    return [fields["branch"], "c1", False]


@pytest.mark.parametrize("execute", [both_given, both_later, by_name, by_our_name, as_the_model, anything])
@pytest.mark.parametrize("schema", [GitPush, GitPush.model_json_schema()])
async def test_execute_gets_args_and_options_in_every_shape(execute: Any, schema: Any, make_path: Any) -> None:
    if execute is as_the_model and schema is not GitPush:
        pytest.skip("its parameter is annotated with the model")
    made = NamedTool(name="push", description="d", input_schema=schema, execute=execute, needs_approval=False)
    given = {"branch": "main", "remote": "origin", "force": False}
    outcome = await make_path(made).call(ToolCall("push", given, Caller.LLM, "c1"))
    assert outcome.result.value["data"] == ["main", "c1", False]
    assert (await made.execute(given, {"tool_call_id": "c1"})).value["data"] == ["main", "c1", False]
    assert (await made.execute(given, ToolContext(call_id="c1"))).value["data"] == ["main", "c1", False]


class WithArgs(BaseModel):
    args: str
    options: str = ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"execute": lambda remote: ""}, "execute(remote) takes no 'branch', which its schema has"),
        ({"execute": lambda: ""}, "execute() takes no 'branch'"),
        ({"execute": lambda branch, remote, force, forse: ""}, "its schema has no field 'forse'"),
        ({"input_schema": WithArgs, "execute": lambda args: ""}, "'args' may mean the field of that name or all"),
        ({"input_schema": WithArgs, "execute": lambda args, options: ""}, "'args' may mean the field of that name or"),
        ({"input_schema": WithArgs, "execute": lambda it, options: ""}, "its schema has no field 'it'"),
        ({"needs_approval": lambda force, brunch: force}, "needs_approval(force, brunch): its schema has no field"),
        ({"input_schema": None, "execute": lambda args, options: ""}, "needs a schema"),
        ({"execute": "push"}, "execute must be a function"),
        ({"needsApproval": True}, "'needsApproval'; did you mean 'needs_approval'?"),
        ({"manual_execution": {"mode": "manual", "lable": "x"}}, "'lable'; did you mean 'label'?"),
        ({"manual_execution": {"mode": "manul"}}, "'manul' is not a mode; did you mean 'manual'?"),
        ({"manual_execution": {"label": "Push"}}, "needs 'mode'"),
        ({"mode": "llm"}, "manual_execution says mode 'manual', and mode= says 'llm'"),
        ({"needs_approval": "preaproved"}, "did you mean 'preApproved'?"),
        ({"needs_approval": {"always": True}}, "needs_approval must be a bool, a function or one of"),
    ],
)
def test_what_could_mean_two_things_is_refused_where_it_is_defined(options: dict[str, Any], says: str) -> None:
    with pytest.raises((ToolDefinitionError, TypeError, ValueError)) as refused:
        NamedTool(**{**GIT_PUSH, **options})
    assert says in str(refused.value)


async def test_a_star_or_a_slash_says_which_is_meant() -> None:
    def field(*, args: str, options: str) -> str:
        return args

    def everything(args: Any, /) -> str:
        return ",".join(args)

    for execute, said in ((field, "x"), (everything, "args,options")):
        made = NamedTool(name="t", input_schema=WithArgs, execute=execute)
        assert (await made.execute({"args": "x"})).text == said


async def test_a_decorated_function_is_still_a_function(make_path: Any, asked: Any) -> None:
    @tool(needs_approval=lambda args: args["force"], mode="manual", label="Push to Remote", category="Git")
    def git_push(
        branch: Annotated[str, "Target branch"],
        remote: Literal["origin", "upstream"] = "origin",
        force: bool = False,
        *,
        ctx: ToolContext,
    ) -> str:
        """Push commits to a remote repository."""
        return f"pushed {branch} to {remote} {ctx.call_id}".strip()

    @tool
    async def later(n: int) -> int:
        return n + 1

    assert git_push("main") == "pushed main to origin"
    assert git_push("main", remote="upstream", ctx=ToolContext(call_id="c1")) == "pushed main to upstream c1"
    assert await later(1) == 2
    assert (git_push.__name__, git_push.__doc__) == ("git_push", "Push commits to a remote repository.")
    ask = asked()
    outcome = await called(make_path(git_push, ask=ask), "git_push", {"branch": "x", "force": True}, Caller.HUMAN)
    assert (outcome.status, len(ask)) == ("success", 1)


# Tools and UI: approval


async def test_static_and_dynamic_approval_of_file_tools(tmp_path: Path, asked: Any) -> None:
    for zone in ("work", "important"):
        (tmp_path / zone).mkdir()
        for name in ("a", "b"):
            (tmp_path / zone / name).write_text("x")
    zones = [ZoneSpec(name=name, path=str(tmp_path / name), mode="rw") for name in ("work", "important")]
    with open_sandbox(zones) as sandbox:
        for name, delete in (
            ("a", create_delete_file_tool(sandbox, needs_approval=lambda path: path.startswith("/important/"))),
            ("b", create_delete_file_tool(sandbox, {"needs_approval": lambda args, options: "imp" in args["path"]})),
        ):
            ask = asked()
            tools = [create_read_file_tool(sandbox), create_write_file_tool(sandbox), delete]
            path = Orchestrator(tools, approval=ApprovalController("interactive", ask), sandbox=sandbox)
            assert (await called(path, "read_file", {"path": f"/work/{name}"})).ok and not ask
            assert (await called(path, "delete_file", {"path": f"/work/{name}"})).ok and not ask
            assert (await called(path, "delete_file", {"path": f"/important/{name}"})).ok
            assert (await called(path, "write_file", {"path": "/work/new", "content": name})).ok
            assert [request.tool for request in ask] == ["delete_file", "write_file"]
        with pytest.raises(TypeError, match="did you mean 'needs_approval'"):
            create_delete_file_tool(sandbox, {"needs_aproval": True})
        with pytest.raises(TypeError, match="did you mean 'needs_approval'"):
            create_delete_file_tool(sandbox, needsApproval=True)  # type: ignore[call-arg]


async def test_zone_approval_config(tmp_path: Path, asked: Any) -> None:
    for zone in ("scratch", "output"):
        (tmp_path / zone).mkdir()
    config = {
        "scratch": {"write": "preApproved", "delete": "preApproved"},
        "output": {"write": "ask", "delete": "blocked"},
    }
    zones = [ZoneSpec(name=name, path=tmp_path / name) for name in config]
    with open_sandbox(zones) as sandbox:
        for toolset in (
            FilesystemToolset(sandbox=sandbox, zone_approval_config=config),
            FilesystemToolset({"sandbox": sandbox, "zoneApprovalConfig": config}),
        ):
            ask = asked()
            path = Orchestrator(toolset.get_tools(), approval=ApprovalController("interactive", ask), sandbox=sandbox)
            for zone in config:
                assert (await called(path, "write_file", {"path": f"/{zone}/f", "content": str(toolset)})).ok
            assert [request.args["path"] for request in ask] == ["/output/f"]
            assert (await called(path, "delete_file", {"path": "/scratch/f"})).ok
            assert (await called(path, "delete_file", {"path": "/output/f"})).status == "policy_denied"
            assert len(ask) == 1
        for wrong, says in (
            ({"scrach": {"write": "ask"}}, "zone_approval_config: no zone 'scrach'; did you mean 'scratch'?"),
            ({"scratch": {"write": "preaproved"}}, "did you mean 'preApproved'?"),
            ({"scratch": {"read": "ask"}}, "only write and delete"),
            ({"scratch": "ask"}, "must be a mapping"),
        ):
            with pytest.raises(ConfigError) as refused:
                FilesystemToolset(sandbox, zone_approval_config=wrong)
            assert says in str(refused.value)
        later = FilesystemToolset(zone_approval_config={"scrach": {"write": "ask"}})
        with pytest.raises(ConfigError, match="did you mean 'scratch'"):
            later.get_tools(ToolsetContext(sandbox=sandbox))


PROGRAM = """
sandbox:
  zones:
    scratch: {path: ./scratch}
    output: {path: ./output}
"""
ZONES = """---
name: zoned
toolsets:
  filesystem: {}
  shell:
    rules:
      - pattern: "git "
        approval: preApproved
sandbox:
  default_zone: scratch
  zones:
    - name: scratch
      mode: rw
      approval:
        write: preApproved
        delete: preApproved
    - name: output
      mode: rw
      approval:
        write: ask
        delete: blocked
---
You file things.
"""


async def test_toolsets_and_zones_of_a_worker_file(tmp_path: Path, asked: Any) -> None:
    root = tmp_path / "p"
    for zone in ("scratch", "output"):
        (root / zone).mkdir(parents=True)
    (root / "forge.yaml").write_text(PROGRAM)
    (root / "main.worker").write_text(ZONES)
    trust_store(forge_home()).give(root)
    ask = asked()
    async with WorkerRuntime(root / "main.worker", needs_model=False, approval_callback=ask) as runtime:
        router = ToolRouter(runtime)
        for zone in ("scratch", "output"):
            assert (await router.dispatch("write_file", {"path": f"/{zone}/f", "content": "x"})).ok
        assert [request.args["path"] for request in ask] == ["/output/f"]
        assert (await router.dispatch("delete_file", {"path": "/scratch/f"})).ok
        assert (await router.dispatch("delete_file", {"path": "/output/f"})).status == "policy_denied"
        assert (await router.dispatch("shell", {"command": "git --version"})).ok
        assert (await router.dispatch("shell", {"command": "gitk"})).status == "policy_denied"
        assert len(ask) == 1


@pytest.mark.parametrize(
    ("raised", "reason", "blocked"),
    [
        (("deploy", "closed on Sundays"), "closed on Sundays", "deploy"),
        (("deploy", None), "Blocked by policy", "deploy"),
        (("closed on Sundays",), "closed on Sundays", ""),
        ((), "Blocked by policy", ""),
    ],
)
async def test_blocked_error(raised: Any, reason: str, blocked: str, make_path: Any, asked: Any) -> None:
    def never(args: Any) -> bool:
        raise BlockedError(*raised)

    error = BlockedError(*raised)
    assert (error.reason, error.tool, str(error)) == (reason, blocked, reason)
    ask, ran = asked(), []
    own = NamedTool(name="deploy", input_schema=GitPush, execute=lambda args: ran.append(1), needs_approval=never)
    while_running = NamedTool(name="run", execute=lambda: never({}), needs_approval=False)
    path = make_path(own, while_running, ask=ask)
    for name, args in (("deploy", {"branch": "x"}), ("run", {})):
        outcome = await called(path, name, args)
        assert (outcome.status, outcome.error) == ("policy_denied", reason)
    assert not ask and not ran


# Tools and UI: execution modes, filtering, commands, fields


async def test_modes_and_filtering(tmp_path: Path) -> None:
    def made(name: str, **more: Any) -> Tool:
        return NamedTool(name=name, execute=lambda: "ran", needs_approval=False, **more)

    deploy = made(
        "deploy", manual_execution={"mode": "manual", "label": "Deploy Application", "category": "Operations"}
    )
    tests = made("run_tests", manual_execution={"mode": "both", "label": "Run Tests", "category": "Development"})
    own = [made("read_mail"), deploy, tests]
    options: dict[str, Any] = {"directory": tmp_path, "needs_model": False, "approval_mode": "auto_deny"}
    async with WorkerRuntime(golem_forge.Worker(name="w", instructions="x"), tools=own, **options) as runtime:
        tools = [each for each in runtime.get_tools() if each in own]
        assert [each.name for each in get_llm_tools(tools)] == ["read_mail", "run_tests"]
        assert [each.name for each in get_manual_tools(tools)] == ["deploy", "run_tests"]
        assert [is_manual_tool(each) for each in own] == [False, True, True]
        for name, model, person in (("read_mail", 1, 0), ("deploy", 0, 1), ("run_tests", 1, 1)):
            by_model = await called(runtime.path, name)
            by_person = await called(runtime.path, name, caller=Caller.HUMAN)
            assert (by_model.ok, by_person.ok) == (bool(model), bool(person))


def test_the_command_parser() -> None:
    available = [NamedTool(**GIT_PUSH)]
    assert is_command("/tool git_push --branch main") and not is_command("push it")
    for line in ("/tool git_push --branch main", "/t git_push --branch main", "/git_push --branch main"):
        parsed = parse_command(line)
        assert parsed is not None and parsed.options == {"branch": "main"}
        classified = classify_command(parsed, available)
        assert (classified.type, classified.tool_name, classified.parsed) == ("tool", "git_push", parsed)
    parsed = parse_command("/tool git_push --branch main")
    assert parsed is not None and (parsed.name, parsed.args) == ("tool", ["git_push"])
    helping = parse_command("/help")
    assert helping is not None and classify_command(helping, available).tool_name is None


# Tools and UI: semantic results


@pytest.mark.parametrize("view", ["preferred_view", "preferredView"])
async def test_a_custom_result_with_display_hints(view: str, make_path: Any) -> None:
    async def status() -> dict[str, Any]:
        return {
            "kind": "git.status",
            "data": {"branch": "main", "staged": ["a"], "modified": []},
            "summary": "1 staged, 0 modified",
            "display": {view: "tree", "collapsed": True, "maxHeight" if view == "preferredView" else "max_height": 9},
        }

    git_status = NamedTool(name="git_status", execute=status, needs_approval=False)
    outcome = await called(make_path(git_status), "git_status")
    said = '1 staged, 0 modified\n{"branch":"main","staged":["a"],"modified":[]}'
    assert (outcome.text, outcome.result.kind) == (said, "git.status")
    assert outcome.result.value["data"]["branch"] == "main"
    assert display_hints(outcome.result.value) == {"preferredView": "tree", "collapsed": True, "maxHeight": 9}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"kind": "text", "content": "hello"}, "hello"),
        (
            {"kind": "diff", "path": "/w/a", "original": "", "modified": "x", "is_new": True, "bytes_written": 1},
            "Created /w/a (1 bytes)",
        ),
        (
            {"kind": "diff", "path": "/w/a", "modified": "x", "isNew": False, "bytesWritten": 1},
            "Updated /w/a (1 bytes)",
        ),
        ({"kind": "file_content", "path": "/w/a", "content": "x", "size": 1}, "x"),
        ({"kind": "file_list", "path": "/w", "files": ["a", "b"], "count": 2}, "a\nb"),
        ({"kind": "json", "data": {"a": 1}}, '{"a":1}'),
        ({"kind": "db.query_result", "data": [1], "mime_type": "text/csv"}, "[1]"),
    ],
)
async def test_every_kind_of_result(value: dict[str, Any], text: str) -> None:
    result = await NamedTool(name="t", execute=lambda: value).execute({})
    assert (result.kind, result.text) == (value["kind"], text)
    assert not {"is_new", "bytes_written", "mime_type"} & result.value.keys()
    if "mime_type" in value:
        assert result.value["mimeType"] == "text/csv"
    again = await NamedTool(name="t", execute=lambda: ToolResult(value=dict(value), text=text)).execute({})
    assert again.value == result.value
    assert ToolResult.from_mcp(result.to_mcp()) == result


# Tool extensibility: tools of a module


FIBONACCI = {
    "keywords": "def {name}(n):\n    return fib(n)\n",
    "one mapping": "def {name}(args):\n    return fib(args['n'])\n",
    "args and options": "def {name}(args, options):\n    return fib(args['n']) if options else 0\n",
    "the model": "def {name}(args: {schema}):\n    return fib(args.n)\n",
}
MODULE = """
from pydantic import BaseModel, Field

def fib(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a

class {schema}(BaseModel):
    n: int = Field(ge=0, description="Position in sequence")
"""


@pytest.mark.parametrize(
    ("name", "schema", "shape"),
    [
        ("calculateFibonacci", "calculateFibonacciSchema", "keywords"),
        ("calculateFibonacci", "CalculateFibonacciSchema", "one mapping"),
        ("calculate_fibonacci", "calculate_fibonacci_schema", "args and options"),
        ("calculate_fibonacci", "CalculateFibonacciSchema", "the model"),
        ("calculate_fibonacci", "calculate_fibonacciSchema", "one mapping"),
        ("calculateFibonacci", "calculate_fibonacci_schema", "keywords"),
    ],
)
async def test_function_and_schema(name: str, schema: str, shape: str, tmp_path: Path, make_path: Any) -> None:
    module = tmp_path / "tools.py"
    doc = '    """Calculate the nth Fibonacci number"""\n'
    head, body = FIBONACCI[shape].format(name=name, schema=schema).split("\n", 1)
    module.write_text(MODULE.format(schema=schema) + f"{head}\n{doc}{body}")
    [fib] = load_custom_tools(module, {"tools": [name], "approval": {"tools": {name: "preApproved"}}})
    assert (fib.name, fib.description) == (name, "Calculate the nth Fibonacci number")
    assert fib.input_schema["properties"]["n"]["description"] == "Position in sequence"
    path = make_path(fib, mode="auto_deny")
    assert (await called(path, name, {"n": 10})).text == "55"
    assert (await called(path, name, {"n": -1})).status == "input_invalid"


@pytest.mark.parametrize(
    ("more", "tools", "says"),
    [
        ("class addUpSchema(BaseModel): n: int", ["add"], "'addUpSchema' in {0} looks like a schema, but no function"),
        ("class ad_schema(BaseModel): n: int", ["add"], "did you mean 'add_schema', for 'add'?"),
        ("ad_schema = {'type': 'object', 'properties': {'n': {}}}", ["add"], "did you mean 'add_schema'"),
        ("class add_schema(BaseModel): m: int", ["add"], "execute(n): its schema has no field 'n'"),
        (
            "class addSchema(BaseModel): n: int\nclass add_schema(BaseModel): n: int",
            ["add"],
            "'add_schema' and 'addSchema' in {0} are both the schema of 'add'; keep one",
        ),
        ("add_schema = 3", ["add"], "'add_schema' in {0} must be a pydantic model or a JSON Schema"),
        ("class wholeSchema(BaseModel): n: int", ["whole"], "the Tool 'whole' has a schema of its own"),
        ("", ["nowhere"], "Tool 'nowhere' not found in {0}"),
        ("number = 3", ["number"], "'number' in {0} must be a function or a Tool"),
        ("told = {'name': 'told'}", ["told"], "must be a function or a Tool; NamedTool(told) makes one of a dict"),
        ("def bad(args, options): ...", ["bad"], "needs a schema"),
    ],
)
def test_what_a_module_may_not_say(more: str, tools: list[str], says: str, tmp_path: Path) -> None:
    module = tmp_path / "tools.py"
    module.write_text(
        "from pydantic import BaseModel\nfrom golem_forge import NamedTool\n"
        "def add(n: int): return n\nwhole = NamedTool(name='whole', execute=lambda: 1)\n" + more + "\n"
    )
    with pytest.raises(ConfigError) as refused:
        load_custom_tools(module, tools)
    assert says.format(module) in str(refused.value)


async def test_schemas_that_something_uses_are_no_mistake(tmp_path: Path) -> None:
    module = tmp_path / "tools.py"
    module.write_text(
        textwrap.dedent("""
            from pydantic import BaseModel
            from golem_forge import NamedTool

            class BaseSchema(BaseModel): ...
            class AddressSchema(BaseSchema):
                city: str
            class OrderSchema(BaseModel):
                to: list[AddressSchema]
            class ReceiptSchema(BaseModel):
                n: int
            class _PrivateSchema(BaseModel): ...
            class OtherSchema(BaseModel): ...
            def order(args): return args["to"][0].city
            def ticket() -> ReceiptSchema: return ReceiptSchema(n=1)
            def other(): return "not listed"
            shared = NamedTool(name="shared", input_schema=ReceiptSchema, execute=lambda n: n)
        """)
    )
    order, *_ = load_custom_tools(module, ["order", "ticket", "shared"])
    assert (await order.execute({"to": [{"city": "Bonn"}]})).text == "Bonn"


TWO_TIERS = """
from golem_forge import tool

def plain() -> str: return "ran"
def other() -> str: return "ran"
def never() -> str: return "ran"

@tool(needs_approval=False)
def free() -> str: return "ran"

@tool(needs_approval=lambda args: args["force"])
def push(force: bool = False) -> str: return "ran"
"""


async def test_two_tiers_of_approval(tmp_path: Path, make_path: Any, asked: Any) -> None:
    module = tmp_path / "tools.py"
    module.write_text(TWO_TIERS)
    names = ["plain", "other", "never", "free", "push"]
    said = {"other": "preApproved", "never": "blocked"}

    async def prompted(approval: dict[str, Any] | None) -> list[str]:
        ask = asked()
        path = make_path(*load_custom_tools(module, {"tools": names, "approval": approval}), ask=ask)
        outcomes = [await called(path, name) for name in names]
        assert [outcome.status for outcome in outcomes if not outcome.ok] == (
            ["policy_denied"] if approval and "tools" in approval and "never" in approval["tools"] else []
        )
        return [request.tool for request in ask]

    assert await prompted(None) == ["plain", "other", "never"]  # a secure default
    assert await prompted({"default": "ask", "tools": said}) == ["plain"]
    assert await prompted({"default": "preApproved"}) == []
    assert await prompted({"default": "preApproved", "tools": {"free": "ask", "push": "ask"}}) == ["free", "push"]
    for approval, says in (
        (
            {"tools": {"push": "preApproved"}},
            "approval.tools.push: preApproved has no effect, 'push' decides for itself",
        ),
        ({"tools": {"plian": "ask"}}, "did you mean 'plain'?"),
        ({"default": "preaproved"}, "did you mean 'preApproved'?"),
    ):
        with pytest.raises(ConfigError) as refused:
            load_custom_tools(module, {"tools": names, "approval": approval})
        assert says in str(refused.value)
    with pytest.raises(TypeError, match="did you mean 'approval'"):
        load_custom_tools(module, {"tools": names, "aproval": {}})


HOSTED = """
from pydantic import BaseModel, Field
from golem_forge import NamedTool, define_mcp_tool, tool

class Address(BaseModel):
    city: str
    country: str = "DE"

class calculateFibonacciSchema(BaseModel):
    n: int = Field(default=10, ge=0)
    to: list[Address] = []

def calculateFibonacci({parameters}):
    '''Calculate the nth Fibonacci number'''
    return {answer}

@tool(needs_approval=lambda force: force)
def push(branch: str, force: bool = False): return f"pushed {{branch}} {{force}}"

args_field = NamedTool(
    name="args_field",
    input_schema={{"type": "object", "properties": {{"args": {{"type": "string"}}}}}},
    execute=lambda args, /: args["args"],
    needs_approval=False,
)
echo = define_mcp_tool(
    name="echo",
    description="Says it",
    input_schema={{"type": "object", "properties": {{"text": {{"type": "string"}}}}, "additionalProperties": False}},
    execute=lambda text: {{"content": [{{"type": "text", "text": text}}], "isError": text == "no"}},
    needs_approval=False,
)
"""
WORKER = """---
name: calculator
toolsets:
  custom:
    module: ./tools.py
    tools: [calculateFibonacci, push, args_field, echo]
    approval:
      default: ask
      tools:
        {tool}: {verdict}
---
You calculate.
"""


def hosted_program(root: Path, module: str, tool: str = "echo", verdict: str = "preApproved") -> Path:
    root.mkdir(exist_ok=True)
    (root / "tools.py").write_text(module)
    (root / "main.worker").write_text(WORKER.format(tool=tool, verdict=verdict))
    trust_store(forge_home()).give(root)
    return root / "main.worker"


async def test_a_worker_with_tools_of_a_module(tmp_path: Path, asked: Any) -> None:
    """In processes of their own, inside walls: the same shapes, and one memory for a default left out and given."""
    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    ask = asked({"approved": True, "remember": "session"})
    module = HOSTED.format(parameters="args, options", answer="[args['n'], bool(options.tool_call_id)]")
    options: dict[str, Any] = {"needs_model": False, "approval_callback": ask}
    async with WorkerRuntime(hosted_program(tmp_path / "p", module), **options) as runtime:
        router = ToolRouter(runtime)
        same: list[dict[str, Any]] = [{}, {"n": 10}, {"n": 10, "to": []}]
        for args in same:
            assert (await router.dispatch("calculateFibonacci", args)).text == "[10,true]"
        assert len(ask) == 1
        nested: list[dict[str, Any]] = [
            {"to": [{"city": "Bonn"}]},
            {"to": [{"country": "DE", "city": "Bonn"}], "n": 10},
        ]
        for args in nested:
            assert (await router.dispatch("calculateFibonacci", args)).ok
        assert len(ask) == 2
        assert (await router.dispatch("calculateFibonacci", {"n": 11})).ok and len(ask) == 3
        assert (await router.dispatch("push", {"branch": "a"})).text == "pushed a False" and len(ask) == 3
        assert (await router.dispatch("push", {"branch": "a", "force": True})).text == "pushed a True" and len(ask) == 4
        assert (await router.dispatch("args_field", {"args": "x"})).text == "x"
        assert (await router.dispatch("echo", {"text": "yes"})).text == "yes"
        assert (await router.dispatch("echo", {"text": "no"})).status == "execution_failed"


async def test_what_a_worker_file_may_not_say_of_its_module(tmp_path: Path) -> None:
    if find_bwrap() is None:
        pytest.skip("full walls need bubblewrap")
    module = HOSTED.format(parameters="n, to", answer="n")
    with pytest.raises(ConfigError) as refused:
        async with WorkerRuntime(hosted_program(tmp_path / "p", module, "push"), needs_model=False):
            pass
    says = "toolsets.custom.approval.tools.push: preApproved has no effect, 'push' decides for itself"
    assert "main.worker:10: " in str(refused.value) and says in str(refused.value)


@pytest.mark.parametrize("own", ["ask", "preApproved", lambda args: False])
def test_pre_approving_what_decides_for_itself_is_a_load_error(own: Any, tmp_path: Path) -> None:
    (tmp_path / "forge.yaml").write_text("approval: {tools: {x: preApproved}}\n")
    trust_store(forge_home()).give(tmp_path)
    with pytest.raises(ConfigError) as refused:
        open_session(tmp_path, tools=[NamedTool(name="x", execute=lambda: 1, needs_approval=own)])
    assert "approval.tools.x: preApproved has no effect, 'x' decides for itself" in str(refused.value)
    open_session(tmp_path, tools=[NamedTool(name="x", execute=lambda: 1, needs_approval=False)]).close()


# Tools package guide


async def test_the_unified_tool_format(tmp_path: Path, asked: Any) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    async def execute(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": args["text"].upper()}], "structuredContent": {"n": 1}}

    made = define_mcp_tool(name="shout", description="Says it loudly", input_schema=schema, execute=execute)
    again = define_mcp_tool({"name": "shout", "description": "", "inputSchema": schema, "execute": execute})
    for one in (made, again):
        assert (one.name, one.source, one.input_schema) == ("shout", "native", schema)
        good, bad = one.validate_input({"text": "hi"}), one.validate_input({"text": 3})
        assert good.ok and good.data == {"text": "hi"}
        assert not bad.ok and bad.error == bad.message == "shout: text: expected string, got integer"
        result = await one.execute({"text": "hi"})
        assert result.to_mcp() == {"content": [{"type": "text", "text": "HI"}], "structuredContent": {"n": 1}}
    with pytest.raises(TypeError, match="did you mean 'input_schema'"):
        define_mcp_tool(name="x", inputSchema=schema, execute=execute)  # type: ignore[call-arg]
    ask = asked()
    async with open_session(tmp_path, tools=[made], approval_callback=ask) as session:
        assert (await session.call("shout", {"text": "hi"})).text == "HI"
    assert [request.tool for request in ask] == ["shout"]  # nothing says that it may run unasked


async def test_the_router_lists_queries_and_dispatches(tmp_path: Path, asked: Any) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    ask = asked({"approved": False})
    async with open_session(tmp_path, approval_callback=ask) as session:
        router = ToolRouter(session)
        assert {each.name for each in router.list(source="native")} >= {"read_file", "exec_command", "apply_patch"}
        assert router.list(source="mcp") == []
        read = router.query("read_file")
        assert read is not None and read.name == "read_file" and router.query("nothing") is None
        router.register(NamedTool(name="greet", description="Greets.", execute=lambda: "hi", needs_approval=False))
        shown = {each["name"]: each for each in router.tool_definitions()}
        assert shown["greet"].keys() == {"name", "description", "inputSchema"}
        assert (await router.dispatch("greet")).text == "hi"
        assert "hello" in (await router.dispatch("read_file", {"path": "a.txt"})).text
        denied = await router.dispatch(ToolCall("write_file", {"path": "b", "content": "x"}))
        assert (denied.status, len(ask)) == ("approval_denied", 1)  # the same path, the same question
        assert not (tmp_path / "b").exists()
        with pytest.raises(ValueError, match="did you mean 'native'"):
            router.list(source="natve")
    alone = ToolRouter([NamedTool(name="asks", execute=lambda: "ran")])
    assert (await alone.dispatch("asks")).status == "approval_denied"
    asking = ToolRouter([NamedTool(name="asks", execute=lambda: "ran")], approval=ApprovalController("approve_all"))
    assert (await asking.dispatch("asks")).text == "ran"

    def plain() -> str:
        return "ran"

    by_mode = ToolRouter([plain], approval="approve_all")  # a function makes a tool, and a mode a controller
    assert (await by_mode.dispatch(name="plain")).text == "ran"


async def test_a_call_of_another_shape_is_an_error_at_once(tmp_path: Path) -> None:
    push = NamedTool(name="push", execute=lambda: "ran", needs_approval=False, mode="manual")
    read = NamedTool(name="read_mail", execute=lambda: "ran", needs_approval=False)
    async with open_session({"directory": tmp_path, "tools": [push, read], "approvalMode": "auto_deny"}) as session:
        router = ToolRouter(session)
        assert (await session.call(ToolCall("read_mail", {}))).text == "ran"
        assert (await session.call(ToolCall("push", {}, Caller.HUMAN))).text == "ran"
        wrong: Any
        for wrong in ({"name": "read_mail", "args": {}}, read, None, 5):
            for call in (session.call, router.dispatch):
                with pytest.raises(TypeError, match=r"takes a name and arguments, .*, or one ToolCall"):
                    await call(wrong)
        with pytest.raises(TypeError, match="a ToolCall has its own arguments"):
            await session.call(ToolCall("read_mail", {}), {})
        with pytest.raises(ValueError, match="caller 'user' is not one of llm, human, mcp, tool"):
            await session.call("push", caller="user")
        for call in (session.call, router.dispatch):
            with pytest.warns(RuntimeWarning, match=r"'push' is for people only.*caller='human'"):
                told = await call("push", {})
            with warnings.catch_warnings(action="error"):
                to_a_model = await call("push", {}, caller=Caller.LLM)
                await call("psh", {})
            for outcome in (told, to_a_model):  # what a model may read says nothing of it
                unknown = "Unknown tool 'push'. Did you mean 'git_push'?"
                assert (outcome.status, outcome.text) == ("tool_not_found", unknown)
        with pytest.raises(TypeError, match="a tool must be a Tool or a function, not 5"):
            router.register(5)  # type: ignore[arg-type]
    for wrong, says in (
        ({"toolz": []}, "did you mean 'tools'"),
        ({"approvalCallback": print}, "did you mean 'approval_callback'"),
        ({"approval_callback": True}, "approval_callback must be a function that takes the request, not True"),
        ({"tools": read}, "tools must be a list of Tools"),
        ({"tools": "abc"}, "tools must be a list of Tools, .*not 'abc'"),
        ({"tools": [5]}, "a tool must be a Tool or a function, not 5"),
        ({"approval": "strict", "approval_mode": "auto_deny"}, "are the same option"),
    ):
        with pytest.raises(TypeError, match=says):
            open_session(tmp_path, **wrong)


async def test_native_tools_are_tested_by_validate_input_and_execute(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    listed = "exec_command write_stdin apply_patch read_file list_dir grep_files list_mcp_resources read_mcp_resource"
    assert {*listed.split(), "update_plan", "webfetch", "get_memory"} <= {each.name for each in TOOL_LIST}
    for one in TOOL_LIST:
        assert one.source == "native" and one.input_schema["type"] == "object" and TOOLKIT[one.name] is one
    with open_sandbox([ZoneSpec(name="workspace", path=tmp_path)]) as sandbox:
        read = create_read_file_tool(sandbox)
        assert read.validate_input({"path": 3}).ok is False
        assert "one" in (await read.execute({"path": "a.txt"})).text
        assert "one" in (await TOOLKIT["read_file"].execute({"path": "a.txt"}, {"sandbox": sandbox})).text
        with pytest.raises(InputInvalid, match="path"):
            await read.execute({})
        with pytest.raises(TypeError, match="'sandbx'; did you mean 'sandbox'"):
            await read.execute({"path": "a.txt"}, {"sandbx": sandbox})


def test_zones_made_in_python(tmp_path: Path) -> None:
    said = {"name": "workspace", "path": str(tmp_path), "approval": {"write": "preApproved", "delete": "blocked"}}
    for zones in ([ZoneSpec(**said)], [said], {"workspace": said}):
        with open_sandbox(zones=zones) as sandbox:
            zone = sandbox.zones["workspace"]
            assert (zone.mode, zone.write, zone.delete) == ("rw", "preApproved", "blocked")
    with open_sandbox({"zones": [said], "defaultZone": "workspace"}) as sandbox:
        assert sandbox.default_zone == "workspace"
    wrong: Any
    for wrong, kind, says in (
        ({"write": "preapproved"}, ValueError, "not one of preApproved, ask, blocked; did you mean 'preApproved'"),
        ({"approval": {"writ": "ask"}}, TypeError, "did you mean 'write'"),
        ({"approval": "ask"}, TypeError, "approval must be a mapping"),
        ({"approval": {"write": "ask"}, "write": "ask"}, TypeError, "are the same option"),
        ({"mod": "ro"}, TypeError, "did you mean 'mode'"),
    ):
        with pytest.raises(kind, match=says):
            ZoneSpec(name="workspace", path=tmp_path, **wrong)
    for wrong in (".", 5, ["."]):
        with pytest.raises(TypeError, match=r"open_sandbox: (zones|a zone) must be .*ZoneSpec"):
            open_sandbox(wrong)
    for make in (FilesystemToolset, create_read_file_tool, create_delete_file_tool):
        with pytest.raises(TypeError, match="sandbox must be made by open_sandbox"):
            make(".")  # type: ignore[operator]
    with pytest.raises(ConfigError, match="zone_approval_config: must be a mapping"):
        FilesystemToolset(zone_approval_config="ask")  # type: ignore[arg-type]


def test_names_in_the_documents_spelling_lead_to_ours() -> None:
    for theirs, ours in (("getLLMTools", "get_llm_tools"), ("deriveFieldsFromSchema", "derive_fields_from_schema")):
        with pytest.raises(AttributeError, match=f"here it is {ours}"):
            getattr(golem_forge, theirs)


# What a newcomer tries


class Deep(BaseModel):
    level: int = 1


DEFAULTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "branch": {"type": "string"},
        "remote": {"type": "string", "default": "origin"},
        "more": {"type": "object", "properties": {"depth": {"type": "integer", "default": 3}}},
    },
    "required": ["branch"],
}


async def test_a_model_reads_the_data_of_a_result_whoever_made_it(make_path: Any) -> None:
    from mcp import types

    value = {"kind": "git.status", "data": {"staged": 1}, "summary": "1 staged"}
    foreign = types.CallToolResult(content=[types.TextContent(type="text", text="no")], is_error=True)
    image = types.ImageContent(type="image", data="eA==", mime_type="image/png")
    assert ToolResult(value).text == ToolResult.from_mcp(ToolResult(value).to_mcp()).text == '1 staged\n{"staged":1}'
    assert ToolResult(value, "").text == ""
    assert ToolResult({"kind": "json", "data": [1]}).to_mcp()["content"] == [{"type": "text", "text": "[1]"}]
    for wrong in ("x", {"data": 1}, None):
        with pytest.raises(TypeError, match="a mapping with a 'kind'"):
            ToolResult(wrong)  # type: ignore[arg-type]
    only_structured = {"content": [], "structuredContent": {"n": 1}}
    assert ToolResult.from_mcp(only_structured).text == '{"n":1}'
    assert ToolResult.from_mcp(only_structured).to_mcp() == only_structured
    dumped = types.CallToolResult(content=[image], is_error=True).model_dump()
    read = ToolResult.from_mcp(dumped)
    assert (read.is_error, read.content[0]["mimeType"]) == (True, "image/png") and "meta" not in read.content[0]

    async def later() -> Any:
        return foreign

    failing: list[Tool] = [
        define_mcp_tool("d", "d", None, lambda: {"content": [{"type": "text", "text": "no"}], "is_error": True}),
        Tool("o", execute=lambda: foreign),
        Tool("s", execute=later, output_schema={"type": "object", "required": ["n"]}),
    ]
    for one in failing:
        outcome = await called(make_path(one, mode="approve_all"), one.name)
        assert (outcome.status, outcome.text) == ("execution_failed", "no")


async def test_needs_approval_is_bound_as_execute_is(make_path: Any, asked: Any, caplog: Any) -> None:
    def by_model(args: GitPush) -> bool:
        return args.force

    def by_fields(**fields: Any) -> Any:
        return fields["force"]

    async def with_context(args: Any, *, ctx: ToolContext) -> Any:
        return args["force"] and ctx.worker is not None

    options = {**GIT_PUSH, "manual_execution": {"mode": "llm"}}
    for check, asks in ((by_model, 1), (by_fields, 1), (with_context, 1), (lambda: False, 0), (lambda: True, 2)):
        ask = asked()
        path = make_path(NamedTool(**{**options, "needs_approval": check}), ask=ask)
        for force in (False, True):
            assert (await called(path, "git_push", {"branch": "x", "force": force})).ok
        assert len(ask) == asks
    with pytest.raises(ToolDefinitionError, match=r"needs_approval\(a, b, c\)"):
        NamedTool(**{**options, "needs_approval": lambda a, b, c: True})
    broken = NamedTool(**{**options, "needs_approval": lambda args: args["no such"]})
    outcome = await called(make_path(broken), "git_push", {"branch": "x"})
    assert outcome.text == "Approval check of 'git_push' failed (KeyError); the call was not run."
    assert "Traceback" in caplog.text and "no such" in caplog.text


async def test_defaults_of_a_json_schema_are_filled_in(make_path: Any, asked: Any) -> None:
    def push(branch: str, remote: str, more: Any = None) -> Any:
        return [branch, remote, more]

    ask = asked({"approved": True, "remember": "session"})
    path = make_path(Tool("push", input_schema=DEFAULTS, execute=push), ask=ask)
    outcome = await called(path, "push", {"branch": "x", "more": {}})
    assert outcome.result.value["data"] == ["x", "origin", {"depth": 3}]
    assert (await called(path, "push", {"branch": "x", "remote": "origin", "more": {"depth": 3}})).ok
    assert len(ask) == 1  # the same call


async def test_what_is_no_tool_is_refused_where_it_is_given(tmp_path: Path) -> None:
    for schema in ("abc", int, 5, [], Deep(level=2).__dict__.keys()):
        with pytest.raises(ToolDefinitionError, match="must be a pydantic model"):
            NamedTool(name="g", input_schema=schema, execute=lambda args: "")
    for options, says in (
        ({"name": "git push!"}, "invalid tool name 'git push!'"),
        ({"input_schema": {"type": "string"}}, "must have type object, not 'string'"),
    ):
        broken = NamedTool(**{"name": "g", "execute": lambda args: "", "input_schema": DEFAULTS, **options})
        with pytest.raises(ToolDefinitionError, match=says):
            open_session(tmp_path, tools=[broken])
    with open_sandbox([ZoneSpec(name="work", path=tmp_path)]) as sandbox:
        literal = {"name": "g", "inputSchema": DEFAULTS, "execute": lambda args: "ran", "needsApproval": False}
        async with open_session(tmp_path, tools=[literal, FilesystemToolset(sandbox)], toolsets={}) as session:
            assert (await session.call("g", {"branch": "x"})).text == "ran"
            assert "write_file" in session.catalog
    assert define_mcp_tool({"name": "m", "execute": lambda: "", "source": "native"}).source == "native"
    with pytest.raises(ValueError, match="source is 'native'"):
        define_mcp_tool("m", execute=lambda: "", source="mcp")


def test_names_and_members_of_the_documents() -> None:
    push = NamedTool(**GIT_PUSH)
    assert push.manual_execution == GIT_PUSH["manual_execution"]
    assert NamedTool(name="x", execute=lambda: "").manual_execution is None
    with pytest.raises(AttributeError, match="here it is 'input_schema'"):
        push.inputSchema  # type: ignore[attr-defined]  # noqa: B018
    for name, says in (
        ("isNamedTool", "isinstance"),
        ("CallToolResult", "to_mcp"),
        ("EventCLIAdapter", "create_event"),
    ):
        with pytest.raises(AttributeError, match=says):
            getattr(golem_forge, name)
    assert BlockedError(tool_name="deploy", reason="r").tool == "deploy"
    signal = golem_forge.create_interrupt_signal()
    assert signal.aborted is False
    signal.interrupt()
    assert signal.aborted is True
    assert [field["name"] for field in derive_fields_from_schema(push)] == ["remote", "branch", "force"]
    for wrong in (None, "x", {"type": "string"}, exec_git):
        with pytest.raises(TypeError, match="derive_fields"):
            derive_fields_from_schema(wrong)
