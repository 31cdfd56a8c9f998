"""The registry: what is there now, read once, noticed when it changes, and explained when it is no tool."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.storage.home import ForgeHome
from golem_forge.usertools import registry as registry_module
from golem_forge.usertools.diagnostics import Diagnostic, DiagnosticCode, Unusable
from golem_forge.usertools.folder import ToolEntry, read_folder
from golem_forge.usertools.manifest import schema
from golem_forge.usertools.registry import Registry, RegistryChanges, watch_registry

_OPENED: list[list[str]] = []


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and _OPENED:
        _OPENED[-1].append(str(args[0]))


sys.addaudithook(_hear)


@contextmanager
def opened() -> Iterator[list[str]]:
    """Every file and directory that is opened meanwhile."""
    found: list[str] = []
    _OPENED.append(found)
    try:
        yield found
    finally:
        _OPENED.pop()


def make(home: ForgeHome, name: str, /, **keys: str) -> Path:
    folder = home.path / "tools" / name
    folder.mkdir(parents=True)
    said = {"name": name, "description": f"Does {name}", "version": "1.0.0", "entrypoint": "run.sh"} | keys
    (folder / "tool.yaml").write_text("".join(f"{key}: {value}\n" for key, value in said.items()))
    (folder / "run.sh").write_text("echo hi\n")
    return folder


def rest() -> None:
    """Until what was written is older than one tick of the file system's clock."""
    time.sleep(0.025)


def refreshed(home: ForgeHome) -> Registry:
    registry = Registry(home)
    registry.refresh()
    return registry


def told(registry: Registry) -> dict[str, DiagnosticCode]:
    return {each.tool: each.code for each in registry.diagnostics}


# what is a tool


def test_the_tools_folder_is_made_on_first_use_for_its_owner_alone(home: ForgeHome) -> None:
    registry = Registry(home)
    assert not home.path.exists()
    assert registry.refresh() is None
    assert stat.S_IMODE((home.path / "tools").stat().st_mode) == 0o700
    assert not registry.entries and not registry.diagnostics


def test_tools_are_listed_by_name_and_what_is_none_is_no_error(home: ForgeHome) -> None:
    for name in ("zeta", "alpha", "Mid"):
        make(home, name)
    make(home, ".hidden")
    (home.path / "tools" / "notes.txt").write_text("plain")
    (home.path / "tools" / "link.txt").symlink_to("notes.txt")
    (home.path / "tools" / "empty").mkdir()
    (home.path / "tools" / "empty" / "readme").write_text("no manifest")
    registry = Registry(home)
    assert registry.refresh() == RegistryChanges(added=("Mid", "alpha", "zeta"))
    assert list(registry.entries) == ["Mid", "alpha", "zeta"]
    assert registry.diagnostics == ()
    entry = registry.entries["alpha"]
    assert entry.folder == home.path / "tools" / "alpha"
    assert entry.manifest.description == "Does alpha"
    assert entry.digest == read_folder(entry.folder).digest
    assert [fact.path for fact in entry.files] == ["run.sh", "tool.yaml"]


def test_a_folder_without_manifest_is_not_read_however_large_it_is(home: ForgeHome) -> None:
    folder = home.path / "tools" / "clone"
    folder.mkdir(parents=True)
    for number in range(300):
        (folder / str(number)).touch()
    (folder / "odd").symlink_to("/etc")
    registry = Registry(home)
    with opened() as files:
        registry.refresh()
    assert not [file for file in files if file.isdigit()]
    assert registry.diagnostics == ()
    (folder / "tool.yaml").write_text("name: clone\n")
    registry.refresh()
    assert told(registry) == {"clone": DiagnosticCode.TOO_LARGE}


