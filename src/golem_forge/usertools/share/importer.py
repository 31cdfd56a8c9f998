"""Import and update: a tool from elsewhere becomes a draft in `tools/<name>` that nobody trusts.

`import_tool` takes a source as a person writes it. Everything is read and checked before anything is put in place, and
any failure leaves nothing: no folder, no record. No file of an import is executed. `check` is the caller's decision on
the finished package (duplicates, a person's no); raising refuses.

`read_package` says what the files of a source are: a tool, or an Agent Skill to make a draft of. `allowed-tools` in a
SKILL.md grants nothing: a draft declares no network, no zones to write and no calls. Threat: a stranger's words become
a tool's description, so hidden characters are escaped.

`prepare_update` fetches and checks a newer version and gives old and new files for a diff; `apply_update` swaps the
folders in one step. The new digest is a draft that asks again; the old files are passed to history first. Refuses if
the folder is no longer the one that was shown.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from golem_forge.config.yaml_file import parse_yaml
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars, escape_control_chars_in_prose, shorten_prose
from golem_forge.events.serialization import iso_now
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools import folder as staging
from golem_forge.usertools import share
from golem_forge.usertools.diagnostics import (
    DiagnosticCode,
    SharingError,
    Unusable,
    is_reserved,
    name_problem,
    quote_name,
)
from golem_forge.usertools.folder import FolderFiles, find_entrypoint, read_folder
from golem_forge.usertools.manifest import MANIFEST_FILE, ToolManifest
from golem_forge.usertools.manifest.tool_yaml import manifest_name, manifest_text, read_manifest, rename_manifest
from golem_forge.usertools.share import reader
from golem_forge.usertools.share.archive import MAX_IMPORT_BYTES
from golem_forge.usertools.share.reader import SourceReader, files_below, newest_commit, open_source, strip_top_folder

ImportCheck = Callable[[str, ToolManifest, FolderFiles], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTool(share.LockRecord):
    warnings: tuple[str, ...] = ()


def import_tool(
    source: str,
    *,
    home: ForgeHome,
    rename: str = "",
    entrypoint: str = "",
    pick: str = "",
    check: ImportCheck = lambda name, manifest, files: None,
    access: share.GitAccess = share.DEFAULT_GIT_ACCESS,
    now: Callable[[], str] = iso_now,
) -> ImportedTool:
    """`pick`: the name of one tool of a collection. `rename`: the name it gets here."""
    place = share.parse_source(source, transports=access.transports)
    with open_source(place, home, access) as origin:
        if pick:
            place, offer = _read_picked(origin, place, pick, rename)
        else:
            if origin.file(_join_source(place, MANIFEST_FILE), MAX_IMPORT_BYTES) is None:
                _refuse_collection(origin, place)
            offer = read_package(origin.files(place.below), rename=rename, entrypoint=entrypoint)
    share.read_lock(home)  # one that cannot be read is found out before anything is put in place
    staging.check_name_free(home, offer.name)
    with staging.stage_tool(home, offer.name, offer.files) as folder:
        check(offer.name, offer.manifest, offer.files)
        staging.install(home, offer.name, folder)
        imported = imported_tool(offer, place, now())
        try:
            share.add_record(home, imported)
        except BaseException:
            os.rename(home.path / staging.TOOLS_FOLDER / offer.name, folder)
            raise
    return imported


def imported_tool(offer: ToolPackage, place: share.Source, time: str) -> ImportedTool:
    return ImportedTool(
        name=offer.name,
        digest=offer.files.digest,
        source=place.text,
        commit=place.commit,
        version=offer.manifest.version,
        time=time,
        warnings=offer.warnings,
    )


def _refuse_collection(origin: SourceReader, place: share.Source) -> None:
    """A collection may be far larger than a tool; say what it is instead of how large."""
    if origin.file(_join_source(place, reader.INDEX_FILE), MAX_IMPORT_BYTES) is not None:
        names = [row.name for row in reader.read_index(origin, place.below).rows]
        some = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        raise SharingError(f"It is a collection; name the tool to import after it: {some}")


def _read_picked(origin: SourceReader, place: share.Source, pick: str, rename: str) -> tuple[share.Source, ToolPackage]:
    if isinstance(place, share.LocalSource) and not place.path.is_dir():
        raise SharingError("A collection is a git repository or a folder; unpack the archive first.")
    row = reader.find_entry(reader.read_index(origin, place.below), pick)
    place = replace(place, below=_join_source(place, row.path))
    files = origin.files(place.below)
    shown = quote_name(pick)
    if row.digest and row.digest not in (files.digest, files.without_ignored().digest):
        raise SharingError(f"The files of {shown} are not those that the collection lists (digest); not imported.")
    found = read_package(files)
    if found.name != pick:
        raise SharingError(f"The collection calls it {shown}, its tool.yaml {quote_name(found.name)}; not imported.")
    return place, read_package(files, rename=rename) if rename else found


def _join_source(place: share.Source, name: str) -> str:
    return f"{place.below}/{name}" if place.below else name


OnReplaced = Callable[[str, FolderFiles], None]
"""(name, files) of the version that is about to be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUpdate:
    imported: ImportedTool
    """The tool after the update."""
    old: FolderFiles
    new: FolderFiles


