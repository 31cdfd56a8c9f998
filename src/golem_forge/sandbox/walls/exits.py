"""Exits: devices and Unix sockets of the host that a person lets commands use, and what a command misses without one.

`find_exits` takes what the person's own config names (`sandbox.devices`, `sandbox.sockets`) and returns the nodes and
sockets that are there now, what drivers read beside them, and a sentence for each name that gives nothing. Refuses
(with that sentence): block devices, memory, terminals, what is no device or no socket, and a socket where a child could
put another one. `exit_denials` returns a denial where a command failed for want of one that this host has.

Threat: whoever listens at a socket of the host acts outside the walls, and a container daemon does so as root. So a
command that can reach one counts as a command without walls. A device does what its driver does: those of a group are
known to compute, of any other nobody knows what it changes. Only nodes and sockets that were judged are shown: one that
appears later is not.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final, NamedTuple

from golem_forge.config.sandbox_block import DEVICE_GROUPS, WallSettings
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.sandbox.host import is_below

_GROUP_NODES: Final = {
    "nvidia": (
        *("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"),
        *("/dev/nvidia-caps/*", "/dev/nvidia-caps-imex-channels/*", "/dev/nvidia-nvswitch*", "/dev/dxg"),
    ),
    "dri": ("/dev/dri/card*", "/dev/dri/render*"),
    "kvm": ("/dev/kvm",),
}
_PCI: Final = (
    *("/sys/bus/pci", "/sys/dev/char", "/sys/class/drm", "/sys/devices/pci*"),
    *("/sys/devices/system/cpu", "/sys/devices/system/node"),
)
_GROUP_READS: Final = {
    "nvidia": (
        *(*_PCI, "/sys/module/nvidia*", "/run/opengl-driver*", "/etc/OpenCL", "/etc/vulkan", "/etc/glvnd"),
        *("/etc/nvidia", "/etc/egl"),
    ),
    "dri": (*_PCI, "/run/opengl-driver*", "/etc/OpenCL", "/etc/vulkan", "/etc/glvnd", "/etc/egl", "/etc/drirc"),
    "kvm": ("/sys/module/kvm*",),
}
"""Beside /usr, where drivers' libraries mostly are, and /proc/driver, which every command sees."""
_IN_EVERY_WALLS: Final = frozenset({"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"})
_MEMORY: Final = frozenset({(1, 1), (1, 2), (1, 4), (10, 144)})
"""mem, kmem, port, nvram: a child that opens them is in every process."""
_TERMINALS: Final = frozenset({5, *range(136, 144)})
_VIRTUAL_CONSOLES: Final = 64
"""Minors of major 4 below this; serial lines follow."""
_RUNTIME: Final = ("/run/", "/var/run/")
MOST_EXITS: Final = 256


class ShownSocket(NamedTuple):
    host: str
    """The socket's real path."""
    places: tuple[str, ...]
    """Its paths inside: as it was named, its real path, and in /var/run where programs look for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exits:
    devices: tuple[str, ...] = ()
    """Device nodes, each shown at its own path."""
    links: tuple[tuple[str, str], ...] = ()
    """(place, node): other names of devices (`/dev/serial/by-id/…`)."""
    sockets: tuple[ShownSocket, ...] = ()
    readable: tuple[str, ...] = ()
    """Files that drivers read, besides those that every command sees."""
    named: tuple[str, ...] = ()
    """The names in the person's config that exist here, devices first."""
    unknown: tuple[str, ...] = ()
    """Named devices that belong to no group: nobody knows what they do."""

    def __bool__(self) -> bool:
        return bool(self.devices or self.sockets)

    @property
    def names_threads(self) -> bool:
        """Whether a driver must write the names of its threads into /proc: CUDA does not start without."""
        return any(device.startswith("/dev/nvidia") for device in self.devices)

    def describe(self) -> tuple[str, ...]:
        """Returns a line for each exit: `device nvidia`, `socket /run/docker.sock`."""
        sockets = {socket.places[0] for socket in self.sockets}
        return tuple(f"{'socket' if name in sockets else 'device'} {name}" for name in self.named)

    @property
    def no_walls_because(self) -> str:
        """Why a command with these exits counts as one without walls; empty: it does not."""
        names = " and ".join(socket.places[0] for socket in self.sockets)
        return f"the command can reach {names}; who listens there acts outside the walls" if names else ""

    def shows(self, path: str) -> bool:
        """Whether a command finds a device or a socket at this path."""
        devices = (*self.devices, *(place for place, _ in self.links))
        return path in devices or any(path in socket.places for socket in self.sockets)

    def leaves(self) -> Iterator[str]:
        """Yields why a command with these exits leaves the walls or cannot be undone."""
        yield from (f"it can reach the socket {socket.places[0]}" for socket in self.sockets)
        yield from (f"it can use the device {name}" for name in self.unknown)

    def targets(self) -> Iterator[str]:
        """Yields the parts of the fingerprint, so that an approval without an exit does not hold with it."""
        yield from (f"{'socket' if name.startswith('/') else 'device'} {name}" for name in self.named)


