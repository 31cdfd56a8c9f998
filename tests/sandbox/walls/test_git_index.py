"""Git's index as Forge reads it: the same entries as git's, and what a command hides in it. Real git makes it."""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golem_forge.core.calls import Severity
from golem_forge.sandbox.git.index import (
    SHA1_SIZE,
    SHA256_SIZE,
    Conversions,
    IndexFile,
    compare_indexes,
    plain_index,
    read_index,
)
from golem_forge.sandbox.zones import Zone

from .house import git


def index(where: Path, **options: Any) -> IndexFile:
    return read_index((where / ".git/index").read_bytes(), **options)


def an_hour_ago(*files: Path) -> None:
    """So that git does not look again at a file that is as young as the index."""
    for file in files:
        then = os.stat(file, follow_symlinks=False).st_mtime - 3600
        os.utime(file, (then, then), follow_symlinks=False)


@pytest.fixture
def project(place: Path) -> Path:
    git(place, "init", "-q")
    (place / "sub").mkdir()
    for name in ("Makefile", "sub/a.py", "sub/b.py", "sub/long" + "x" * 200):
        (place / name).write_text(f"content of {name}\n")
        an_hour_ago(place / name)
    os.symlink("Makefile", place / "link")
    git(place, "add", ".")
    git(place, "commit", "-qm", "one")
    return place


def as_git_lists(where: Path) -> list[tuple[str, str, str, str]]:
    found = []
    for each in git(where, "ls-files", "--stage", "-z").split("\0")[:-1]:
        facts, _, path = each.partition("\t")
        mode, oid, stage = facts.split()
        found.append((path, mode, oid, stage))
    return found


def as_we_list(read: IndexFile) -> list[tuple[str, str, str, str]]:
    return [(os.fsdecode(one.path), f"{one.mode:06o}", one.object_id.hex(), str(one.stage)) for one in read.entries]


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_every_version(place: Path, version: str, kind: str) -> None:
    git(place, "init", "-q", f"--object-format={kind}")
    for number in range(60):
        file = place / f"d{number % 7}" / f"f{number}{'y' * (number * 5 % 240)}"
        file.parent.mkdir(exist_ok=True)
        file.write_text(str(number))
    git(place, "add", ".")
    (place / "later").touch()
    git(place, "add", "-N", "later")
    git(place, "update-index", "--skip-worktree", "d1/f1yyyyy")
    git(place, "update-index", "--assume-unchanged", "d0/f0")
    git(place, "update-index", "--index-version", version)

    read = index(place, hash_size=SHA1_SIZE if kind == "sha1" else SHA256_SIZE)

    assert as_we_list(read) == as_git_lists(place) and len(read.entries) == 61
    assert read.version == (3 if version == "2" else int(version))  # flags need more than version 2 has
    by_path = {one.path: one for one in read.entries}
    assert by_path[b"d1/f1yyyyy"].skip_worktree and not by_path[b"d1/f1yyyyy"].assume_valid
    assert by_path[b"d0/f0"].assume_valid and by_path[b"later"].intent_to_add
    real = (place / "d0/f0").stat()
    entry = by_path[b"d0/f0"]
    assert (entry.size, entry.inode) == (real.st_size, real.st_ino & 0xFFFFFFFF)
    assert entry.mtime == divmod(real.st_mtime_ns, 10**9) and entry.ctime == divmod(real.st_ctime_ns, 10**9)


