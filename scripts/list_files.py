"""Writes the section "Every file" of docs/architecture.md: each file of the package with the first words of its header.

`--check` changes nothing and exits with 1 if the section is not what the files say.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import re
from itertools import groupby
from pathlib import Path
from tokenize import COMMENT, NEWLINE, NL, STRING, generate_tokens
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "src" / "golem_forge"
PAGE: Final = ROOT / "docs" / "architecture.md"
HEADING: Final = "## Every file\n"
SHORT: Final = 60
"""A first sentence with fewer characters says little: the second is shown too."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the list of all files into docs/architecture.md.")
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args()
    before, found, _ = PAGE.read_text().partition(HEADING)
    assert found, f"{PAGE.name} has no section {HEADING.strip()!r}"
    text = before + HEADING + section()
    if options.check:
        same = text == PAGE.read_text()
        print("" if same else f"{PAGE.name}: the list of files is old; run: python scripts/list_files.py", end="")
        return 0 if same else 1
    PAGE.write_text(text)
    return 0


def section() -> str:
    lines = ["", "The first words of each file's header, written by `python scripts/list_files.py`.", ""]
    for folder, files in groupby(source_files(), key=lambda path: path.parent):
        lines += [f"**{folder.relative_to(PACKAGE.parent)}/**", "", "| | |", "|---|---|"]
        lines += [f"| `{path.name}` | {summary(path)} |" for path in files]
        lines.append("")
    return "\n".join(lines)


def source_files() -> list[Path]:
    found = [path for kind in ("*.py", "*.js") for path in PACKAGE.rglob(kind)]
    return sorted(found, key=lambda path: (path.parent, path.name))


def summary(path: Path) -> str:
    text = path.read_text()
    header = _docstring(text) if path.suffix == ".py" else _comment(text)
    first = " ".join(header.partition("\n\n")[0].split())
    sentences = re.split(r"(?<=[.?]) (?=[A-Z`])", first)
    shown = sentences[0] if len(sentences[0]) >= SHORT else " ".join(sentences[:2])
    return shown.replace("|", "\\|")


def _docstring(text: str) -> str:
    """Read by its tokens: a tree of all the code would take twenty times as long."""
    for token in generate_tokens(io.StringIO(text).readline):
        if token.type == STRING:
            return inspect.cleandoc(ast.literal_eval(token.string))
        if token.type not in (COMMENT, NL, NEWLINE):
            break
    return ""


def _comment(text: str) -> str:
    start = re.match(r"/\*(.*?)\*/", text, re.DOTALL)
    return start[1].replace("\n   ", "\n") if start else ""


if __name__ == "__main__":
    raise SystemExit(main())
