"""Entrypoints: which file of a folder is the program, what kind it is, and whether it could start at all.

Takes the manifest's entrypoint and the folder's files, executes nothing. Refuses (Unusable): `entrypoint_invalid` for
what is no file directly in the folder, `entrypoint_missing`, `not_executable` for a file that no interpreter is chosen
for and that the kernel would not start.
"""

from __future__ import annotations

from typing import Final

from golem_forge.core.visible import visible
from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.custom.entry import Kind
from golem_forge.custom.registry.folder import FolderFiles

_ELF: Final = b"\x7fELF"
_SCRIPT: Final = b"#!"
_BY_ENDING: Final = {".py": Kind.PYTHON, ".sh": Kind.SHELL, ".go": Kind.GO}


def entry_file(entrypoint: str, folder: FolderFiles) -> tuple[str, Kind]:
    """The file behind the entrypoint (for `X` without such a file: `X.go`) and how it is run."""
    if entrypoint in ("", ".", "..") or "/" in entrypoint or "\0" in entrypoint:
        raise _problem(Code.ENTRYPOINT_INVALID, entrypoint, "must be the name of a file directly in the tool's folder")
    if entrypoint in folder.folders or any(name.startswith(f"{entrypoint}/") for name in folder.files):
        raise _problem(Code.ENTRYPOINT_INVALID, entrypoint, "is a directory; name a file")
    if entrypoint not in folder.files:
        if (source := f"{entrypoint}.go") in folder.files:
            return source, Kind.GO
        raise _problem(Code.ENTRYPOINT_MISSING, entrypoint, "does not exist in the tool's folder")
    for ending, kind in _BY_ENDING.items():
        if entrypoint.endswith(ending):
            return entrypoint, kind
    if entrypoint not in folder.executable:
        raise _problem(Code.NOT_EXECUTABLE, entrypoint, "has no exec bit; set it with chmod u+x")
    if not folder.files[entrypoint].startswith((_ELF, _SCRIPT)):
        raise _problem(Code.NOT_EXECUTABLE, entrypoint, "is neither an ELF program nor a script that starts with '#!'")
    return entrypoint, Kind.EXECUTABLE


def _problem(code: Code, entrypoint: str, what: str) -> Unusable:
    return Unusable(code, f"tool.yaml: entrypoint: '{visible(entrypoint)}' {what}")
