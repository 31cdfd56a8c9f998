"""Worker files: both parts kept whole, every key strict, every problem named with its line (workers.md §1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from golem_forge.agent.files.toolset_blocks import check_servers, mcp_from_python, worker_blocks
from golem_forge.agent.files.worker import McpBlock, Worker
from golem_forge.agent.files.worker_file import WorkerProblems, missing_sandbox, parse_worker
from golem_forge.agent.session_plan import BUILT_IN_WORKER, is_built_in
from golem_forge.config.program import load_program
from golem_forge.core.errors import ConfigError
from golem_forge.storage.home import ForgeHome


def worker(front: str, body: str = "Hi") -> Worker:
    read = parse_worker(f"---\n{front}\n---\n{body}".encode(), "main.worker")
    assert isinstance(read, Worker), read
    return read


def problems(front: str) -> tuple[str, ...]:
    read = parse_worker(f"---\n{front}\n---\nHi".encode(), "main.worker")
    assert isinstance(read, WorkerProblems), read
    return read.found


def test_the_smallest_file_W1() -> None:
    read = worker("name: g")
    assert (read.name, read.mode, read.instructions, read.allow_empty_input) == ("g", None, "Hi", False)
    assert read.sandbox is None and read.toolsets == {}


def test_unknown_missing_and_malformed_are_values_W1() -> None:
    [unknown] = problems("name: g\nbogus: 1")
    assert unknown.startswith("main.worker:3: bogus: unknown key 'bogus'; known: allow_empty_input")
    assert problems("mode: chat") == ("main.worker:2: 'name' is missing",)
    [broken] = problems("name: [")
    assert broken.startswith("main.worker:") and "not valid YAML" in broken


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "main.worker:1: the first line must be `---`"),
        (b"name: g\n---\n", "main.worker:1: the first line must be `---`"),
        (b" ---\nname: g\n---\n", "main.worker:1: the first line must be `---`"),
        (b"---\nname: g\n", "main.worker:1: the front matter has no end"),
        (b"---\n- a\n---\n", "main.worker:2: expected a mapping"),
        (b"---\nname: \xff\n---\n", "main.worker:2: is not UTF-8"),
        (b"---\nname: g\n---\nok\n\xff", "main.worker:5: is not UTF-8"),
        (b"---\nname: g\nname: h\n---\n", "main.worker:3: key 'name' is already on line 2"),
    ],
)
def test_what_is_no_worker_file(data: bytes, said: str) -> None:
    read = parse_worker(data, "main.worker")
    assert isinstance(read, WorkerProblems) and read.found[0].startswith(said), read


def test_everything_is_kept_whole_W2() -> None:
    data = "\ufeff---\t\r\nname: g\r\ndescription: x---y\r\n--- \t\r\n\r\nOne\r\n---\r\n  Two ---\r\n".encode()
    read = parse_worker(data, "main.worker")
    assert isinstance(read, Worker)
    assert (read.description, read.instructions) == ("x---y", "One\n---\n  Two ---")
    assert read.at("description") == "main.worker:3"


def test_toolsets_W3() -> None:
    assert worker("name: g\ntoolsets: {filesystem: null}") == worker("name: g\ntoolsets: {filesystem: {}}")
    assert problems("name: g\ntoolsets:\n  filesytem: {}") == (
        "main.worker:4: toolsets.filesytem: no such toolset; did you mean 'filesystem'?",
    )
    [wrong] = problems("name: g\ntoolsets:\n  coding:\n    exec:\n      walld: ask")
    assert wrong == "main.worker:6: toolsets.coding.exec.walld: unknown key; did you mean 'walled'?"


def test_the_block_of_mcp_servers() -> None:
    block = worker_blocks(worker("name: g\ntoolsets: {mcp: {servers: [git, docs]}}")).mcp
    assert block is not None and (block.servers, block.origin) == (("git", "docs"), "main.worker:3")
    assert [block.sees(name) for name in ("git", "docs", "other")] == [True, True, False]
    block = worker_blocks(worker('name: g\ntoolsets: {mcp: {servers: ["*"]}}')).mcp
    assert block is not None and block.sees("other")
    assert worker_blocks(worker("name: g\ntoolsets: {coding: {}}")).mcp is None


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("{}", "toolsets.mcp: 'servers' is missing"),
        ("", "toolsets.mcp: 'servers' is missing"),
        ("{servers: git}", "toolsets.mcp.servers: expected a list, got 'git'"),
        ("{servers: []}", "toolsets.mcp.servers: expected at least one name"),
        ("{servers: [git, git]}", "toolsets.mcp.servers[1]: 'git' is named twice"),
        ("{servers: ['*', git]}", "toolsets.mcp.servers: '*' means every server; name it alone"),
        ("{server: [git]}", "toolsets.mcp.server: unknown key 'server'; did you mean 'servers'?"),
        ("{servers: [git], approval: {default: ask}}", "toolsets.mcp.approval: unknown key 'approval'"),
    ],
)
def test_a_wrong_block_of_mcp_servers(block: str, said: str) -> None:
    found = problems(f"name: g\ntoolsets:\n  mcp: {block}")
    assert any(each.startswith(f"main.worker:4: {said}") for each in found), found


def test_servers_that_are_not_configured(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "forge.yaml").write_text("mcp: {servers: {github: {command: x}}}\n")
    program = load_program(tmp_path / "app", ForgeHome(tmp_path / "home"), trusted=lambda _: True)
    assert check_servers(McpBlock(servers=("github",)), program) == []
    assert check_servers(McpBlock(), program) == []
    block = worker_blocks(worker("name: g\ntoolsets: {mcp: {servers: [githib, zzz]}}")).mcp
    assert block is not None
    assert check_servers(block, program) == [
        "main.worker:3: toolsets.mcp.servers: no such server 'githib'; did you mean 'github'?",
        "main.worker:3: toolsets.mcp.servers: no such server 'zzz'; there are: github (`forge mcp add` adds one)",
    ]


def test_a_block_of_mcp_servers_from_python() -> None:
    assert mcp_from_python({"servers": ["git"]}).servers == ("git",)
    with pytest.raises(ConfigError, match=r"^toolsets\.mcp\.server: unknown key 'server'"):
        mcp_from_python({"server": ["git"]})


def test_the_block_of_the_persons_own_tools() -> None:
    block = worker_blocks(worker("name: g\ntoolsets: {user_tools: {}}")).user_tools
    assert block is not None and (block.tools, block.create) == (("*",), True)
    block = worker_blocks(worker("name: g\ntoolsets: {user_tools: {tools: [git-*], create: false}}")).user_tools
    assert block is not None and (block.tools, block.create) == (("git-*",), False)
    assert worker_blocks(worker("name: g\ntoolsets: {coding: {}}")).user_tools is None
    [said] = problems("name: g\ntoolsets:\n  user_tools: {creat: true}")
    assert said == "main.worker:4: toolsets.user_tools.creat: unknown key 'creat'; did you mean 'create'?"
    [said] = problems("name: g\ntoolsets:\n  user_tools: {create: maybe}")
    assert said.startswith("main.worker:4: toolsets.user_tools.create: expected true or false")


def test_compatible_models_W3() -> None:
    assert problems("name: g\ncompatible_models: []") == (
        'main.worker:3: compatible_models: expected at least one glob, like "anthropic:*"',
    )
    [said] = problems('name: g\nmodel: openai:x\ncompatible_models: ["anthropic:*", "google:*"]')
    assert said.startswith("main.worker:4: ") and said.endswith("compatible_models: anthropic:*, google:*")
    assert worker('name: g\nmodel: anthropic:X\ncompatible_models: ["ANTHROPIC:x*"]').model == "anthropic:X"
    [said] = problems("name: g\nmodel: opnai:x")
    assert said.startswith("main.worker:3: model: unknown model provider 'opnai'; did you mean 'openai'?")


@pytest.mark.parametrize(
    ("front", "said"),
    [
        (
            "output_schema_ref: a.json",
            "output_schema_ref: unknown key 'output_schema_ref'; did you mean 'output_schema'?",
        ),
        ("server_side_tools: []", "server_side_tools: unknown key"),
        ("locked: true", "locked: unknown key"),
        ("mode: chatty", "mode: expected one of single, chat ('chat'?), got 'chatty'"),
        ("max_iterations: 0", "max_iterations: expected a whole number above 0, got 0"),
        ("max_context_tokens: 1.5", "max_context_tokens: expected a whole number above 0"),
        ("allow_empty_input: yes", "allow_empty_input: expected true or false, got 'yes'"),
        ("batch: {mode: serial}", "batch.mode: expected one of parallel, sequential"),
        ("batch: {on_error: x}", "batch.on_error: unknown key 'on_error'"),
        ("budget: {max_token: 5}", "budget.max_token: unknown key 'max_token'; did you mean 'max_tokens'?"),
        ("tool_format: json", "tool_format: expected one of auto, native, xml"),
        ("attachment_policy: {allowed_suffixes: [pdf]}", "expected a suffix with its dot, like .pdf, got 'pdf'"),
        ("attachment_policy: {max_attachments: -1}", "expected a whole number, 0 or more, got -1"),
        (
            "input_schema: {properties: {a: {type: strin}}}",
            "input_schema: not a valid schema at $.properties.a.type: 'strin' is not a type; did you mean 'string'?",
        ),
        (
            "output_schema: {type: [object, xyzzy]}",
            "$.type: 'xyzzy' is not a type; types: array, boolean, integer, null,",
        ),
        ("input_schema: {type: object, required: a}", "at $.required: expected array, got string"),
        ("input_schema: {properties: {a: {pattern: '('}}}", "$.properties.a.pattern: '(' is not a regular expression"),
        ("output_schema: [a]", "output_schema: expected a JSON Schema, got a list"),
        ("output_schema: {$ref: 'https://x/y.json'}", "only local $ref are allowed"),
        ("sandbox: {zones: [{mode: ro}]}", "sandbox.zones[0]: 'name' is missing"),
        ("sandbox: {zones: [{name: a}, {name: a}]}", "sandbox.zones[1]: zone 'a' is named twice"),
        ("sandbox: {default_zone: b, zones: [{name: a}]}", "'b' is not among this worker's zones (a)"),
        (
            "sandbox: {default_zone: workspce, zones: [{name: workspace}]}",
            "sandbox.default_zone: 'workspce' is not among this worker's zones (workspace); did you mean 'workspace'?",
        ),
        ("sandbox: {zones: [{name: a, mode: ro, approval: {write: ask}}]}", "has no effect on a zone that is mode: ro"),
        ("sandbox: {zones: [{name: a, path: .}]}", "sandbox.zones[0].path: unknown key 'path'"),
    ],
)
def test_every_key_is_strict(front: str, said: str) -> None:
    [found] = problems(f"name: g\n{front}")
    assert found.startswith("main.worker:3: ") and said in found, found


@pytest.mark.parametrize("name", ["a__b", "-a", "9a", "a b", "ünï", "x" * 65, "''", "apply_patch", "Exec_Command"])
def test_names_are_those_of_tools(name: str) -> None:
    [found] = problems(f"name: {name}")
    assert found.startswith("main.worker:2: name: ")


def test_a_toolset_that_needs_zones_without_any_is_a_warning_that_prints_the_block() -> None:
    warning = missing_sandbox(worker("name: g\ntoolsets:\n  plan:\n  filesystem:"))
    assert warning.startswith("main.worker:5: toolset 'filesystem' has no file access")
    assert warning.endswith("sandbox:\n  zones:\n    - {name: workspace}")
    assert missing_sandbox(worker("name: g\ntoolsets: {plan: }")) == ""
    assert missing_sandbox(worker("name: g\ntoolsets: {filesystem: }\nsandbox: {zones: [{name: workspace}]}")) == ""


def test_the_built_in_worker() -> None:
    assert (BUILT_IN_WORKER.name, BUILT_IN_WORKER.mode, set(BUILT_IN_WORKER.toolsets)) == (
        "default",
        "chat",
        {"filesystem", "coding", "user_tools", "mcp"},
    )
    assert is_built_in(BUILT_IN_WORKER) and not is_built_in(worker("name: main"))
    assert worker_blocks(BUILT_IN_WORKER).native.keys() == {"filesystem", "coding"}
