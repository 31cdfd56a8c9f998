"""Reads a docstring: the summary that describes a tool, and what it says about each parameter.

Understands the three common layouts (Google `Args:`, NumPy `Parameters` underlined, Sphinx `:param x:`).
"""

from __future__ import annotations

import re
from inspect import cleandoc

_SPHINX = re.compile(r"^:param(?:\s+[^:\s]+)?\s+(\w+):\s*(.*)$")
_GOOGLE_ENTRY = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_NUMPY_ENTRY = re.compile(r"^(\w+)\s*(?::.*)?$")
_PARAMETER_SECTIONS = frozenset({"args", "arguments", "parameters", "params"})
_SECTIONS = _PARAMETER_SECTIONS | {"returns", "return", "yields", "raises", "examples", "example", "notes", "note"}


def describe(docstring: str | None) -> tuple[str, dict[str, str]]:
    """(description without its sections, parameter name → text)."""
    if not docstring:
        return "", {}
    lines = cleandoc(docstring).splitlines()
    described: list[str] = []
    parameters: dict[str, str] = {}
    position = 0
    while position < len(lines):
        line = lines[position]
        section = line.strip().rstrip(":").lower()
        underlined = position + 1 < len(lines) and set(lines[position + 1].strip()) == {"-"}
        if sphinx := _SPHINX.match(line.strip()):
            position = _sphinx_entry(lines, position, sphinx, parameters)
        elif line.strip().startswith((":return", ":rtype", ":raises", ":type")):
            position += 1
        elif section in _SECTIONS and (underlined or line.rstrip().endswith(":")) and not line[:1].isspace():
            body_start = position + (2 if underlined else 1)
            position = _section_end(lines, body_start, indented=not underlined)
            if section in _PARAMETER_SECTIONS:
                read = _numpy_entries if underlined else _google_entries
                parameters.update(read(lines[body_start:position]))
        else:
            described.append(line)
            position += 1
    return "\n".join(described).strip(), parameters


def _sphinx_entry(lines: list[str], position: int, entry: re.Match[str], into: dict[str, str]) -> int:
    words = [entry[2]]
    position += 1
    while position < len(lines) and lines[position][:1].isspace() and lines[position].strip():
        words.append(lines[position].strip())
        position += 1
    into[entry[1]] = " ".join(words).strip()
    return position


def _section_end(lines: list[str], start: int, *, indented: bool) -> int:
    position = start
    while position < len(lines):
        line = lines[position]
        if indented and line.strip() and not line[:1].isspace():
            break
        if not indented and position + 1 < len(lines) and set(lines[position + 1].strip()) == {"-"}:
            break
        position += 1
    return position


def _google_entries(lines: list[str]) -> dict[str, str]:
    return _entries(lines, _GOOGLE_ENTRY, with_text=True)


def _numpy_entries(lines: list[str]) -> dict[str, str]:
    return _entries(lines, _NUMPY_ENTRY, with_text=False)


def _entries(lines: list[str], pattern: re.Pattern[str], *, with_text: bool) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    entry_indent: int | None = None
    for line in lines:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        entry = pattern.match(line)
        if entry and (entry_indent is None or indent <= entry_indent):
            entry_indent = indent
            current = found.setdefault(entry[1], [])
            if with_text:
                current.append(entry[2].strip())
        elif current is not None:
            current.append(line.strip())
    return {name: " ".join(words).strip() for name, words in found.items()}
