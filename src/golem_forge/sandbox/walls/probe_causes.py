"""Why a level is not reached, and what a person can do about it, from what the system says about itself.

Takes what was said when walls did not start; gives cause and fix in words. Looks at a few files of /proc, changes
nothing, and never guesses beyond them: what is not recognised is passed on as it was said.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

SWITCHES: Final = {
    "kernel.unprivileged_userns_clone": "0",
    "user.max_user_namespaces": "0",
    "kernel.apparmor_restrict_unprivileged_userns": "1",
}
"""Settings of the kernel that keep plain users from making namespaces, with the value that does."""


class Why(NamedTuple):
    cause: str
    fix: str


NO_BWRAP: Final = Why(
    "bubblewrap is not installed",
    "Install it: `sudo apt-get install bubblewrap` (or your system's package of that name).",
)
TOO_SLOW: Final = Why("not tried in time", "Run 'forge doctor' when the machine is less busy.")
NO_LANDLOCK: Final = Why(
    "this kernel has no Landlock", "Use Linux 6.2 or later with Landlock among its security modules (`lsm=landlock,…`)."
)
OLD_LANDLOCK: Final = Why("this kernel's Landlock cannot keep files from being emptied", "Use Linux 6.2 or later.")


def full(said: str) -> Why:
    """`said`: the refusal of a start, or empty where walls stood and something did not hold."""
    named = "namespace" in said or "uid map" in said or "Permission denied" in said or "not permitted" in said
    if named and not _is_root():
        for name, closed in SWITCHES.items():
            if setting(name) == closed:
                return _switched_off(name)
    if named and _filtered():
        return Why(
            "a system call filter around Forge refuses new namespaces, as containers have",
            "Start the container with a profile that allows them, such as `--security-opt seccomp=unconfined`.",
        )
    cause = said.removeprefix("Walls could not be built: ").partition(". The command was not run.")[0]
    return Why(cause or "not everything held that full walls promise", "Run 'forge doctor' for the list.")


def _switched_off(name: str) -> Why:
    if name == "kernel.apparmor_restrict_unprivileged_userns":
        return Why(
            "AppArmor keeps programs without a profile from making user namespaces",
            f"Give bwrap a profile that allows `userns`, or run `sudo sysctl -w {name}=0`.",
        )
    value = "1" if name.endswith("clone") else "10000"
    return Why(f"user namespaces are switched off ({name})", f"Run `sudo sysctl -w {name}={value}`.")


def setting(name: str) -> str:
    """Of the kernel; empty where it has none of that name."""
    return _content("/proc/sys/" + name.replace(".", "/")).strip()


def surroundings() -> list[str]:
    """What a result depends on besides kernel and backend: another value may mean another level."""
    status = dict(line.partition(":")[::2] for line in _content("/proc/self/status").splitlines())
    own = [status.get(name, "").strip() for name in ("CapEff", "NoNewPrivs", "Seccomp", "Seccomp_filters")]
    return [*(setting(name) for name in SWITCHES), *own, _content("/proc/self/attr/current").strip("\0\n")]


def _is_root() -> bool:
    return os.geteuid() == 0


def _filtered() -> bool:
    status = dict(line.partition(":")[::2] for line in _content("/proc/self/status").splitlines())
    return status.get("Seccomp", "").strip() == "2"


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
