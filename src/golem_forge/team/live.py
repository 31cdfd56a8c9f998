"""Live text of sessions: what is not recorded (text as it comes, progress, output), sent from runners to who watches.

`LiveSender` (in the runner) takes the events of all its sessions and sends on those that the journal does not keep,
joined for 50 ms, and only while somebody watches the session. `LiveReceiver` (in an attached terminal or a page's
server) gives them back as events. They may be lost: each piece says how much text came before it, so that a gap is
seen, and the message in the journal then replaces what was shown.

On one machine: a Unix socket, `runner-<id>.sock`, for the same user alone; beside the SQLite file, or in the state of
the Forge home. It also takes the one thing that must not become a row: the answer to a form with a secret field. To
other machines (PostgreSQL): NOTIFY, in pieces below 7,500 bytes; whoever watches says so every few seconds. No secret
goes that way: PostgreSQL keeps notifications in files and may log them.

Threat: what comes over a socket or a channel is another process's. Lines are bounded, and a frame that is not what it
claims to be is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.core.ids import is_id
from golem_forge.events.model import REGISTRY
from golem_forge.events.serialization import Event
from golem_forge.team.database import Database, SqliteDatabase, TeamError
from golem_forge.team.people import TeamStore
from golem_forge.team.store import Store

JOIN_S: Final = 0.05
WATCH_CHANNEL: Final = "forge_watch"
LIVE_CHANNEL: Final = "forge_live_"
WATCH_EVERY_S: Final = 4.0
WHOLE: Final = "whole"
"""Sent after the session's id on WATCH_CHANNEL to ask for the text so far too."""
_RETRY_S: Final = 0.5
_WATCHED_S: Final = 10.0
_PIECE_CHARS: Final = 550
"""Twelve bytes each at worst: with what stands around it, a piece stays below 7,500 bytes."""
_KEPT_CHARS: Final = 256 * 1024
"""Maximum characters of an unfinished answer that are kept for those who join in the middle."""
_MAX_LINE: Final = 1 << 20
_MAX_BUFFER: Final = 4 << 20
_MAX_WATCHERS: Final = 64
_MAX_QUEUED: Final = 2000
_MAX_RECENT: Final = 300
_ANSWER_S: Final = 10.0
_SUFFIX: Final = ".sock"
_CREDENTIALS: Final = struct.Struct("3i")
_TEXT_KEYS: Final = {"streaming": ("requestId", "channel"), "toolOutput": ("toolCallId", "stream")}

Frame = dict[str, Any]
FormAnswer = Callable[[str, Mapping[str, Any], str, str], str]
"""(session, answer, who, door) → why it does not count; empty: it does."""


