"""Sees to it that the named system packages are there: `python scripts/system_packages.py bubblewrap golang-go`.

What is present is passed over in silence. What is missing is installed when that needs no question (root, or
sudo without a password, and apt-get). Otherwise the one command to run is printed, and the exit code is 0,
or 1 when CI=true: there a missing part is a failure.

`build/missing-parts` then lists every part of the table below that this machine lacks, one name a line;
a test that needs a part skips by that name.

To add a part: one line in PARTS, and its name in TEST_PARTS of the Makefile once a test needs it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

MISSING_PARTS = Path(__file__).resolve().parent.parent / "build" / "missing-parts"


def command(*names: str) -> Callable[[], bool]:
    """The part is there when one of these commands is; programs of services are in a place that PATH may not name."""
    return lambda: any(shutil.which(name) or shutil.which(name, path="/usr/sbin") for name in names)


PARTS: dict[str, Callable[[], bool]] = {
    # name of the Debian package → is it there?
    "bubblewrap": command("bwrap"),
    "chromium-headless-shell": command("chromium-headless-shell", "chromium", "chromium-browser"),
    "git": command("git"),
    "golang-go": command("go"),
    "nginx": command("nginx"),
    "openssh-server": command("sshd"),
    "postgresql": lambda: any(Path("/usr/lib/postgresql").glob("*/bin/initdb")),  # Debian keeps it outside of PATH
    "python3-venv": lambda: find_spec("ensurepip") is not None,
}


def main(wanted: list[str]) -> int:
    if unknown := [name for name in wanted if name not in PARTS]:
        print(f"unknown part {unknown[0]!r}; known: {', '.join(PARTS)}")
        return 2
    missing = absent(wanted)
    if missing and (prefix := privileges()) is not None and shutil.which("apt-get"):
        with alone():
            if missing := absent(wanted):
                install(missing, prefix)
                missing = absent(wanted)
    record(absent(PARTS))
    if not missing:
        return 0
    in_ci = os.environ.get("CI") == "true"
    consequence = "CI needs it" if in_ci else "what needs it is skipped"
    print(f"missing: {', '.join(missing)} ({consequence}). Install with:\n  {by_hand(missing)}")
    return 1 if in_ci else 0


def absent(names: Iterable[str]) -> list[str]:
    return [name for name in names if not PARTS[name]()]


def privileges() -> list[str] | None:
    """What to put before a command to run it as root without being asked; None where that cannot be."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and not subprocess.run([sudo, "-n", "true"], check=False, capture_output=True).returncode:
        return [sudo, "-n"]
    return None


@contextmanager
def alone() -> Iterator[None]:
    """apt-get reads its lists for one process at a time, and refuses another."""
    MISSING_PARTS.parent.mkdir(parents=True, exist_ok=True)
    with MISSING_PARTS.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(names: list[str], prefix: list[str]) -> None:
    """Tries; whether it worked is seen from the parts themselves afterwards. Shows apt-get's words when it fails."""
    print(f"installing {', '.join(names)}", flush=True)
    apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300"]
    for step in (["update"], ["install", "--no-install-recommends", *names]):
        done = subprocess.run([*apt, *step], check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            print(f"apt-get {step[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def by_hand(names: list[str]) -> str:
    sudo = "" if os.geteuid() == 0 else "sudo "
    if shutil.which("apt-get"):
        return f"{sudo}apt-get update && {sudo}apt-get install -y {' '.join(names)}"
    return f"your package manager; the Debian names are: {' '.join(names)}"


def record(names: list[str]) -> None:
    MISSING_PARTS.parent.mkdir(parents=True, exist_ok=True)
    MISSING_PARTS.write_text("".join(f"{name}\n" for name in names))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
