"""The tables of keys, commands, providers and exit codes name everything there is, and nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from golem_forge.agent.files.roster import load_roster
from golem_forge.agent.files.toolset_blocks import worker_blocks
from golem_forge.agent.files.worker_file import _SHAPE as WORKER_SHAPE
from golem_forge.agent.slash.commands import BUILT_IN_COMMANDS
from golem_forge.cli.init import FILES
from golem_forge.cli.tools import VERBS as TOOL_VERBS
from golem_forge.config.mcp_blocks import SERVER_CHECK as SERVER_SHAPE
from golem_forge.config.program import _SCHEMA as PROGRAM_SHAPE
from golem_forge.config.program import load_program
from golem_forge.config.run_block import PROVIDER_NAMES
from golem_forge.core.errors import EXTRAS
from golem_forge.mcp.client.model import HoldReason, ServerState
from golem_forge.storage.home import ForgeHome
from golem_forge.ui.session_ui import _BY_STATUS
from golem_forge.ui.terminal.questions import card_help
from golem_forge.usertools.build.requirements import script_block
from golem_forge.usertools.diagnostics import DiagnosticCode
from golem_forge.usertools.folder import ToolEntry
from golem_forge.usertools.manifest import ToolManifest
from golem_forge.usertools.manifest.schema import PARAMETER_KEYS
from golem_forge.usertools.manifest.tool_yaml import _EXPECTATION, MANIFEST_KEYS
from golem_forge.usertools.manifest.tool_yaml import _TEST_KEYS as TEST_KEYS
from golem_forge.usertools.run import RunInfo, tool_environment

ROOT = Path(__file__).parents[2]


def _first_column(page: str, heading: str) -> set[str]:
    """The words in backticks of the first column of the first table below a heading."""
    text = (ROOT / "docs" / page).read_text()
    section = text[text.index(f"\n{heading}\n") :]
    table = re.search(r"^\|[-|]+\|\n((?:\|.*\n)+)", section, re.MULTILINE)
    assert table
    return {word for row in table[1].splitlines() for word in re.findall(r"`([^`]+)`", row.split("|")[1])}


@pytest.mark.parametrize(
    ("page", "heading", "there_are"),
    [
        ("guides/workers.md", "## Worker files", set(WORKER_SHAPE.keys)),
        ("guides/workers.md", "## Programs", set(PROGRAM_SHAPE.keys)),
        ("guides/workers.md", "## Models and keys", set(PROVIDER_NAMES)),
        ("guides/user-tools.md", "## `tool.yaml`", set(MANIFEST_KEYS)),
        ("guides/user-tools.md", "### Parameters", set(PARAMETER_KEYS)),
        ("guides/user-tools.md", "## Tests", set(TEST_KEYS)),
        ("guides/user-tools.md", "## `forge tools`", set(TOOL_VERBS)),
        ("guides/user-tools.md", "## Why a folder is no tool", {code.value for code in DiagnosticCode}),
        ("guides/mcp.md", "## Every key", set(SERVER_SHAPE.keys)),
        ("guides/mcp.md", "### States", {state.value for state in ServerState}),
        ("guides/mcp.md", "### Held back", {reason.value for reason in HoldReason}),
    ],
)
def test_the_table_has_every_key(page: str, heading: str, there_are: set[str]) -> None:
    assert _first_column(page, heading) == there_are


def test_the_table_of_tests_has_every_expectation() -> None:
    text = (ROOT / "docs" / "guides/user-tools.md").read_text()
    [row] = re.findall(r"^\| `expect` \|(.*)$", text, re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == list(_EXPECTATION.keys)


def test_the_table_has_every_variable_of_a_run() -> None:
    manifest = ToolManifest(name="x", description="x", version="1", entrypoint="x")
    entry = ToolEntry(name="x", folder=Path(), manifest=manifest, digest="", files=())
    place = RunInfo(workspace="/workspace", tool_dir="/forge/tool", timeout=1)
    listed = _first_column("guides/user-tools.md", "## What a run finds")
    assert listed == {*tool_environment(entry, place, {}), "FORGE_SOCKET", "FORGE_CALL_TOKEN"}


def test_the_script_with_dependencies_is_read() -> None:
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "guides/user-tools.md").read_text(), re.DOTALL)
    assert found
    block = script_block(found[1].encode(), "x.py")
    assert block is not None
    assert block.dependencies == ("httpx>=0.28",)


def test_the_table_has_every_command() -> None:
    listed = {words.split()[0][1:] for words in _first_column("guides/terminal.md", "## Slash commands")}
    assert listed - {"NAME", "SERVER__PROMPT"} == set(BUILT_IN_COMMANDS)


def test_the_table_has_every_key_of_a_card() -> None:
    choices = [{"id": "prefix1:session", "scope": "session", "suggested": True}]
    keys = {line[0][1].strip() for line in card_help({"choices": choices})}
    listed = _first_column("guides/terminal.md", "## Cards")
    assert {key for key in keys if len(key) == 1} | {"1", "?"} == {key for key in listed if len(key) == 1}


def test_the_table_has_every_exit_code_of_a_run() -> None:
    text = (ROOT / "docs" / "guides/workers.md").read_text()
    table = text[text.index("| exit | meaning |") :].split("\n\n")[0]
    listed = {int(code) for row in table.splitlines()[2:] for code in re.findall(r"\d+", row.split("|")[1])}
    assert listed == set(_BY_STATUS.values())


def test_the_worker_in_the_readme_works_beside_what_init_writes(tmp_path: Path) -> None:
    found = re.search(r"```yaml\n(---\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found
    for name, text in (FILES | {"main.worker": found[1]}).items():
        (tmp_path / name).write_text(text)
    program = load_program(tmp_path, ForgeHome(tmp_path / "home"), trusted=lambda _: True)
    roster = load_roster(program)
    assert (roster.root.name, roster.warnings) == ("main", ())
    [custom] = worker_blocks(roster.root).custom
    assert all(f"def {name}(" in FILES[Path(custom.module).name] for name in custom.tools)


def test_the_readme_says_how_to_install_from_a_clone() -> None:
    said = " ".join((ROOT / "README.md").read_text().split())
    assert "not on the index yet" in said and "pip install '/path/to/the/clone[models,mcp,web]'" in said
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    # without a keyring keys are in files, without Pillow or pdfium large pictures and PDFs are a line of text
    providers = {"bedrock", "cohere", "mistral"}
    others = {"acp", "models", "mcp", "web", "otel", "team", "oidc", "secrets"}
    assert set(extras) - {"keyring", "pictures", "pdf"} == set(EXTRAS) == others | providers
