"""Makes (or brings up to date) a virtual environment with this project installed in editable form.

Takes the directory, and what else goes in: `--group` (of pyproject.toml) and `--requirements` (a file).
Needs only Python and the package registry; the pip that comes with Python may be too old to know
dependency groups, so they are read here. Refuses an interpreter that is too old, and says what to do.

uv does what pip would do, under the settings that pip has, in a quarter of its time or less. It is the caller's own, or
comes into build/uv. Where there is none, or it does not get through, pip does it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MINIMUM = (3, 11)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a virtual environment with golem-forge in it.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--group", action="append", default=[], help="a dependency group of pyproject.toml")
    parser.add_argument("--requirements", action="append", default=[], type=Path, help="a requirements file")
    options = parser.parse_args()
    python = environment(options.directory)
    wanted_packages = [name for group in options.group for name in group_members(group)]
    files = [argument for file in options.requirements for argument in ("--requirement", str(file))]
    print(f"installing into {options.directory}", flush=True)
    code = install(python, "--editable", str(ROOT), *wanted_packages, *files)
    if code:
        print(f"{options.directory} is not complete: pip ended with {code}")
    return code


def environment(directory: Path) -> Path:
    """The environment's python. An environment whose own interpreter is gone or of another version is made anew.
    Raises SystemExit for an interpreter that is too old."""
    if sys.version_info < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        raise SystemExit(
            f"Python {wanted} or newer is needed, this is {sys.version.split()[0]}; try: make PYTHON=python{wanted}"
        )
    python = directory / "bin" / "python"
    if _version_of(python) != sys.version_info[:2]:
        shutil.rmtree(directory, ignore_errors=True)
        _have_ensurepip()
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    return python


def _version_of(python: Path) -> tuple[int, ...] | None:
    probe = [str(python), "-c", "import sys, pip; print(*sys.version_info[:2])"]
    try:
        answer = subprocess.run(probe, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return tuple(map(int, answer.split()))


def _have_ensurepip() -> None:
    """Debian keeps the part of Python that fills a new environment in a package of its own."""
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        script = ROOT / "scripts" / "system_packages.py"
        strictly = {**os.environ, "CI": "true"}  # nothing at all works without it: there is nothing to skip
        if subprocess.run([sys.executable, str(script), "python3-venv"], check=False, env=strictly).returncode:
            raise SystemExit(1) from None


def install(python: Path, *wanted: str) -> int:
    """Into the environment of this interpreter. Gives the exit code."""
    settings = _pip_settings(python)
    if settings is not None and (uv := _find_uv(python)):
        environ = {"SSL_CERT_FILE": settings["cert"], **os.environ} if settings["cert"] else None
        command = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python)]
        if subprocess.run([*command, *_for_uv(settings), *wanted], check=False, env=environ).returncode == 0:
            return 0
        print("uv did not get through (see above); pip tries it", flush=True)
    return subprocess.run([*_pip(python), *wanted], check=False).returncode


def _pip(python: Path) -> list[str]:
    return [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-input"]


def _find_uv(python: Path) -> str | None:
    if found := shutil.which("uv"):
        return found
    place = ROOT / "build" / "uv"
    own = place / "bin" / "uv"
    place.parent.mkdir(exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # `make test` sets up several environments at once
        if not own.exists():
            subprocess.run([*_pip(python), "--target", str(place), "uv"], check=False, capture_output=True)
    return str(own) if own.exists() else None


_SETTINGS = """
import json
from pip._internal.commands import create_command
values = create_command("install").parser.get_default_values()
names = "index_url extra_index_urls no_index find_links trusted_hosts constraints cert client_cert proxy".split()
print(json.dumps({name: getattr(values, name) for name in names}))
"""


def _pip_settings(python: Path) -> dict[str, Any] | None:
    """Those of its files and of the environment. None: this pip does not tell them, or uv does not know one."""
    told = subprocess.run([str(python), "-c", _SETTINGS], check=False, capture_output=True, text=True)
    settings: dict[str, Any] | None = json.loads(told.stdout) if told.returncode == 0 else None
    return None if settings is None or settings["client_cert"] or settings["proxy"] else settings


def _for_uv(settings: dict[str, Any]) -> list[str]:
    """Any of the registries may give the newest version, as with pip: they are the person's own choice."""
    given = ["--index-strategy", "unsafe-best-match"]
    if settings["index_url"] != "https://pypi.org/simple":
        given += ["--default-index", settings["index_url"]]
    if settings["no_index"]:
        given.append("--no-index")
    options = {
        "extra_index_urls": "--index",
        "find_links": "--find-links",
        "trusted_hosts": "--allow-insecure-host",
        "constraints": "--constraint",
    }
    return given + [word for name, option in options.items() for each in settings[name] for word in (option, each)]


def group_members(name: str) -> list[str]:
    import tomllib

    groups: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    if name not in groups:
        raise SystemExit(f"pyproject.toml has no dependency group {name!r}; it has: {', '.join(groups)}")
    members: list[str] = []
    for item in groups[name]:
        members += [item] if isinstance(item, str) else group_members(item["include-group"])
    return members


if __name__ == "__main__":
    sys.exit(main())
