"""The host side: what Forge's own process may load, and how it starts interpreters and programs outside the walls.

Threat: a project holds packages named like the standard library's and programs named like the system's, brought along
by a clone or left there by a command. None of them may run because a person started Forge there. So the process drops
the project from its own search paths, helpers run isolated (`isolated`, environment of their own, working directory
`/`), and programs come from directories that no command can write (`find_program`).

The `forge` command imports this before anything else: only what every interpreter has loaded already, not `typing`,
not even `__future__`.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
"""System directories that every command sees in full."""
_PROJECT_MARKS = ("forge.yaml", ".git")
_LIBRARIES = ("lib", "lib64", "local/lib")
"""Module directories below the prefix of an installation. Not the whole prefix: a project can be its own
environment.
"""
_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_RUN_MODULE = (
    "import importlib.util, sys; place, name = sys.argv.pop(1), sys.argv.pop(1); "
    "spec = importlib.util.spec_from_file_location('golem_forge', place); "
    "sys.modules['golem_forge'] = package = importlib.util.module_from_spec(spec); spec.loader.exec_module(package); "
    "importlib.import_module(name).main()"
)

_person_path: "str | None" = None
"""PATH as the person has it, once `enter_process` has taken the project out of the process's own."""


def enter_process() -> None:
    """Makes this process Forge's own; only the `forge` command may, not a library in somebody's program. Afterwards
    neither an import nor a program that some library looks up on PATH (`uname`, by the clients of models) comes from
    the project."""
    global _person_path
    if _person_path is None:
        _person_path = os.environ.get("PATH", os.defpath)
    keep_out()


def keep_out(directories: "Iterable[str]" = ()) -> None:
    """Takes these (zones) out of the search paths too, where the process is Forge's own."""
    if _person_path is not None:
        sys.path[:] = own_paths(sys.path, directories)
        os.environ["PATH"] = safe_path(os.environ.get("PATH", ""), directories)


def person_environ() -> "Mapping[str, str]":
    """The environment that the person started Forge with. Children in walls get their PATH from this one."""
    return os.environ if _person_path is None else {**os.environ, "PATH": _person_path}


def helper_environ() -> dict[str, str]:
    """Returns the environment for host programs that need the person's session, such as a browser."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"PATH": safe_path(kept.get("PATH", ""))}


def own_paths(entries: "Iterable[str]", kept_out: "Iterable[str]" = ()) -> list[str]:
    """Entries of `sys.path` without relative ones and those of the project or of `kept_out` (zones), unless Forge
    itself is installed there."""
    avoided = _avoided(kept_out)
    return [each for each in entries if _is_safe(each, avoided) or _is_installation(each)]


def safe_path(path: str, kept_out: "Iterable[str]" = ()) -> str:
    """A PATH without relative entries and those of the project or of `kept_out` (zones). Never empty: that would mean
    the working directory."""
    avoided = _avoided(kept_out)
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if _is_safe(entry, avoided)) or os.defpath


def find_program(name: str, kept_out: "Iterable[str]" = (), environ: "Mapping[str, str] | None" = None) -> "str | None":
    """The absolute path of a program that Forge may run on the host: the first on the person's PATH, whose relative
    entries do not count. Never one that lies in, or is a link into, the project or `kept_out` (zones)."""
    if os.sep in name:
        raise ValueError(f"a program is looked up by its name, not by a path: {name}")
    avoided = _avoided(kept_out)
    path = (os.environ if environ is None else environ).get("PATH", os.defpath)
    for directory in path.split(os.pathsep):
        program = os.path.join(directory, name)
        executable = os.path.isfile(program) and os.access(program, os.X_OK)
        if executable and _is_safe(directory, avoided) and _is_safe(program, avoided):
            return program
    return None


def base_python() -> str:
    """The real Python. A virtual environment's link to it would read that environment's `pyvenv.cfg`."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def isolated(*arguments: str) -> tuple[str, ...]:
    """Returns the words that start Python for a helper on the host with the standard library alone: no variables, no
    site, no working directory. Give it `cwd="/"` and an environment without `PYTHON*`.
    """
    return (base_python(), "-I", "-S", *arguments)


def own_command(*words: str) -> tuple[str, ...]:
    """Returns the words that start Forge itself again, with its libraries. Give it `cwd="/"` and `person_environ()`; it
    checks both as this process did.
    """
    return (sys.executable, "-P", "-m", "golem_forge", *words)


def isolated_module(name: str, *arguments: str) -> tuple[str, ...]:
    """Returns the words that start `main()` of one of Forge's own modules isolated. The package is loaded by its path,
    so nothing else in its directory can be imported.
    """
    return isolated("-c", _RUN_MODULE, os.path.join(_PACKAGE, "__init__.py"), name, *arguments)


def _avoided(kept_out: "Iterable[str]" = ()) -> tuple[str, ...]:
    """Real directories: the given ones, the working directory and the projects around it, which are or were zones."""
    found = [os.path.realpath(each) for each in kept_out]
    try:
        directory = os.path.realpath(os.getcwd())
    except OSError:  # it was removed
        return tuple(found)
    found.append(directory)
    while directory != "/":
        if any(os.path.lexists(f"{directory}/{mark}") for mark in _PROJECT_MARKS):
            found.append(directory)
        directory = os.path.dirname(directory)
    return tuple(found)


def _is_installation(entry: str) -> bool:
    """Whether modules of Forge, of its interpreter or of packages beside it lie there."""
    if not entry.startswith("/"):
        return False
    real = os.path.realpath(entry)
    if real == os.path.dirname(_PACKAGE):
        return True
    site = sys.modules.get("site")
    places = [f"{prefix}/{lib}" for prefix in (sys.prefix, sys.base_prefix) for lib in _LIBRARIES]
    places.append(getattr(site, "USER_SITE", None) or "")
    return any(is_below(path, os.path.realpath(place)) for place in places if place for path in (real, entry))


def _is_safe(path: str, avoided: "Iterable[str]") -> bool:
    """Absolute, and in none of these directories however it is spelled. One that is or contains the home directory
    cannot be a zone to write in: only itself is avoided, or a person who works there would miss `~/.local/bin`."""
    if not path.startswith("/"):
        return False
    home = os.path.realpath(os.environ.get("HOME") or "/")
    parent, name = os.path.split(os.path.normpath(path))
    spellings = {os.path.normpath(path), os.path.realpath(path), os.path.join(os.path.realpath(parent), name)}
    for directory in avoided:
        if directory in spellings:
            return False
        if not is_below(home, directory) and any(is_below(one, directory) for one in spellings):
            return False
    return True


def is_below(path: str, directory: str) -> bool:
    """Both absolute and folded; a directory is below itself."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