NO_EXITS: Final = Exits()


def find_exits(settings: WallSettings, zones: Mapping[str, str], forge_home: str) -> tuple[Exits, tuple[str, ...]]:
    """The exits that are there now, and a sentence for each name that gives none. `zones`: name → host directory."""
    told: list[str] = []
    nodes: dict[str, None] = {}
    links: list[tuple[str, str]] = []
    readable: dict[str, None] = {}
    named: list[str] = []
    unknown: list[str] = []
    for name in settings.devices:
        group = name in DEVICE_GROUPS
        found = group_nodes(name) if group else [name]
        usable, problems = [], []
        for path in found:
            real = os.path.realpath(path)
            if why := _device_problem(real):
                problems.append(f"sandbox.devices: {escape_control_chars(path)} {why}")
                continue
            usable.append(real)
            links += [(path, real)] if path != real else []
        if group and not found:
            told.append(f"sandbox.devices: this machine has no {name} device")
        told += problems if not usable else ()  # of a group some nodes are for its administrator alone
        if usable:
            nodes.update(dict.fromkeys(usable))
            named.append(name)
            unknown += [] if group else [name]
            readable.update(
                dict.fromkeys(path for pattern in _GROUP_READS.get(name, ()) for path in sorted(glob.glob(pattern)))
            )
    sockets: list[ShownSocket] = []
    for path in settings.sockets:
        if why := _socket_problem(path, zones, forge_home):
            told.append(f"sandbox.sockets: {escape_control_chars(path)} {why}")
            continue
        sockets.append(_shown_socket(path))
        named.append(path)
    exits = Exits(
        devices=tuple(nodes)[:MOST_EXITS],
        links=tuple(links)[:MOST_EXITS],
        sockets=tuple(sockets),
        readable=tuple(readable),
        named=tuple(named),
        unknown=tuple(unknown),
    )
    return exits, tuple(told)


def _device_problem(real: str) -> str:
    """Why commands do not get this node; empty: they do."""
    try:
        info = os.stat(real)
    except OSError:
        return "is not there"
    if not real.startswith("/dev/"):
        return "leads out of /dev"
    if stat.S_ISDIR(info.st_mode):
        return "is a directory: name the devices in it"
    if stat.S_ISBLK(info.st_mode):
        return "is a disk: it holds what lies outside the walls, and commands never get one"
    if not stat.S_ISCHR(info.st_mode):
        return "is not a device"
    major, minor = os.major(info.st_rdev), os.minor(info.st_rdev)
    if (major, minor) in _MEMORY:
        return "is the memory of this machine, and commands never get it"
    if major in _TERMINALS or (major == 4 and minor < _VIRTUAL_CONSOLES):
        return "is a terminal, and commands never get yours: run them with tty"
    if not os.access(real, os.R_OK):
        return "cannot be opened by you: join the group that owns it (ls -l says which)"
    return ""


def _socket_problem(path: str, zones: Mapping[str, str], forge_home: str) -> str:
    real = os.path.realpath(path)
    try:
        is_socket = stat.S_ISSOCK(os.stat(real).st_mode)
    except OSError:
        return "is not there"
    if not is_socket:
        return "is not a Unix socket"
    for name, host in zones.items():
        if is_below(real, host) or is_below(path, host):
            return f"lies in the zone /{name}, where a command could put another one: move it out of the zone"
    if is_below(real, os.path.realpath(forge_home)):
        return "is one of Forge's own"
    if not os.access(real, os.W_OK):
        return "cannot be reached by you: join the group that owns it (ls -l says which)"
    return ""


def _shown_socket(path: str) -> ShownSocket:
    real = os.path.realpath(path)
    places = [path, real]
    for here, there in (_RUNTIME, _RUNTIME[::-1]):
        if path.startswith(here):
            places.append(there + path.removeprefix(here))
    return ShownSocket(real, tuple(dict.fromkeys(places)))


class _Sign(NamedTuple):
    """An error text by which programs report that something is missing."""

    said: re.Pattern[str]
    group: str = ""
    """The group of devices that would help."""
    sockets: tuple[str, ...] = ()
    """Below /run or the person's own runtime directory."""


