"""From a reference to a worker file: `analyzer`, `./review.worker`, `team/lead.worker`.

One with `/` in it or ending in `.worker`, `.yaml` or `.yml` is a path from the file that says it; any other is a name,
looked for as `<p>/<n>.worker` and `<p>/<n>/<n>.worker` in the program root and each worker path, in order. Nothing
outside the program is ever found: it is refused (ConfigError).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from golem_forge.core.errors import ConfigError
from golem_forge.core.nearest import nearest
from golem_forge.workers.front_matter import YAML_SUFFIXES
from golem_forge.workers.program_files import below_root

SUFFIX: Final = ".worker"
PATH_SUFFIXES: Final = (SUFFIX, *YAML_SUFFIXES)
"""What ends in one of them is a path, not a name."""
MAX_FOLDERS: Final = 2000
"""Of one place that are looked into for `<n>/<n>.worker`."""


def find_worker(reference: str, folder: Path, places: Sequence[Path], root: Path) -> Path:
    """The file, as a path below the real root. `folder`: of the file that refers; `places`: see `worker_places`."""
    if "/" in reference or reference.endswith(PATH_SUFFIXES):
        path = below_root(root, folder / reference)
        if path is None:
            raise ConfigError(f"worker '{reference}' lies outside the program")
        if not path.is_file():
            raise ConfigError(f"worker '{reference}' not found: there is no {shown(root, path)}")
        return path
    if not reference or "\0" in reference or reference.startswith("."):
        raise ConfigError(f"'{reference}' is no reference to a worker")
    for place in places:
        for path in (place / f"{reference}{SUFFIX}", place / reference / f"{reference}{SUFFIX}"):
            if path.is_file():
                return path
    close = nearest(reference, [path.name.removesuffix(SUFFIX) for path in worker_files(places)])
    where = ", ".join(shown(root, place) or "the program root" for place in places)
    hint = f"; did you mean '{close}'?" if close else ""
    raise ConfigError(f"worker '{reference}' not found in {where}{hint}")


def worker_places(root: Path, worker_paths: Sequence[str], origin: str = "worker_paths") -> tuple[Path, ...]:
    """Where names are looked up: the root, then each worker path. Raises ConfigError for one outside the program."""
    places = [root]
    for written in worker_paths:
        place = below_root(root, Path(written))
        if place is None or (place.exists() and not Path(os.path.realpath(place)).is_relative_to(root)):
            raise ConfigError(f"{origin}: worker_paths: '{written}' lies outside the program")
        places.append(place)
    return tuple(dict.fromkeys(places))


def worker_files(places: Sequence[Path]) -> Iterator[Path]:
    """Every file that a name can mean, in the order in which names are looked up."""
    for place in places:
        try:
            with os.scandir(place) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError:
            continue  # a worker path need not exist
        yield from (place / name for name in names if name.endswith(SUFFIX) and (place / name).is_file())
        for name in names[:MAX_FOLDERS]:
            if not name.startswith(".") and (path := place / name / f"{name}{SUFFIX}").is_file():
                yield path


def shown(root: Path, path: Path) -> str:
    """`workers/analyzer.worker`: the path as the program's people know it."""
    name = path.relative_to(root).as_posix()
    return "" if name == "." else name
