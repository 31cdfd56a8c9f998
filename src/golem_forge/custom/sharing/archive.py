"""Archives: `.tar.gz` and `.zip` as files in memory, and the one reproducible `.tar.gz` of a tool.

Takes a path; gives FolderFiles. Nothing is unpacked to disk.
Refuses links, devices, sparse and encrypted members, anything after the end, and more than a tool may be; it stops
while unpacking, so a bomb costs no more than the limit. Threats: names (see `bundle`), sizes that lie, a directory of a
million entries, headers that are larger than the files.
"""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.custom.registry.folder import FolderFiles
from golem_forge.custom.sharing.bundle import MAX_BYTES, Bundle, plain_name, too_large
from golem_forge.custom.sharing.refusal import SharingError, quoted

if TYPE_CHECKING:
    import tarfile
    import zipfile

SUFFIXES: Final = (".tar.gz", ".tgz", ".zip")
_MAX_ENTRIES: Final = 1000
"""Files and folders: an archive may list its folders too."""
_MAX_PACKED: Final = MAX_BYTES + (8 << 20)
_MAX_TAR: Final = MAX_BYTES + (4 << 20)
"""Files and their headers."""
_MAX_ZIP_DIRECTORY: Final = 1 << 20
_CHUNK: Final = 1 << 20


def read_archive(path: Path) -> FolderFiles:
    data = _packed(path)
    bundle = Bundle()
    if path.name.lower().endswith(".zip"):
        _unzip(data, bundle)
    else:
        _untar(_unpacked(data), bundle)
    return bundle.whole()


def tar_gz(files: FolderFiles, folder: str) -> bytes:
    """The same bytes for the same files, whoever makes them and when: sorted, times and owners zero."""
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


def _packed(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise SharingError(f"{quoted(path.name)} is not a regular file.")
            data = file.read(_MAX_PACKED + 1)
    except OSError as error:
        raise SharingError(f"{quoted(path.name)} cannot be read ({error.strerror}).") from None
    if len(data) > _MAX_PACKED:
        raise too_large(f"an archive over {_MAX_PACKED >> 20} MiB")
    return data


def _unpacked(data: bytes) -> bytes:
    import gzip
    import zlib

    found = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while chunk := stream.read(_CHUNK):
                found += chunk
                if len(found) > _MAX_TAR:
                    raise too_large(f"more than {MAX_BYTES >> 20} MiB")
    except (OSError, EOFError, zlib.error):
        raise _broken() from None
    return bytes(found)


def _untar(data: bytes, bundle: Bundle) -> None:
    import tarfile

    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for count, member in enumerate(tar):
                if count >= _MAX_ENTRIES:
                    raise too_large(f"more than {_MAX_ENTRIES} entries")
                _take_member(tar, member, bundle)
            rest = data[tar.offset :]
    except (tarfile.TarError, OSError, ValueError, OverflowError, IndexError, KeyError, RecursionError):
        raise _broken() from None
    if rest.strip(b"\0"):  # tarfile takes a damaged header for the end: what follows would be lost in silence
        raise _broken()


def _take_member(tar: tarfile.TarFile, member: tarfile.TarInfo, bundle: Bundle) -> None:
    if member.size < 0:  # a header may say so, and the reader would go back and forth for ever
        raise _broken()
    if member.isdir():
        if member.name not in ("", "."):
            plain_name(member.name)
        return
    if member.issym() or member.islnk():
        raise _link(member.name)
    if not member.isreg() or member.issparse():
        raise Unusable(Code.SYMLINK, f"{quoted(member.name)} is a device or another special file; not taken over")
    name = plain_name(member.name)
    bundle.expect(member.size)
    stream = tar.extractfile(member)
    content = b"" if stream is None else stream.read(bundle.room + 1)
    bundle.add(name, content, executable=bool(member.mode & stat.S_IXUSR))


class _Wary(io.BytesIO):
    """zipfile reads a central directory in one go, as large as the archive says it is."""

    def read(self, size: int | None = -1, /) -> bytes:
        rest = self.getbuffer().nbytes - self.tell()
        if (rest if size is None or size < 0 else min(size, rest)) > _MAX_ZIP_DIRECTORY:
            raise too_large("an archive with too many entries")
        return super().read(size)


def _unzip(data: bytes, bundle: Bundle) -> None:
    import zipfile
    import zlib

    try:
        with zipfile.ZipFile(_Wary(data)) as archive:
            members = archive.infolist()
            if len(members) > _MAX_ENTRIES:
                raise too_large(f"more than {_MAX_ENTRIES} entries")
            for member in members:
                _take_zipped(archive, member, bundle)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, OverflowError, NotImplementedError):
        raise _broken() from None


def _take_zipped(archive: zipfile.ZipFile, member: zipfile.ZipInfo, bundle: Bundle) -> None:
    import zipfile

    if member.orig_filename != member.filename:
        raise SharingError(f"{quoted(member.orig_filename)} is no usable file name; nothing was taken over.")
    mode = member.external_attr >> 16 if member.create_system == 3 else 0
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        raise _link(member.filename)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise Unusable(Code.SYMLINK, f"{quoted(member.filename)} is a device or another special file; not taken over")
    if member.is_dir():
        plain_name(member.filename.rstrip("/"))
        return
    if member.flag_bits & 0x1:
        raise SharingError("The archive is encrypted; unpack it and import the folder.")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise SharingError("The archive uses a compression other than deflate; unpack it and import the folder.")
    name = plain_name(member.filename)
    bundle.expect(member.file_size)
    content = bytearray()
    with archive.open(member) as stream:
        while chunk := stream.read(_CHUNK // 2):
            content += chunk
    bundle.add(name, bytes(content), executable=bool(mode & stat.S_IXUSR))


def _link(name: str) -> Unusable:
    return Unusable(Code.SYMLINK, f"{quoted(name)} is a link; an import may not contain links")


def _broken() -> SharingError:
    return SharingError("The archive is damaged or not what its name says; nothing was taken over.")
