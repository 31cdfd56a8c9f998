"""Exporting: a tool's files for others, as a folder, a reproducible `.tar.gz` or an Agent Skill.

Takes the files of one version and where they go; gives the path it wrote. Only the folder is passed on: no trust, no
history, no statistics. Whole or not at all; a folder that is there already is never changed, an archive is replaced.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from golem_forge.custom.diagnostic import Unusable
from golem_forge.custom.folder_writing import ForWhom, write_folder
from golem_forge.custom.manifest import Manifest
from golem_forge.custom.registry.folder import FolderFiles, read_folder
from golem_forge.custom.sharing.archive import tar_gz
from golem_forge.custom.sharing.refusal import SharingError, quoted
from golem_forge.custom.sharing.skill_export import skill_files, skill_name


def export_tool(files: FolderFiles, name: str, out: Path) -> Path:
    """`out` is a `.tar.gz`, or a folder that gets the folder `name`."""
    lower = out.name.lower()
    if lower.endswith((".tar.gz", ".tgz")) and not out.is_dir():
        return _archive(tar_gz(files, name), out)
    if lower.endswith((".zip", ".tar")):
        raise SharingError("Export writes a folder or a .tar.gz; choose a name that ends so.")
    return _folder(files, name, out)


def export_skill(manifest: Manifest, files: FolderFiles, out: Path) -> Path:
    """`out/<skill>/SKILL.md` and the tool's folder as `scripts/`."""
    return _folder(skill_files(manifest, files), skill_name(manifest.name), out)


def _archive(data: bytes, out: Path) -> Path:
    if os.path.lexists(out) and not stat.S_ISREG(os.lstat(out).st_mode):
        raise SharingError(f"{quoted(out.name)} is there and not a regular file; choose another name.")
    handle, temporary = tempfile.mkstemp(prefix=".export-", dir=_made(out.parent))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o666 & ~_umask())
        os.replace(temporary, out)
    except BaseException:
        os.unlink(temporary)
        raise
    return out


def _folder(files: FolderFiles, name: str, out: Path) -> Path:
    target = _made(out) / name
    if os.path.lexists(target):
        if _holds(target, files):
            return target
        raise SharingError(f"{quoted(name)} is there already and differs; remove it or choose another folder.")
    parent = os.open(out, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    made = f".export-{os.urandom(8).hex()}"
    try:
        write_folder(parent, made, files.files, files.executable, ForWhom.ANYBODY)
        os.rename(made, name, src_dir_fd=parent, dst_dir_fd=parent)
    except OSError as error:
        raise SharingError(
            f"{quoted(name)} could not be put in place ({error.strerror}); is there something of that name?"
        ) from None
    finally:
        shutil.rmtree(made, ignore_errors=True, dir_fd=parent)
        os.close(parent)
    return target


def _holds(folder: Path, files: FolderFiles) -> bool:
    try:
        return folder.is_dir() and read_folder(folder).digest == files.digest
    except Unusable:
        return False


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SharingError(f"{quoted(folder.name)} cannot be used as a folder ({error.strerror}).") from None
    return folder


def _umask() -> int:
    """Known only by setting it; this runs in a command that has no other thread at work."""
    present = os.umask(0o077)
    os.umask(present)
    return present
