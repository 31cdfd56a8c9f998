"""Pages without a browser, in a process of their own: `python -m benchmarks.web_readers ADDRESS ORIGIN COOKIE COUNT`.

Opens COUNT sockets at ADDRESS and says `ready`. For each number on standard input it waits until every socket has
received so many more events, then says `done`.
"""

from __future__ import annotations

import asyncio
import sys

from websockets.asyncio.client import ClientConnection, connect

EVENT = '"kind":"event"'


async def main(address: str, origin: str, cookie: str, count: int) -> None:
    headers = {"Cookie": cookie} if cookie else None
    opening = (
        connect(address, additional_headers=headers, origin=origin or None, compression=None, max_size=None)  # type: ignore[arg-type]
        for _ in range(count)
    )
    sockets = [await each for each in opening]
    for socket in sockets if cookie else ():
        while '"caught_up"' not in str(await socket.recv()):
            pass
    print("ready", flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        await asyncio.gather(*(received(socket, int(line)) for socket in sockets))
        print("done", flush=True)


async def received(socket: ClientConnection, events: int) -> None:
    while events:
        events -= str(await socket.recv()).count(EVENT)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
