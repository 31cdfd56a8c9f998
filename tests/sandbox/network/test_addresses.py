"""Which addresses count as out on the internet (S39, T49)."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from golem_forge.sandbox.network.addresses import is_public

PUBLIC = """8.8.8.8 1.1.1.1 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255 169.255.0.0
172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255
168.63.129.15 11.0.0.0 9.255.255.255 2606:4700:4700::1111 2a00:1450:4001::200e 2001:4860:4860::8888
::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1 2001:0:808:808::f7f7:f7f7""".split()  # noqa: SIM905
NOT_PUBLIC = """0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.255
168.63.129.16 169.254.169.254 169.254.0.0 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1
192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
:: ::1 ::8.8.8.8 fe80::1 fe80::1%lo 2606:4700:4700::1111%eth0 fc00::1 fd00:ec2::254 fec0::1 ff02::1 100::1
::ffff:10.0.0.1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:0:8.8.8.8 64:ff9b::a00:1 64:ff9b::7f00:1
64:ff9b:1::808:808 2002:a00:1::1 2002:7f00:1:: 2002:a9fe:a9fe::1 2001:db8::1 3fff::1 2001:2::1 2001:10::1 2001:20::1
2001:0:808:808::f5ff:fffe 2001:0:a00:1::f7f7:f7f7 4000::1 5f00::1""".split()  # noqa: SIM905


@table("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(address)


@table("address", [*NOT_PUBLIC, "", "localhost", "127.1", "0x7f000001", "010.8.8.8", "8.8.8.8 "])
def test_not_public(address: str) -> None:
    assert not is_public(address)


@given(st.integers(0, 2**32 - 1))
def test_every_form_that_carries_an_ipv4_address_is_judged_by_it(number: int) -> None:
    inner = IPv4Address(number)
    inside = is_public(inner)
    assert is_public(IPv6Address((0xFFFF << 32) | number)) is inside
    assert is_public(IPv6Address((0x64FF9B << 96) | number)) is inside
    assert is_public(IPv6Address((0x2002 << 112) | (number << 80) | 1)) is inside
    client = number ^ 0xFFFFFFFF
    assert is_public(IPv6Address((0x20010000 << 96) | (0x08080808 << 64) | client)) is inside


@given(st.integers(0, 2**32 - 1))
def test_never_more_generous_than_the_standard_library(number: int) -> None:
    address = IPv4Address(number)
    if address.is_private or address.is_multicast or address.is_reserved or address.is_loopback:
        assert not is_public(address)
