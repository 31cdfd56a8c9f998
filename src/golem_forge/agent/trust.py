"""Trust in a program: what it covers, and asking a person for it.

Untrusted, nothing of a program's code is imported; where it needs code and nobody can be asked, it does not start.
`ask_for_trust` shows one card with the text of everything that trust covers, or its diff.

`covered_files` returns the front matter of every worker file (the instructions may change freely), every tool module
that a `custom` block names, with the program files it imports, and every file that the command of a hook names, with
the program files that a Python file among them imports. `trust_store` is the only way to make a TrustStore: two that
cover different files would disagree.

`module_files` finds a tool module and the program files it imports by parsing; nothing is imported or run. These bytes
are what trust covers and what a host's snapshot is made of, so a file that is not among them cannot be imported there.
Covering more than is imported is harmless, less is not: an import is looked for wherever it could be meant.

Raises ConfigError for what cannot be read, is too large, or is reached through a link that leads outside the program.
"""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.files.worker_file import (
    YAML_SUFFIXES,
    below_root,
    find_worker,
    front_matter_bytes,
    looks_like_worker,
    nearest_file_hint,
    read_inside,
    relative_name,
    worker_files,
    worker_places,
)
from golem_forge.config.hooks_block import command_words
from golem_forge.config.program import PROGRAM_FILE, Program
from golem_forge.config.run_block import MAIN_WORKER, RunSettings
from golem_forge.config.trust import MAX_FILES, MAX_TOTAL_BYTES, TrustSnapshot, TrustStore, too_large_to_trust
from golem_forge.config.yaml_file import parse_yaml, read_yaml
from golem_forge.core.errors import ConfigError
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import escape_control_chars
from golem_forge.events.runtime_ui import RuntimeUI
from golem_forge.storage.home import FileStamp, ForgeHome, file_stamp, stamp_from_stat


class NotTrusted(Exception):
    """The program needs code of its own, and nobody has trusted it."""

    def __init__(self, root: Path) -> None:
        super().__init__(
            "this program brings its own code and is not trusted; read it, then run `forge trust` in its directory"
        )
        self.root = root


async def ask_for_trust(
    ui: RuntimeUI, trust: TrustStore, program: Program, snapshot: TrustSnapshot | None = None
) -> bool:
    """Asks for trust in exactly what is shown: the `snapshot`, or the present files. Returns True if it was given."""
    snapshot = snapshot or trust.snapshot(program.root)
    changes = trust.changes(program.root, snapshot)
    payload = changes or "\n\n".join(f"── {name}\n{text}" for name, text in snapshot.files.items())
    request: dict[str, Any] = {
        "type": "trust",
        "description": f"Trust the program in {escape_control_chars(program.root.name)}?",
        "tool": "trust",
        "args": {"files": sorted(snapshot.files)},
        "payload": escape_control_chars(payload),
        "effects": ["use its tools, its approvals and its settings"],
        "risk": "high",
        "riskReasons": [],
        "why": program.notice or "it contains its own code",
        "choices": [],
        "fingerprint": snapshot.digest,
        "argsKey": digest(snapshot.digest),
        "previouslyDenied": 0,
        "warnings": [],
        "workerPath": [],
    }
    answer = await ui.request_approval(request)
    if not answer["approved"]:
        return False
    trust.give(program.root, snapshot)
    return True


_MAX_CACHED: Final = 8
_MOST_DOCUMENTS: Final = 200
"""YAML files of one place that are read to find workers; one beyond them is not trusted."""


def trust_store(home: ForgeHome) -> TrustStore:
    return TrustStore(home, extra=TrustCover())


def covered_files(root: Path) -> list[tuple[str, bytes]]:
    """(name below the root, content) of everything; the content of a worker file is its front matter."""
    return _Walk(Path(os.path.realpath(root))).run()


