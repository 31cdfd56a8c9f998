"""docs/architecture.md names files that there are, and lists every file by the first words of its header."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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
