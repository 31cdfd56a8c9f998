"""Toolset blocks of worker files: shapes of code blocks, and `approval` held against what a block exposes (W4)."""

from __future__ import annotations

import pytest

from golem_forge.agent.files.roster import restrict_untrusted
from golem_forge.agent.files.toolset_blocks import approval_of, native_names, worker_blocks
from golem_forge.agent.files.worker import Worker
from golem_forge.agent.files.worker_file import WorkerProblems, parse_worker
from golem_forge.agent.session import open_session
from golem_forge.config.validation import Setting
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError


def worker(toolsets: str, more: str = "") -> Worker:
    read = parse_worker(f"---\nname: g\n{more}toolsets:\n{toolsets}\n---\nHi".encode(), "main.worker")
    assert isinstance(read, Worker), read
    return read


def problems(toolsets: str) -> tuple[str, ...]:
    read = parse_worker(f"---\nname: g\ntoolsets:\n{toolsets}\n---\nHi".encode(), "main.worker")
    assert isinstance(read, WorkerProblems), read
    return read.found


CUSTOM = """\
  custom:
    - module: ./a.py
      tools: [x, y]
      approval: {default: preApproved, tools: {x: ask}}
    - {module: ./b.py, tools: [z], env: {pass: [LANG_CODE]}}
  external:
    package: acme
    entry_point: web
    approval: {tools: {search: blocked}}
  workers: {allow: [helper]}
"""


def test_code_blocks_become_data_with_their_lines() -> None:
    blocks = worker_blocks(worker(CUSTOM))
    first, second = blocks.custom
    assert (first.module, first.tools, first.key, first.origin) == ("./a.py", ("x", "y"), "custom[0]", "main.worker:5")
    assert first.approval.default == Setting(Verdict.PRE_APPROVED, "main.worker:7")
    assert first.env is None and second.env is not None and second.env.passed == ("LANG_CODE",)
    [external] = blocks.external
    assert (external.package, external.entry_point, external.import_path) == ("acme", "web", "")
    assert blocks.workers is not None and blocks.workers.allow == ("helper",)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("  custom: {tools: [a]}", "toolsets.custom: 'module' is missing"),
        ("  custom: {module: a.py, tools: []}", "toolsets.custom.tools: expected at least one name"),
        ("  custom: {module: a.py, tools: [a, a]}", "toolsets.custom.tools[1]: 'a' is named twice"),
        ("  custom: {module: a.py, tools: [_a]}", "'_a' cannot be exported"),
        ("  custom: {module: a.txt, tools: [a]}", "expected a Python file, like ./tools.py, got 'a.txt'"),
        ("  custom: {module: a.py, tools: [a], aproval: {}}", "unknown key 'aproval'; did you mean 'approval'?"),
        ("  custom: {module: a.py, tools: [a], env: {pass: [PATH]}}", "'PATH' cannot be given to a child"),
        ("  custom: [{module: a.py, tools: [a], approval: {default: yes}}]", "toolsets.custom[0].approval.default"),
        ("  custom: []", "toolsets.custom: expected at least one block"),
        ("  external: {package: p}", "needs exactly one of 'import' and 'entry_point'"),
        ("  external: {package: p, import: a, entry_point: b}", "needs exactly one of 'import' and 'entry_point'"),
        ("  workers: {}", "toolsets.workers: 'allow' is missing"),
        ("  workers: {allow: []}", "toolsets.workers.allow: expected at least one name"),
        ("  workers: {allow: [a], env: {}}", "toolsets.workers.env: unknown key 'env'"),
        ("  search: {x: 1}", "toolsets.search.x: unknown key; this toolset has only the key 'approval'"),
        ("  coding: {approval: {tools: {raed_file: ask}}}", "not a tool of this block; did you mean 'read_file'?"),
        ("  coding: {approval: {tools: {read_file: preApproved}}}", "preApproved has no effect, 'read_file' decides"),
        ("  coding: {approval: {default: ask}}", "toolsets.coding.approval.default: has no effect"),
    ],
)
def test_every_block_is_strict(block: str, said: str) -> None:
    [found] = problems(block)
    assert found.startswith("main.worker:4: ") and said in found, found


