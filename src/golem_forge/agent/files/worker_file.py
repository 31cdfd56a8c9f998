"""Reading a `.worker` file, or a worker in a `*.yaml` file. Returns a Worker, or every problem found.

Nothing is raised and nothing is run. `checked_worker` checks one that was made in Python by the same schema. Each
problem is `file:line: key: message`, with the nearest known key for an unknown one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.files.program_files import INSTRUCTIONS, YAML_SUFFIXES, parsed_worker
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
from golem_forge.config.schema import (
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
from golem_forge.config.yaml_file import YamlFile, YamlPath
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.options import snake
from golem_forge.core.regex import regex
from golem_forge.core.text import nearest_hint
from golem_forge.tools.validation import SchemaCheck, ToolDefinitionError

_NAME: Final = regex(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_RESERVED: Final = frozenset({"create_custom_tool", "run_custom_tool", "exec_command", "write_stdin", "apply_patch"})
_NEED_ZONES: Final = frozenset({"filesystem", "coding", "edit", "search"})
_SUFFIX: Final = regex(r"\.[^./\s]+")


@dataclass(frozen=True, slots=True)
class WorkerProblems:
    """Why a file is no worker, one line each."""

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
    """Raises ConfigError with every problem."""
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
    """What holds between the zones of one block; whether the program has them is asked when they are opened."""
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
"""Keys whose checked value is the Worker's."""
_OF_THE_FILE: Final = frozenset({"path", "shown_path", "lines"})
"""Members of a Worker that no key says."""
_PROGRAM_KEYS: Final = frozenset({*RUN_KEYS, *MCP_KEYS, "approval"}) - _SHAPE.keys.keys()
"""Keys that only the config of a program has."""
