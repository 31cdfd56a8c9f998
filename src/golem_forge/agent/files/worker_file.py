"""Worker files (`.worker`, or a worker in a `*.yaml` file): read inside the program, found by reference, checked.

`read_inside` reads only files that really lie inside the program. Threat: the files come from strangers, and a link
could make Forge read (and a person trust) what lies outside.

A worker file is YAML between two lines that are only `---`, then the instructions. The split is by whole lines, so
`---` inside a value or in the instructions is text. A `*.yaml` or `*.yml` file may be one YAML document instead, with
its text at the key `instructions`.

A reference with `/` in it, or ending in `.worker`, `.yaml` or `.yml`, is a path from the file that contains it. Any
other is a name, looked up as `<p>/<n>.worker` and `<p>/<n>/<n>.worker` in the program root and each worker path, in
order. One that leads outside the program raises ConfigError.

`parse_worker` gives a Worker, or every problem as `file:line: key: message`, with the nearest known key for an unknown
one. It raises nothing and runs nothing. `checked_worker` checks a worker that was made in Python by the same schema.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.files.toolset_blocks import read_blocks
from golem_forge.agent.files.worker import AttachmentPolicy, BatchSettings, Worker, WorkerSandbox, WorkerZone
from golem_forge.agent.model.selection import check_compatible, split_models
from golem_forge.agent.tool_inventory import TOOLSETS
from golem_forge.config.mcp_blocks import FOREIGN_SERVERS_KEY, MCP_KEYS
from golem_forge.config.program import PROGRAM_FILE
from golem_forge.config.run_block import (
    BUDGET_CHECK,
    GENERATION_CHECK,
    RUN_KEYS,
    BudgetLimits,
    GenerationSettings,
    model_choice,
)
from golem_forge.config.sandbox_block import EXIT_FLAGS, ZONE_APPROVAL, refuse_exits, whole_number, zone_verdict
from golem_forge.config.validation import (
    ConfigProblems,
    MappingSchema,
    changed_fields,
    check,
    dotted_path,
    flag,
    list_of,
    one_of,
    refuse,
    text,
    whole_between,
)
from golem_forge.config.yaml_file import YamlFile, YamlPath, parse_yaml, read_bytes
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.options import snake
from golem_forge.core.regex import regex
from golem_forge.core.text import closest_match, escape_control_chars, nearest_hint
from golem_forge.tools.validation import SchemaCheck, ToolDefinitionError


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
    """The YAML text without the lines around it."""
    instructions: str
    """The instructions, trimmed; lines end with a line feed."""

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
    """Returns the part of a worker file that trust covers: everything but its instructions; the whole file if it has no
    front matter.
    """
    try:
        return split_front_matter(data, "").yaml
    except ConfigError:
        return data


def _is_fence(line: bytes) -> bool:
    return line.rstrip(b" \t\r") == _FENCE


WORKER_SUFFIX: Final = ".worker"
PATH_SUFFIXES: Final = (WORKER_SUFFIX, *YAML_SUFFIXES)
"""A reference with one of these suffixes is a path and not a name."""
MAX_FOLDERS: Final = 2000
"""Maximum number of folders of one place that are searched for `<n>/<n>.worker`."""


def find_worker(reference: str, folder: Path, places: Sequence[Path], root: Path) -> Path:
    """The file, as a path below the real root. `folder`: of the file that refers; `places`: see `worker_places`."""
    if "/" in reference or reference.endswith(PATH_SUFFIXES):
        path = below_root(root, folder / reference)
        if path is None:
            raise ConfigError(f"worker '{reference}' lies outside the program")
        if os.path.isdir(path):
            raise ConfigError(f"worker '{reference}' is a directory; name the worker file in it")
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
    """Returns where worker names are looked up: the root, then each worker path. Raises ConfigError for a path outside
    the program.
    """
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
    """Returns a notice about folders that could not be read; empty if all could."""
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


_NAME: Final = regex(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_RESERVED: Final = frozenset({"create_custom_tool", "run_custom_tool", "exec_command", "write_stdin", "apply_patch"})
_NEED_ZONES: Final = frozenset({"filesystem", "coding", "edit", "search"})
_SUFFIX: Final = regex(r"\.[^./\s]+")


@dataclass(frozen=True, slots=True)
class WorkerProblems:
    """The problems of a file that is no valid worker, one line each."""

    found: tuple[str, ...]


def parse_worker(data: bytes, shown: str, path: Path | None = None) -> Worker | WorkerProblems:
    """`path`: where the file lies, for what it refers to."""
    try:
        file, instructions = parsed_worker(data, shown)
        file = _with_our_keys(file)
        _is_worker(file)
        worker = _worker(_checked_values(ConfigProblems(file)), file, instructions, shown, path)
        _check_model(worker)
    except ConfigError as error:
        return WorkerProblems(tuple(error.problems))
    return worker


def checked_worker(given: Worker | Mapping[str, Any]) -> Worker:
    """A worker made in Python, or a mapping of its keys in snake_case or camelCase: every value means what it means in
    a worker file. Raises ConfigError with every problem."""
    said = given if isinstance(given, Mapping) else changed_fields(given, without=_OF_THE_FILE)
    value = {snake(str(key)): _as_yaml(each) for key, each in said.items()}
    if len(value) < len(said):
        raise ConfigError("Worker: a key is given twice, in snake_case and in camelCase; keep one of the two")
    instructions = value.pop(INSTRUCTIONS, "")
    file = _with_our_keys(YamlFile("Worker", value, {}, elsewhere={(): "Worker"}))
    problems = ConfigProblems(file)
    if not isinstance(instructions, str):
        refuse(problems, (INSTRUCTIONS,), instructions, "a text")
    worker = _worker(_checked_values(problems), file, instructions, "", None)
    if isinstance(given, Worker):
        worker = replace(worker, path=given.path, shown_path=given.shown_path, lines=given.lines)
    _check_model(worker)
    return worker


def _checked_values(problems: ConfigProblems) -> dict[str, Any]:
    """Checks the values of a worker file. Raises ConfigError with every problem."""
    values = check(_SHAPE, _without_exits(problems), problems)
    _check_zones(values.get("sandbox"), problems)
    problems.raise_if_any()
    return values


def _without_exits(problems: ConfigProblems) -> YamlFile:
    """The file without keys that only a person may say, of which the problem is told here."""
    file = problems.file
    block = file.value.get("sandbox")
    refuse_exits(block, problems)
    if not isinstance(block, dict):
        return file
    kept = {key: value for key, value in block.items() if key not in EXIT_FLAGS}
    return replace(file, value={**file.value, "sandbox": kept})


def missing_sandbox(worker: Worker) -> str:
    """A warning for a worker whose toolsets need zones while its file names none; empty if all is well."""
    needing = [name for name in worker.toolsets if name in _NEED_ZONES]
    if worker.sandbox is not None or not needing:
        return ""
    return (
        f"{worker.at(f'toolsets.{needing[0]}')}: toolset '{needing[0]}' has no file access: the file has no `sandbox`. "
        "To give it the program's workspace, add:\nsandbox:\n  zones:\n    - {name: workspace}"
    )


def _is_worker(file: YamlFile) -> None:
    """Raises ConfigError for a YAML file that is something else: of those there are many in a program."""
    if not file.name.endswith(YAML_SUFFIXES):
        return
    base = file.name.rpartition("/")[2]
    if base == PROGRAM_FILE or (not file.value.get("name") and file.value.keys() & _PROGRAM_KEYS):
        raise ConfigError(
            f"{file.name}: is the config of a program, not a worker; `forge run DIR` starts the worker of the program "
            f"in a directory, and a worker file has a `name` and `instructions`"
        )
    if {"entrypoint", "version"} <= file.value.keys():
        raise ConfigError(f"{file.name}: is the manifest of a user tool, not a worker; `forge call NAME` runs a tool")
    if "name" not in file.value:
        raise ConfigError(f"{file.name}: is not a worker: it has no `name`; a text goes to the worker with --input")


def _with_our_keys(file: YamlFile) -> YamlFile:
    """`mcp_servers: [git]`, as other programs say it, at `toolsets.mcp.servers`. Raises ConfigError."""
    if FOREIGN_SERVERS_KEY not in file.value:
        return file
    value = {key: said for key, said in file.value.items() if key != FOREIGN_SERVERS_KEY}
    said, at = file.value[FOREIGN_SERVERS_KEY], f"{file.at((FOREIGN_SERVERS_KEY,))}: {FOREIGN_SERVERS_KEY}"
    if isinstance(said, dict):
        raise ConfigError(
            f"{at}: servers are set up in {PROGRAM_FILE}, under `mcp.servers`; a worker names those it may use: "
            f"`toolsets: {{mcp: {{servers: [{', '.join(map(str, said)) or 'NAME'}]}}}}`"
        )
    toolsets = {} if value.get("toolsets") is None else value["toolsets"]
    if not isinstance(toolsets, dict):
        return replace(file, value=value)  # `toolsets` itself is a mistake, and is told of
    if "mcp" in toolsets and toolsets["mcp"] != {"servers": said}:
        raise ConfigError(f"{at}: is another spelling of `toolsets.mcp.servers`; keep one of the two")
    value["toolsets"] = {**toolsets, "mcp": {"servers": said}}
    line = file.line((FOREIGN_SERVERS_KEY,))
    moved: dict[YamlPath, int] = {("toolsets", "mcp"): line, ("toolsets", "mcp", "servers"): line}
    return replace(file, value=value, lines={**moved, **file.lines})


def _worker(values: Mapping[str, Any], file: YamlFile, instructions: str, shown: str, path: Path | None) -> Worker:
    given = {key: values[key] for key in _PLAIN if key in values}
    said: dict[str, Any] = values.get("attachment_policy", {})
    policy: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in said.items()}
    return Worker(
        **given,
        instructions=instructions,
        model_settings=GenerationSettings(**values.get("model_settings", {})),
        compatible_models=tuple(values.get("compatible_models", ())),
        sandbox=_sandbox(values["sandbox"]) if "sandbox" in values else None,
        attachment_policy=AttachmentPolicy(**policy),
        batch=BatchSettings(**values.get("batch", {})),
        budget=BudgetLimits(**values.get("budget", {})),
        path=path,
        shown_path=shown,
        lines={dotted_path(place): line for place, line in file.lines.items() if place},
    )


def _as_yaml(value: Any) -> Any:
    """A value of Python as YAML would give it: plain mappings, lists and texts."""
    if isinstance(value, WorkerZone):
        said = changed_fields(value)
        approval = {verb: said.pop(verb) for verb in ("write", "delete") if verb in said}
        return _as_yaml({**said, "approval": approval} if approval else said)
    if is_dataclass(value) and not isinstance(value, type):
        return _as_yaml(changed_fields(value))
    if isinstance(value, Mapping):
        return {key: _as_yaml(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_yaml(each) for each in value]
    return value.value if isinstance(value, Enum) else str(value) if isinstance(value, Path) else value


def _check_model(worker: Worker) -> None:
    if worker.model:
        split_models(worker.model, where=f"{worker.at('model')}: model")
        check_compatible(worker, worker.model)


def _sandbox(block: Mapping[str, Any]) -> WorkerSandbox:
    zones = tuple(
        WorkerZone(
            name=zone["name"],
            mode=zone.get("mode"),
            write=zone_verdict(zone, "write"),
            delete=zone_verdict(zone, "delete"),
            subpath=zone.get("subpath", ""),
        )
        for zone in block.get("zones", ())
    )
    return WorkerSandbox(zones=zones, default_zone=block.get("default_zone", ""))


def _check_zones(block: Mapping[str, Any] | None, problems: ConfigProblems) -> None:
    """Checks the zones of one block against each other; whether the program has them is checked when
    they are opened.
    """
    if block is None:
        return
    names: list[str] = []
    for index, zone in enumerate(block.get("zones", ())):
        place: YamlPath = ("sandbox", "zones", index)
        name = zone.get("name")
        if name in names:
            problems.add(place, f"zone '{name}' is named twice")
        if zone.get("mode") == "ro" and zone.get("approval"):
            problems.add((*place, "approval"), "has no effect on a zone that is mode: ro; remove one of the two")
        names.append(name)
    default = block.get("default_zone")
    if default is not None and default not in names:
        have = ", ".join(str(name) for name in names) or "none"
        hint = nearest_hint(default, (name for name in names if isinstance(name, str)))
        problems.add(("sandbox", "default_zone"), f"'{default}' is not among this worker's zones ({have}){hint}")


def _name(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if not isinstance(value, str) or not _NAME.fullmatch(value) or "__" in value:
        return refuse(
            problems, path, value, "a name of letters, digits, '-' and '_', starting with a letter, at most 64, no '__'"
        )
    if value.lower() in _RESERVED:
        problems.add(path, f"{value!r} is reserved for a tool; choose another name")
    return value


def _globs(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if value == []:
        problems.add(path, 'expected at least one glob, like "anthropic:*"')
    return list_of(text)(value, path, problems)


def _toolsets(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    """The blocks as they are written, `name:` with nothing as an empty one; `toolset_blocks` reads them again."""
    read_blocks({} if value is None else value, path, problems, TOOLSETS)
    if not isinstance(value, dict):
        return {}
    return {name: {} if block is None else block for name, block in value.items()}


def _schema(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if not isinstance(value, dict):
        return refuse(problems, path, value, "a JSON Schema")
    try:
        SchemaCheck(value)
    except ToolDefinitionError as error:
        problems.add(path, str(error))
    return value


_count: Final = whole_between(0, math.inf, "a whole number, 0 or more")


def _suffix(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if isinstance(value, str) and _SUFFIX.fullmatch(value):
        return value.lower()
    return refuse(problems, path, value, "a suffix with its dot, like .pdf")


_ZONE: Final = MappingSchema(
    {
        "name": text,
        "mode": one_of("ro", "rw"),
        "approval": ZONE_APPROVAL,
        "subpath": text,
    },
    required=("name",),
)
_SHAPE: Final = MappingSchema(
    {
        "name": _name,
        "description": text,
        "mode": one_of("single", "chat"),
        "model": model_choice,
        "model_settings": GENERATION_CHECK,
        "compatible_models": _globs,
        "toolsets": _toolsets,
        "sandbox": MappingSchema({"default_zone": text, "zones": list_of(_ZONE)}),
        "input_schema": _schema,
        "output_schema": _schema,
        "attachment_policy": MappingSchema(
            {
                "max_attachments": _count,
                "max_total_bytes": _count,
                "allowed_suffixes": list_of(_suffix),
                "denied_suffixes": list_of(_suffix),
            }
        ),
        "allow_empty_input": flag,
        "max_iterations": whole_number,
        "max_context_tokens": whole_number,
        "batch": MappingSchema(
            {"mode": one_of("parallel", "sequential"), "on_failure": one_of("collect_all", "fail_fast")}
        ),
        "budget": BUDGET_CHECK,
        "tool_format": one_of("auto", "native", "xml"),
    },
    required=("name",),
)
_PLAIN: Final = (
    *("name", "description", "mode", "model", "toolsets", "input_schema", "output_schema"),
    *("allow_empty_input", "max_iterations", "max_context_tokens", "tool_format"),
)
"""Keys whose checked value is used for the Worker unchanged."""
_OF_THE_FILE: Final = frozenset({"path", "shown_path", "lines"})
"""Fields of a Worker that no key sets."""
_PROGRAM_KEYS: Final = frozenset({*RUN_KEYS, *MCP_KEYS, "approval"}) - _SHAPE.keys.keys()
"""Keys that only the config of a program has."""
