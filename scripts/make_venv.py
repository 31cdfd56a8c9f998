"""Makes (or brings up to date) a virtual environment with this project installed in editable form.

Takes the directory, and what else goes in: `--group` (of pyproject.toml) and `--requirements` (a file).
Needs only Python and the package registry; the pip that comes with Python may be too old to know
dependency groups, so they are read here. Refuses an interpreter that is too old, and says what to do.
"""

from __future__ import annotations

import argparse
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
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-input"]
    code = subprocess.run([*pip, "--editable", str(ROOT), *wanted_packages, *files], check=False).returncode
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