_SIGNS: Final = (
    _Sign(regex(r"connect to the docker (?:daemon|API)", re.IGNORECASE), sockets=("docker.sock",)),
    _Sign(regex(r"connect to (?:the )?podman", re.IGNORECASE), sockets=("podman/podman.sock",)),
    _Sign(
        regex(
            r"NVIDIA-SMI has failed|Failed to initialize NVML|no CUDA-capable device|No CUDA GPUs are available"
            r"|Found no NVIDIA driver|CUDA driver initialization failed|cudaErrorNoDevice|CUDA_ERROR_NO_DEVICE"
            r"|CUDA unknown error|/dev/nvidia",
            re.IGNORECASE,
        ),
        group="nvidia",
    ),
    _Sign(regex(r"/dev/dri\b|no (?:DRI devices|render node)", re.IGNORECASE), group="dri"),
    _Sign(regex(r"/dev/kvm\b|KVM kernel module|KVM is not available", re.IGNORECASE), group="kvm"),
)
_MISSED: Final = regex(
    r"no such (?:file|device)|ENOENT|does ?n[o']t exist|device not found|connection refused"
    r"|(?:can ?not|can't|could ?n[o']t|failed to|unable to) (?:open|connect|access|find|dial)|dial unix",
    re.IGNORECASE,
)
_NAMED: Final = regex(r"(?<![\w.-])(/(?:dev|run|var/run)/[\w./+:@-]{1,200})")
_WINDOW: Final = 64 * 1024
_MOST_LINES: Final = 2000
_MOST_LOOKED_UP: Final = 20
_MOST_TOLD: Final = 5


def kind_of(path: str) -> str:
    """`socket` or `device`, if that is what a person could let commands use there; else empty."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return ""
    if stat.S_ISSOCK(mode):
        return "socket"
    inside = path.removeprefix("/dev/") in _IN_EVERY_WALLS
    return "device" if not inside and not _device_problem(os.path.realpath(path)) else ""


def group_nodes(group: str) -> list[str]:
    return [path for pattern in _GROUP_NODES[group] for path in sorted(glob.glob(pattern))]


def exit_denials(
    text: str,
    shown: Exits,
    environ: Mapping[str, str],
    *,
    kind: Callable[[str], str] = kind_of,
    nodes: Callable[[str], list[str]] = group_nodes,
) -> Iterator[dict[str, Any]]:
    """Yields what a failed command missed that this host has and its walls do not show.

    Threat: the text is a stranger's. Nothing is looked up but devices, and sockets in runtime directories; what comes
    out names a path that the text, or the table here, named first.
    """
    text = text[-_WINDOW:]
    found: dict[str, dict[str, Any]] = {}
    for sign in _SIGNS:
        if not sign.said.search(text):
            continue
        if sign.group and sign.group not in shown.named and nodes(sign.group):
            found[sign.group] = _missed_device(sign.group)
        for path in _candidates(sign.sockets, environ):
            if kind(path) == "socket" and not shown.shows(path):
                found[os.path.realpath(path)] = _missed_socket(path)
                break
    for path in islice(dict.fromkeys(_missed_paths(text)), _MOST_LOOKED_UP):
        real = os.path.realpath(path)
        if real in found or shown.shows(path) or shown.shows(real) or _group_of(path):
            continue
        known = kind(path)
        if known == "socket" and not path.startswith("/dev/"):
            found[real] = _missed_socket(path)
        elif known == "device" and path.startswith("/dev/"):
            found[real] = _missed_device(path)
    yield from islice(found.values(), _MOST_TOLD)


def _missed_paths(text: str) -> Iterator[str]:
    for line in text.splitlines()[-_MOST_LINES:]:
        if _MISSED.search(line):
            yield from (found[1].rstrip(".:") for found in _NAMED.finditer(line))


def _missed_device(target: str) -> dict[str, Any]:
    widen = f"config.yaml in FORGE_HOME: sandbox: {{devices: [{target}]}}"
    return {"kind": "device", "target": target, "access": "use", "why": "a device of the host", "widen": widen}


def _missed_socket(target: str) -> dict[str, Any]:
    widen = f"config.yaml in FORGE_HOME: sandbox: {{sockets: [{target}]}} (each command then asks as one without walls)"
    return {"kind": "socket", "target": target, "access": "connect", "why": "a socket of the host", "widen": widen}


def _candidates(names: Iterable[str], environ: Mapping[str, str]) -> Iterator[str]:
    own = environ.get("XDG_RUNTIME_DIR", "")
    for name in names:
        yield f"/run/{name}"
        if own.startswith("/"):
            yield os.path.join(own, name)


def _group_of(path: str) -> bool:
    return any(fnmatchcase(path, pattern) for patterns in _GROUP_NODES.values() for pattern in patterns)
