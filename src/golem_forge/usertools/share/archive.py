"""Archives: `.tar.gz` and `.zip` as files in memory, and the one reproducible `.tar.gz` of a tool.

Takes a path; gives FolderFiles. Nothing is unpacked to disk. `Bundle` gathers files one by one and refuses (Unusable,
SharingError) more than 200 files or 50 MiB, absolute names, `..`, names that no file system shares with another,
duplicates, names that differ only in case, and a file that is also a folder. Archives with links, devices, sparse or
encrypted members, or anything after the end are refused; unpacking stops at the limit.

Threats: a name that leaves the folder, two names that become one on another machine, sizes that lie, an archive that
unpacks into more than a disk holds, a directory of a million entries, headers larger than the files.
"""

from __future__ import annotations

import io
import os
import stat
import unicodedata
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.core.text import display_name
from golem_forge.usertools.diagnostics import DiagnosticCode, SharingError, Unusable, quote_name
from golem_forge.usertools.folder import FOLDER_LIMITS, FolderFiles

if TYPE_CHECKING:
    import tarfile
    import zipfile

MAX_IMPORT_FILES: Final = FOLDER_LIMITS.files
MAX_IMPORT_BYTES: Final = FOLDER_LIMITS.total_bytes
_MAX_DEPTH: Final = FOLDER_LIMITS.depth + 1
"""An archive may have one folder around the tool's."""
_MAX_PART_BYTES: Final = 255


class Bundle:
    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._executable: set[str] = set()
        self._room = MAX_IMPORT_BYTES

    @property
    def room(self) -> int:
        """Bytes that may still be added; an unpacker reads at most one byte more."""
        return self._room

    def expect(self, size: int) -> None:
        """Refuses a file by the size it claims, before it is read."""
        if len(self._files) >= MAX_IMPORT_FILES:
            raise too_large(f"more than {MAX_IMPORT_FILES} files")
        if size > self._room:
            raise too_large(f"more than {MAX_IMPORT_BYTES >> 20} MiB")

    def add(self, name: str, content: bytes, *, executable: bool) -> None:
        self.expect(len(content))
        if name in self._files:
            raise SharingError(f"{quote_name(name)} appears twice; nothing was imported.")
        self._files[name] = content
        self._room -= len(content)
        if executable:
            self._executable.add(name)

    def files(self) -> FolderFiles:
        check_names(self._files)
        return FolderFiles(self._files, frozenset(self._executable))


def too_large(what: str) -> Unusable:
    return Unusable(
        DiagnosticCode.TOO_LARGE, f"{what}: a tool may have {MAX_IMPORT_FILES} files and {MAX_IMPORT_BYTES >> 20} MiB"
    )


def safe_name(name: str) -> str:
    """`name` as a path below the folder, without the `./` some archivers put first. Refuses what leads out."""
    while name.startswith("./"):
        name = name[2:]
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or (name[1:2] == ":" and name[:1].isalpha()):
        raise SharingError(f"{quote_name(name)} leads out of the tool's folder; nothing was imported.")
    if any(part in ("", ".") for part in parts) or "\\" in name or display_name(name) != name:
        raise SharingError(f"{quote_name(name)} is not a usable file name; nothing was imported.")
    if len(parts) > _MAX_DEPTH or any(len(part.encode()) > _MAX_PART_BYTES for part in parts):
        raise SharingError(f"{quote_name(name)} is too long or too deep; nothing was imported.")
    return name


def check_names(names: Iterable[str]) -> None:
    """Refuses names that cannot stand side by side on every file system."""
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in sorted(names):
        parts = safe_name(name).split("/")
        if other := seen.get(same := _fold_name(name)):
            raise SharingError(f"{quote_name(other)} and {quote_name(name)} differ only in case; rename one of them.")
        seen[same] = name
        for end in range(1, len(parts)):
            folder = "/".join(parts[:end])
            if folders.setdefault(_fold_name(folder), folder) != folder:
                raise SharingError(
                    f"The folder {quote_name(folder)} appears twice, in different case; rename one of them."
                )
    if both := seen.keys() & folders.keys():
        raise SharingError(f"{quote_name(seen[min(both)])} is both a file and a folder; nothing was imported.")


def _fold_name(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


ARCHIVE_SUFFIXES: Final = (".tar.gz", ".tgz", ".zip")
_MAX_ENTRIES: Final = 1000
"""Files and folders: an archive may list its folders too."""
_MAX_PACKED: Final = MAX_IMPORT_BYTES + (8 << 20)
_MAX_TAR: Final = MAX_IMPORT_BYTES + (4 << 20)
"""Maximum size of the files and their headers."""
_MAX_ZIP_DIRECTORY: Final = 1 << 20
_CHUNK: Final = 1 << 20


def read_archive(path: Path) -> FolderFiles:
    data = _read_packed(path)
    bundle = Bundle()
    if path.name.lower().endswith(".zip"):
        _unzip(data, bundle)
    else:
        _untar(_gunzip(data), bundle)
    return bundle.files()


def make_tar_gz(files: FolderFiles, folder: str) -> bytes:
    """Makes an archive with the same bytes for the same files: sorted, times and owners zero."""
    import gzip
    import tarfile

    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files.files):
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(files.files[name])
            member.mode = 0o755 if name in files.executable else 0o644
            tar.addfile(member, io.BytesIO(files.files[name]))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=0) as stream:
        stream.write(plain.getvalue())
    return packed.getvalue()