def test_approval_of_each_tool_is_that_of_its_block() -> None:
    said = approval_of(worker(CUSTOM), {"custom[0]": ["x", "y"], "custom[1]": ["z"], "external": ["search", "get"]})
    assert said.keys() == {"x", "y", "search", "get"}
    assert said["x"].tools["x"].value is Verdict.ASK
    assert said["y"].default == Setting(Verdict.PRE_APPROVED, "main.worker:7")


def test_a_name_that_is_not_exposed_is_refused_W4() -> None:
    with pytest.raises(ConfigError) as caught:
        approval_of(worker(CUSTOM), {"custom[0]": ["y"], "external": ["serch"]})
    assert caught.value.problems == (
        "main.worker:7: toolsets.custom[0].approval.tools.x: not a tool of this block. It exposes: y",
        "main.worker:12: toolsets.external.approval.tools.search: not a tool of this block; did you mean 'serch'?",
    )
    assert approval_of(worker(CUSTOM), {}) == {}, "a block that was not loaded is not held against anything"


def test_two_blocks_exposing_one_name_are_named_W4() -> None:
    read = worker("  filesystem:\n  coding:\n" + CUSTOM)
    native = native_names(worker_blocks(read))
    assert "read_file" in native["filesystem"] and "read_file" in native["coding"]
    assert approval_of(read, native) == {}, "native blocks may share a tool"
    with pytest.raises(ConfigError) as caught:
        approval_of(read, {**native, "custom[0]": ["x", "y", "read_file"], "custom[1]": ["y"]})
    assert caught.value.problems == (
        "main.worker:3: toolsets: tool 'read_file' is exposed by 'filesystem' and 'coding' and 'custom[0]'; "
        "leave it out of one of them",
        "main.worker:3: toolsets: tool 'y' is exposed by 'custom[0]' and 'custom[1]'; leave it out of one of them",
    )


def test_native_blocks_that_share_a_tool_combine_strictest_first() -> None:
    read = worker(
        "  filesystem: {approval: {tools: {read_file: ask}}}\n  coding: {approval: {tools: {read_file: blocked}}}"
    )
    said = approval_of(read, native_names(worker_blocks(read)))
    assert said["read_file"].tools["read_file"].value is Verdict.BLOCKED


async def test_a_native_block_tightens_its_tools_in_a_session(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("text")
    blocks = {"filesystem": {"approval": {"tools": {"read_file": "blocked"}}}}
    async with open_session(tmp_path, toolsets=blocks) as session:
        assert (await session.call("read_file", {"path": "a.txt"})).status == "policy_denied"
        assert (await session.call("file_exists", {"path": "a.txt"})).status == "success"


def test_an_untrusted_workers_file_loosens_nothing_W15() -> None:
    read = worker(
        "  coding: {exec: {walled: preApproved, env: {pass: [CANARY]}}}\n"
        "  shell: {rules: [{pattern: preApproved, approval: preApproved}], env: {set: {A: b}}}\n"
        "  custom: {module: a.py, tools: [env], approval: {default: preApproved, tools: {env: preApproved}}}",
        "sandbox: {zones: [{name: workspace, approval: {write: preApproved, delete: blocked}}]}\n",
    )
    unused: list[str] = []
    made = restrict_untrusted(read, unused)
    assert made.toolsets == {
        "coding": {"exec": {"walled": "ask"}},
        "shell": {"rules": [{"pattern": "preApproved", "approval": "ask"}]},
        "custom": {"module": "a.py", "tools": ["env"], "approval": {"default": "ask", "tools": {"env": "ask"}}},
    }
    assert made.sandbox is not None
    assert (made.sandbox.zones[0].write, made.sandbox.zones[0].delete) == (Verdict.ASK, Verdict.BLOCKED)
    assert "main.worker:5: toolsets.coding.exec.env" in unused
    assert "main.worker:3: sandbox.zones.workspace.approval.write: preApproved counts as ask" in unused
    assert len(unused) == 7
    assert restrict_untrusted(made, again := []) == made and again == []