class TrustCover:
    """`covered_files`, cached until a file that was read or looked for changes: trust is checked at every call."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[dict[Path, _Stamps], list[tuple[str, bytes]]]] = {}

    def __call__(self, root: Path) -> list[tuple[str, bytes]]:
        known = self._known.get(root)
        if known is not None and all(_stamps_of(path) == before for path, before in known[0].items()):
            return known[1]
        walk = _Walk(root)
        found = walk.run()
        seen = {path: _stamps_of(path) for path in walk.visited}
        # Stamps are taken after reading: only if all are old enough can nothing have changed in between.
        if all(each.settled for pair in seen.values() for each in pair if each is not None):
            while len(self._known) >= _MAX_CACHED:
                self._known.pop(next(iter(self._known)))
            self._known[root] = (seen, found)
        else:
            self._known.pop(root, None)
        return found


_Stamps = tuple[FileStamp | None, FileStamp | None]


def _stamps_of(path: Path) -> _Stamps:
    """Returns the stamp of a path, and of its target if it is a link."""
    itself = file_stamp(path)
    if itself is None or not os.path.islink(path):
        return itself, None
    try:
        return itself, stamp_from_stat(os.stat(path))
    except OSError:
        return itself, None


class _Walk:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.visited: dict[Path, None] = {}
        self._found: dict[str, bytes] = {}
        self._total = 0

    def run(self) -> list[tuple[str, bytes]]:
        entry, worker_paths, commands = self._program()
        try:
            places = worker_places(self.root, worker_paths)
        except ConfigError:
            places = (self.root,)  # loading the program will say so
        waiting = [*self._listed(places), *self._referred(entry, self.root, places)]
        while waiting:
            path = waiting.pop()
            name = relative_name(self.root, path)
            if name in self._found:
                continue
            self.visited[path] = None
            data = read_inside(self.root, path, name)
            self._found[name] = front = front_matter_bytes(data)
            self._total += len(front)
            if len(self._found) > MAX_FILES or self._total > MAX_TOTAL_BYTES:
                raise too_large_to_trust()  # at once: each of them takes time to parse
            blocks = _toolsets(front)
            waiting += self._allowed(blocks, path.parent, places)
            self._add_modules(blocks, path.parent)
        for command in commands:
            files, visited = scan_command(self.root, command)
            self.visited |= dict.fromkeys(visited)
            self._found |= files
        return sorted(self._found.items())

    def _program(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """`entry`, `worker_paths` and the commands of `hooks` of forge.yaml, as far as they can be read."""
        self.visited[self.root / PROGRAM_FILE] = None
        defaults = RunSettings()
        try:
            value = read_yaml(self.root / PROGRAM_FILE, PROGRAM_FILE).value
        except ConfigError:
            return defaults.entry, defaults.worker_paths, ()
        entry, paths = value.get("entry", MAIN_WORKER), value.get("worker_paths", list(defaults.worker_paths))
        usable = tuple(path for path in paths if isinstance(path, str)) if isinstance(paths, list) else ()
        hooks = value.get("hooks")
        said = [each.get("run") for each in hooks if isinstance(each, dict)] if isinstance(hooks, list) else []
        commands = tuple(run for run in said if isinstance(run, str))
        return entry if isinstance(entry, str) else MAIN_WORKER, usable, commands

    def _listed(self, places: tuple[Path, ...]) -> Iterator[Path]:
        for place in places:
            self.visited[place] = None
            try:
                with os.scandir(place) as entries:
                    listed = {entry.name: entry.is_dir() for entry in entries}
            except OSError:
                continue
            self.visited |= dict.fromkeys(place / name / f"{name}.worker" for name, folder in listed.items() if folder)
            documents = [name for name, folder in sorted(listed.items()) if not folder and name.endswith(YAML_SUFFIXES)]
            yield from self._yaml_workers([place / name for name in documents[:_MOST_DOCUMENTS]])
        yield from worker_files(places)

    def _yaml_workers(self, documents: list[Path]) -> Iterator[Path]:
        """Yields the YAML files of a place that may be started as a worker by naming the file."""
        for path in documents:
            name = relative_name(self.root, path)
            if name == PROGRAM_FILE:
                continue
            self.visited[path] = None
            try:
                if looks_like_worker(read_inside(self.root, path, name), name):
                    yield path
            except ConfigError:
                continue  # no file of the program's: a run that names it says so

    def _referred(self, reference: str, folder: Path, places: tuple[Path, ...]) -> Iterator[Path]:
        try:
            yield find_worker(reference, folder, places, self.root)
        except ConfigError:
            if (path := below_root(self.root, folder / reference)) is not None:
                self.visited[path] = None  # it may appear

    def _allowed(self, blocks: dict[str, Any], folder: Path, places: tuple[Path, ...]) -> Iterator[Path]:
        block = blocks.get("workers")
        allow = block.get("allow") if isinstance(block, dict) else None
        for reference in allow if isinstance(allow, list) else ():
            if isinstance(reference, str) and "\0" not in reference:
                yield from self._referred(reference, folder, places)

    def _add_modules(self, blocks: dict[str, Any], folder: Path) -> None:
        custom = blocks.get("custom")
        for block in custom if isinstance(custom, list) else [custom]:
            module = block.get("module") if isinstance(block, dict) else None
            if not isinstance(module, str) or not module.endswith(".py") or "\0" in module:
                continue
            path = below_root(self.root, folder / module)
            if path is None:
                raise ConfigError(f"{module}: lies outside the program; a tool module must be inside it")
            self.visited[path] = None
            if os.path.lexists(path):
                scan = scan_module(self.root, path)
                self.visited |= dict.fromkeys(scan.visited)
                self._found |= scan.files


def scan_command(root: Path, command: str) -> tuple[dict[str, bytes], tuple[Path, ...]]:
    """(name below the root → bytes, everywhere a file was looked for) of what the command of a program's hook names,
    and of what Python files among it import. Raises ConfigError."""
    root = _real(root)
    files: dict[str, bytes] = {}
    visited: list[Path] = []
    for number, word in enumerate(command_words(command) or ()):
        if number == 0 and "/" not in word:
            continue  # a program, which is looked up on PATH
        for part in dict.fromkeys((word, word.rpartition("=")[2])):
            path = below_root(root, Path(part)) if part and "\0" not in part else None
            if path is None or path == root:
                continue
            visited.append(path)
            if os.path.isfile(path):
                scan = scan_module(root, path)  # of a file that is no Python it finds no imports
                visited += scan.visited
                files |= scan.files
    return files, tuple(visited)


def _toolsets(front: bytes) -> dict[str, Any]:
    try:
        blocks = parse_yaml(front, "").value.get("toolsets")
    except ConfigError:
        return {}
    return blocks if isinstance(blocks, dict) else {}


MAX_MODULE_FILES: Final = 200
MAX_MODULE_BYTES: Final = 8 << 20
_MOST_NAMES: Final = 20_000
"""Imports that one module and what it imports may name, found or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleScan:
    files: dict[str, bytes]
    """Name below the program root (`lib/helper.py`) → content; the module itself is the first."""
    visited: tuple[Path, ...]
    """Everywhere a file was looked for. As long as nothing there changes, `files` is the same."""