class LiveSender:
    """Sends live text; runs on the runner's loop."""

    def __init__(self, store: Store, runner: str, answer_form: FormAnswer, state: Path | None = None) -> None:
        """`state`: where the socket lies if the store is not a file."""
        self._store = store
        self._folder = _socket_folder(store.database, state)
        self._runner = runner
        self._answer_form = answer_form
        self._streams: dict[str, dict[tuple[str, ...], _Stream]] = {}
        """By session: the texts that are not finished."""
        self._pending: dict[str, list[Frame]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._watchers: dict[str, set[asyncio.StreamWriter]] = {}
        self._watched_until: dict[str, float] = {}
        self._server: asyncio.Server | None = None
        self._notices: queue.Queue[tuple[str, str] | None] | None = None

    async def open(self) -> None:
        if self._folder is not None:
            listener = _listener(self._folder, socket_name(self._runner))
            self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_MAX_LINE)
        if isinstance(self._store.database, SqliteDatabase):
            return
        self._notices = queue.Queue(_MAX_QUEUED)
        threading.Thread(target=self._notify, args=(self._notices,), name="forge-live", daemon=True).start()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._notices is not None:
            with contextlib.suppress(queue.Full):
                self._notices.put_nowait(None)
        server, self._server = self._server, None
        if server is None or self._folder is None:
            return
        server.close()
        for writer in [each for some in self._watchers.values() for each in some]:
            writer.close()
        with contextlib.suppress(OSError):
            os.unlink(self._folder / socket_name(self._runner))

    # ---- what happens in sessions

    def take(self, session_id: str, event: Event) -> None:
        kind = REGISTRY.get(event.type)
        if kind is None or kind.RECORDED or kind.ACTION:
            self._flush(session_id)
            return
        frame: Frame = {"type": event.type, "seq": event.seq, "workerId": event.worker_id, "data": dict(event.wire)}
        if event.type in _TEXT_KEYS:
            self._count(session_id, frame)
        if not self._is_watched(session_id):
            return
        _join(self._pending.setdefault(session_id, []), frame)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(JOIN_S, self._flush_all)

    def forget(self, session_id: str) -> None:
        """Removes a session that has left this runner."""
        self._streams.pop(session_id, None)
        self._pending.pop(session_id, None)
        self._watched_until.pop(session_id, None)

    def watch(self, session_id: str, *, whole: bool = True) -> None:
        """Somebody listens on the session's channel, for some seconds more. `whole`: they lack the text so far."""
        if whole:
            self._flush(session_id)
        self._watched_until[session_id] = time.monotonic() + _WATCHED_S
        for frame in self._texts_so_far(session_id) if whole else ():
            self._notify_of(session_id, frame)

    def _count(self, session_id: str, frame: Frame) -> None:
        data = frame["data"]
        streams = self._streams.setdefault(session_id, {})
        key = (frame["type"], *(str(data.get(name)) for name in _TEXT_KEYS[frame["type"]]))
        stream = streams.setdefault(key, _Stream())
        if data.get("whole") is not None:
            stream.replace(str(data["whole"]))
        frame["at"] = stream.length
        stream.add(str(data.get("delta") or ""))
        stream.frame = frame
        if data.get("done") or data.get("discarded"):
            streams.pop(key, None)
        elif frame["type"] == "toolOutput" and len(streams) > _MAX_WATCHERS:
            streams.pop(next(iter(streams)))

    def _texts_so_far(self, session_id: str) -> Iterator[Frame]:
        for key, stream in self._streams.get(session_id, {}).items():
            if key[0] == "streaming" and stream.is_whole and stream.frame is not None:
                data = {**stream.frame["data"], "whole": "".join(stream.pieces), "delta": "", "done": False}
                yield {**stream.frame, "data": data, "at": 0}

    # ---- sending

    def _is_watched(self, session_id: str) -> bool:
        return bool(self._watchers.get(session_id)) or self._watched_until.get(session_id, 0.0) > time.monotonic()

    def _flush_all(self) -> None:
        self._timer = None
        for session_id in list(self._pending):
            self._flush(session_id)

    def _flush(self, session_id: str) -> None:
        for frame in self._pending.pop(session_id, ()):
            self._send(session_id, frame)

    def _send(self, session_id: str, frame: Frame) -> None:
        for writer in list(self._watchers.get(session_id, ())):
            _write(writer, frame)
        if self._watched_until.get(session_id, 0.0) > time.monotonic():
            self._notify_of(session_id, frame)

    def _notify_of(self, session_id: str, frame: Frame) -> None:
        if self._notices is not None:
            for piece in _pieces(frame):
                with contextlib.suppress(queue.Full):  # it may be lost
                    text = json.dumps(piece, ensure_ascii=True)
                    self._notices.put_nowait((LIVE_CHANNEL + session_id, text))

    def _notify(self, notices: queue.Queue[tuple[str, str] | None]) -> None:
        while (notice := notices.get()) is not None:
            batch = [notice]
            with contextlib.suppress(queue.Empty):
                while len(batch) < 100 and (more := notices.get_nowait()) is not None:
                    batch.append(more)
            with contextlib.suppress(TeamError):
                self._store.notify(batch)

    # ---- the socket

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session_id = ""
        try:
            if not _is_same_user(writer.get_extra_info("socket")):
                return
            while (asked := await _read_frame(reader)) is not None:
                wanted = asked.get("watch")
                if is_id(wanted) and not session_id and sum(map(len, self._watchers.values())) < _MAX_WATCHERS:
                    session_id = str(wanted)
                    self._flush(session_id)
                    self._watchers.setdefault(session_id, set()).add(writer)
                    for frame in self._texts_so_far(session_id):
                        _write(writer, frame)
                elif session_id and isinstance(answer := asked.get("form"), dict):
                    by, door = str(asked.get("by", ""))[:100], str(asked.get("door", ""))[:16]
                    problem = self._answer_form(session_id, answer, by, door)
                    _write(writer, {"answered": str(answer.get("requestId")), "problem": problem})
        finally:
            if session_id:
                self._watchers[session_id].discard(writer)
                if not self._watchers[session_id]:
                    del self._watchers[session_id]
            writer.close()