def _read_packed(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise SharingError(f"{quote_name(path.name)} is not a regular file.")
            data = file.read(_MAX_PACKED + 1)
    except OSError as error:
        raise SharingError(f"{quote_name(path.name)} cannot be read ({error.strerror}).") from None
    if len(data) > _MAX_PACKED:
        raise too_large(f"an archive over {_MAX_PACKED >> 20} MiB")
    return data


def _gunzip(data: bytes) -> bytes:
    import gzip

    found = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while chunk := stream.read(_CHUNK):
                found += chunk
                if len(found) > _MAX_TAR:
                    raise too_large(f"more than {MAX_IMPORT_BYTES >> 20} MiB")
    except (OSError, EOFError, zlib.error):
        raise _damaged() from None
    return bytes(found)


def _untar(data: bytes, bundle: Bundle) -> None:
    import tarfile

    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for count, member in enumerate(tar):
                if count >= _MAX_ENTRIES:
                    raise too_large(f"more than {_MAX_ENTRIES} entries")
                _take_tar_member(tar, member, bundle)
            rest = data[tar.offset :]
    except (tarfile.TarError, OSError, ValueError, OverflowError, IndexError, KeyError, RecursionError):
        raise _damaged() from None
    if rest.strip(b"\0"):  # tarfile takes a damaged header for the end: what follows would be lost in silence
        raise _damaged()


def _take_tar_member(tar: tarfile.TarFile, member: tarfile.TarInfo, bundle: Bundle) -> None:
    if member.size < 0:  # a header may say so, and the reader would go back and forth for ever
        raise _damaged()
    if member.isdir():
        if member.name not in ("", "."):
            safe_name(member.name)
        return
    if member.issym() or member.islnk():
        raise link_refused(member.name)
    if not member.isreg() or member.issparse():
        raise _special_refused(member.name)
    name = safe_name(member.name)
    bundle.expect(member.size)
    stream = tar.extractfile(member)
    content = b"" if stream is None else stream.read(bundle.room + 1)
    bundle.add(name, content, executable=bool(member.mode & stat.S_IXUSR))


class _BoundedBytes(io.BytesIO):
    """zipfile reads a central directory in one go, as large as the archive says it is."""

    def read(self, size: int | None = -1, /) -> bytes:
        rest = self.getbuffer().nbytes - self.tell()
        if (rest if size is None or size < 0 else min(size, rest)) > _MAX_ZIP_DIRECTORY:
            raise too_large("an archive with too many entries")
        return super().read(size)


def _unzip(data: bytes, bundle: Bundle) -> None:
    import zipfile

    try:
        with zipfile.ZipFile(_BoundedBytes(data)) as archive:
            members = archive.infolist()
            if len(members) > _MAX_ENTRIES:
                raise too_large(f"more than {_MAX_ENTRIES} entries")
            for member in members:
                _take_zip_member(archive, member, bundle)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, OverflowError, NotImplementedError):
        raise _damaged() from None


def _take_zip_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, bundle: Bundle) -> None:
    import zipfile

    if member.orig_filename != member.filename:
        raise SharingError(f"{quote_name(member.orig_filename)} is not a usable file name; nothing was imported.")
    mode = member.external_attr >> 16 if member.create_system == 3 else 0
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        raise link_refused(member.filename)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise _special_refused(member.filename)
    if member.is_dir():
        safe_name(member.filename.rstrip("/"))
        return
    if member.flag_bits & 0x1:
        raise SharingError("The archive is encrypted; unpack it and import the folder.")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise SharingError("The archive uses a compression other than deflate; unpack it and import the folder.")
    name = safe_name(member.filename)
    bundle.expect(member.file_size)
    content = bytearray()
    with archive.open(member) as stream:
        while chunk := stream.read(_CHUNK // 2):
            content += chunk
    bundle.add(name, bytes(content), executable=bool(mode & stat.S_IXUSR))


def _special_refused(name: str) -> Unusable:
    problem = f"{quote_name(name)} is a device or another special file; not imported"
    return Unusable(DiagnosticCode.SYMLINK, problem)


def link_refused(name: str) -> Unusable:
    return Unusable(DiagnosticCode.SYMLINK, f"{quote_name(name)} is a link; an import may not contain links")


def _damaged() -> SharingError:
    return SharingError("The archive is damaged or not what its name says; nothing was imported.")
