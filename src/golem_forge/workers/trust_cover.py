"""What trust in a program covers besides forge.yaml and `.forge`: its workers and their code.

`covered` gives the front matter of every worker file (the instructions may change freely) and every tool module that a
`custom` block names, with the program files it imports. Found by parsing, nothing is run. Refuses (ConfigError) what
is reached through a link that leads outside the program.

`trust_store` is how a TrustStore is made everywhere: two that cover different things would not agree.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from golem_forge.config.home import ForgeHome
from golem_forge.config.program import PROGRAM_FILE
from golem_forge.config.run_settings import MAIN_WORKER, RunSettings
from golem_forge.config.stamps import Stamp, stamp, stamp_of
from golem_forge.config.trust import MAX_FILES, MAX_TOTAL_BYTES, TrustStore, too_much_to_trust
from golem_forge.config.yaml_file import parse_yaml, read_yaml
from golem_forge.core.errors import ConfigError
from golem_forge.workers.front_matter import YAML_SUFFIXES, front_matter_bytes, looks_like_worker
from golem_forge.workers.module_files import scan_module
from golem_forge.workers.program_files import below_root, read_inside
from golem_forge.workers.references import find_worker, shown, worker_files, worker_places

_MOST_KEPT: Final = 8
_MOST_DOCUMENTS: Final = 200
"""YAML files of one place that are read to find workers; one beyond them is not trusted."""


def trust_store(home: ForgeHome) -> TrustStore:
    return TrustStore(home, extra=Cover())


def covered(root: Path) -> list[tuple[str, bytes]]:
    """(name below the root, content) of everything; the content of a worker file is its front matter."""
    return _Walk(Path(os.path.realpath(root))).run()


class Cover:
    """`covered`, remembered for as long as nothing that was looked at changes: trust is asked at every call."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[dict[Path, _Seen], list[tuple[str, bytes]]]] = {}

    def __call__(self, root: Path) -> list[tuple[str, bytes]]:
        known = self._known.get(root)
        if known is not None and all(_seen(path) == before for path, before in known[0].items()):
            return known[1]
        walk = _Walk(root)
        found = walk.run()
        seen = {path: _seen(path) for path in walk.looked}
        # Stamps are taken after reading: only if all are old enough can nothing have changed in between.
        if all(each.settled for pair in seen.values() for each in pair if each is not None):
            while len(self._known) >= _MOST_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[root] = (seen, found)
        else:
            self._known.pop(root, None)
        return found


_Seen = tuple[Stamp | None, Stamp | None]


def _seen(path: Path) -> _Seen:
    """What stands at a path, and what it leads to if it is a link."""
    itself = stamp(path)
    if itself is None or not os.path.islink(path):
        return itself, None
    try:
        return itself, stamp_of(os.stat(path))
    except OSError:
        return itself, None


class _Walk:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.looked: dict[Path, None] = {}
        self._found: dict[str, bytes] = {}
        self._total = 0

    def run(self) -> list[tuple[str, bytes]]:
        entry, worker_paths = self._program()
        try:
            places = worker_places(self.root, worker_paths)
        except ConfigError:
            places = (self.root,)  # loading the program will say so
        waiting = [*self._listed(places), *self._referred(entry, self.root, places)]
        while waiting:
            path = waiting.pop()
            name = shown(self.root, path)
            if name in self._found:
                continue
            self.looked[path] = None
            data = read_inside(self.root, path, name)
            self._found[name] = front = front_matter_bytes(data)
            self._total += len(front)
            if len(self._found) > MAX_FILES or self._total > MAX_TOTAL_BYTES:
                raise too_much_to_trust()  # at once: each of them takes time to parse
            blocks = _toolsets(front)
            waiting += self._allowed(blocks, path.parent, places)
            self._add_modules(blocks, path.parent)
        return sorted(self._found.items())

    def _program(self) -> tuple[str, tuple[str, ...]]:
        """`entry` and `worker_paths` of forge.yaml, as far as they can be read."""
        self.looked[self.root / PROGRAM_FILE] = None
        defaults = RunSettings()
        try:
            value = read_yaml(self.root / PROGRAM_FILE, PROGRAM_FILE).value
        except ConfigError:
            return defaults.entry, defaults.worker_paths
        entry, paths = value.get("entry", MAIN_WORKER), value.get("worker_paths", list(defaults.worker_paths))
        usable = tuple(path for path in paths if isinstance(path, str)) if isinstance(paths, list) else ()
        return entry if isinstance(entry, str) else MAIN_WORKER, usable

    def _listed(self, places: tuple[Path, ...]) -> Iterator[Path]:
        for place in places:
            self.looked[place] = None
            try:
                with os.scandir(place) as entries:
                    listed = {entry.name: entry.is_dir() for entry in entries}
            except OSError:
                continue
            self.looked |= dict.fromkeys(place / name / f"{name}.worker" for name, folder in listed.items() if folder)
            documents = [name for name, folder in sorted(listed.items()) if not folder and name.endswith(YAML_SUFFIXES)]
            yield from self._yaml_workers([place / name for name in documents[:_MOST_DOCUMENTS]])
        yield from worker_files(places)

    def _yaml_workers(self, documents: list[Path]) -> Iterator[Path]:
        """Those of a place that somebody may start by naming the file."""
        for path in documents:
            name = shown(self.root, path)
            if name == PROGRAM_FILE:
                continue
            self.looked[path] = None
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
                self.looked[path] = None  # it may appear

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
            self.looked[path] = None
            if os.path.lexists(path):
                scan = scan_module(self.root, path)
                self.looked |= dict.fromkeys(scan.looked)
                self._found |= scan.files


def _toolsets(front: bytes) -> dict[str, Any]:
    try:
        blocks = parse_yaml(front, "").value.get("toolsets")
    except ConfigError:
        return {}
    return blocks if isinstance(blocks, dict) else {}
