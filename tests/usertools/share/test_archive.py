"""Hostile archives: nothing leaves the folder, nothing unpacks beyond the limit, and what is damaged is refused."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tables import table

from golem_forge.core.errors import ForgeError
from golem_forge.usertools.diagnostics import DiagnosticCode, SharingError, Unusable
from golem_forge.usertools.folder import FolderFiles
from golem_forge.usertools.share import archive as archive_module
from golem_forge.usertools.share.archive import make_tar_gz, read_archive


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def tar_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def zip_of(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


ESCAPES = [
    "../evil",
    "a/../../evil",
    "/etc/evil",
    "a//b",
    "a/./b",
    "a\\..\\b",
    "C:/evil",
    "a\x1b[2Jb",
    "a\u202eb",
    "x" * 256,
]


@table("name", ESCAPES)
def test_names_that_lead_elsewhere_or_hide_something_are_refused(tmp_path: Path, name: str) -> None:
    for path in (
        tar_of(tmp_path / "a.tar.gz", (member("ok"), b""), (member(name), b"x")),
        zip_of(tmp_path / "a.zip", ("ok", b""), (name, b"x")),
    ):
        with pytest.raises(SharingError) as refused:
            read_archive(path)
        assert "\x1b" not in refused.value.message and "\u202e" not in refused.value.message


@table("name", ["../evil/", "/evil/"])
def test_folders_are_held_to_the_same_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(SharingError):
        read_archive(tar_of(tmp_path / "a.tar.gz", (member(name, tarfile.DIRTYPE), b"")))
    with pytest.raises(SharingError):
        read_archive(zip_of(tmp_path / "a.zip", (name, b"")))


@table(
    ("kind", "link"),
    [
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.LNKTYPE, "ok"),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
        (tarfile.FIFOTYPE, ""),
    ],
)
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes, link: str) -> None:
    with pytest.raises(Unusable) as refused:
        read_archive(tar_of(tmp_path / "a.tar.gz", (member("ok"), b"x"), (member("special", kind, link), b"")))
    assert refused.value.diagnostic_code is DiagnosticCode.SYMLINK and "'special'" in refused.value.message


@table("mode", [0o120777, 0o020666, 0o010666])
def test_links_and_devices_in_a_zip_are_refused(tmp_path: Path, mode: int) -> None:
    info = zipfile.ZipInfo("special")
    info.create_system, info.external_attr = 3, mode << 16
    with pytest.raises(Unusable) as refused:
        read_archive(zip_of(tmp_path / "a.zip", (info, b"/etc/passwd")))
    assert refused.value.diagnostic_code is DiagnosticCode.SYMLINK


@pytest.mark.filterwarnings("ignore:Duplicate name")
@table("names", [("a", "a"), ("A", "a"), ("x/É", "x/e\u0301"), ("a", "a/b"), ("A/x", "a/y"), ("straße", "STRASSE")])
def test_names_that_are_one_elsewhere_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    with pytest.raises(SharingError):
        read_archive(tar_of(tmp_path / "a.tar.gz", *((member(name), name.encode()) for name in names)))
    with pytest.raises(SharingError):
        read_archive(zip_of(tmp_path / "a.zip", *((name, name.encode()) for name in names)))


def test_more_than_200_files_are_refused(tmp_path: Path) -> None:
    assert len(read_archive(tar_of(tmp_path / "a.tar.gz", *((member(f"f{n}"), b"") for n in range(200)))).files) == 200
    for path in (
        tar_of(tmp_path / "b.tar.gz", *((member(f"f{n}"), b"") for n in range(201))),
        zip_of(tmp_path / "b.zip", *((f"f{n}", b"") for n in range(201))),
        tar_of(tmp_path / "c.tar.gz", *((member(f"d{n}", tarfile.DIRTYPE), b"") for n in range(1001))),
    ):
        with pytest.raises(Unusable) as refused:
            read_archive(path)
        assert refused.value.diagnostic_code is DiagnosticCode.TOO_LARGE


def test_ten_thousand_entries_cost_nothing(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.zip", *((f"{'n' * 120}{n}", b"") for n in range(10_000)))
    with pytest.raises(Unusable, match="an archive with too many entries"):  # not: counted after they were all read
        read_archive(path)


def bomb_tar(path: Path) -> None:
    with gzip.open(path, "wb", compresslevel=1) as stream:
        info = member("zeros")
        info.size = 1 << 30
        stream.write(info.tobuf())
        for _ in range(13):
            stream.write(bytes(1 << 20))


def bomb_header(path: Path) -> None:
    """A name of 20 MiB, which a reader of archives would take into memory as a header."""
    with gzip.open(path, "wb", compresslevel=1) as stream:
        info = member("././@LongLink", tarfile.GNUTYPE_LONGNAME)
        info.size = 20 << 20
        stream.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(20):
            stream.write(b"a" * (1 << 20))


def bomb_zip(path: Path) -> None:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("zeros", "w") as stream,
    ):
        for _ in range(13):
            stream.write(bytes(1 << 20))


def lying_zip(path: Path) -> None:
    """Says ten bytes, holds 13 MiB."""
    bomb_zip(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<L", 13 << 20), struct.pack("<L", 10)))


@pytest.mark.parametrize("bomb", [bomb_tar, bomb_header, bomb_zip, lying_zip])
def test_a_bomb_stops_at_the_limit(
    tmp_path: Path, bomb: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a tenth of the limit."""
    monkeypatch.setattr(archive_module, "MAX_IMPORT_BYTES", 5 << 20)
    for limit in ("_MAX_TAR", "_MAX_PACKED"):
        monkeypatch.setattr(archive_module, limit, 5 << 20)
    path = tmp_path / ("a.zip" if "zip" in bomb.__name__ else "a.tar.gz")
    bomb(path)
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(ForgeError):
            read_archive(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_fifty_mebibytes_over_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert archive_module.MAX_IMPORT_BYTES == 50 << 20
    monkeypatch.setattr(archive_module, "MAX_IMPORT_BYTES", 2 << 20)
    block = bytes(1 << 20)
    path = zip_of(tmp_path / "a.zip", ("a", block), ("b", block))
    assert len(read_archive(path).files) == 2
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("c", b"1")
    with pytest.raises(Unusable) as refused:
        read_archive(path)
    assert refused.value.diagnostic_code is DiagnosticCode.TOO_LARGE


def test_damage_is_not_taken_for_the_end(tmp_path: Path) -> None:
    whole = gzip.decompress(tar_of(tmp_path / "a.tar.gz", (member("a"), b"1"), (member("b"), b"2")).read_bytes())
    broken = {
        "a header in the middle": whole[:1024] + b"\1" * 512 + whole[1536:],
        "something behind the end": whole + b"more",
        "cut in a file": whole[:1500],
    }
    for data in broken.values():
        (tmp_path / "b.tar.gz").write_bytes(gzip.compress(data))
        with pytest.raises(SharingError, match="damaged"):
            read_archive(tmp_path / "b.tar.gz")
    (tmp_path / "c.tar.gz").write_bytes(gzip.compress(whole)[:-6])
    (tmp_path / "d.tar.gz").write_bytes(b"PK\3\4 no gzip at all")
    (tmp_path / "e.zip").write_bytes(b"no zip at all")
    for name in ("c.tar.gz", "d.tar.gz", "e.zip"):
        with pytest.raises(SharingError, match="damaged"):
            read_archive(tmp_path / name)


def test_a_chain_of_headers_and_a_size_below_zero_end(tmp_path: Path) -> None:
    link = member("././@LongLink", tarfile.GNUTYPE_LONGNAME)
    link.size = 2
    chain = (link.tobuf(tarfile.GNU_FORMAT) + b"a\0".ljust(512, b"\0")) * 5000
    backwards = member("a")
    backwards.pax_headers = {"size": "-1024"}
    for data in (chain, backwards.tobuf(tarfile.PAX_FORMAT) * 3):
        (tmp_path / "a.tar.gz").write_bytes(gzip.compress(data))
        with pytest.raises(ForgeError):
            read_archive(tmp_path / "a.tar.gz")


def test_an_encrypted_zip_and_a_foreign_compression_say_what_to_do(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"x" * 100)
    with pytest.raises(SharingError, match="unpack it and import the folder"):
        read_archive(tmp_path / "a.zip")
    data = bytearray(zip_of(tmp_path / "b.zip", ("a", b"x")).read_bytes())
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "b.zip").write_bytes(data)
    with pytest.raises(SharingError, match="encrypted"):
        read_archive(tmp_path / "b.zip")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tar.gz")
    with pytest.raises(SharingError, match="not a regular file"):
        read_archive(tmp_path / "a.tar.gz")


def test_the_archive_of_the_same_files_is_the_same_bytes(tmp_path: Path) -> None:
    long = "d/" * 10 + "ünï" * 40
    one = FolderFiles({"b": b"2", "a": b"1", long: b"3"}, frozenset({"a"}))
    other = FolderFiles({long: b"3", "a": b"1", "b": b"2"}, frozenset({"a"}))
    assert make_tar_gz(one, "x") == make_tar_gz(other, "x")
    (tmp_path / "a.tar.gz").write_bytes(make_tar_gz(one, "x"))
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        facts = {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in tar}
        assert [m.name for m in tar] == ["x/a", "x/b", f"x/{long}"]
        assert facts == {(0, 0, 0, "", "")} and {m.mode for m in tar} == {0o755, 0o644}
    back = read_archive(tmp_path / "a.tar.gz")
    assert back.files[f"x/{long}"] == b"3" and back.executable == {"x/a"}
