"""Export: a tool's files for others, as a folder, a reproducible `.tar.gz` or an Agent Skill; a collection's index.

Takes the files of one version and where they go; gives the path it wrote. Only the folder is passed on: no trust, no
history, no statistics. Whole or not at all. A folder that is an earlier version of the same tool, unchanged, is
replaced, as an archive is; any other is left as it is.

A skill is SKILL.md and the whole folder below `scripts/`, so importing it gives the tool back with an equal digest.
The front matter keeps to the published rules: name of lower-case letters, digits and single hyphens, at most 64;
description at most 1024; metadata of text.

`write_index` lists the tools below a folder in its `forge-tools.json`, which makes it a collection. Links are not
followed; a folder that is no usable tool is left out and reported. The same files always give the same index.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from golem_forge.core.regex import regex
from golem_forge.core.text import display_name
from golem_forge.storage.home import replacing
from golem_forge.usertools.diagnostics import SharingError, Unusable, quote_name
from golem_forge.usertools.folder import FolderFiles, ReadableBy, is_ignored, read_folder, write_folder
from golem_forge.usertools.manifest import (
    MANIFEST_FILE,
    ArgumentStyle,
    BooleanFlags,
    Parameter,
    ParameterType,
    ToolManifest,
)
from golem_forge.usertools.manifest.tool_yaml import yaml_name
from golem_forge.usertools.share.archive import make_tar_gz, safe_name
from golem_forge.usertools.share.importer import DIGEST_KEY, SCRIPTS_FOLDER, SKILL_FILE, read_package
from golem_forge.usertools.share.reader import (
    INDEX_FILE,
    MAX_ENTRIES,
    MAX_INDEX_BYTES,
    CollectionEntry,
    CollectionListing,
)

IsOwnVersion = Callable[[str], bool]
"""Whether a digest is one of this tool's versions."""


def _of_nobody(digest: str) -> bool:
    return False


def export_tool(files: FolderFiles, name: str, out: Path, is_own: IsOwnVersion = _of_nobody) -> Path:
    """`out` is a `.tar.gz`, or a folder that gets the folder `name`; an earlier export of the tool makes room."""
    lower = out.name.lower()
    if lower.endswith((".tar.gz", ".tgz")) and not out.is_dir():
        return _write_archive(make_tar_gz(files, name), out)
    if lower.endswith((".zip", ".tar")):
        raise SharingError("Export writes a folder or a .tar.gz; choose a name with that ending.")
    return _write_folder_to(files, name, out, lambda there: is_own(read_folder(there).digest))


def export_skill(manifest: ToolManifest, files: FolderFiles, out: Path, is_own: IsOwnVersion = _of_nobody) -> Path:
    """`out/<skill>/SKILL.md` and the tool's folder as `scripts/`."""

    def is_our_skill(there: Path) -> bool:
        ours = sorted(os.listdir(there)) == sorted((SKILL_FILE, SCRIPTS_FOLDER))
        return ours and is_own(read_folder(there / SCRIPTS_FOLDER).digest)

    return _write_folder_to(skill_files(manifest, files), skill_name(manifest.name), out, is_our_skill)


def write_index(folder: Path) -> CollectionListing:
    """Writes the index. Returns what was listed, and why other folders with a tool.yaml were not. Raises SharingError,
    OSError.
    """
    rows: dict[str, CollectionEntry] = {}
    problems: list[str] = []
    for path in _tool_folders(folder):
        try:
            row = _index_entry(folder, path)
            if row.name in rows:
                raise SharingError(f"has the name of {rows[row.name].path}: {quote_name(row.name)}")
            rows[row.name] = row
        except (SharingError, Unusable) as error:
            problems.append(f"{display_name(path)}: {error.message}")
    if not rows:
        why = f"; {problems[0]}" if problems else "; a tool is a folder with a tool.yaml"
        raise SharingError(f"There is no tool to list in {quote_name(folder.name)}{why}.")
    listed = [rows[name].to_json() for name in sorted(rows)]
    data = (json.dumps({"tools": listed}, indent=2, ensure_ascii=False) + "\n").encode()
    if len(data) > MAX_INDEX_BYTES or len(listed) > MAX_ENTRIES:
        raise SharingError(f"There are too many tools for one {INDEX_FILE}; make several collections of them.")
    _write_archive(data, folder / INDEX_FILE)
    return CollectionListing(rows=tuple(rows[name] for name in sorted(rows)), problems=tuple(problems))


