"""Job: what is to run inside walls, as a tool asks for it. Everything in it was judged and approved before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from golem_forge.sandbox.limits import Limits


class Streams(StrEnum):
    """How output comes back."""

    MERGED = "merged"
    """One stream in order of arrival, standard input empty."""
    APART = "apart"
    """Standard output and standard error each for itself, standard input empty."""
    TERMINAL = "terminal"
    """A pseudo-terminal of 40 rows and 120 columns, standard input open."""


class Nowhere(StrEnum):
    """The private directory where a job without any zone starts."""

    HOME = "home"
    TEMPORARY = "temporary"


@dataclass(frozen=True, slots=True)
class HostGrant:
    """One approved `host:port`; `private`: a rule of the person's own allows a private address for it."""

    host: str
    port: int = 443
    private: bool = False


@dataclass(frozen=True, slots=True)
class HostDirectory:
    """A host directory that this job may read although no zone has it: Forge's own libraries, a snapshot."""

    host: str
    """Its real path; walls are refused if a link leads there by the time they are built."""
    inner: str
    """Where it stands in full walls. At other levels it is read where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    argv: tuple[str, ...]
    """The command as the child will see it; argv[0] is looked up on the inner PATH."""
    cwd: str = ""
    """Virtual; empty: the default zone's root, or `nowhere` where there is no zone."""
    nowhere: Nowhere = Nowhere.HOME
    env: Mapping[str, str] = field(default_factory=dict)
    """What this kind of child declares, on top of what every child gets."""
    streams: Streams = Streams.MERGED
    limits: Limits | None = None
    """None: those of the settings."""
    hosts: tuple[HostGrant, ...] = ()
    """The child may reach exactly these, through the proxy; empty: no network."""
    shares_network: bool = False
    """The host's own network instead, declared by a trusted tool or server: its loopback services and abstract sockets
    are in reach then, too."""
    lifted: frozenset[str] = frozenset()
    """Virtual paths of secrets (or of paths with a read rule) that this call's approved effects name."""
    reads_only: bool = False
    """Proven read-only (or a tool of ours that only reads): all zones are mounted read-only, and level landlock
    suffices."""
    own_program: bool = False
    """A program of Forge's own that reads zones and needs nothing else. Its walls are quicker to build: no toolchains,
    no /etc, no private directories, no sockets instead of a network of its own. Zones are whole in them: what must not
    be shown of them its caller leaves out, by the same names and rules."""
    host_operands: bool = False
    """Level landlock: argv may name virtual paths, which are handed on as host paths."""
    stdin: bytes | int | None = None
    """Not with a terminal: what the child reads, or a descriptor of a person's that it reads from. None: nothing.
    One end of a socket pair is a way to speak with the child: it may write there, too."""
    stdout: int | None = None
    """Not with a terminal: a descriptor of the caller's that standard output goes to as it is. What comes back then is
    the end of standard error."""
    path_first: tuple[str, ...] = ()
    """Directories before all others on the inner PATH."""
    home: str = ""
    """A host directory of this job's own (`kept_home`), its HOME and writable, that stays. Empty: a private one, gone
    afterwards."""
    bytecode: str = ""
    """A host directory that stands at `layout.BYTECODE`, writable, for Python's bytecode (`Walls.keeping_bytecode`)."""
    shown: tuple[HostDirectory, ...] = ()
    """Read-only, below everything else that is shown: a zone or a toolchain at the same place, and what is masked of
    it, stands on top."""