class _Stream:
    """A text that arrives in pieces."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.length = 0
        self.is_whole = True
        self.frame: Frame | None = None

    def add(self, text: str) -> None:
        self.length += len(text)
        self.is_whole = self.is_whole and self.length <= _KEPT_CHARS
        if self.is_whole:
            self.pieces.append(text)
        else:
            self.pieces.clear()

    def replace(self, text: str) -> None:
        self.pieces, self.length, self.is_whole = [], 0, True
        self.add(text)


def _join(pending: list[Frame], frame: Frame) -> None:
    """Adds a frame; text that goes on where the last piece ended becomes one piece with it."""
    before = pending[-1] if pending else None
    keys = _TEXT_KEYS.get(frame["type"], ("toolCallId",))
    if before is None or before["type"] != frame["type"] or before["workerId"] != frame["workerId"]:
        pending.append(frame)
        return
    old, new = before["data"], frame["data"]
    if any(old.get(key) != new.get(key) for key in keys):
        pending.append(frame)
    elif frame["type"] == "toolProgress":
        pending[-1] = frame
    elif old.get("done") or old.get("discarded") or new.get("whole") is not None or new.get("discarded"):
        pending.append(frame)
    else:
        data = {**new, "delta": str(old.get("delta") or "") + str(new.get("delta") or "")}
        if old.get("whole") is not None:
            data["whole"] = old["whole"]
        pending[-1] = {**frame, "data": data, "at": before["at"]}


def _pieces(frame: Frame) -> Iterator[Frame]:
    """The frame in pieces that a notification can carry."""
    data = frame["data"]
    if frame["type"] not in _TEXT_KEYS:
        yield {**frame, "data": {**data, "message": str(data["message"])[:500]} if data.get("message") else data}
        return
    whole = data.get("whole")
    text, at = str(whole or "") + str(data.get("delta") or ""), int(frame.get("at", 0))
    if whole is not None:
        at = 0
    parts = [text[start : start + _PIECE_CHARS] for start in range(0, len(text), _PIECE_CHARS)] or [""]
    for number, part in enumerate(parts):
        fields = {name: value for name, value in data.items() if name != "whole"} | {"delta": part}
        if whole is not None and number == 0:
            fields |= {"whole": part, "delta": ""}
        if data.get("done"):
            fields["done"] = number == len(parts) - 1
        yield {**frame, "data": fields, "at": at}
        at += len(part)


def _write(writer: asyncio.StreamWriter, frame: Frame) -> None:
    if writer.is_closing() or writer.transport.get_write_buffer_size() > _MAX_BUFFER:
        return  # a reader that does not read: what it misses it finds in the journal
    writer.write(json.dumps(frame).encode() + b"\n")


async def _read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """Reads a frame; None if the other end is gone or sends something invalid."""
    try:
        line = await reader.readuntil(b"\n")
        frame = json.loads(line)
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, RecursionError):
        return None
    return frame if isinstance(frame, dict) else None


# ---- the other end


class LiveReceiver:
    """`show` is given each event, on the loop. Streaming text is given so that nothing is shown twice: a piece that
    does not follow the last one withdraws the text, and a piece from before a message that was shown is dropped."""

    def __init__(
        self, store: TeamStore | Store, session_id: str, show: Callable[[Event], None], state: Path | None = None
    ) -> None:
        """`state`: as the runner's, for a store that is not a file."""
        self._store = store
        self._folder = _socket_folder(store.database, state)
        self._watch_at = float("-inf")
        self._lacks_text = True
        self._frames: deque[Frame] = deque(maxlen=_MAX_RECENT)
        self._frame_count = 0
        self._id = session_id
        self._show = show
        self._runner = ""
        self._reading: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._answers: dict[str, asyncio.Future[str]] = {}
        self._lengths: dict[tuple[str, ...], int] = {}
        """By text: how much of it was shown; -1: it had a gap."""
        self._texts: dict[tuple[str, ...], str] = {}
        self._last_message: dict[str, int] = {}
        """By worker: the number of its last message."""

    @property
    def can_answer(self) -> bool:
        """Whether a form with a secret field can be answered from here."""
        return self._writer is not None and not self._writer.is_closing()

    async def follow(self, runner: str) -> None:
        """`runner`: who has the session now; empty: nobody."""
        if self._folder is None:
            return
        if runner == self._runner and (not runner or self.can_answer):
            return
        await self.close()
        self._runner = runner
        if not runner:
            return
        with contextlib.suppress(OSError):
            made = _connect(self._folder, socket_name(runner))
            if not _is_same_user(made):
                made.close()
                return
            reader, self._writer = await asyncio.open_unix_connection(sock=made, limit=2 * _MAX_BUFFER)
            self._writer.write(json.dumps({"watch": self._id}).encode() + b"\n")
            self._reading = asyncio.get_running_loop().create_task(self._read(reader))

    async def close(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_result("the runner is gone")
        self._runner = ""

    def watch(self) -> None:
        """Tells a runner on another machine that somebody watches; called in a thread with every poll. Raises
        TeamError.
        """
        if self.can_answer or time.monotonic() < self._watch_at:
            return
        self._watch_at = time.monotonic() + WATCH_EVERY_S
        lacks, self._lacks_text = self._lacks_text, False
        self._store.notify([(WATCH_CHANNEL, f"{self._id} {WHOLE}" if lacks else self._id)])

    async def answer_form(self, answer: Mapping[str, Any], by: str, door: str) -> str:
        """Sends an answer directly to the live runner, past the store. Returns why it does not count;
        empty if it does.
        """
        if self._writer is None or not self.can_answer:
            return "the session's runner cannot be reached from here"
        question = str(answer["requestId"])
        waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers[question] = waiting
        self._writer.write(json.dumps({"form": dict(answer), "by": by, "door": door}).encode() + b"\n")
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await waiting
        except TimeoutError:
            return "the session's runner did not answer"
        finally:
            del self._answers[question]

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while (frame := await _read_frame(reader)) is not None:
            if (waiting := self._answers.get(str(frame.get("answered")))) is not None:
                if not waiting.done():
                    waiting.set_result(str(frame.get("problem", ""))[:500])
            else:
                self.take(frame)
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def heard(self, payload: str) -> None:
        """Handles a NOTIFY; ignored if the socket, which brings the same, is connected."""
        if self.can_answer:
            return
        with contextlib.suppress(ValueError, RecursionError):
            frame = json.loads(payload)
            if isinstance(frame, dict):
                self.take(frame)

    def frames_after(self, number: int) -> tuple[list[Frame], int]:
        """Returns the kept frames after that number, and the number of frames now."""
        new = self._frame_count - number if 0 <= number <= self._frame_count else self._frame_count
        return (list(self._frames)[-new:] if new else []), self._frame_count

    def take(self, frame: Mapping[str, Any]) -> None:
        kind, data, seq = str(frame.get("type")), frame.get("data"), frame.get("seq")
        known = REGISTRY.get(kind)
        if known is None or known.RECORDED or known.ACTION or not isinstance(data, dict) or not isinstance(seq, int):
            return
        if not data.keys() >= known.REQUIRED:
            return
        worker = str(frame.get("workerId", ""))
        self._frames.append(dict(frame))
        self._frame_count += 1
        if kind == "streaming" and not self._follows(frame, data, seq, worker):
            return
        self._show(Event(kind, data, None, seq, "", self._id, worker))

    def _follows(self, frame: Mapping[str, Any], data: dict[str, Any], seq: int, worker: str) -> bool:
        if seq < self._last_message.get(worker, 0):
            return False
        key = (worker, str(data["requestId"]), str(data.get("channel")))
        if data.get("discarded"):
            self._forget(key)
            return True
        if data.get("whole") is not None:
            self._lengths[key], self._texts[key] = 0, ""
        at = frame.get("at")
        shown = self._lengths.setdefault(key, 0)
        if shown < 0:
            return False
        if data.get("whole") is None and at != shown:
            self._lengths[key], self._lacks_text, self._watch_at = -1, True, time.monotonic() + _RETRY_S
            self._withdraw(key)
            return False
        text = str(data.get("whole") or "") + str(data.get("delta") or "")
        self._lengths[key] = shown + len(text)
        self._texts[key] = self._texts.get(key, "") + text
        if data.get("done"):
            self._forget(key)
        return True

    def message(self, event: Event) -> None:
        """A message of the journal comes next: the text that was shown of it is finished, or withdrawn."""
        worker = event.worker_id
        self._last_message[worker] = event.seq
        content = str((event.wire.get("message") or {}).get("content", ""))
        for key in [key for key in self._lengths if key[0] == worker]:
            text = self._texts.get(key, "")
            if self._lengths[key] > 0 and (key[2] == "thinking" or content.startswith(text)):
                rest = "" if key[2] == "thinking" else content[len(text) :]
                data = {"requestId": key[1], "channel": key[2], "delta": rest, "done": True}
                self._show(Event("streaming", data, None, event.seq, "", self._id, worker))
            elif self._lengths[key] > 0:
                self._withdraw(key)
            self._forget(key)

    def _withdraw(self, key: tuple[str, ...]) -> None:
        data = {"requestId": key[1], "channel": key[2], "delta": "", "done": True, "discarded": True}
        self._show(Event("streaming", data, None, 0, "", self._id, key[0]))

    def _forget(self, key: tuple[str, ...]) -> None:
        self._lengths.pop(key, None)
        self._texts.pop(key, None)


# ---- sockets


def _socket_folder(database: Database | None, state: Path | None) -> Path | None:
    """Returns the folder of runners' sockets; None if they cannot be reached from here."""
    if database is None:
        return None
    return database.path.parent if isinstance(database, SqliteDatabase) else state


def socket_name(runner: str) -> str:
    return f"runner-{runner[:12]}{_SUFFIX}"


def _listener(folder: Path, name: str) -> socket.socket:
    """Bound through the directory's handle: a path may be longer than a socket's address can be. It gets its name when
    it listens, so one that refuses was left by a runner that is gone, and is removed."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    made = socket.socket(socket.AF_UNIX)
    unnamed = f".{name}"
    try:
        for old in os.listdir(handle):
            if old.startswith("runner-") and old.endswith(_SUFFIX):
                _remove_stale(folder, old)
        made.setblocking(False)
        made.bind(f"/proc/self/fd/{handle}/{unnamed}")
        os.chmod(unnamed, 0o600, dir_fd=handle)
        made.listen(_MAX_WATCHERS)
        os.rename(unnamed, name, src_dir_fd=handle, dst_dir_fd=handle)
    except BaseException:
        made.close()
        raise
    finally:
        os.close(handle)
    return made


def _remove_stale(folder: Path, name: str) -> None:
    try:
        _connect(folder, name).close()
    except ConnectionRefusedError:
        with contextlib.suppress(OSError):
            os.unlink(folder / name)
    except OSError:
        return


def _connect(folder: Path, name: str) -> socket.socket:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    made = socket.socket(socket.AF_UNIX)
    try:
        made.settimeout(1.0)
        made.connect(f"/proc/self/fd/{handle}/{name}")
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    finally:
        os.close(handle)
    return made


def _is_same_user(connection: Any) -> bool:
    given = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(given)[1] == os.getuid())
