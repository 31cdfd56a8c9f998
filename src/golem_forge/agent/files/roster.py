"""Roster: the worker that starts and every worker it may delegate to, read and checked before anything runs.

`load_roster` takes the program and what to start. Raises ConfigError with every problem found: a reference that finds
nothing, a broken file, two files with one name.

In an untrusted program `restrict_untrusted` makes every `preApproved` in toolsets and zones `ask`, and takes out every
`env` of a toolset; `unused` names each. Threat: the file comes from a stranger, and `env` would hand a user's secrets
to the program's code.

`preflight_problems` returns what will keep a program from starting, as far as it can be known without running its code:
modules that are missing or are not Python, zones that cannot be opened. It is reported before anybody is asked for
trust, which would not help.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.files.toolset_blocks import approval_of, native_names, worker_blocks
from golem_forge.agent.files.worker import CustomBlock, Worker
from golem_forge.agent.files.worker_file import (
    WorkerProblems,
    find_worker,
    front_matter_bytes,
    missing_sandbox,
    parse_worker,
    parsed_worker,
    read_inside,
    relative_name,
    unreadable_folders,
    worker_files,
    worker_places,
)
from golem_forge.agent.session_plan import BUILT_IN_WORKER, DEFAULT_WORKER, sandbox_for
from golem_forge.agent.trust import module_files
from golem_forge.config.program import Program
from golem_forge.config.run_block import MAIN_WORKER
from golem_forge.config.validation import dotted_path
from golem_forge.config.yaml_file import YamlPath
from golem_forge.core.decisions import Verdict
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.storage.home import ForgeHome

MAX_WORKER_FILES: Final = 500
"""Maximum number of worker files; each is read before anything starts."""
TrustedWith = Callable[[Path, Mapping[str, bytes]], bool]
"""(program root, name → the bytes that were read) → whether these are the trusted ones (`TrustStore.trusted_with`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    root: Worker
    workers: tuple[Worker, ...]
    """Every worker that can run, each with a name of its own; the root is the first."""
    warnings: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """File as people know it (`workers/a.worker`) → sha256 of its bytes."""
    trusted: bool = False
    """Whether the program is trusted with exactly the bytes that were read."""
    unused: tuple[str, ...] = ()
    """Settings in the files that do not count because the program is not trusted."""
    needs_code: bool = False
    """Whether a worker names a module or a package whose code would run."""
    _delegates: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def delegates(self, worker: Worker) -> tuple[Worker, ...]:
        """The workers it may hand work to, in the order of its file."""
        by_name = {each.name: each for each in self.workers}
        return tuple(by_name[name] for name in self._delegates.get(worker.name, ()))


def load_roster(
    program: Program, entry: str | Path | Worker | None = None, *, trusted_with: TrustedWith | None = None
) -> Roster:
    """`entry`: a file, a reference as in worker files (paths begin at the program root) or a Worker made in Python;
    None: what the program starts, else the built-in worker."""
    search = _Search(program)
    start = _start(program, search, entry)
    if isinstance(start, Worker):
        search.add(start)
    else:
        search.read(start)
    search.follow()
    search.check_names()
    search.check_exposed()
    if search.problems:
        raise ConfigError(*dict.fromkeys(search.problems))
    read = {name: front_matter_bytes(data) for name, data in search.data.items()}
    trusted = program.trusted and (trusted_with is None or not read or trusted_with(program.root, read))
    unused: list[str] = []
    found = search.found
    if not trusted:
        found = {real: restrict_untrusted(worker, unused) if real else worker for real, worker in found.items()}
    blocks = [worker_blocks(worker) for worker in found.values()]
    return Roster(
        root=next(iter(found.values())),
        workers=tuple(found.values()),
        warnings=tuple(
            filter(None, (unreadable_folders(program.root, search.places), *map(missing_sandbox, found.values())))
        ),
        files={name: hashlib.sha256(data).hexdigest() for name, data in search.data.items()},
        trusted=trusted,
        unused=tuple(unused),
        needs_code=any(each.custom or each.external for each in blocks),
        _delegates={
            name: tuple(found[real].name for real in reals if real in found) for name, reals in search.allowed.items()
        },
    )


def _start(program: Program, search: _Search, entry: str | Path | Worker | None) -> Worker | Path:
    if isinstance(entry, Worker):
        return entry
    if entry is None:
        named = "entry" in program.run.origins
        if not named and not (program.root / MAIN_WORKER).exists():
            return BUILT_IN_WORKER
        origin = f"{program.run.origins['entry']}: entry: " if named else ""
        return search.find(program.run.entry, program.root, origin)
    if isinstance(entry, Path):
        return search.find(os.path.join(os.path.realpath(entry.parent), entry.name), program.root, "")
    try:
        return find_worker(entry, program.root, search.places, program.root)
    except ConfigError:
        if entry == DEFAULT_WORKER:
            return BUILT_IN_WORKER
        raise


class _Search:
    def __init__(self, program: Program) -> None:
        origin = program.run.origins.get("worker_paths", "worker_paths")
        self.root = program.root
        self.places = worker_places(program.root, program.run.worker_paths, origin)
        self.problems: list[str] = []
        self.found: dict[Path | None, Worker] = {}
        """Real file → its worker, in the order of finding. None: the one that has no file."""
        self.data: dict[str, bytes] = {}
        self.allowed: dict[str, tuple[Path, ...]] = {}
        """Worker name → real files it may hand work to."""

    def find(self, reference: str, folder: Path, origin: str) -> Path:
        try:
            return find_worker(reference, folder, self.places, self.root)
        except ConfigError as error:
            raise ConfigError(*(origin + problem for problem in error.problems)) from None

    def add(self, worker: Worker) -> None:
        self.found[worker.path and worker.path.resolve()] = worker

    def read(self, path: Path) -> None:
        """Adds the worker in a file, once; its problems otherwise."""
        real = path.resolve()
        if real in self.found:
            return
        name = relative_name(self.root, path)
        try:
            data = read_inside(self.root, path, name)
        except ConfigError as error:
            self.problems += error.problems
            return
        worker = parse_worker(data, name, path)
        if isinstance(worker, WorkerProblems):
            self.problems += worker.found
            return
        self.data[name] = data
        self.found[real] = worker

    def follow(self) -> None:
        """Reads whatever the found workers may hand work to, and so on."""
        done: set[Path | None] = set()
        while waiting := [(real, worker) for real, worker in self.found.items() if real not in done]:
            for real, worker in waiting:
                done.add(real)
                self._follow_one(worker)

    def _follow_one(self, worker: Worker) -> None:
        try:
            block = worker_blocks(worker).workers
        except ConfigError as error:
            self.problems += error.problems
            return
        folder = worker.path.parent if worker.path else self.root
        targets: list[Path] = []
        for index, reference in enumerate(block.allow if block else ()):
            key = f"toolsets.workers.allow[{index}]"
            try:
                path = self.find(reference, folder, f"{worker.at(key)}: {key}: ")
            except ConfigError as error:
                self.problems += error.problems
                continue
            self.read(path)
            targets.append(path.resolve())
        self.allowed[worker.name] = tuple(dict.fromkeys(targets))

    def check_names(self) -> None:
        """Names are unique in the program, in files that nobody refers to as well."""
        owners: dict[str, dict[Path | None, str]] = {}
        for real, worker in self.found.items():
            owners.setdefault(worker.name, {})[real] = worker.shown_path or "the worker that starts"
        for number, path in enumerate(worker_files(self.places)):
            if number >= MAX_WORKER_FILES:
                self.problems.append(f"the program has more than {MAX_WORKER_FILES} worker files; move some elsewhere")
                return
            real = path.resolve()
            if real not in self.found and (name := self._name_in(path)) and None not in owners.get(name, ()):
                owners.setdefault(name, {})[real] = relative_name(self.root, path)
        for name, files in owners.items():
            if len(files) > 1:
                *others, last = files.values()
                count, remedy = ("two", "rename one") if len(files) == 2 else (str(len(files)), "rename all but one")
                named = f"{', '.join(others)} and {last}"
                self.problems.append(f"{count} workers are called '{name}': {named}; {remedy}")

    def check_exposed(self) -> None:
        """Checks what needs no code: names of native tools and workers, and the approval settings for them."""
        for worker in self.found.values() if not self.problems else ():
            blocks = worker_blocks(worker)
            exposed = native_names(blocks)
            if blocks.workers is not None:
                exposed["workers"] = [self.found[real].name for real in self.allowed[worker.name]]
            try:
                approval_of(worker, exposed)
            except ConfigError as error:
                self.problems += error.problems

    def _name_in(self, path: Path) -> str:
        """The name a file gives, as far as it can be read; what else is wrong with it matters when it is used."""
        label = relative_name(self.root, path)
        try:
            name = parsed_worker(read_inside(self.root, path, label), label)[0].value.get("name")
        except ConfigError:
            return ""
        return name if isinstance(name, str) else ""


_NOT_VERDICTS: Final = frozenset({"pattern", "module", "package", "import", "entry_point"})
"""Keys whose text is no verdict, whatever it says; below `approval.tools` they are names of tools."""


def restrict_untrusted(worker: Worker, unused: list[str]) -> Worker:
    blocks = _restricted(worker.toolsets, ("toolsets",), worker, unused)
    if worker.sandbox is None:
        return replace(worker, toolsets=blocks)
    zones = []
    for index, zone in enumerate(worker.sandbox.zones):
        verbs = [verb for verb in ("write", "delete") if getattr(zone, verb) is Verdict.PRE_APPROVED]
        for verb in verbs:
            where = worker.at(f"sandbox.zones[{index}].approval.{verb}")
            unused.append(f"{where}: sandbox.zones.{zone.name}.approval.{verb}: preApproved counts as ask")
        zones.append(replace(zone, **dict.fromkeys(verbs, Verdict.ASK)))
    return replace(worker, toolsets=blocks, sandbox=replace(worker.sandbox, zones=tuple(zones)))


def _restricted(value: Any, path: YamlPath, worker: Worker, unused: list[str]) -> Any:
    if isinstance(value, list):
        return [_restricted(item, (*path, index), worker, unused) for index, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    kept: dict[str, Any] = {}
    for key, item in value.items():
        place: YamlPath = (*path, key)
        if key == "env" and path[-1] != "tools":  # a tool may be called `env`
            unused.append(f"{worker.at(dotted_path(place))}: {dotted_path(place)}")
        elif item == Verdict.PRE_APPROVED.value and (key not in _NOT_VERDICTS or path[-2:] == ("approval", "tools")):
            unused.append(f"{worker.at(dotted_path(place))}: {dotted_path(place)}: preApproved counts as ask")
            kept[key] = Verdict.ASK.value
        else:
            kept[key] = _restricted(item, place, worker, unused)
    return kept


def preflight_problems(program: Program, roster: Roster, home: ForgeHome) -> list[str]:
    """Returns the problems of the worker that starts; problems of another one only end the calls that need it."""
    found = list(_module_problems(program, roster.root))
    try:
        sandbox_for(program, roster.root, home, []).close()
    except ConfigError as error:
        found += error.problems
    return found


def check_preflight(program: Program, roster: Roster, home: ForgeHome) -> None:
    """Raises ConfigError with all preflight problems."""
    if problems := preflight_problems(program, roster, home):
        raise ConfigError(*problems)


def _module_problems(program: Program, worker: Worker) -> Iterator[str]:
    folder = worker.path.parent if worker.path is not None else program.root
    for block in worker_blocks(worker).custom:
        try:
            files = module_files(program.root, folder / block.module)
        except ConfigError as error:
            yield _load_failure(block, "; ".join(error.problems))
            continue
        if why := _syntax_problem(next(iter(files.values()))):  # what it imports it may do without
            yield _load_failure(block, why)


def _syntax_problem(data: bytes) -> str:
    try:
        ast.parse(data)
    except SyntaxError as error:
        return f"{type(error).__name__}: {error.msg}" + (f" (line {error.lineno})" if error.lineno else "")
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: it cannot be read as Python"
    return ""


def _load_failure(block: CustomBlock, why: str) -> str:
    text = f"Failed to load custom tools from {block.module}: {why}"
    return f"{block.origin}: toolsets.{block.key}.module: {text}" if block.origin else text
