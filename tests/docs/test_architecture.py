"""docs/architecture.md names files that there are, and lists every file by the first words of its header. Tests have
the names of what they test."""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import filter as filter_names
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "golem_forge"
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_the_list_of_files_is_what_the_files_say() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/list_files.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|js|sql))`", PAGE))
    assert len(named) > 200
    assert [name for name in named if not ((PACKAGE / name).is_file() or (ROOT / name).is_file())] == []


APART = ("acceptance", "compat", "docs", "invariants", "wire")
"""Folders of tests that follow no package."""


def _mirrors_a_module(path: Path) -> bool:
    """`path` is that of a test file below `tests`."""
    package = PACKAGE / path.parent
    if not (package / "__init__.py").is_file():
        return False
    modules = {each.stem for each in package.iterdir() if each.suffix == ".py" or each.is_dir()}
    topic = path.stem.removeprefix("test_")
    return any(f"{topic}_".startswith(f"{module}_") for module in modules) or topic.startswith(f"{package.name}_")


def test_the_rule_for_names_of_tests_tells_them_apart() -> None:
    right = (
        "mcp/client/test_pool.py",
        "mcp/client/test_pool_http.py",
        "mcp/test_mcp_programs.py",
        "ui/web/test_page_fold.py",
    )
    wrong = ("mcp/client/test_pools.py", "mcp/test_pool.py", "mcp/test_mcp.py", "mcp/pools/test_pool.py")
    assert [name for name in (*right, *wrong) if _mirrors_a_module(Path(name))] == list(right)


def test_tests_have_the_names_of_what_they_test(pytestconfig: pytest.Config) -> None:
    """CONTRIBUTING.md has the rule. Helpers and their folders may be called anything."""
    files = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
    mirrored = [path for path in files if path.parts[0] not in APART]
    assert len(mirrored) > 400
    assert sorted(str(path) for path in mirrored if not _mirrors_a_module(path)) == []
    folders = {part for path in mirrored for part in path.parent.parts}
    assert [name for name in pytestconfig.getini("norecursedirs") if filter_names(folders, name)] == []
