"""Attachments: W44."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests import descriptors

from golem_forge.agent.attachments import (
    AttachmentRefused,
    AttachmentStore,
    OfferedFile,
    check_attachments,
    read_zone_attachments,
)
from golem_forge.agent.files.worker import AttachmentPolicy
from golem_forge.core.decisions import Status
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.zones import AccessMode, ZoneSpec

BYTES = bytes(range(256)) * 40


@dataclass
class Taker:
    types: tuple[str, ...] = ("text/", "image/", "application/")
    name: str = "test:taker"

    def takes(self, media_type: str) -> bool:
        return media_type.startswith(self.types)


def taker(*types: str) -> Any:
    return Taker(types) if types else Taker()


def refused(names: list[str], size: int = 1, **policy: Any) -> str:
    attached = [OfferedFile.of_bytes(name, b"x" * size) for name in names]
    try:
        check_attachments(attached, AttachmentPolicy(**policy))
    except AttachmentRefused as error:
        return str(error)
    return ""


def test_a_refusal_is_a_wrong_command_line_and_an_outcome() -> None:
    with pytest.raises(ConfigError) as caught:
        check_attachments([OfferedFile.of_bytes("a", b"")], AttachmentPolicy(max_attachments=0))
    assert isinstance(caught.value, ForgeError) and caught.value.status is Status.INPUT_INVALID
    assert caught.value.problems == ("1 attachments; this worker takes at most 0",)


def test_w44_count_and_bytes() -> None:
    assert refused(["a"] * 5) == "5 attachments; this worker takes at most 4"
    assert refused(["a"] * 4) == ""
    assert refused(["a"] * 2, size=6, max_total_bytes=11) == (
        "attachments have 12 bytes together; this worker takes at most 11"
    )
    assert refused(["a"] * 2, size=6, max_total_bytes=12) == ""


@pytest.mark.parametrize(
    ("name", "policy", "said"),
    [
        ("a.exe", {"denied_suffixes": (".exe",)}, "attachment 'a.exe': suffix .exe is denied"),
        ("a.EXE", {"denied_suffixes": ("exe",)}, "attachment 'a.EXE': suffix .exe is denied"),
        ("a.exe.", {"denied_suffixes": (".exe",)}, "attachment 'a.exe.': suffix .exe is denied"),
        ("a.PDF", {"allowed_suffixes": (".pdf",)}, ""),
        ("a.pdf", {"allowed_suffixes": (".PDF",)}, ""),
        ("noext", {"allowed_suffixes": (".pdf",)}, "attachment 'noext': has no suffix; allowed: .pdf"),
        (".pdf", {"allowed_suffixes": (".pdf",)}, "attachment '.pdf': has no suffix; allowed: .pdf"),
        ("noext", {}, ""),
        (
            "a.txt",
            {"allowed_suffixes": (".pdf", ".md")},
            "attachment 'a.txt': suffix .txt is not allowed; allowed: .md, .pdf",
        ),
        (
            "a.pdf",
            {"allowed_suffixes": (".pdf",), "denied_suffixes": (".pdf",)},
            "attachment 'a.pdf': suffix .pdf is denied",
        ),
        ("a.tar.gz", {"denied_suffixes": (".tar.gz", ".gz")}, "attachment 'a.tar.gz': suffix .tar.gz is denied"),
        ("a\x1b[2J.exe", {"denied_suffixes": (".exe",)}, "attachment 'a\\x1b[2J.exe': suffix .exe is denied"),
    ],
)
def test_w44_suffixes(name: str, policy: dict[str, Any], said: str) -> None:
    assert refused([name], **policy) == said


def test_a_file_is_kept_once_privately_and_comes_back_unchanged(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (tmp_path / "photo.bin").write_bytes(BYTES)
    (tmp_path / "copy.bin").write_bytes(BYTES)
    store = AttachmentStore(home, "abc")
    first = store.keep(OfferedFile.of_file(tmp_path / "photo.bin"), taker())
    second = store.keep(OfferedFile.of_file(tmp_path / "copy.bin"), taker())
    assert (first.name, first.media_type, first.size) == ("photo.bin", "application/octet-stream", len(BYTES))
    assert second.digest == first.digest
    folder = home / "sessions" / "abc.files"
    assert [each.name for each in folder.iterdir()] == [first.digest]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / first.digest).stat().st_mode) == 0o600
    assert store.read(first.digest) == BYTES
    assert AttachmentStore(home, "abc").read(first.digest) == BYTES


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.md", b"# hi", "text/markdown"),
        ("a.png", b"\x89PNG\0", "image/png"),
        ("notes", b"plain words", "text/plain"),
        ("notes", b"\0\1\2", "application/octet-stream"),
        ("a.PDF", b"%PDF-1.7", "application/pdf"),
        ("empty.txt", b"", "text/plain"),
    ],
)
def test_types_by_name_and_content(tmp_path: Path, name: str, data: bytes, kind: str) -> None:
    assert AttachmentStore(tmp_path, "s").keep(OfferedFile.of_bytes(name, data), taker()).media_type == kind


def test_w44_a_type_the_model_cannot_take_is_refused_naming_both(tmp_path: Path) -> None:
    with pytest.raises(AttachmentRefused) as caught:
        AttachmentStore(tmp_path, "s").keep(OfferedFile.of_bytes("a.png", b"\x89PNG\0"), taker("text/"))
    assert str(caught.value) == "attachment 'a.png': test:taker does not take image/png"
    assert not (tmp_path / "sessions").exists()


def test_what_is_no_file_is_refused_without_its_path(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, said in (
        (tmp_path / "nope.txt", "attachment 'nope.txt': no such file or directory"),
        (tmp_path, f"attachment '{tmp_path.name}': is not a file"),
        (tmp_path / "pipe", "attachment 'pipe': is not a file"),
    ):
        with pytest.raises(AttachmentRefused) as caught:
            OfferedFile.of_file(path)
        assert str(caught.value) == said


def test_a_file_that_changes_between_check_and_reading_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("short")
    attached = OfferedFile.of_file(file)
    file.write_text("longer than it was")
    with pytest.raises(AttachmentRefused, match="changed while it was read"):
        AttachmentStore(tmp_path, "s").keep(attached, taker())
    file.unlink()
    os.mkfifo(file)  # must not wait for a writer
    with pytest.raises(AttachmentRefused, match="changed while it was read"):
        AttachmentStore(tmp_path, "s").keep(attached, taker())


def test_what_was_changed_or_removed_on_disk_is_not_given_out(tmp_path: Path) -> None:
    store = AttachmentStore(tmp_path, "s")
    kept = store.keep(OfferedFile.of_bytes("a", b"one"), taker())
    file = tmp_path / "sessions" / "s.files" / kept.digest
    file.write_bytes(b"two")
    with pytest.raises(ForgeError, match="was changed on disk"):
        store.read(kept.digest)
    file.unlink()
    with pytest.raises(ForgeError, match="is no longer there"):
        store.read(kept.digest)
    with pytest.raises(ForgeError, match="not the digest"):
        store.read("../" * 20 + "aaaa")
    with pytest.raises(ValueError, match="not a session id"):
        AttachmentStore(tmp_path, "../x")


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "data.bin").write_bytes(BYTES)
    (tmp_path / "outside.txt").write_text("canary-outside")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    specs = [ZoneSpec(name="docs", path=folder, mode=AccessMode.RO)]
    with open_sandbox(specs, forge_home=tmp_path / "forge", home=tmp_path / "person") as opened:
        yield opened


def test_w44_delegated_bytes_are_identical_and_their_reading_is_an_effect(tmp_path: Path, sandbox: Sandbox) -> None:
    (attached,) = read_zone_attachments(sandbox, ["/docs/data.bin"])
    assert attached.effect is not None
    assert (attached.effect.verb, attached.effect.target) == (Verb.READ, "/docs/data.bin")
    kept = AttachmentStore(tmp_path, "s").keep(attached, taker())
    assert (kept.name, kept.size) == ("data.bin", len(BYTES))
    assert AttachmentStore(tmp_path, "s").read(kept.digest) == BYTES


@pytest.mark.parametrize("address", ["/docs/link.txt", "/other/x", "/docs/../../outside.txt", "/docs/nope", "/docs"])
def test_w44_what_the_caller_may_not_read_is_refused_as_its_own_reads_are(sandbox: Sandbox, address: str) -> None:
    with pytest.raises(SandboxError):
        read_zone_attachments(sandbox, [address])


def test_too_many_addresses_open_nothing(sandbox: Sandbox) -> None:
    before = descriptors.held()
    with pytest.raises(AttachmentRefused, match="101 attachments"):
        read_zone_attachments(sandbox, ["/docs/data.bin"] * 101)
    assert descriptors.no_more_than(before)


async def test_what_a_ui_sent_before_comes_with_the_input_that_names_it(play: Any) -> None:
    from golem_forge.agent.conversation import Conversation

    played = await play(["I see it."])
    runtime = played.runtime
    kept = runtime.receive("../notes.txt", b"canary notes")
    assert (kept.name, kept.size) == ("notes.txt", 12)
    detach = runtime.ui.attach("test")
    conversation = Conversation(runtime)

    def answer(event: Any) -> None:
        if played.script.requests:
            conversation.leave()
            return
        named = [{"digest": kept.digest, "name": kept.name}]
        wire = {"requestId": event.wire["requestId"], "content": "look", "attachments": named}
        runtime.bus.emit("userInput", wire, source="test")

    runtime.bus.on("inputPrompt", answer)
    await conversation.run()
    detach()
    [attachment] = played.script.requests[0].messages[-1].attachments
    assert (attachment.name, attachment.size) == ("notes.txt", 12)
    assert played.seen("message")[0].wire["message"]["attachments"] == [{"name": "notes.txt", "size": 12}]


async def test_what_was_never_sent_or_is_not_taken_is_refused(play: Any) -> None:
    played = await play([])
    result = await played.runtime.turn("look", [{"digest": "0" * 64, "name": "gone.txt"}])
    assert result.error == "attachment 'gone.txt': was not received; attach it again"
    with pytest.raises(AttachmentRefused, match="at most 10000000"):
        played.runtime.receive("big.txt", b"x" * 10_000_001)