def prepare_update(
    name: str,
    *,
    home: ForgeHome,
    commit: str = "",
    access: share.GitAccess = share.DEFAULT_GIT_ACCESS,
) -> ToolUpdate:
    """`commit` empty: where the default branch of its repository stands, or what lies in its folder or archive now."""
    record = share.read_lock(home).get(name)
    if record is None:
        raise SharingError(f"tool {quote_name(name)} was not imported; there is nothing to update it from.")
    old = read_folder(home.path / staging.TOOLS_FOLDER / record.name)
    place = _update_source(record, home, commit, access)
    with open_source(place, home, access) as origin:
        files = origin.files(place.below)
    offer = read_package(files, rename=name, entrypoint=_skill_entrypoint(files, old, name))
    return ToolUpdate(imported=imported_tool(offer, place, iso_now()), old=old, new=offer.files)


def apply_update(update: ToolUpdate, *, home: ForgeHome, seen: OnReplaced) -> ImportedTool:
    name = update.imported.name
    seen(name, update.old)
    with staging.stage_tool(home, name, update.new) as folder:
        staging.exchange(home, name, folder)
        try:
            if share.folder_digest(folder) != update.old.digest:  # `folder` is now what was there before
                raise SharingError(f"tool '{name}' changed during the update, so Forge did not update it; try again.")
            share.add_record(home, replace(update.imported, time=iso_now()))
        except BaseException:
            staging.exchange(home, name, folder)
            raise
    return update.imported


def _update_source(record: share.LockRecord, home: ForgeHome, commit: str, access: share.GitAccess) -> share.Source:
    if not record.commit:
        if commit:
            raise SharingError(f"tool '{record.name}' was not imported from git; it has no commits.")
        return share.LocalSource(path=Path(record.source))
    place = share.parse_source(record.source, transports=access.transports)
    if not isinstance(place, share.GitSource):
        raise SharingError(f"The record of '{record.name}' in tools.lock is not usable; import it again.")
    if commit:
        return replace(place, commit=share.check_commit(commit.removeprefix("@")))
    return replace(place, commit=newest_commit(place.url, home, access))


def _skill_entrypoint(new: FolderFiles, old: FolderFiles, name: str) -> str:
    """Returns the entrypoint that was chosen at the import of a skill without a manifest."""
    if MANIFEST_FILE in new.files or f"scripts/{MANIFEST_FILE}" in new.files or MANIFEST_FILE not in old.files:
        return ""
    try:
        return read_manifest(old.files[MANIFEST_FILE], folder=name).entrypoint
    except Unusable:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPackage:
    manifest: ToolManifest
    files: FolderFiles
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.manifest.name


def read_package(files: FolderFiles, *, rename: str = "", entrypoint: str = "") -> ToolPackage:
    files = strip_top_folder(files.without_ignored())
    if MANIFEST_FILE in files.files:
        return _tool_package(files, rename, entrypoint, ())
    if SKILL_FILE in files.files:
        return _skill_package(files, rename, entrypoint)
    raise SharingError(f"There is no {MANIFEST_FILE} and no {SKILL_FILE} in it; name the folder that has one.")


