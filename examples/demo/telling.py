"""What the demo itself says between the programs it runs, and how it stops when one does not come out as it must."""

from __future__ import annotations


class Failed(Exception):
    """Something did not come out as it must."""


def title(text: str) -> None:
    print(f"\n── {text}")


def command(text: str) -> None:
    print(f"\n$ {text}")


def expect(what: str, code: int, wanted: int) -> None:
    if code != wanted:
        raise Failed(f"{what} ended with {code}, not with {wanted}")