def test_a_reader_that_breaks_on_a_folder_spoils_only_that_one(
    home: ForgeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = registry_module.read_manifest

    def breaks(data: bytes, *, folder: str) -> Any:
        if folder == "bad":
            raise RecursionError("/host/path")
        return real(data, folder=folder)

    monkeypatch.setattr(registry_module, "read_manifest", breaks)
    make(home, "good")
    make(home, "bad")
    registry = refreshed(home)
    assert list(registry.entries) == ["good"]
    assert told(registry) == {"bad": DiagnosticCode.UNREADABLE}
    assert "/host" not in registry.diagnostics[0].message


def _manifest_is_link(folder: Path) -> None:
    (folder / "tool.yaml").rename(folder.parent.parent / "tool.yaml")
    (folder / "tool.yaml").symlink_to(folder.parent.parent / "tool.yaml")


def _folder_is_link(folder: Path) -> None:
    folder.rename(folder.parent.parent / "elsewhere")
    folder.symlink_to(folder.parent.parent / "elsewhere")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_manifest_is_link, DiagnosticCode.SYMLINK),
        (_folder_is_link, DiagnosticCode.SYMLINK),
        (lambda folder: (folder / "x\x1b").touch(), DiagnosticCode.UNREADABLE),
    ],
    ids=["the manifest is a link", "the folder is a link", "a file has an odd name"],
)
def test_a_folder_that_leads_elsewhere_or_hides_something_is_no_tool(
    home: ForgeHome, change: Callable[[Path], None], code: DiagnosticCode
) -> None:
    """The other faults: test_c05 to test_c12 of tests/acceptance/test_user_tools_made.py."""
    change(make(home, "greet"))
    registry = refreshed(home)
    assert told(registry) == {"greet": code} and not registry.entries
    assert str(home.path) not in registry.diagnostics[0].message


@pytest.mark.parametrize("name", [b"a b", b"a\x1b[31mb", b"\xff", "\u202eab".encode(), b"a\nb"])
def test_a_folder_with_an_odd_name_is_told_visibly(home: ForgeHome, name: bytes) -> None:
    make(home, "good")
    make(home, os.fsdecode(name), name="good", description="Odd")
    registry = refreshed(home)
    assert list(registry.entries) == ["good"]
    (one,) = registry.diagnostics
    assert one.code is DiagnosticCode.NAME_MISMATCH
    for text in (one.tool, one.message.replace("\n", "")):
        assert text.isascii() and text.isprintable()


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (b"\x7fELF....", 0o600, "has no exec bit"),
        (b"#!/bin/sh\n", 0o600, "has no exec bit"),
        (b"echo hi\n", 0o700, "not an ELF program or a script"),
        (b"", 0o700, "not an ELF program or a script"),
    ],
)
def test_a_file_the_kernel_would_not_start_is_not_executable(
    home: ForgeHome, content: bytes, mode: int, why: str
) -> None:
    folder = make(home, "greet", entrypoint="greet")
    (folder / "greet").write_bytes(content)
    (folder / "greet").chmod(mode)
    registry = refreshed(home)
    (one,) = registry.diagnostics
    assert one.code is DiagnosticCode.NOT_EXECUTABLE
    assert why in one.message


@pytest.mark.parametrize(
    ("file", "mode", "entrypoint"),
    [
        ("greet.py", 0o600, "greet.py"),
        ("greet.go", 0o600, "greet.go"),
        ("greet.go", 0o600, "greet"),
        ("greet", 0o700, "greet"),
    ],
)
def test_sources_need_no_exec_bit_and_a_missing_program_may_be_built(
    home: ForgeHome, file: str, mode: int, entrypoint: str
) -> None:
    folder = make(home, "greet", entrypoint=entrypoint)
    (folder / file).write_bytes(b"#!/usr/bin/true\n")
    (folder / file).chmod(mode)
    registry = refreshed(home)
    assert list(registry.entries) == ["greet"], registry.diagnostics


def test_of_two_names_equal_ignoring_case_the_first_loads(home: ForgeHome) -> None:
    for name in ("greet", "Greet", "GREET"):
        make(home, name)
    registry = refreshed(home)
    assert list(registry.entries) == ["GREET"]
    assert told(registry) == {"Greet": DiagnosticCode.NAME_CONFLICT, "greet": DiagnosticCode.NAME_CONFLICT}
    assert isinstance(found := registry.lookup("greet"), Diagnostic) and found.code is DiagnosticCode.NAME_CONFLICT
    assert isinstance(registry.lookup("GREET"), ToolEntry)
    (home.path / "tools" / "GREET" / "tool.yaml").write_text("broken")  # no tool takes no name from another
    assert isinstance(registry.lookup("Greet"), ToolEntry)
    registry.refresh()
    assert list(registry.entries) == ["Greet"]