_MOST_FOLDERS: Final = 50_000
_DEEPEST: Final = 8


def _tool_folders(top: Path) -> Iterator[str]:
    """Relative paths of the folders with a tool.yaml, in order. Below one of them there is no other."""
    if os.path.lexists(top / MANIFEST_FILE):
        raise SharingError(f"{quote_name(top.name)} is a tool itself; a collection is the folder that holds the tools.")
    for seen, (place, folders, files) in enumerate(os.walk(top)):
        if seen == _MOST_FOLDERS:
            raise SharingError(f"There are more than {_MOST_FOLDERS:,} folders in {quote_name(top.name)}.")
        below = os.path.relpath(place, top)
        if MANIFEST_FILE in files:
            yield below
        if MANIFEST_FILE in files or below.count("/") >= _DEEPEST:
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not is_ignored(name))


def _index_entry(top: Path, path: str) -> CollectionEntry:
    files = read_folder(top / path)
    manifest = read_package(files).manifest
    return CollectionEntry(
        name=manifest.name,
        description=manifest.description,
        version=manifest.version,
        path=safe_name(path),
        digest=files.digest,
    )


def _write_archive(data: bytes, out: Path) -> Path:
    if os.path.lexists(out) and not stat.S_ISREG(os.lstat(out).st_mode):
        raise SharingError(f"{quote_name(out.name)} exists and is not a regular file; choose another name.")
    _make_folder(out.parent)
    with replacing(out, durable=False, mode=0o666) as file:
        file.write(data)
    return out


