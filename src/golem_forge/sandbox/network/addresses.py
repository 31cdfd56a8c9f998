"""Which addresses are out on the open internet. Takes an address as text or object, gives True only for those.

Threat: a name an agent may fetch can be made to point anywhere (the machine's own services, the local network, a
cloud's metadata service), also in IPv6 forms that carry an IPv4 address inside. The lists are written out here,
because those of Python's `ipaddress` differ from one version to the next.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

_NOT_PUBLIC_4: Final = tuple(
    IPv4Network(each)
    for each in (
        "0.0.0.0/8",  # unspecified, "this network"
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared with a carrier's other customers
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's host agent, in the middle of public space
        "169.254.0.0/16",  # link-local and metadata
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # former 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_GLOBAL_6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC_6: Final = tuple(
    IPv6Network(each)
    for each in (
        "2001::/23",  # protocol assignments; Teredo is judged before
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")
_TEREDO: Final = IPv6Network("2001::/32")
_ALL_ONES: Final = 0xFFFFFFFF


@lru_cache(maxsize=1024)
def is_public(address: str | IPv4Address | IPv6Address) -> bool:
    """Whether this is a global unicast address. What is no address at all is not public."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return not any(parsed in network for network in _NOT_PUBLIC_4)
    if parsed.scope_id is not None:  # belongs to one link of this machine
        return False
    carried = _carried(parsed)
    if carried:
        return all(is_public(each) for each in carried)
    return parsed in _GLOBAL_6 and not any(parsed in network for network in _NOT_PUBLIC_6)


def _carried(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that packets to this address end up at, or pass on their way."""
    number = int(address)
    if address in _MAPPED or address in _NAT64:
        return (IPv4Address(number & _ALL_ONES),)
    if address in _SIX_TO_FOUR:
        return (IPv4Address(number >> 80 & _ALL_ONES),)
    if address in _TEREDO:  # the server, and the client with its bits turned over
        return IPv4Address(number >> 64 & _ALL_ONES), IPv4Address(~number & _ALL_ONES)
    return ()