def _tool_package(files: FolderFiles, rename: str, entrypoint: str, warnings: tuple[str, ...]) -> ToolPackage:
    if entrypoint:
        raise SharingError(f"--entrypoint is for a skill without a {MANIFEST_FILE}; this tool names its own.")
    data = files.files[MANIFEST_FILE]
    name = rename or manifest_name(data)
    if name:
        _check_name(name)
    if name != manifest_name(data):
        data = rename_manifest(data, name)
        files = FolderFiles(dict(files.files) | {MANIFEST_FILE: data}, files.executable)
    manifest = read_manifest(data, folder=name)
    warnings += _check_entrypoint(manifest.entrypoint, files)
    return ToolPackage(manifest=manifest, files=files, warnings=warnings)


def _skill_package(files: FolderFiles, rename: str, entrypoint: str) -> ToolPackage:
    skill = read_skill(files.files[SKILL_FILE])
    scripts = files_below(files, SCRIPTS_FOLDER)
    if MANIFEST_FILE in scripts.files:
        return _tool_package(scripts, rename, entrypoint, skill.differs_from(scripts.digest))
    draft = skill.draft(scripts, name=rename, entrypoint=entrypoint)
    left = sorted(name for name in files.files if name != SKILL_FILE and not name.startswith(f"{SCRIPTS_FOLDER}/"))
    warnings = skill.warnings
    if left:
        shown = ", ".join(map(quote_name, left[:5])) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
        warnings += (f"left out, because only files in {SCRIPTS_FOLDER}/ belong to the tool: {shown}",)
    return _tool_package(draft, "", "", warnings)


def _check_name(name: str) -> None:
    advice = "import it under another name with --as NAME"
    if problem := name_problem(name):
        raise Unusable(DiagnosticCode.NAME_INVALID, f"{problem}; {advice}")
    if is_reserved(name):
        raise Unusable(DiagnosticCode.RESERVED_NAME, f"tool name '{name}' is reserved; {advice}")


def _check_entrypoint(entrypoint: str, files: FolderFiles) -> tuple[str, ...]:
    """A missing exec bit can be set once the tool is here (a zip may not carry it); a missing file cannot."""
    try:
        find_entrypoint(entrypoint, files)
    except Unusable as error:
        if error.diagnostic_code is not DiagnosticCode.NOT_EXECUTABLE:
            raise
        return (error.message,)
    return ()


SKILL_FILE: Final = "SKILL.md"
SCRIPTS_FOLDER: Final = "scripts"
DIGEST_KEY: Final = "forge-digest"
_MAX_SKILL_BYTES: Final = 1 << 20
_MAX_DESCRIPTION: Final = 1024
_MAX_USAGE_BYTES: Final = 8192
_FENCE: Final = regex(r"^---[ \t]*$", re.M)
_DEFAULT_VERSION: Final = "1.0.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    name: str
    description: str
    """One line of at most 1024 characters."""
    body: str
    """Text of at most 8 KiB."""
    version: str
    digest: str
    """The digest of the tool that it says it was exported from; empty if none."""
    warnings: tuple[str, ...]

    def differs_from(self, digest: str) -> tuple[str, ...]:
        if self.digest in ("", digest):
            return ()
        return (f"{SKILL_FILE} was written for other files than these ({DIGEST_KEY} does not match)",)

    def draft(self, scripts: FolderFiles, *, name: str, entrypoint: str) -> FolderFiles:
        """The files of the tool: everything in scripts/, and a manifest that asks for nothing."""
        manifest = ToolManifest(
            name=name or _tool_name(self.name),
            description=self.description,
            version=self.version,
            entrypoint=_choose_entrypoint(scripts, entrypoint),
            usage=self.body,
        )
        return FolderFiles(dict(scripts.files) | {MANIFEST_FILE: manifest_text(manifest).encode()}, scripts.executable)


