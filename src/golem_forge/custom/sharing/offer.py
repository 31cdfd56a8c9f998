"""Offer: what the files of a source are: a tool, or an Agent Skill to make a draft of.

Takes files and the person's wishes (another name, an entrypoint); gives an Offer whose files are exactly what will lie
in `tools/<name>`. Refuses (Unusable, SharingError) whatever would not be a tool there. Reads; runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.custom.manifest import MANIFEST, Manifest
from golem_forge.custom.manifest.reading import read_manifest
from golem_forge.custom.names import is_reserved, name_problem
from golem_forge.custom.registry.entrypoint import entry_file
from golem_forge.custom.registry.folder import FolderFiles
from golem_forge.custom.sharing.origins import below_of
from golem_forge.custom.sharing.refusal import SharingError, quoted
from golem_forge.custom.sharing.renaming import name_in, renamed
from golem_forge.custom.sharing.skill import SCRIPTS, SKILL, read_skill


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    manifest: Manifest
    files: FolderFiles
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.manifest.name


def offer_of(files: FolderFiles, *, rename: str = "", entrypoint: str = "") -> Offer:
    files = _rooted(files)
    if MANIFEST not in files.files and SKILL in files.files:
        return _skill(files, rename, entrypoint)
    if MANIFEST not in files.files:
        raise SharingError(f"There is no {MANIFEST} and no {SKILL} in it; name the folder that has one.")
    if entrypoint:
        raise SharingError(f"--entrypoint is for a skill without a {MANIFEST}; this tool names its own.")
    return _tool(files, rename, ())


def _tool(files: FolderFiles, rename: str, warnings: tuple[str, ...]) -> Offer:
    data = files.files[MANIFEST]
    name = rename or name_in(data)
    if name:
        _check_name(name)
    if name != name_in(data):
        data = renamed(data, name)
        files = FolderFiles(dict(files.files) | {MANIFEST: data}, files.executable)
    manifest = read_manifest(data, folder=name)
    return Offer(manifest=manifest, files=files, warnings=warnings + _entrypoint(manifest.entrypoint, files))


def _skill(files: FolderFiles, rename: str, entrypoint: str) -> Offer:
    skill = read_skill(files.files[SKILL])
    scripts = below_of(files, SCRIPTS)
    if MANIFEST in scripts.files:
        if entrypoint:
            raise SharingError(f"--entrypoint is for a skill without a {MANIFEST}; this tool names its own.")
        return _tool(scripts, rename, skill.differs_from(scripts.digest))
    draft = skill.draft(scripts, name=rename, entrypoint=entrypoint)
    left = sorted(name for name in files.files if name != SKILL and not name.startswith(f"{SCRIPTS}/"))
    warnings = skill.warnings + ((f"left out, a tool is what is in {SCRIPTS}/: {_some(left)}",) if left else ())
    return _tool(draft, "", warnings)


def _rooted(files: FolderFiles) -> FolderFiles:
    """A folder that holds nothing but one folder stands for that one."""
    tops = {name.partition("/")[0] for name in files.files}
    single = len(tops) == 1 and all("/" in name for name in files.files)
    return below_of(files, tops.pop()) if single else files


def _check_name(name: str) -> None:
    if problem := name_problem(name):
        raise Unusable(Code.NAME_INVALID, f"{problem}; import it under another name with --as NAME")
    if is_reserved(name):
        raise Unusable(
            Code.RESERVED_NAME, f"tool name '{name}' is reserved; import it under another name with --as NAME"
        )


def _entrypoint(entrypoint: str, files: FolderFiles) -> tuple[str, ...]:
    """A missing exec bit can be set once the tool is here (a zip may not carry it); a missing file cannot."""
    try:
        entry_file(entrypoint, files)
    except Unusable as error:
        if error.diagnosis is not Code.NOT_EXECUTABLE:
            raise
        return (error.message,)
    return ()


def _some(names: list[str]) -> str:
    shown = ", ".join(quoted(name) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