def module_files(root: Path, module: Path) -> dict[str, bytes]:
    """Name below the root → bytes, of the module and every program file it imports, directly or not."""
    return scan_module(root, module).files


def import_folders(root: Path, module: Path) -> tuple[str, ...]:
    """Returns where a module's `import x` is looked up, as names below the root: its own folder, then the root (``)."""
    own = relative_name(_real(root), _absolute(root, module).parent)
    return (own, "") if own else ("",)


def scan_module(root: Path, module: Path) -> ModuleScan:
    scan = _ModuleScan(_real(root), _absolute(root, module))
    scan.run()
    return ModuleScan(files=scan.files, visited=tuple(scan.visited))


class _ModuleScan:
    def __init__(self, root: Path, module: Path) -> None:
        self.root = root
        self.module = module
        self.folders = [root / name for name in import_folders(root, module)]
        self.files: dict[str, bytes] = {}
        self.visited: dict[Path, None] = {}
        self._total = 0
        self._names = 0

    def run(self) -> None:
        name = relative_name(self.root, self.module)
        self.visited[self.module] = None
        if not self._is_file(self.module):
            raise ConfigError(f"{name}: file not found{nearest_file_hint(self.root, self.module)}")
        waiting = [self.module]
        while waiting:
            path = waiting.pop()
            if (name := relative_name(self.root, path)) in self.files:
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
                raise ConfigError(f"{relative_name(self.root, self.module)}: imports more than {_MOST_NAMES} names")
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
            self.visited[folder] = None
            if not folder.is_dir():
                return
        yield from self._files_at(folder / "__init__.py")
        if everything:  # `import *` takes whatever submodules the package lists
            yield from (path for path in sorted(folder.glob("*.py")) if self._is_file(path))

    def _files_at(self, *paths: Path) -> Iterator[Path]:
        for path in paths:
            self.visited[path] = None
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
        if self._total > MAX_MODULE_BYTES or len(self.files) >= MAX_MODULE_FILES:
            raise ConfigError(
                f"{name}: a tool module with its imports is at most {MAX_MODULE_FILES} files, {MAX_MODULE_BYTES} "
                "bytes together"
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


def _real(root: Path) -> Path:
    return Path(os.path.realpath(root))
