"""A tool module and the program files it imports, found by parsing. Nothing is imported or run.

`module_files` takes a program root and a module in it, gives name below the root → bytes, and refuses (ConfigError)
what cannot be read, is too large, or is reached through a link that leads outside the program. These bytes are what
trust covers and what a host's snapshot is made of, so a file that is not among them cannot be imported there.

Covering more than is imported is harmless, less is not: an import is looked for wherever it could be meant.
"""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from golem_forge.core.errors import ConfigError
from golem_forge.workers.program_files import below_root, read_inside

MAX_FILES: Final = 200
MAX_TOTAL_BYTES: Final = 8 << 20
_MOST_NAMES: Final = 20_000
"""Imports that one module and what it imports may name, found or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleScan:
    files: dict[str, bytes]
    """Name below the program root (`lib/helper.py`) → content; the module itself is the first."""
    looked: tuple[Path, ...]
    """Everywhere a file was looked for. As long as nothing there changes, `files` is the same."""


def module_files(root: Path, module: Path) -> dict[str, bytes]:
    """Name below the root → bytes, of the module and every program file it imports, directly or not."""
    return scan_module(root, module).files


def import_folders(root: Path, module: Path) -> tuple[str, ...]:
    """Where a module's `import x` is looked for, as names below the root: its own folder, then the root (``)."""
    own = _name(_real(root), _absolute(root, module).parent)
    return (own, "") if own else ("",)


def scan_module(root: Path, module: Path) -> ModuleScan:
    scan = _Scan(_real(root), _absolute(root, module))
    scan.run()
    return ModuleScan(files=scan.files, looked=tuple(scan.looked))


class _Scan:
    def __init__(self, root: Path, module: Path) -> None:
        self.root = root
        self.module = module
        self.folders = [root / name for name in import_folders(root, module)]
        self.files: dict[str, bytes] = {}
        self.looked: dict[Path, None] = {}
        self._total = 0
        self._names = 0

    def run(self) -> None:
        name = _name(self.root, self.module)
        self.looked[self.module] = None
        if not self._is_file(self.module):
            raise ConfigError(f"{name}: file not found")
        waiting = [self.module]
        while waiting:
            path = waiting.pop()
            if (name := _name(self.root, path)) in self.files:
                continue
            self.files[name] = data = self._content(path, name)
            waiting += self._imported(path, data)

    def _imported(self, path: Path, data: bytes) -> Iterator[Path]:
        try:
            tree = ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return  # it cannot be imported either; whoever tries says so with the line
        for names, level, everything in _imports(tree):
            self._names += 1
            if self._names > _MOST_NAMES:
                raise ConfigError(f"{_name(self.root, self.module)}: imports more than {_MOST_NAMES} names")
            for folder in self._starts(path, level):
                yield from self._found(folder, names, everything)

    def _starts(self, path: Path, level: int) -> list[Path]:
        if level == 0:
            return self.folders
        folder = path.parent
        for _ in range(level - 1):
            folder = folder.parent
        return [folder] if folder.is_relative_to(self.root) else []

    def _found(self, folder: Path, names: tuple[str, ...], everything: bool) -> Iterator[Path]:
        """The files that are run when `names` (`a.b.c` in parts) is imported from `folder`."""
        for name in names:
            yield from self._files_at(folder / f"{name}.py", folder / name / "__init__.py")
            folder = folder / name
            self.looked[folder] = None
            if not folder.is_dir():
                return
        yield from self._files_at(folder / "__init__.py")
        if everything:  # `import *` takes whatever submodules the package lists
            yield from (path for path in sorted(folder.glob("*.py")) if self._is_file(path))

    def _files_at(self, *paths: Path) -> Iterator[Path]:
        for path in paths:
            self.looked[path] = None
            if self._is_file(path):
                yield path

    def _is_file(self, path: Path) -> bool:
        try:
            return stat.S_ISREG(os.stat(path).st_mode)
        except (OSError, ValueError):
            return False

    def _content(self, path: Path, name: str) -> bytes:
        data = read_inside(self.root, path, name)
        self._total += len(data)
        if self._total > MAX_TOTAL_BYTES or len(self.files) >= MAX_FILES:
            raise ConfigError(
                f"{name}: a tool module with its imports is at most {MAX_FILES} files, {MAX_TOTAL_BYTES} bytes together"
            )
        return data


def _imports(tree: ast.AST) -> Iterator[tuple[tuple[str, ...], int, bool]]:
    """(dotted name in parts, level of a relative import, whether `*` is taken from it) of every import in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _parts(alias.name), 0, False
        elif isinstance(node, ast.ImportFrom):
            start = _parts(node.module or "")
            for alias in node.names:
                every = alias.name == "*"
                yield (start if every else (*start, alias.name)), node.level, every
        elif isinstance(node, ast.Call) and _is_import_call(node.func) and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and not first.value.startswith("."):
                yield _parts(first.value), 0, False


def _is_import_call(called: ast.expr) -> bool:
    """`importlib.import_module("x")`, `import_module("x")` and `__import__("x")`."""
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name in ("import_module", "__import__")


def _parts(dotted: str) -> tuple[str, ...]:
    parts = tuple(dotted.split(".")) if dotted else ()
    return parts if all(part.isidentifier() for part in parts) else ()


def _absolute(root: Path, module: Path) -> Path:
    inside = below_root(root, module)
    if inside is None:
        raise ConfigError(f"{module.name}: lies outside the program; a tool module must be inside it")
    return inside


def _name(root: Path, path: Path) -> str:
    name = path.relative_to(root).as_posix()
    return "" if name == "." else name


def _real(root: Path) -> Path:
    return Path(os.path.realpath(root))