def read_skill(data: bytes) -> Skill:
    if len(data) > _MAX_SKILL_BYTES:
        raise SharingError(f"{SKILL_FILE} is larger than {_MAX_SKILL_BYTES >> 20} MiB.")
    matter, body = split_front_matter(data)
    warnings: list[str] = []
    if "allowed-tools" in matter:
        warnings.append(f"allowed-tools in {SKILL_FILE} grants nothing; what the tool may reach is in {MANIFEST_FILE}")
    metadata = matter.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    line = escape_control_chars(" ".join(text_field(matter, "description").split()))
    description = shorten_prose(line, _MAX_DESCRIPTION).rstrip()
    prose = escape_control_chars_in_prose(body.strip())
    usage = prose.encode()[:_MAX_USAGE_BYTES].decode(errors="ignore")
    if description != line:
        warnings.append(f"the description was cut to {_MAX_DESCRIPTION} characters")
    if usage != prose:
        warnings.append(f"the usage was cut to {_MAX_USAGE_BYTES >> 10} KiB")
    return Skill(
        name=text_field(matter, "name"),
        description=description,
        body=usage,
        version=_skill_version(metadata.get("version")),
        digest=str(metadata.get(DIGEST_KEY, "")),
        warnings=tuple(warnings),
    )


def split_front_matter(data: bytes) -> tuple[dict[str, Any], str]:
    """Front matter and body of a SKILL.md. Raises SharingError."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise SharingError(f"{SKILL_FILE} is not UTF-8.") from None
    opening = _FENCE.match(text)
    closing = _FENCE.search(text, opening.end()) if opening else None
    if opening is None or closing is None:
        raise SharingError(f"{SKILL_FILE} has no front matter between two lines `---`.")
    try:
        # The line break keeps the line numbers of the file.
        matter = parse_yaml("\n" + text[opening.end() + 1 : closing.start()], SKILL_FILE).value
    except ConfigError as error:
        raise SharingError(escape_control_chars(str(error))) from None
    return matter, text[closing.end() :]


def text_field(matter: dict[str, Any], key: str) -> str:
    """Returns a text field. Raises SharingError if it is missing."""
    value = matter.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        raise SharingError(f"{SKILL_FILE}: {key}: is missing or not text.")
    return str(value).strip()


def _skill_version(given: object) -> str:
    text = str(given).strip() if isinstance(given, str | int | float) and not isinstance(given, bool) else ""
    return text if text and len(text) <= 64 and text.isascii() and text.isprintable() else _DEFAULT_VERSION


def _tool_name(skill: str) -> str:
    """The skill's name as a tool's: what a tool's name cannot hold becomes a hyphen."""
    letters = "".join(each for each in unicodedata.normalize("NFKD", skill) if not unicodedata.combining(each))
    hyphened = re.sub(r"-{2,}", "-", re.sub(r"[^A-Za-z0-9_-]", "-", letters))
    name = re.sub(r"_{2,}", "_", hyphened).strip("-_")[:64]
    if not re.search(r"[A-Za-z0-9]", name):
        problem = f"no tool can be named after {quote_name(skill)}; give a name with --as NAME."
        raise SharingError(f"{SKILL_FILE}: name: {problem}")
    return name if name[0].isalpha() else f"skill-{name}"[:64]


def _choose_entrypoint(scripts: FolderFiles, entrypoint: str) -> str:
    direct = sorted(name for name in scripts.files if "/" not in name)
    if entrypoint:
        wanted = entrypoint.removeprefix(f"{SCRIPTS_FOLDER}/")
        if wanted not in direct:
            missing = f"There is no file {quote_name(wanted)} in {SCRIPTS_FOLDER}/"
            raise SharingError(f"{missing}; there are: {_list_names(direct)}.")
        return wanted
    if not direct:
        raise SharingError(f"The skill has no file in {SCRIPTS_FOLDER}/ that a tool could run.")
    if len(direct) > 1:
        raise SharingError(f"The skill has several scripts; choose one with --entrypoint FILE: {_list_names(direct)}")
    return direct[0]


def _list_names(names: list[str]) -> str:
    return ", ".join(quote_name(name).strip("'") for name in names[:20]) + (", …" if len(names) > 20 else "")
