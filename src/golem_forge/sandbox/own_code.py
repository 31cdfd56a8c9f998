"""Forge's own code: what the running Forge was loaded from, where it lies inside a zone.

Takes this process and a zone's host directory, gives OwnCode: what children may not change there and what file tools
call protected. Refuses nothing: a project with Forge in its own virtual environment, or a checkout of Forge, starts as
any other. Threat: a module of the package, a `.pth` beside it or the interpreter itself, changed by a child, runs
outside the walls as soon as Forge starts its next helper or the person types `forge` again.

An embedding program's own directory on `sys.path` is not Forge's: only the places of the package, of its dependencies
and of the interpreter count.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.machinery import PathFinder
from typing import Final, NamedTuple

_DEPENDENCIES: Final = ("pydantic", "pydantic_core", "jsonschema_rs", "ruamel", "prompt_toolkit", "rich")
"""The required ones, looked for by name: they may lie in a directory of PYTHONPATH that is no site-packages."""
INSTALL_OUTSIDE: Final = (
    "install Forge outside the project: `pipx install golem-forge` or `uv tool install golem-forge`"
)
_PACKAGES: Final = ("site-packages", "dist-packages")
_MOST_LINKS: Final = 40

Parts = tuple[str, ...]


class OwnCode(NamedTuple):
    """Forge's own code in one zone."""

    whole: bool = False
    """The zone itself lies in it."""
    closed: tuple[Parts, ...] = ()
    """Directories and files that must not change, outermost only; never the zone's root."""
    links: tuple[Parts, ...] = ()
    """Links at the zone's root on the way to it. Nothing can stand on a link, so walls cannot hold these; what was
    exchanged is told afterwards."""


class _Places(NamedTuple):
    """Real host paths."""

    sealed: frozenset[str]
    """Nothing but Forge's code or its interpreter's: also a zone inside one is read-only."""
    shared: frozenset[str]
    """What lies beside may be somebody else's: a zone at or inside one stays writable."""
    links: frozenset[str]
    """On the way to any of these."""


def own_code() -> tuple[str, ...]:
    """The real host paths of the interpreter, the prefix, the installed packages and the package of this process."""
    places = _places()
    return tuple(sorted(places.sealed | places.shared))


@cache
def own_code_in(host: str) -> OwnCode:
    """`host`: the real directory of a zone."""
    places = _places()
    inside = f"{host.rstrip('/')}/"
    closed = {parts for path in places.sealed | places.shared if (parts := _relative(path, inside))}
    links = {parts for path in places.links if (parts := _relative(path, inside))}
    closed |= {parts[:-1] for parts in links if len(parts) > 1}  # as for every protected link
    return OwnCode(
        whole=any(inside.startswith(f"{path}/") for path in places.sealed),
        closed=tuple(sorted(_outermost(closed))),
        links=tuple(sorted(parts for parts in links if len(parts) == 1)),
    )


def is_own(host: str, parts: Parts) -> bool:
    """Whether a path of the zone at `host` is Forge's own code or a link on the way to it."""
    own = own_code_in(host)
    return own.whole or any(parts[: len(one)] == one for one in (*own.closed, *own.links))


def own_code_notice(zones: Mapping[str, str]) -> Iterator[str]:
    """One line for a person, or none. `zones`: the real directories of those that can be written, by address."""
    closed, links = [], []
    for address, host in zones.items():
        own = own_code_in(host)
        closed += [address] if own.whole else ["/".join((address, *parts)) for parts in own.closed]
        links += ["/".join((address, *parts)) for parts in own.links]
    if not closed and not links:
        return
    text = "Forge itself is installed in a zone"
    if closed:
        text += f", so these are read-only for commands, and installing packages there fails: {', '.join(closed)}"
    if links:
        text += f"; a command can exchange the link {', '.join(links)}, which Forge was started through"
    yield f"{text}. To change that, {INSTALL_OUTSIDE}."


@cache
def _places() -> _Places:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    library = f"python{sys.version_info.major}.{sys.version_info.minor}"
    sealed = {package, os.path.dirname(os.path.abspath(os.__file__)), sys.executable}
    sealed.update(os.path.join(prefix, sys.platlibdir, library) for prefix in prefixes)
    sealed.update(os.path.join(prefix, "pyvenv.cfg") for prefix in prefixes)
    sealed.update(path for path in sys.path if os.path.basename(path) in _PACKAGES)
    sealed.update(_dependencies())
    if sys.pycache_prefix:  # bytecode of all these, taken instead of the sources
        sealed.add(sys.pycache_prefix)
    beside = os.path.dirname(package)
    if os.path.basename(beside) in _PACKAGES:
        sealed.add(beside)
    shared = {*prefixes, beside, *(os.path.join(prefix, "bin") for prefix in prefixes)}
    if sys.executable:
        shared.add(os.path.dirname(sys.executable))
    links: set[str] = set()
    real_sealed, real_shared = _real(sealed, links), _real(shared, links)
    if sys.executable:
        real_shared.add(os.path.dirname(os.path.realpath(sys.executable)))
    return _Places(frozenset(real_sealed), frozenset(real_shared), frozenset(links))


def _dependencies() -> Iterator[str]:
    for name in _DEPENDENCIES:
        try:
            found = PathFinder.find_spec(name)
        except (ImportError, ValueError):
            continue
        if found is not None:
            yield from found.submodule_search_locations or ((found.origin,) if found.origin else ())


def _real(paths: Iterable[str], links: set[str]) -> set[str]:
    """Where existing paths really are; `links` takes every link on the way, by its own real path."""
    found = set()
    for path in paths:
        real = _followed(path, links)
        if real and os.path.lexists(real):
            found.add(real)
    return found


def _followed(path: str, links: set[str]) -> str:
    if not path:
        return ""
    here, rest, left = "", os.path.abspath(path).split("/")[1:], _MOST_LINKS
    while rest:
        name, *rest = rest
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here).rstrip("/")
            continue
        step = f"{here}/{name}"
        try:
            target = os.readlink(step)
        except OSError:
            here = step
            continue
        links.add(step)
        left -= 1
        if not left:
            return ""
        here = "" if target.startswith("/") else here
        rest = [*target.split("/"), *rest]
    return here


def _relative(path: str, inside: str) -> Parts:
    """Empty: not below."""
    return tuple(path[len(inside) :].split("/")) if path.startswith(inside) else ()


def _outermost(every: set[Parts]) -> Iterator[Parts]:
    for parts in every:
        if not any(parts[:length] in every for length in range(1, len(parts))):
            yield parts
