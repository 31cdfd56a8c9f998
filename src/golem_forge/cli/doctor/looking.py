"""Where the doctor looks. Each function looks at one thing and gives its findings; none of them raises."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from golem_forge._version import __version__
from golem_forge.cli.doctor.findings import Finding, note, ok, problem
from golem_forge.cli.doctor.parts import look_at_libraries, look_at_parts
from golem_forge.cli.doctor.servers import look_at_servers
from golem_forge.cli.doctor.walls import look_at_walls
from golem_forge.cli.plain import homely
from golem_forge.config.home import ForgeHome, forge_home
from golem_forge.config.program import PROJECT_RULES, Program, find_root, load_program
from golem_forge.config.trust import TrustStore
from golem_forge.config.yaml_file import read_bytes
from golem_forge.core.call import Caller
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.events.session_files import sessions_dir
from golem_forge.policy.rules import Origin, parse_rules
from golem_forge.tools.tool import SourceKind
from golem_forge.workers.catalog import build_catalog
from golem_forge.workers.surroundings import (
    NO_ZONE_HERE,
    approval_blocks,
    is_home_without_program,
    zone_problems,
)
from golem_forge.workers.trust_cover import trust_store

_OTHERS_READ: Final = 0o044
_OTHERS_WRITE: Final = 0o022


def examine() -> list[Finding]:
    home = forge_home()
    trust = trust_store(home)
    found = [ok("version", f"forge {__version__}"), _python(), *look_at_libraries(), *_home(home)]
    program: Program | None = None
    try:
        program = load_program(Path.cwd(), home, trusted=trust.trusted)
    except ConfigError as error:
        found += [problem("program", text, "repair the file; the line is in front") for text in error.problems]
    if program is not None:
        found += [*_program(program), *_approval(program), *_zones(program, home)]
    return [
        *found,
        *_rules(home, trust),
        *_journal(home),
        *_tools(),
        *_own_tools(),
        *(look_at_servers(program, home) if program is not None else ()),
        *look_at_walls(program, home),
        *look_at_parts(),
    ]


def _python() -> Finding:
    return ok("python", f"{'.'.join(map(str, sys.version_info[:3]))} at {homely(sys.executable)}")


def _home(home: ForgeHome) -> Iterator[Finding]:
    shown = homely(home.path)
    try:
        status = home.path.stat()
    except FileNotFoundError:
        yield ok("FORGE_HOME", f"{shown} (made when first needed)")
        return
    except OSError as error:
        yield problem("FORGE_HOME", f"{shown}: {error.strerror}", "make it readable, or name another in FORGE_HOME")
        return
    if not home.path.is_dir():
        yield problem("FORGE_HOME", f"{shown} is not a directory", "move it away, or name another in FORGE_HOME")
    elif status.st_uid != os.geteuid():
        fix = f"sudo chown -R $(id -u) {shown}, or name another in FORGE_HOME"
        yield problem("FORGE_HOME", f"{shown} belongs to somebody else, who could change your rules", fix)
    elif status.st_mode & _OTHERS_WRITE:
        yield problem("FORGE_HOME", f"{shown}: others can write your rules and grants", f"chmod 700 {shown}")
    elif status.st_mode & _OTHERS_READ:
        yield note("FORGE_HOME", f"{shown}: others can read your journals and rules", f"chmod 700 {shown}")
    else:
        yield ok("FORGE_HOME", shown)


def _program(program: Program) -> Iterator[Finding]:
    root = homely(program.root)
    if program.file is None:
        yield ok("program", f"none around {root}; the built-in worker works here")
    else:
        yield ok("program", homely(program.file))
    if program.trusted:
        yield ok("trust", f"{root} is trusted as it is")
    elif program.unused:
        yield note(
            "trust", f"{root} is not trusted; not used: {'; '.join(program.unused)}", "read it, then: forge trust"
        )
    elif program.file is not None:
        yield ok("trust", f"{root} is not trusted; nothing in it needs that")
    mode = program.mode()
    yield ok("approval", f"mode {mode.value.value} ({mode.origin})")


def _approval(program: Program) -> Iterator[Finding]:
    notices: list[str] = []
    try:
        approval_blocks(program, {tool.name: tool for tool in build_catalog()}, notices)
    except ConfigError as error:
        yield from (problem("approval", text, "remove that line") for text in error.problems)
    yield from (note("approval", text, "correct or remove that name") for text in notices)


def _zones(program: Program, home: ForgeHome) -> Iterator[Finding]:
    if is_home_without_program(program):
        yield note("zones", NO_ZONE_HERE)
        return
    for zone in program.zones:
        verdicts = "read only"
        if zone.mode == "rw":
            write, delete = zone.write or "ask", zone.delete or "ask"
            verdicts = f"write {write}, delete {delete}"
        yield ok("zone", f"/{zone.name} ({zone.mode}) is {homely(zone.path)}: {verdicts} ({zone.origin})")
    for text in zone_problems(program, home):
        yield problem("zone", text, "change the zone in the file, or the directory")


def _rules(home: ForgeHome, trust: TrustStore) -> Iterator[Finding]:
    root = find_root(Path.cwd()) or Path.cwd()
    files = [
        (home.rules, homely(home.rules), Origin.USER),
        (home.remembered, homely(home.remembered), Origin.REMEMBERED),
        (root / PROJECT_RULES, PROJECT_RULES, Origin.PROJECT),
    ]
    present = [each for each in files if os.path.lexists(each[0])]
    for path, name, origin in present:
        try:
            count = len(parse_rules(read_bytes(path, name), name, origin).rules)
        except ConfigError as error:
            yield from (
                problem("rules", text, "repair it; `forge rules check` tells when it holds") for text in error.problems
            )
            continue
        text = f"{name}: {count} {'rule' if count == 1 else 'rules'}"
        if origin is Origin.PROJECT and not trust.trusted(root):
            yield note("rules", f"{text}, ignored: the project is not trusted", "read them, then: forge trust")
        else:
            yield ok("rules", text)
    if not present:
        yield ok("rules", "none but the builtin ones")


def _journal(home: ForgeHome) -> Iterator[Finding]:
    """A call that cannot be recorded does not run, so this is needed."""
    directory = sessions_dir(home.path)
    shown = homely(directory)
    if directory.is_dir():
        trouble = _cannot_write(directory)
    else:
        above = next((each for each in directory.parents if each.exists()), Path("/"))
        trouble = _cannot_write(above) if above.is_dir() else f"{homely(above)} is not a directory"
    if trouble:
        yield problem("journal", f"{shown}: {trouble}", "free space or repair permissions, or name another FORGE_HOME")
    else:
        yield ok("journal", f"{shown} can be written")


def _cannot_write(directory: Path) -> str:
    """Tried, not asked for: permissions alone do not show a full or read-only disk."""
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=directory, prefix=".doctor-") as file:
            file.write(b"x" * 4096)
            file.flush()
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def _tools() -> Iterator[Finding]:
    catalog = build_catalog()
    for caller in (Caller.LLM, Caller.HUMAN):
        catalog.offered(caller)  # building every schema finds the tools that cannot be offered
    yield ok("tools", f"{len(catalog)} tools; forge tools list")
    for each in catalog.quarantined():
        yield problem("tools", f"{each.name} ({each.source}) is not offered: {each.reason}", "repair its definition")


def _own_tools() -> Iterator[Finding]:
    """Only where there are any. One that does not work is no reason for anything else not to."""
    from golem_forge.cli.tools.seen import look_around

    try:
        seen = look_around()
        if seen.shop is None:
            return
        active, waiting = len(seen.catalog.list(source=SourceKind.CUSTOM)), len(seen.skipped)
    except (ForgeError, OSError) as error:
        yield note("own tools", f"they cannot be looked at: {error}", "forge tools doctor")
        return
    if waiting:
        yield note("own tools", f"{active} active, {waiting} not", "forge tools doctor says why")
    else:
        yield ok("own tools", f"{active} active")