def _write_folder_to(files: FolderFiles, name: str, out: Path, is_earlier_export: Callable[[Path], bool]) -> Path:
    target = _make_folder(out) / name
    there = os.path.lexists(target)
    if there:
        if _has_same_files(target, files):
            return target
        if not _is_folder_that(target, is_earlier_export):
            problem = "exists already and is no unchanged export of this tool; remove it or choose another folder."
            raise SharingError(f"{quote_name(name)} {problem}")
    parent = os.open(out, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    made, before = f".export-{os.urandom(8).hex()}", f".export-{os.urandom(8).hex()}"
    try:
        write_folder(parent, made, files.files, files.executable, ReadableBy.ANYBODY)
        if there:
            os.rename(name, before, src_dir_fd=parent, dst_dir_fd=parent)
        os.rename(made, name, src_dir_fd=parent, dst_dir_fd=parent)
    except OSError as error:
        raise SharingError(
            f"{quote_name(name)} could not be put in place ({error.strerror}); is there something of that name?"
        ) from None
    finally:
        for left in (made, before):
            shutil.rmtree(left, ignore_errors=True, dir_fd=parent)
        os.close(parent)
    return target


def _is_folder_that(folder: Path, holds: Callable[[Path], bool]) -> bool:
    try:
        return folder.is_dir() and not folder.is_symlink() and holds(folder)
    except (Unusable, OSError):
        return False


def _has_same_files(folder: Path, files: FolderFiles) -> bool:
    try:
        return folder.is_dir() and read_folder(folder).digest == files.digest
    except Unusable:
        return False


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SharingError(f"{quote_name(folder.name)} cannot be used as a folder ({error.strerror}).") from None
    return folder


_NOT_IN_YAML: Final = regex("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_INTERPRETERS: Final = {".py": "python3", ".sh": "sh", ".go": "go run"}
_ARGUMENT_HELP: Final = {
    ArgumentStyle.FLAGS: "Arguments are flags: `--name=value`, once per item of an array.",
    ArgumentStyle.STDIN_JSON: "Arguments are one JSON object on standard input.",
    ArgumentStyle.ENV: "Arguments are environment variables: `FORGE_ARG_<NAME>`, upper case, `-` as `_`.",
}


def skill_name(tool: str) -> str:
    return re.sub(r"-{2,}", "-", tool.lower().replace("_", "-")).strip("-")


def skill_files(manifest: ToolManifest, files: FolderFiles) -> FolderFiles:
    inside = {f"{SCRIPTS_FOLDER}/{name}": content for name, content in files.files.items()}
    marked = frozenset(f"{SCRIPTS_FOLDER}/{name}" for name in files.executable)
    return FolderFiles({SKILL_FILE: skill_text(manifest, files.digest).encode(), **inside}, marked)


def skill_text(manifest: ToolManifest, digest: str) -> str:
    matter = [
        "---",
        f"name: {yaml_name(skill_name(manifest.name))}",
        f"description: {_yaml_quoted(manifest.description)}",
        "metadata:",
        f"  forge-name: {_yaml_quoted(manifest.name)}",
        f"  forge-version: {_yaml_quoted(manifest.version)}",
        f"  {DIGEST_KEY}: {_yaml_quoted(digest)}",
        "---",
    ]
    parts = [f"# {manifest.label or manifest.name}", manifest.description, manifest.usage.strip()]
    if manifest.parameters:
        lines = "\n".join(_parameter_line(each) for each in manifest.parameters)
        parts += ["## Parameters", lines]
    parts += ["## Running", _running_section(manifest)]
    return "\n".join(matter) + "\n\n" + "\n\n".join(part for part in parts if part) + "\n"


def _parameter_line(parameter: Parameter) -> str:
    kind = parameter.type.value
    if parameter.type is ParameterType.ARRAY:
        kind = f"array of {parameter.items.value}"
    need = "required" if parameter.required else "optional"
    text = f"- `{parameter.name}` ({kind}, {need}): {' '.join(parameter.description.split())}"
    if (parameter.enum or parameter.has_default) and text[-1] not in ".!?:":
        text += "."
    if parameter.enum:
        text += f" One of: {', '.join(_json_code(value) for value in parameter.enum)}."
    if parameter.has_default:
        text += f" Default: {_json_code(parameter.default)}."
    return text


def _running_section(manifest: ToolManifest) -> str:
    ending = "." + manifest.entrypoint.rpartition(".")[2]
    start = f"{_INTERPRETERS.get(ending, '')} {SCRIPTS_FOLDER}/{manifest.entrypoint}".strip()
    return (
        "With Golem Forge: `forge tools import` of this folder, "
        f"then `forge call {manifest.name}`; it runs inside walls.\n"
        f"Without: `{start}`, with `FORGE_WORKSPACE` set to the folder to work in. {_ARGUMENT_HELP[manifest.arguments]}"
        + "".join(_boolean_help(manifest, each) for each in manifest.parameters)
    )


def _boolean_help(manifest: ToolManifest, parameter: Parameter) -> str:
    """Explains how to pass a flag that takes no value; a reader would otherwise try `--name=true`."""
    style = parameter.flag or manifest.boolean_flags
    if manifest.arguments is not ArgumentStyle.FLAGS or parameter.type is not ParameterType.BOOLEAN:
        return ""
    if style is BooleanFlags.EQUALS:
        return ""
    no = "nothing" if style is BooleanFlags.SWITCH else f"`--no-{parameter.name}`"
    return f" `--{parameter.name}` is true, {no} false."


def _json_code(value: object) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _yaml_quoted(text: str) -> str:
    """Double-quoted YAML. `---` is escaped: some readers of skills cut the front matter at the first one they see."""
    escaped = json.dumps(text, ensure_ascii=False).replace("---", "--\\x2d")
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match.group()):04x}", escaped)