def test_past_the_limit_the_rest_by_name_is_told_and_not_loaded(
    home: ForgeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "MOST_TOOLS", 3)
    for name in "edcba":
        make(home, name)
    registry = refreshed(home)
    assert list(registry.entries) == ["a", "b", "c"]
    assert told(registry) == {"d": DiagnosticCode.TOO_MANY_TOOLS, "e": DiagnosticCode.TOO_MANY_TOOLS}
    assert isinstance(found := registry.lookup("d"), Diagnostic) and found.code is DiagnosticCode.TOO_MANY_TOOLS
    shutil.rmtree(home.path / "tools" / "a")
    assert registry.refresh() == RegistryChanges(added=("d",), removed=("a",), diagnosed=("d", "e"))


def test_two_hundred_tools_with_twenty_broken_ones(home: ForgeHome) -> None:
    for number in range(200):
        make(home, f"tool-{number:04}", **({"timout": "5"} if number % 10 == 7 else {}))
    registry = refreshed(home)
    assert len(registry.entries) == 180
    assert len(registry.diagnostics) == 20
    assert {each.code for each in registry.diagnostics} == {DiagnosticCode.MANIFEST_INVALID}
    assert all("did you mean 'timeout'?" in each.message for each in registry.diagnostics)
    before = registry.entries
    with opened() as files:
        assert registry.refresh() is None
    assert files == [] and registry.entries is before
    (home.path / "tools" / "tool-0003" / "run.sh").write_text("echo changed\n")
    with opened() as files:
        registry.refresh()
    assert {Path(file).name for file in files if "tool-" in file} == {"tool-0003"}, "the changed one alone"
    assert "run.sh" in files
    with opened() as files:
        registry.refresh()
    assert files == []


# refresh


def _swap_folder(folder: Path) -> None:
    shutil.copytree(folder, folder.parent / ".new")
    (folder.parent / ".new" / "run.sh").write_text("echo swapped\n")
    shutil.rmtree(folder)
    (folder.parent / ".new").rename(folder)


def _same_size_same_times(folder: Path) -> None:
    status = (folder / "run.sh").stat()
    (folder / "run.sh").write_text("echo ho\n")
    os.utime(folder / "run.sh", ns=(status.st_atime_ns, status.st_mtime_ns))


def _by_rename(folder: Path) -> None:
    (folder / "new").write_text("echo ho\n")
    os.replace(folder / "new", folder / "run.sh")


@pytest.mark.parametrize(
    "change",
    [
        _swap_folder,
        _same_size_same_times,
        _by_rename,
        lambda folder: (folder / "more.txt").touch(),
        lambda folder: (folder / "lib" / "deep" / "words.txt").unlink(),
        lambda folder: (folder / "lib" / "deep" / "words.txt").rename(folder / "lib" / "deep" / "w.txt"),
        lambda folder: (folder / "lib" / "deep" / "words.txt").write_text("b"),
        lambda folder: (folder / "lib" / "deep" / "more.txt").touch(),
        lambda folder: (folder / "run.sh").chmod(0o700),
    ],
)
def test_every_kind_of_change_is_noticed(home: ForgeHome, change: Callable[[Path], None]) -> None:
    folder = make(home, "greet")
    (folder / "lib" / "deep").mkdir(parents=True)
    (folder / "lib" / "deep" / "words.txt").write_text("a")
    make(home, "other")
    registry = refreshed(home)
    assert registry.refresh() is None
    before = registry.entries
    change(folder)
    assert registry.refresh() == RegistryChanges(changed=("greet",))
    assert registry.entries["greet"].digest == read_folder(folder).digest
    assert before["greet"].digest != registry.entries["greet"].digest, "who held the old state still has it"


