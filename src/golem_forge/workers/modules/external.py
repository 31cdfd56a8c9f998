"""An `external` block: which object of which installed package holds the tools, found without importing anything.

Takes an ExternalBlock; gives a Located: the import path, the directories that hold the package, and a digest over its
version and files. Refuses (ExternalError) a package that is not installed and an entry point it does not have. The
code itself is only ever imported in a module host.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from golem_forge.core.canonical import digest
from golem_forge.core.nearest import nearest
from golem_forge.workers.blocks import ExternalBlock

GROUP: Final = "golem_forge.toolsets"
_MOST_FILES: Final = 2000


class ExternalError(Exception):
    """The text says what is missing and what there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    import_path: str
    """`acme_tools.web:web_search_tools`."""
    directory: str
    """Where packages are installed, this one among them."""
    packages: tuple[str, ...]
    """Directories of packages that are installed as a link to their sources. Only they are shown, not what lies
    around them."""
    digest: str


def locate(block: ExternalBlock) -> Located:
    try:
        distribution = metadata.distribution(block.package)
    except (metadata.PackageNotFoundError, ValueError):
        raise ExternalError(
            f"Package '{block.package}' is not installed where Forge is; install it there (pip install …)"
        ) from None
    path = _entry_point(distribution, block) if block.entry_point else _import_path(distribution, block)
    top = path.partition(":")[0].partition(".")[0]
    return Located(
        import_path=path,
        directory=(installed := os.path.realpath(str(distribution.locate_file("")))),
        packages=tuple(path for path in _packages(top) if os.path.dirname(path) != installed),
        digest=_digest(distribution, path, top),
    )


def _entry_point(distribution: metadata.Distribution, block: ExternalBlock) -> str:
    points = {point.name: point.value for point in distribution.entry_points if point.group == GROUP}
    if block.entry_point in points:
        value = points[block.entry_point].partition("[")[0].strip()
        return value if ":" in value else f"{value}:{block.entry_point}"
    have = ", ".join(sorted(points)) or "none"
    close = nearest(block.entry_point, points)
    hint = f" (did you mean '{close}'?)" if close else ""
    raise ExternalError(
        f"Package '{block.package}' has no entry point '{block.entry_point}'{hint} in group {GROUP}. Found: {have}"
    )


def _import_path(distribution: metadata.Distribution, block: ExternalBlock) -> str:
    if ":" in block.import_path:
        return block.import_path
    return f"{_top_module(distribution, block)}:{block.import_path}"


def _top_module(distribution: metadata.Distribution, block: ExternalBlock) -> str:
    """What a bare name is an attribute of: the module named like the package, else the only one it brings."""
    listed = (distribution.read_text("top_level.txt") or "").split()
    if not listed:
        firsts = (file.parts[0] for file in distribution.files or () if file.suffix == ".py")
        listed = [name.removesuffix(".py") for name in firsts if not name.endswith((".dist-info", ".."))]
    names = list(dict.fromkeys(listed))
    likely = block.package.replace("-", "_").replace(".", "_")
    for name in names:
        if name.lower() == likely.lower():
            return name
    return names[0] if len(names) == 1 else likely


def _packages(top: str) -> list[str]:
    """The real directories of a package, wherever it is found."""
    try:
        spec = importlib.util.find_spec(top)  # of a top-level name: nothing is imported for it
    except (ImportError, ValueError):
        return []
    places = spec.submodule_search_locations if spec is not None else None
    return [os.path.realpath(place) for place in places or () if os.path.isdir(place)]


def _digest(distribution: metadata.Distribution, path: str, top: str) -> str:
    """Over version, entry and every Python file of the package: an update is a new definition."""
    files: dict[str, str] = {}
    found = [Path(package, file) for package in _packages(top) for file in sorted(Path(package).rglob("*.py"))]
    found = found or [Path(str(distribution.locate_file(f"{top}.py")))]
    for file in found[:_MOST_FILES]:
        if file.is_file():
            files[os.fspath(file)] = hashlib.sha256(file.read_bytes()).hexdigest()
    record = hashlib.sha256((distribution.read_text("RECORD") or "").encode()).hexdigest()
    return digest(
        {"v": 1, "version": distribution.version, "import": path, "record": record, "files": sorted(files.values())}
    )
