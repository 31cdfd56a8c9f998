"""Every Python block in the README and in docs/guides/embed.md runs as it stands and prints what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import known_walls
from tests.deadlines import PATIENCE

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n```text\n(.*?)```)?", re.DOTALL)
EXAMPLES = [
    pytest.param(code, printed, id=f"{page}-{number}")
    for page in (
        "README.md",
        "docs/guides/embed.md",
        "docs/guides/mcp.md",
        "docs/concepts/zones-and-walls.md",
        "docs/reference/tools.md",
    )
    for number, (code, printed) in enumerate(BLOCK.findall((ROOT / page).read_text()), 1)
]


@pytest.mark.parametrize(("code", "printed"), EXAMPLES)
def test_the_example_prints_what_the_page_says(code: str, printed: str, tmp_path: Path, ready_forge: Any) -> None:
    folder = project(tmp_path, code)
    assert_prints(ready_forge.program("example.py", cwd=folder, env=os.environ), code, printed)


@pytest.mark.long
def test_the_first_one_does_in_an_interpreter_of_its_own(tmp_path: Path, own_home: Path, tried_walls: Path) -> None:
    known_walls.put(tried_walls, own_home / ".forge")
    code, printed = EXAMPLES[0].values
    folder = project(tmp_path, str(code))
    ran = subprocess.run([sys.executable, "example.py"], cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    assert_prints(ran, str(code), str(printed))


def project(place: Path, code: str) -> Path:
    folder = place / "project"
    folder.mkdir()
    (folder / "example.py").write_text(code)
    return folder


def assert_prints(ran: subprocess.CompletedProcess[str], code: str, printed: str) -> None:
    assert ran.returncode == 0, ran.stderr
    expected = printed or "\n".join(re.findall(r"print\(.*\)\s+# (.*)", code))
    assert ran.stdout.strip() == expected.strip()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
