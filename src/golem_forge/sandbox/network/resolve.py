"""From a host name to a connection, in one lookup: what was checked is what is connected to.

`lookup` asks the system's resolver once. `refuse_private` raises PrivateAddress if any of the answers is not public.
`connect` takes the checked addresses and never a name. Threat (rebinding): a name that is looked up a second time may
answer differently, so nothing after the check ever sees the name.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from golem_forge.sandbox.network.addresses import is_public
from golem_forge.sandbox.network.off_loop import off_the_loop

Lookup = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""(host, port) → addresses as text. Raises OSError."""
_MOST_ADDRESSES: Final = 32
_PATIENCE: Final = 5.0
"""For each address that has another one after it."""


class PrivateAddress(Exception):
    """A name leads, at least in part, to an address that is not out on the internet."""


async def lookup(host: str, port: int) -> tuple[str, ...]:
    """An address stands for itself; a name is asked for once. Raises OSError if there is nothing."""
    found = await off_the_loop(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, "no address")
    return addresses


def refuse_private(addresses: Sequence[str]) -> None:
    """One private answer among public ones is enough: which of them is used would be chance."""
    if not all(is_public(address) for address in addresses):
        raise PrivateAddress


async def connect(
    addresses: Sequence[str], port: int, *, tls: ssl.SSLContext | None = None, name: str = "", limit: int = 1 << 16
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The first address that answers. `name` is what the certificate must be for. Raises OSError."""
    failure: OSError | None = None
    tried = addresses[:_MOST_ADDRESSES]
    for number, address in enumerate(tried, 1):
        try:
            async with asyncio.timeout(None if number == len(tried) else _PATIENCE):
                return await asyncio.open_connection(
                    address, port, ssl=tls, server_hostname=name if tls else None, limit=limit
                )
        except ssl.SSLError:  # somebody is there, but not the one we want
            raise
        except OSError as error:
            failure = error
    raise failure or OSError("no address")
