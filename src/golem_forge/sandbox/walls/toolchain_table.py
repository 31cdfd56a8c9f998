"""The table of version managers: where each keeps what it installed, and which variables lead its programs there.

Data only; `toolchains.py` holds it against the machine. A root is found by a variable, at a usual place, or from a PATH
entry that lies inside it (with a file as proof). All of it is shown read-only, so what a manager would write (caches,
locks, shims) is not written; each of them runs what is installed without that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    name: str
    variables: tuple[str, ...] = ()
    """Name the root, in this order."""
    places: tuple[str, ...] = ()
    """Usual roots. `~` is the person's home, `@` their data directory (XDG), `$NAME` another variable's first entry."""
    inside: re.Pattern[str] | None = None
    """A PATH directory of this form belongs to the root in its first group …"""
    proof: str = ""
    """… if this exists below that root."""
    show: tuple[str, ...] = ("",)
    """What of the root is shown; empty text: all of it."""
    sets: tuple[tuple[str, str, str], ...] = ()
    """(variable, directory below the root, what must exist below the root for it to be set)."""
    credentials: tuple[str, ...] = ()
    """Files below the root that hold credentials: masked."""
    links: str = ""
    """A directory of installed versions in which people link versions that live elsewhere: those are shown too."""


def _in(tail: str) -> re.Pattern[str]:
    return re.compile(rf"(/.+?)/{tail}")


MANAGERS: Final = (
    Manager(
        name="pyenv",
        variables=("PYENV_ROOT",),
        places=("~/.pyenv",),
        inside=_in(r"(?:plugins/[^/]+/)?(?:shims|bin)"),
        proof="libexec/pyenv",
        sets=(("PYENV_ROOT", "", ""),),
        links="versions",
    ),
    Manager(
        name="rustup",
        variables=("RUSTUP_HOME",),
        places=("~/.rustup",),
        inside=_in(r"toolchains/[^/]+/bin"),
        proof="settings.toml",
        sets=(("RUSTUP_HOME", "", ""),),
        links="toolchains",
    ),
    # With its home read-only, cargo builds offline from the crates fetched before. Without any, its home is better
    # left to the private HOME, where it can at least be written.
    Manager(
        name="cargo",
        variables=("CARGO_HOME",),
        places=("~/.cargo",),
        inside=_in("bin"),
        proof="bin/rustup",
        sets=(("CARGO_HOME", "", "registry"),),
        credentials=("credentials", "credentials.toml"),
    ),
    Manager(
        name="nvm",
        variables=("NVM_DIR",),
        places=("~/.nvm", "~/.config/nvm"),
        inside=_in(r"versions/(?:node|io\.js)/[^/]+/bin"),
        proof="nvm.sh",
        sets=(("NVM_DIR", "", ""),),
    ),
    Manager(
        name="fnm",
        variables=("FNM_DIR",),
        places=("@/fnm", "~/.fnm"),
        inside=_in(r"node-versions/[^/]+/installation/bin"),
        proof="node-versions",
        sets=(("FNM_DIR", "", ""),),
    ),
    Manager(
        name="volta",
        variables=("VOLTA_HOME",),
        places=("~/.volta",),
        inside=_in("bin"),
        proof="bin/volta-shim",
        sets=(("VOLTA_HOME", "", ""),),
    ),
    Manager(
        name="asdf",
        variables=("ASDF_DATA_DIR",),
        places=("$ASDF_DIR", "~/.asdf"),
        inside=_in("shims"),
        proof="installs",
        sets=(("ASDF_DATA_DIR", "", ""),),
    ),
    Manager(name="asdf itself", variables=("ASDF_DIR",), places=("~/.asdf",), sets=(("ASDF_DIR", "", "asdf.sh"),)),
    Manager(
        name="mise",
        variables=("MISE_DATA_DIR",),
        places=("@/mise",),
        inside=_in(r"(?:shims|installs/[^/]+/[^/]+(?:/[^/]+)*?)"),
        proof="installs",
        sets=(("MISE_DATA_DIR", "", ""),),
    ),
    Manager(
        name="uv",
        variables=("UV_PYTHON_INSTALL_DIR",),
        places=("@/uv/python",),
        sets=(("UV_PYTHON_INSTALL_DIR", "", ""),),
        links=".",
    ),
    # What `uv tool` and pipx put on PATH are links into these.
    Manager(name="uv tools", variables=("UV_TOOL_DIR",), places=("@/uv/tools",)),
    Manager(name="pipx", variables=("PIPX_HOME",), places=("@/pipx", "~/.local/pipx"), show=("venvs", "shared", "py")),
    Manager(
        name="conda",
        variables=("MAMBA_ROOT_PREFIX", "CONDA_ROOT"),
        places=(
            *("~/miniconda3", "~/anaconda3", "~/miniforge3", "~/mambaforge", "~/micromamba"),
            *("/opt/conda", "/opt/miniconda3", "/opt/anaconda3", "/opt/miniforge3"),
        ),
        inside=_in(r"(?:envs/[^/]+/)?(?:bin|condabin)"),
        proof="conda-meta",
        credentials=(".condarc", "condarc", "pip.conf"),
    ),
    Manager(name="conda environment", variables=("CONDA_PREFIX",), credentials=(".condarc", "pip.conf")),
    Manager(name="go", variables=("GOROOT",), inside=_in("bin"), proof="pkg/tool"),
    # Modules fetched before are enough to build offline; go writes nothing there for them.
    Manager(
        name="go modules",
        variables=("GOMODCACHE",),
        places=("$GOPATH/pkg/mod", "~/go/pkg/mod"),
        sets=(("GOMODCACHE", "", ""),),
    ),
    Manager(
        name="sdkman",
        variables=("SDKMAN_DIR",),
        places=("~/.sdkman",),
        inside=_in(r"candidates/[^/]+/[^/]+/bin"),
        proof="candidates",
        sets=(("SDKMAN_DIR", "", ""),),
    ),
    # Not `etc` and `var`, where its services keep settings and data.
    Manager(
        name="brew",
        variables=("HOMEBREW_PREFIX",),
        places=("/home/linuxbrew/.linuxbrew", "~/.linuxbrew"),
        inside=_in("s?bin"),
        proof="Cellar",
        show=("bin", "sbin", "Cellar", "opt", "lib", "libexec", "include", "share", "etc/ca-certificates"),
        sets=(("HOMEBREW_PREFIX", "", ""),),
    ),
)

CARRIED: Final = ("GOROOT", "CONDA_PREFIX", "JAVA_HOME")
"""Handed on as the person has them, if they lead to something that children can see."""
SELECTED: Final = ("PYENV_VERSION", "RUSTUP_TOOLCHAIN")
"""Name an installed version, not a place: handed on with the manager whose word they are."""