def test_a_change_within_the_same_tick_is_noticed_too(home: ForgeHome) -> None:
    """Two equally long texts, one right after the other: time and size alone may not tell them apart."""
    folder = make(home, "greet")
    registry = Registry(home)
    for number in range(10):
        (folder / "run.sh").write_text(f"echo {number:02}\n")
        registry.refresh()
        (folder / "run.sh").write_text(f"echo {number + 50}\n")
        registry.refresh()
        assert registry.entries["greet"].digest == read_folder(folder).digest


def test_what_changes_without_changing_the_content_is_no_change(home: ForgeHome) -> None:
    folder = make(home, "greet")
    registry = refreshed(home)
    os.utime(folder / "run.sh")
    (folder / "empty").mkdir()
    assert registry.refresh() is None


def test_tools_come_go_break_and_heal(home: ForgeHome) -> None:
    folder = make(home, "greet")
    registry = refreshed(home)
    make(home, "later")
    assert registry.refresh() == RegistryChanges(added=("later",))
    shutil.rmtree(folder)
    assert registry.refresh() == RegistryChanges(removed=("greet",))
    (home.path / "tools" / "later" / "run.sh").rename(home.path / "tools" / "later" / "walk.sh")
    assert registry.refresh() == RegistryChanges(removed=("later",), diagnosed=("later",))
    (home.path / "tools" / "later" / "walk.sh").rename(home.path / "tools" / "later" / "run.sh")
    assert registry.refresh() == RegistryChanges(added=("later",), diagnosed=("later",))
    shutil.rmtree(home.path / "tools")
    assert registry.refresh() == RegistryChanges(removed=("later",))


def test_a_fault_deep_in_a_folder_is_kept_without_reading_it_again_and_goes_with_its_cause(home: ForgeHome) -> None:
    folder = make(home, "greet")
    (folder / "lib").mkdir()
    (folder / "lib" / "odd").symlink_to("/etc/passwd")
    registry = refreshed(home)
    with opened() as files:
        assert registry.refresh() is None
    assert files == []
    (folder / "lib" / "odd").unlink()
    assert registry.refresh() == RegistryChanges(added=("greet",), diagnosed=("greet",))


def test_a_tools_folder_that_cannot_be_listed_is_told(home: ForgeHome) -> None:
    home.path.mkdir()
    (home.path / "tools").write_text("not a folder")
    registry = Registry(home)
    assert registry.refresh() == RegistryChanges(diagnosed=("",))
    (one,) = registry.diagnostics
    assert (one.code, one.message) == (DiagnosticCode.UNREADABLE, "the tools folder: cannot be read (Not a directory)")
    (home.path / "tools").unlink()
    make(home, "greet")
    assert registry.refresh() == RegistryChanges(added=("greet",), diagnosed=("",))


# look


def test_look_sees_one_folder_as_it_is_now(home: ForgeHome) -> None:
    folder = make(home, "greet")
    make(home, "other")
    registry = Registry(home)
    first = registry.lookup("greet")
    assert isinstance(first, ToolEntry)
    with opened() as files:
        assert registry.lookup("greet") is first
    assert files == []
    (folder / "run.sh").write_text("echo ho\n")
    second = registry.lookup("greet")
    assert isinstance(second, ToolEntry) and second.digest != first.digest
    assert registry.entries["greet"] is first  # until the next refresh, which tells of it
    assert registry.refresh() == RegistryChanges(changed=("greet",))
    make(home, "fresh")
    assert isinstance(registry.lookup("fresh"), ToolEntry)
    assert registry.refresh() == RegistryChanges(added=("fresh",))
    shutil.rmtree(folder)
    assert registry.lookup("greet") is None
    assert registry.refresh() == RegistryChanges(removed=("greet",))
    assert registry.refresh() is None


def test_look_finds_nothing_where_no_tool_can_be(home: ForgeHome) -> None:
    make(home, "greet")
    make(home, ".greet")
    for name in ("", ".", "..", "../tools/greet", "greet/lib", ".greet", "a\0b", "none", "x" * 5000, "\ud800"):
        assert Registry(home).lookup(name) is None, name


# the store


