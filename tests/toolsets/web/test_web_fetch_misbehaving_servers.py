"""Servers that lie, dawdle, flood or never stop: what can be understood is, the rest fails within its bounds."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from typing import Any

import pytest
from tests.deadlines import within
from tests.tables import table

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.tools.context import ToolContext
from golem_forge.toolsets.web import webfetch_tool

MIB = 1024 * 1024
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = HEAD + b"Content-Encoding: gzip\r\n\r\n"
DEFLATE = HEAD + b"Content-Encoding: deflate\r\n\r\n"


@table(
    ("answer", "text"),
    [
        (b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nto the end", "to the end"),
        (CHUNKED + b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nA: b\r\n\r\n", "abcdefg"),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "abc"),
        (HEAD + b"Content-Length: 3\r\n\r\nabcdef", "abc"),
        (HEAD + b"Content-Length: 3, 3\r\n\r\nabc", "abc"),
        (b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 100 Go\r\n\r\n" + HEAD + b"\r\nx", "x"),
        (b"HTTP/1.1 200\nContent-Type: text/plain\n\nbare", "bare"),
        (HEAD + b"no colon\r\nContent-Length: 1\r\n\r\nx", "x"),
        (GZIP + gzip.compress(b"abc", mtime=0) + gzip.compress(b"def", mtime=0), "abcdef"),
        (GZIP + gzip.compress(b"abc", mtime=0) + b"\0\0\0", "abc"),
        (DEFLATE + zlib.compress(b"abc"), "abc"),
        (DEFLATE + zlib.compress(b"abc")[2:-4], "abc"),
        (HEAD + b"Content-Encoding: x-gzip\r\n\r\n" + gzip.compress(b"a" * 200_000, mtime=0), "a" * 200_000),
        (HEAD + b"Content-Encoding: deflate\r\nContent-Length: 0\r\n\r\n", ""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", ""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 50\r\n\r\n", ""),
        (b"HTTP/1.1 302 Found\r\nContent-Type: text/plain\r\n\r\nno place", "no place"),
    ],
)
async def test_what_can_be_understood_is(fetch: Any, server: Any, answer: bytes, text: str) -> None:
    server.answers["/"] = answer
    result = await fetch("/", max_length=100_000)
    assert result.value["text"] == text[:100_000] and result.value["chars"] == len(text)


@table(
    ("answer", "words"),
    [
        (b"", "without an answer"),
        (b"HTTP/1.1 200 OK\r\nA: b", "without an answer"),
        (b"SSH-2.0-server\r\n\r\n", "does not answer in HTTP/1"),
        (b"\r\n\r\n", "does not answer in HTTP/1"),
        (HEAD + b"Content-Length: 10\r\n\r\nabc", "ended 7 bytes before the end"),
        (HEAD + b"Content-Length: -1\r\n\r\nabc", "Content-Length is not a number"),
        (HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", "Content-Length is not a number"),
        (CHUNKED + b"zz\r\n", "damaged"),
        (CHUNKED + b"3\r\nabcdef", "damaged"),
        (CHUNKED + b"3\r\nab", "ended 1 bytes before"),
        (CHUNKED + b"1" * 100_000, "damaged"),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "not known"),
        (HEAD + b"Content-Encoding: br\r\n\r\nxx", "not asked for"),
        (GZIP + b"not gzip at all", "damaged"),
        (GZIP + gzip.compress(b"abc" * 99, mtime=0)[:-9], "ended early"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000 + b"\r\n", "more than 65536 bytes of headers"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000 + b"\r\n\r\n", "more than 65536 bytes of headers"),
        (b"HTTP/1.1 100 Go\r\n\r\n" * 10_000, "more than 65536 bytes of headers"),
    ],
)
async def test_what_cannot_be_understood_fails(fetch: Any, server: Any, answer: bytes, words: str) -> None:
    server.answers["/"] = answer
    with pytest.raises(ToolFailed, match=words):
        await fetch("/")


async def test_t51_six_mib_is_too_large_and_five_are_not(fetch: Any, server: Any) -> None:
    server.page("/5", b"a" * (5 * MIB), "text/plain")
    assert (await fetch("/5")).value["chars"] == 5 * MIB
    server.page("/6", b"a" * (6 * MIB), "text/plain")
    with pytest.raises(ForgeError) as caught:
        await fetch("/6")
    assert (caught.value.status, caught.value.code) == (Status.EXECUTION_FAILED, "TOO_LARGE")
    assert f"/6' is {6 * MIB} bytes; the limit is {5 * MIB}. " in caught.value.message


async def test_an_endless_body_is_too_large(fetch: Any, server: Any) -> None:
    async def pour(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\n")
        while True:
            writer.write(b"a" * 65536)
            await writer.drain()

    server.answers["/"] = pour
    with pytest.raises(ForgeError) as caught:
        await fetch("/")
    assert caught.value.code == "TOO_LARGE"


@pytest.mark.parametrize("encoding", ["gzip", pytest.param("deflate", marks=pytest.mark.long)])
async def test_a_bomb_is_too_large_and_takes_no_memory(fetch: Any, server: Any, encoding: str) -> None:
    data = bytes(MIB)
    packer = zlib.compressobj(9, wbits=31 if encoding == "gzip" else 15)
    bomb = b"".join(packer.compress(data) for _ in range(60)) + packer.flush()
    server.page("/", bomb, "text/plain\r\nContent-Encoding: " + encoding)
    tracemalloc.start()
    try:
        with pytest.raises(ForgeError) as caught:
            await fetch("/")
        assert tracemalloc.get_traced_memory()[1] < 40 * MIB
    finally:
        tracemalloc.stop()
    assert caught.value.code == "TOO_LARGE"


@pytest.mark.parametrize("part", ["head", "body", "silence"])
async def test_the_deadline_holds_for_everything(fetch: Any, server: Any, part: str) -> None:
    async def drip(head: str, writer: asyncio.StreamWriter) -> None:
        if part == "body":
            writer.write(HEAD + b"Content-Length: 1000\r\n\r\n")
        for _ in range(1200):
            if part != "silence":
                writer.write(b"a")
                await writer.drain()
            await asyncio.sleep(0.05)

    server.answers["/"] = drip
    with within(0.4), pytest.raises(ForgeError) as caught:
        await fetch("/", seconds=0.4)
    assert caught.value.status is Status.TIMEOUT
    assert "took more than 0.4 s" in caught.value.message


async def test_a_resolver_that_never_answers_meets_the_deadline() -> None:
    async def never(host: str, port: int) -> tuple[str, ...]:
        await asyncio.sleep(60)
        return ()

    with pytest.raises(ForgeError) as caught:
        await webfetch_tool(lookup=never, seconds=0.2).execute({"url": "http://slow.test/"}, ToolContext())
    assert caught.value.status is Status.TIMEOUT