def test_a_conflict_and_a_gitlink(project: Path) -> None:
    git(project, "checkout", "-qb", "two")
    (project / "Makefile").write_text("two\n")
    git(project, "commit", "-qam", "two")
    git(project, "checkout", "-q", "-")
    (project / "Makefile").write_text("three\n")
    git(project, "commit", "-qam", "three")
    git(project, "merge", "two", check=False)
    git(project, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor/lib")

    read = index(project)

    assert as_we_list(read) == as_git_lists(project)
    assert {one.stage for one in read.entries} == {0, 1, 2, 3}
    assert read.gitlinks() == (("vendor", "lib"),)


def test_split_and_sparse_are_noted(project: Path) -> None:
    assert not index(project).split and not index(project).sparse
    git(project, "update-index", "--split-index")
    assert index(project).split
    git(project, "update-index", "--no-split-index")
    git(project, "sparse-checkout", "set", "--cone", "--sparse-index", "other")
    assert index(project).sparse


@given(st.binary(max_size=400), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_nothing_but_a_value_error(rest: bytes, version: int, count: int) -> None:
    for data in (rest, struct.pack(">4sII", b"DIRC", version, count % 5) + rest, b"DIRC" + rest):
        for size in (SHA1_SIZE, SHA256_SIZE, 7):
            problem: Exception | None = None
            try:
                read_index(data, hash_size=size)
                plain_index(data, hash_size=size)
            except Exception as error:
                problem = error
            assert problem is None or isinstance(problem, ValueError)


def test_a_cut_or_changed_index(project: Path) -> None:
    data = (project / ".git/index").read_bytes()
    for at in range(0, len(data), 3):
        for spoiled in (data[:at], data[:at] + b"\xff\xff\xff" + data[at + 3 :]):
            problem: Exception | None = None
            try:
                read_index(spoiled)
            except Exception as error:
                problem = error
            assert problem is None or isinstance(problem, ValueError)


def test_names_that_would_fill_the_memory() -> None:
    """Version 4 names begin with the one before: a few bytes can stand for many."""
    entry = bytes(40 + SHA1_SIZE) + b"\0\1"
    data = entry + b"\0" + b"x" * 200_000 + b"\0"
    data += (entry + b"\0" + b"y\0") * 3000
    with pytest.raises(ValueError, match="memory"):
        read_index(struct.pack(">4sII", b"DIRC", 4, 3001) + data + bytes(SHA1_SIZE))


def forged(project: Path, name: str, content: bytes) -> None:
    """Another content, with an entry that has its times and size and the object of the old one."""
    before = index(project)
    file = project / name
    if file.is_symlink():
        file.unlink()
        os.symlink(content, file)
    else:
        file.write_bytes(content)
    an_hour_ago(file)
    info = file.lstat()
    data = bytearray((project / ".git/index").read_bytes())
    entry = next(one for one in before.entries if one.path == name.encode())
    at = data.find(entry.stat + entry.object_id)
    seconds, nanoseconds = divmod(info.st_mtime_ns, 10**9)
    changed, changed_ns = divmod(info.st_ctime_ns, 10**9)
    fields = (changed, changed_ns, seconds, nanoseconds, info.st_dev, info.st_ino, entry.mode)
    fields += (info.st_uid, info.st_gid, info.st_size)
    data[at : at + 40] = struct.pack(">10I", *(one & 0xFFFFFFFF for one in fields))
    data[-20:] = hashlib.sha1(bytes(data[:-20])).digest()
    (project / ".git/index").write_bytes(data)


@pytest.mark.parametrize("name", ["Makefile", "sub/a.py", "link"])
def test_a_forged_entry_is_found(project: Path, zone: Zone, name: str) -> None:
    before = index(project)
    forged(project, name, b"all:\n\ttouch /tmp/owned\n")
    assert git(project, "status", "--short") == ""

    found = compare_indexes(before, index(project), zone)

    (told,) = found.leftovers
    assert told.severity is Severity.CRITICAL and told.kind == "git_index"
    assert told.paths == (f"/workspace/{name}",) and name in told.text
    assert found.distrusted == {name.encode()}

    (project / ".git/index").write_bytes(
        plain_index((project / ".git/index").read_bytes(), distrusted=found.distrusted)
    )
    assert git(project, "status", "--short") == f" M {name}"


def test_a_forged_entry_of_an_unchanged_index(project: Path, zone: Zone) -> None:
    """The entry is as before, and the file was changed under it with its time set back."""
    before = index(project)
    info = (project / "Makefile").stat()
    (project / "Makefile").write_bytes(b"x" * info.st_size)
    os.utime(project / "Makefile", ns=(info.st_atime_ns, info.st_mtime_ns))

    assert compare_indexes(before, index(project), zone).leftovers == ()
    assert len(compare_indexes(before, index(project), zone, changed={("Makefile",)}).leftovers) == 1


def test_ordinary_work_is_quiet(project: Path, zone: Zone) -> None:
    before = index(project)
    (project / "Makefile").write_text("other\n")
    (project / "sub/new.py").write_text("new\n")
    git(project, "add", ".")
    git(project, "rm", "-q", "sub/b.py")
    (project / "sub/a.py").write_text("not staged\n")
    git(project, "status")
    git(project, "mv", "link", "moved")
    everything = {path.relative_to(project).parts for path in project.rglob("*")}

    assert compare_indexes(before, index(project), zone, changed=everything).leftovers == ()
    assert compare_indexes(None, index(project), zone, changed=everything).leftovers == ()


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_files_that_git_is_told_not_to_look_at(project: Path, zone: Zone, flag: str) -> None:
    before = index(project)
    git(project, "update-index", flag, "Makefile", "sub/b.py")
    (project / "Makefile").write_text("evil\n")
    assert git(project, "status", "--short") == ""

    after = index(project)
    covered, overlooked = compare_indexes(before, after, zone).leftovers

    assert covered.severity is Severity.CRITICAL and covered.paths == ("/workspace/Makefile",)
    assert overlooked.severity is Severity.WARNING and overlooked.paths == ("/workspace/sub/b.py",)
    assert compare_indexes(after, after, zone).leftovers == ()
    (told,) = compare_indexes(after, after, zone, changed={("Makefile",)}).leftovers
    assert told.severity is Severity.WARNING and "told not to look at them before" in told.text


class TestConversions:
    """A file that is another one as an object is not called changed."""

    def _taken_over(self, project: Path, name: str, content: bytes, attributes: str, *options: str) -> None:
        """As git leaves it: with a clean entry of its own making."""
        if attributes:
            (project / ".gitattributes").write_text(attributes)
        (project / name).write_bytes(content)
        an_hour_ago(project / name)
        git(project, *options, "add", name)
        assert git(project, *options, "status", "--short", name) in (f"A  {name}", f"M  {name}")

    def test_line_ends(self, project: Path, zone: Zone) -> None:
        before = index(project)
        self._taken_over(project, "dos.txt", b"a\r\nb\r\n", "", "-c", "core.autocrlf=true")
        self._taken_over(project, "two.txt", b"a\r\nb\r\n", "*.txt text eol=crlf\n")
        assert compare_indexes(before, index(project), zone).leftovers == ()

    def test_a_filter_that_is_configured(self, project: Path, zone: Zone) -> None:
        before = index(project)
        options = ("-c", "filter.up.clean=tr a-z A-Z", "-c", "filter.up.smudge=tr A-Z a-z")
        self._taken_over(project, "sub/x.up", b"small\n", "*.up filter=up\n", *options)
        after = index(project)

        assert compare_indexes(before, after, zone, conversions=Conversions(filters=frozenset({"up"}))).leftovers == ()
        for changed, filters in (({(".gitattributes",)}, frozenset({"up"})), (set(), frozenset())):
            found = compare_indexes(before, after, zone, changed=changed, conversions=Conversions(filters=filters))
            assert [one.paths for one in found.leftovers] == [("/workspace/sub/x.up",)]

    def test_ident_and_encodings(self, project: Path, zone: Zone) -> None:
        before = index(project)
        self._taken_over(project, "x.id", b"$Id: 1234 $\n", "*.id ident\n*.u16 working-tree-encoding=UTF-16\n")
        self._taken_over(project, "x.u16", "Ä\n".encode("utf-16"), "")
        assert compare_indexes(before, index(project), zone).leftovers == ()
        forged(project, "Makefile", b"evil")
        assert len(compare_indexes(before, index(project), zone).leftovers) == 1

    def test_a_pointer_of_lfs(self, project: Path, zone: Zone) -> None:
        content = b"large\n" * 100
        pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:"
        pointer += f"{hashlib.sha256(content).hexdigest()}\nsize {len(content)}\n"
        (project / "pointer").write_text(pointer)
        before = index(project)
        options = ("-c", f"filter.lfs.clean=cat {project}/pointer")
        self._taken_over(project, "x.bin", content, "*.bin filter=lfs\n", *options)
        assert compare_indexes(before, index(project), zone).leftovers == ()


def test_too_many_to_read_are_not_trusted(project: Path, zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.sandbox.git.index._MOST_FILES", 2)
    found = compare_indexes(None, index(project), zone)
    assert len(found.distrusted) == 3
    assert [one.severity for one in found.leftovers] == [Severity.NOTE]


def test_a_forged_tree_cache_is_left_out(project: Path) -> None:
    """It would hide what is staged, and the next commit would hold something else."""
    tree = git(project, "write-tree")
    (project / "sub/a.py").write_text("evil\n")
    git(project, "add", "sub/a.py")
    staged = git(project, "status", "--short")
    data = plain_index((project / ".git/index").read_bytes())
    cache = b"\0-1 1\nsub\0003 0\n" + bytes.fromhex(git(project, "rev-parse", "HEAD:sub"))
    content = data[:-20] + b"TREE" + struct.pack(">I", len(cache)) + cache
    forged_index = content + hashlib.sha1(content).digest()
    (project / ".git/index").write_bytes(forged_index)
    assert git(project, "status", "--short") == "" and staged == "M  sub/a.py"
    assert git(project, "write-tree") == tree

    (project / ".git/index").write_bytes(plain_index(forged_index))

    assert git(project, "status", "--short") == staged
    assert git(project, "write-tree") != tree


def test_a_plain_index_is_as_good(project: Path) -> None:
    git(project, "update-index", "--untracked-cache")
    git(project, "status")
    before = as_git_lists(project)
    data = (project / ".git/index").read_bytes()
    assert b"UNTR" in read_index(data).extensions

    (project / ".git/index").write_bytes(plain_index(data))

    assert as_git_lists(project) == before and git(project, "status", "--short") == ""
    git(project, "fsck")
    git(project, "update-index", "--split-index")
    with pytest.raises(ValueError, match="split"):
        plain_index((project / ".git/index").read_bytes())


def test_new_caches_and_a_split_are_told(project: Path, zone: Zone) -> None:
    before = index(project)
    git(project, "update-index", "--untracked-cache")
    git(project, "status")
    (told,) = compare_indexes(before, index(project), zone).leftovers
    assert "untracked" in told.text
    git(project, "update-index", "--split-index")
    assert any("split" in one.text for one in compare_indexes(before, index(project), zone).leftovers)