def test_every_digest_is_seen_once_and_keeps_its_bytes(home: ForgeHome) -> None:
    seen: list[tuple[str, str]] = []
    registry = Registry(home, seen=lambda entry: seen.append((entry.name, entry.digest)))
    folder = make(home, "greet")
    registry.refresh()
    old = registry.entries["greet"]
    (folder / "run.sh").write_text("echo ho\n")
    registry.lookup("greet")
    registry.refresh()
    new = registry.entries["greet"]
    (folder / "run.sh").write_text("echo hi\n")
    registry.refresh()
    assert registry.entries["greet"].digest == old.digest
    assert seen == [("greet", old.digest), ("greet", new.digest)]
    assert registry.files(new).files["run.sh"] == b"echo ho\n"
    assert registry.files(old).digest == old.digest
    found = registry.version_files(new.digest)
    assert found is not None and found.files["run.sh"] == b"echo ho\n"
    assert registry.version_files("sha256:" + "0" * 64) is None
    assert registry.version_files("../../etc") is None


def test_a_run_gets_the_version_it_was_judged_by_whatever_the_folder_became(home: ForgeHome) -> None:
    folder = make(home, "greet")
    (folder / "run.sh").chmod(0o700)
    registry = refreshed(home)
    entry = registry.entries["greet"]
    (folder / "run.sh").write_text("echo evil\n")
    snapshot = registry.snapshot(entry)
    assert snapshot.digest == entry.digest
    assert (snapshot.path / "run.sh").read_text() == "echo hi\n"
    assert os.access(snapshot.path / "run.sh", os.X_OK)


def _spoil(snapshot: Path) -> None:
    os.chmod(snapshot / "run.sh", 0o600)
    (snapshot / "run.sh").write_text("echo no\n")


def test_a_snapshot_that_was_changed_is_made_again_or_refused(home: ForgeHome) -> None:
    folder = make(home, "greet")
    registry = refreshed(home)
    entry = registry.entries["greet"]
    rest()
    _spoil(registry.snapshot(entry).path)
    assert (registry.snapshot(entry).path / "run.sh").read_text() == "echo hi\n"
    (folder / "run.sh").write_text("echo new\n")
    rest()
    _spoil(registry.snapshot(entry).path)
    with pytest.raises(Unusable, match="is lost and its folder has changed") as caught:
        registry.snapshot(entry)
    assert caught.value.diagnostic_code is DiagnosticCode.CHANGED
    assert registry.version_files(entry.digest) is None


# the memory between two starts


def test_a_second_start_reads_no_folder(home: ForgeHome) -> None:
    for number in range(20):
        make(home, f"tool-{number}", arguments="stdin-json", env="[A, {name: B, required: true}]", zones="{w: rw}")
    (make(home, "broken") / "tool.yaml").write_text("x: 1\n")
    first = refreshed(home)
    assert stat.S_IMODE((home.path / "cache" / "registry").stat().st_mode) == 0o600
    seen: list[str] = []
    second = Registry(home, seen=lambda entry: seen.append(entry.name))
    with opened() as files:
        second.refresh()
    assert [file for file in files if file.endswith("run.sh")] == ["run.sh"]  # of the broken one
    assert dict(second.entries) == dict(first.entries)
    assert second.diagnostics == first.diagnostics
    assert seen == list(second.entries)
    entry = second.entries["tool-3"]
    assert second.files(entry).digest == entry.digest
    (home.path / "tools" / "tool-3" / "run.sh").write_text("echo changed\n")
    assert refreshed(home).entries["tool-3"].digest != entry.digest


def test_a_change_is_added_to_the_memory_and_the_last_word_counts(home: ForgeHome) -> None:
    folder = make(home, "greet")
    registry = refreshed(home)
    for number in range(3):
        (folder / "run.sh").write_text(f"echo {number}\n")
        registry.refresh()
    kept = (home.path / "cache" / "registry").read_text().splitlines()
    assert [line.partition("\t")[0] for line in kept[1:]] == ["greet"] * 4
    with opened() as files:
        again = refreshed(home)
    assert "run.sh" not in files
    assert again.entries["greet"].digest == registry.entries["greet"].digest


