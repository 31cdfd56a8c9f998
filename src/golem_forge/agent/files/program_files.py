"""The files of a program: read them safely, split a worker file, find a worker by reference.

`read_inside` reads only what really lies inside the program. Threat: the files come from strangers, and a link could
make Forge read (and a person trust) what lies outside.

A worker file is YAML between two lines that are only `---`, then the instructions. The split is by whole lines, so
`---` inside a value or in the instructions is text. A worker in a `*.yaml` or `*.yml` file may be one YAML document
instead, with its text at the key `instructions`.

A reference (`analyzer`, `./review.worker`, `team/lead.worker`) with `/` in it or ending in `.worker`, `.yaml` or `.yml`
is a path from the file that contains it; any other is a name, looked up as `<p>/<n>.worker` and `<p>/<n>/<n>.worker` in
the program root and each worker path, in order. Nothing outside the program is ever found (ConfigError).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from golem_forge.config.yaml_file import YamlFile, parse_yaml, read_bytes
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import closest_match, escape_control_chars, nearest_hint


def read_inside(root: Path, path: Path, name: str) -> bytes:
    """The whole file; `root` is a real path, `name` what messages call the file. Raises ConfigError."""
    return read_bytes(path, name, inside=root)


def below_root(root: Path, path: Path) -> Path | None:
    """The path as text below the real root, links not resolved; None where even its text leads outside."""
    real = Path(os.path.realpath(root))
    written = Path(os.path.abspath(path if path.is_absolute() else real / path))
    for start in (real, Path(os.path.abspath(root))):
        if written.is_relative_to(start):
            return real / written.relative_to(start)
    return None


YAML_SUFFIXES: Final = (".yaml", ".yml")
INSTRUCTIONS: Final = "instructions"
_NAME_KEY: Final = regex(rb"^name[ \t]*:", re.MULTILINE)
_INSTRUCTIONS_KEY: Final = regex(rb"^instructions[ \t]*:", re.MULTILINE)
_FENCE: Final = b"---"
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class FrontMatter:
    yaml: bytes
    """As it stands in the file, without the lines around it."""
    instructions: str
    """Trimmed; lines end with a line feed."""

    def parsed(self, shown: str) -> YamlFile:
        """The values, with the lines they have in the whole file. Raises ConfigError."""
        return parse_yaml(b"\n" + self.yaml, shown)  # an empty line stands for the opening `---`


def split_front_matter(data: bytes, shown: str) -> FrontMatter:
    data = data.removeprefix(_BOM)
    lines = data.split(b"\n")
    if not _is_fence(lines[0]):
        raise ConfigError(f"{shown}:1: the first line must be `---`; the front matter follows it")
    end = next((number for number, line in enumerate(lines[1:], 1) if _is_fence(line)), None)
    if end is None:
        raise ConfigError(f"{shown}:1: the front matter has no end; close it with a line that is only `---`")
    rest = b"\n".join(lines[end + 1 :])
    try:
        instructions = rest.decode()
    except UnicodeDecodeError as error:
        line = end + 2 + rest.count(b"\n", 0, error.start)
        raise ConfigError(f"{shown}:{line}: is not UTF-8") from None
    yaml = b"\n".join(lines[1:end]) + b"\n"
    return FrontMatter(yaml, instructions.replace("\r\n", "\n").strip())


def parsed_worker(data: bytes, shown: str) -> tuple[YamlFile, str]:
    """The values and the instructions of a worker file of either kind. Raises ConfigError."""
    if not is_document(data, shown):
        parts = split_front_matter(data, shown)
        return parts.parsed(shown), parts.instructions
    file = parse_yaml(data, shown)
    text = file.value.get(INSTRUCTIONS, "")
    if not isinstance(text, str):
        raise ConfigError(f"{file.at((INSTRUCTIONS,))}: {INSTRUCTIONS}: expected a text")
    value = {key: said for key, said in file.value.items() if key != INSTRUCTIONS}
    return replace(file, value=value), text.replace("\r\n", "\n").strip()


def is_document(data: bytes, name: str) -> bool:
    """Whether it is one YAML document, and not front matter with text after it."""
    lines = data.removeprefix(_BOM).split(b"\n")
    return name.endswith(YAML_SUFFIXES) and not (_is_fence(lines[0]) and any(map(_is_fence, lines[1:])))


def looks_like_worker(data: bytes, name: str) -> bool:
    """Whether a YAML file says that it is a worker, by its text alone; what it means is read when it is named."""
    return bool(_NAME_KEY.search(data) and (_INSTRUCTIONS_KEY.search(data) or not is_document(data, name)))


def front_matter_bytes(data: bytes) -> bytes:
    """What trust covers of a worker file: everything but its instructions; all of it where it has no two parts."""
    try:
        return split_front_matter(data, "").yaml
    except ConfigError:
        return data


def _is_fence(line: bytes) -> bool:
    return line.rstrip(b" \t\r") == _FENCE


WORKER_SUFFIX: Final = ".worker"
PATH_SUFFIXES: Final = (WORKER_SUFFIX, *YAML_SUFFIXES)
"""What ends in one of them is a path, not a name."""
MAX_FOLDERS: Final = 2000
"""Of one place that are looked into for `<n>/<n>.worker`."""


def find_worker(reference: str, folder: Path, places: Sequence[Path], root: Path) -> Path:
    """The file, as a path below the real root. `folder`: of the file that refers; `places`: see `worker_places`."""
    if "/" in reference or reference.endswith(PATH_SUFFIXES):
        path = below_root(root, folder / reference)
        if path is None:
            raise ConfigError(f"worker '{reference}' lies outside the program")
        if not os.path.isfile(path):
            missing = f"{relative_name(root, path)}{nearest_file_hint(root, path)}"
            raise ConfigError(f"worker '{reference}' not found: there is no {missing}")
        return path
    if not reference or "\0" in reference or reference.startswith("."):
        raise ConfigError(f"'{reference}' is not a reference to a worker")
    for place in places:
        for path in (place / f"{reference}{WORKER_SUFFIX}", place / reference / f"{reference}{WORKER_SUFFIX}"):
            if os.path.isfile(path):
                return path
    hint = nearest_hint(reference, [path.name.removesuffix(WORKER_SUFFIX) for path in worker_files(places)])
    where = ", ".join(relative_name(root, place) or "the program root" for place in places)
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
        yield from (place / name for name in names if name.endswith(WORKER_SUFFIX) and os.path.isfile(place / name))
        for name in names[:MAX_FOLDERS]:
            path = place / name / f"{name}{WORKER_SUFFIX}"
            if not name.startswith(".") and os.path.isfile(path):  # False too where the folder cannot be read
                yield path


def unreadable_folders(root: Path, places: Sequence[Path]) -> str:
    """What a person should know of folders that were passed over; empty: all could be read."""
    closed = []
    for place in places:
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            folders = (each for each in islice(entries, MAX_FOLDERS) if not each.name.startswith(".") and each.is_dir())
            closed += [relative_name(root, place / each.name) for each in folders if not os.access(each.path, os.X_OK)]
    if not closed:
        return ""
    more = f" and {len(closed) - 3} more" if len(closed) > 3 else ""
    names = ", ".join(escape_control_chars(each) for each in sorted(closed)[:3])
    return f"{names}{more} cannot be read by this account, so no worker in there is found"


def nearest_file_hint(root: Path, path: Path) -> str:
    """`; did you mean 'tools.py'?`: a file beside a path that is not there. Threat: a folder that is a link would tell
    what is outside the program."""
    folder = Path(os.path.realpath(path.parent))
    if not folder.is_relative_to(os.path.realpath(root)):
        return ""
    try:
        with os.scandir(folder) as entries:
            beside = [Path(each.name) for each in islice(entries, MAX_FOLDERS)]
    except OSError:
        return ""
    close = closest_match(path.stem, (each.stem for each in beside if each.suffix == path.suffix))
    return f"; did you mean '{close}{path.suffix}'?" if close else ""


def relative_name(root: Path, path: Path) -> str:
    """`workers/analyzer.worker`: the path as the program's people know it."""
    name = path.relative_to(root).as_posix()
    return "" if name == "." else name
