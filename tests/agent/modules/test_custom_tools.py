"""`load_custom_tools`: a trusted file's tools in the embedder's own process, with the same texts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from golem_forge.agent.modules.custom_tools import load_custom_tools
from golem_forge.core.errors import ConfigError


async def test_the_named_exports_of_a_file_are_tools_here(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("from beside_it import TWO\ndef double(n: int) -> int: return n * TWO\n")
    (tmp_path / "beside_it.py").write_text("TWO = 2\n")
    before = list(sys.path)
    try:
        (double,) = load_custom_tools(tmp_path / "tools.py", tools=["double"])
        assert (await double.execute({"n": 4})).text == "8"
        assert double.input_schema["required"] == ["n"]
        assert sys.path == before and "tools" not in sys.modules
    finally:
        sys.modules.pop("beside_it", None)


@pytest.mark.parametrize(
    ("code", "names", "said"),
    [
        (
            "def a(): ...\ndef b(): ...\nfrom os.path import join\n_c = 1",
            ["x"],
            "Tool 'x' not found in {file}. Available exports: a, b",
        ),
        ("def _a(): ...", ["_a"], "Tool '_a' not found in {file}. Available exports: none"),
        ("a = []", ["a"], "'a' in {file} must be a function or a Tool"),
        ("\n1 / 0", ["a"], "Failed to load custom tools from {file}: ZeroDivisionError: division by zero (line 2)"),
        ("def a(:\n  pass", ["a"], "Failed to load custom tools from {file}: SyntaxError: invalid syntax (line 1)"),
        (
            "\nimport nothing_like_it",
            ["a"],
            "Failed to load custom tools from {file}: ModuleNotFoundError: No module named 'nothing_like_it' (line 2)",
        ),
        ("a_schema = 3\ndef a(): ...", ["a"], "'a_schema' in {file} must be a pydantic model or a JSON Schema"),
        (None, ["a"], "Failed to load custom tools from {file}: file not found"),
        ("def a(): ...", [], "load_custom_tools('{file}'): name at least one tool"),
    ],
)
def test_what_is_wrong_is_said_as_for_worker_files(
    tmp_path: Path, code: str | None, names: list[str], said: str
) -> None:
    file = tmp_path / "tools.py"
    if code is not None:
        file.write_text(code)
    with pytest.raises(ConfigError) as caught:
        load_custom_tools(file, tools=names)
    assert str(caught.value) == said.format(file=file)


def test_a_process_of_plain_tools_loads_little() -> None:
    """Each session of a program with a module starts one; what these import was more than half of its start."""
    code = """
import sys
import golem_forge.agent.modules.host_loop
from golem_forge import ToolContext, tool

@tool
def wait(seconds: float, unit: str = "s", *, ctx: ToolContext) -> str:
    return unit

assert wait.input_schema["required"] == ["seconds"] and wait.validate({"seconds": 0.5}).values["unit"] == "s"
heavy = {"asyncio", "ssl", "logging", "pydantic", "pydantic_core"}
heavy |= {f"golem_forge.{name}" for name in ("config", "events", "policy", "sandbox.sandbox", "sandbox.walls")}
print(sorted(heavy & {*sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