@pytest.mark.parametrize(
    "harm",
    [
        lambda text: "",
        lambda text: "\0\xff" + text,
        lambda text: text.replace("[1, ", "[2, ", 1),
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"digest":"sha256:', '"digest":"sha256:../'),
        lambda text: text.replace('"files":[["', '"files":[["x'),
        lambda text: text.replace('"version":"1.0.0"', '"surprise":1'),
        lambda text: text.replace('"manifest":{', '"manifest":[{').replace("}}\n", "}]}\n"),
        lambda text: text.splitlines()[0] + "\ngreet\t" + "[" * 100_000 + "\n",
        lambda text: text.splitlines()[0] + "\ngreet\t" + json.dumps({"digest": 1, "marks": [], "files": []}) + "\n",
    ],
)
def test_a_spoilt_memory_is_as_none(home: ForgeHome, harm: Callable[[str], str]) -> None:
    make(home, "greet")
    first = refreshed(home)
    kept = home.path / "cache" / "registry"
    before = kept.read_text()
    kept.write_text(harm(before))
    assert kept.read_text() != before
    with opened() as files:
        again = refreshed(home)
    assert "run.sh" in files
    assert dict(again.entries) == dict(first.entries)


def test_a_memory_counts_for_one_set_of_rules_for_manifests(home: ForgeHome, monkeypatch: pytest.MonkeyPatch) -> None:
    make(home, "greet")
    Registry(home).refresh()
    rules, looked_at = Path(schema.__file__), os.stat

    def edited(path: Any, **how: Any) -> os.stat_result:
        found = looked_at(path, **how)
        if not isinstance(path, str | os.PathLike) or Path(path) != rules:
            return found
        return os.stat_result(found, {"st_mtime_ns": found.st_mtime_ns + 1})

    monkeypatch.setattr(os, "stat", edited)
    with opened() as files:
        refreshed(home)
    assert "run.sh" in files


def test_a_memory_that_is_a_link_is_not_followed(home: ForgeHome) -> None:
    make(home, "greet")
    Registry(home).refresh()
    kept = home.path / "cache" / "registry"
    kept.rename(home.path / "moved")
    kept.symlink_to(home.path / "moved")
    with opened() as files:
        Registry(home).refresh()
    assert "run.sh" in files
    assert not kept.is_symlink()


def test_a_forged_memory_gives_no_tool_more_reach_than_its_files_say(home: ForgeHome) -> None:
    make(home, "greet", network="[example.test]")
    Registry(home).refresh()
    kept = home.path / "cache" / "registry"
    kept.write_text(kept.read_text().replace('"network":["example.test"]', '"network":true'))
    registry = refreshed(home)
    forged = registry.entries["greet"]
    assert forged.manifest.network is True
    for _ in range(2):
        with pytest.raises(Unusable, match="do not fit its files"):
            registry.snapshot(forged)
    assert registry.refresh() == RegistryChanges(changed=("greet",))
    honest = registry.entries["greet"]
    assert honest.manifest.network == ("example.test",)
    registry.snapshot(honest)
    with pytest.raises(Unusable, match="do not fit its files"):
        registry.files(forged)


def test_a_lost_snapshot_is_made_again_at_the_next_start(home: ForgeHome) -> None:
    make(home, "greet")
    Registry(home).refresh()
    for snapshot in (home.path / "store").iterdir():
        shutil.rmtree(snapshot)
    registry = refreshed(home)
    assert registry.version_files(registry.entries["greet"].digest) is not None


# watching


async def test_a_watch_tells_of_each_change(home: ForgeHome) -> None:
    folder = make(home, "greet")
    watch = watch_registry(Registry(home), poll_s=0.01)
    assert await asyncio.wait_for(anext(watch), PATIENCE) == RegistryChanges(added=("greet",))
    (folder / "tool.yaml").write_text("name: [\n")
    assert await asyncio.wait_for(anext(watch), PATIENCE) == RegistryChanges(removed=("greet",), diagnosed=("greet",))
    await watch.aclose()  # type: ignore[attr-defined]


async def test_a_watch_of_ones_own_registry_shows_what_is_there(home: ForgeHome) -> None:
    make(home, "greet")
    registry = Registry(home)
    async for found in watch_registry(registry, poll_s=0.01):
        assert found.added == ("greet",)
        break
    assert list(registry.entries) == ["greet"]
