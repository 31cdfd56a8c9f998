"""How a folder becomes a Go module: its own go.mod, or one of ours that only the compiler sees.

Takes the folder's files; gives a Module: the files to put beside the build and the flags that point there. The snapshot
itself stays as it is: what Go wants to write (go.mod, go.sum) it writes to copies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from golem_forge.custom.building.steps import ROOM
from golem_forge.custom.entry import BUILD_DIR, TOOL_DIR

if TYPE_CHECKING:
    from golem_forge.custom.building.toolchains import Go
    from golem_forge.custom.registry.folder import FolderFiles

MODULE: Final = ".module"
"""The directory of these files, in the building room and beside the binary, whose name begins with a letter."""
GO_CACHE: Final = "/forge/gocache"
BUILD_FLAGS: Final = ("-trimpath", "-buildvcs=false")
"""Without the second one `git` would run on whatever repository the folder pretends to be."""
FIXED: Final = {
    "CGO_ENABLED": "0",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
    "GOENV": "off",
    "GOVCS": "*:off",
    "GOFLAGS": "",
    "GO111MODULE": "on",
    "GOTELEMETRY": "off",
}
OFFLINE: Final = {"GOPROXY": "off", "GOSUMDB": "off"}
_COMMENT: Final = re.compile(r"//[^\n]*")
_REQUIRES: Final = re.compile(r"^\s*require\s*(?:\(\s*[^)\s]|[^\s(])", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    files: dict[str, bytes] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    fetches: bool = False
    """It requires other modules and does not carry them along."""


def module_of(files: FolderFiles, go: Go, place: str = f"{ROOM}/{MODULE}") -> Module:
    """`place`: where `Module.files` will stand."""
    own = files.files.get("go.mod")
    if own is None:
        text = "module forge.local/tool\n" + (f"\ngo {go.language}\n" if go.language else "")
        overlay = {"Replace": {f"{TOOL_DIR}/go.mod": f"{place}/go.mod"}}
        return Module(
            files={"go.mod": text.encode(), "overlay.json": json.dumps(overlay).encode()},
            flags=("-mod=readonly", f"-overlay={place}/overlay.json"),
        )
    if any(name.startswith("vendor/") for name in files.files):
        return Module(flags=("-mod=vendor",))
    fetches = requires_modules(own)
    copies = {name: files.files[name] for name in ("go.mod", "go.sum") if name in files.files}
    return Module(
        files=copies, flags=(f"-mod={'mod' if fetches else 'readonly'}", f"-modfile={place}/go.mod"), fetches=fetches
    )


def requires_modules(go_mod: bytes) -> bool:
    return _REQUIRES.search(_COMMENT.sub("", go_mod.decode("utf-8", "replace"))) is not None


def debug_module(files: FolderFiles, go: Go) -> Module:
    """The same module as it will stand beside a finished binary, where nothing can be written any more."""
    found = module_of(files, go, f"{BUILD_DIR}/{MODULE}")
    return replace(found, flags=tuple("-mod=readonly" if flag == "-mod=mod" else flag for flag in found.flags))


def debug_command(go: Go, binary: str, flags: Sequence[str], *, cached: bool) -> tuple[str, ...]:
    """Builds from source and runs that: `go run` would take the tool's folder for the working directory."""
    from shlex import join, quote

    variables = {**FIXED, **OFFLINE, "GOROOT": go.inner, "GOMODCACHE": f"{BUILD_DIR}/{MODULE}/mod"}
    said = " ".join(f"{name}={quote(value)}" for name, value in variables.items())
    linked = f'cp -rs {GO_CACHE}/. "$made/cache" && ' if cached else ""
    build = join((f"{go.inner}/bin/go", "build", *BUILD_FLAGS, *flags))
    script = (
        f'back=$PWD; made=$TMPDIR/forge-debug; mkdir -p "$made/cache" && {linked}cd {TOOL_DIR} && '
        f'{said} GOCACHE="$made/cache" GOPATH="$made/path" {build} -o "$made/{binary}" . && '
        f'cd "$back" && exec "$made/{binary}" "$@"'
    )
    return ("/bin/sh", "-c", script, binary)
