"""Remotes of the user's repository: addresses, refspecs and refs, as its own files have them. Starts no process.

`PersonRepository` reads the config file, HEAD and the refs of one repository, never those of the shadow;
`NoPersonRepository` stands where there is none.
`read_address` takes a remote's address apart: https, ssh, or a place on this machine (`is_local`); raises RemoteRefused
for every other transport. `push_updates` and `fetch_refspecs` turn what a caller wrote into full names.

Threats: a repository that somebody else made brings settings that start a program or lead elsewhere (`core.sshCommand`,
`credential.helper`, `url.….insteadOf`, `remote.….uploadpack`, `include.path`). Of its config only the keys of `remote`,
`branch`, `push.default` and `remote.pushDefault` that are read here count; `unheeded` names the others. An address may
hold a password, which `shown` leaves out; a name may look like an option.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.sandbox.git.directory import GitDir, is_object_id, is_ref_name
from golem_forge.sandbox.git.formats import ConfigSyntaxError, GitSetting, read_config
from golem_forge.sandbox.git.repository import Repository
from golem_forge.sandbox.handles import DIRECTORY, Handle, best_opener

HEADS: Final = "refs/heads/"
TAGS: Final = "refs/tags/"
REMOTES: Final = "refs/remotes/"
_PUSHED: Final = (HEADS, TAGS, "refs/notes/", "refs/for/")
"""Where a push may write at the remote; `refs/for/` is how Gerrit takes reviews. Threat: `refs/replace/` makes git show
other content than a commit has."""
_FETCHED: Final = (REMOTES, TAGS)
_HOST: Final = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_][A-Za-z0-9._-]*)"
_HTTPS: Final = regex(rf"https://(?:([^/@\s]*)@)?{_HOST}(?::(\d{{1,5}}))?(/\S*)?")
_SSH: Final = regex(rf"(?:ssh|git\+ssh|ssh\+git)://(?:([^/@\s:]*)(?::([^/@\s]*))?@)?{_HOST}(?::(\d{{1,5}}))?(/\S+)")
_SCP: Final = regex(rf"(?:([A-Za-z0-9_][^/@\s:]*)@)?{_HOST}:(?!//)([^\s:-]\S*)")
_SCHEME: Final = regex(r"([A-Za-z0-9+.-]+)::?(?://)?")
_LIKE_A_TOKEN: Final = 20
_LONGEST: Final = 2000
_MOST_REFSPECS: Final = 50
_NAME: Final = regex(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,199}")


class RemoteRefused(Exception):
    """What was asked for cannot be done; the text says why, and what to do."""

    stated_name = "RemoteRefused"


class RemoteAddress(NamedTuple):
    url: str
    """As git is given it. Never shown."""
    shown: str
    """Without credentials: on cards, in rules and results."""
    host: str = ""
    """Empty: a place on this machine."""
    port: int = 0
    secrets: tuple[str, ...] = ()
    """Passwords and tokens that stand in it."""

    @property
    def is_local(self) -> bool:
        return not self.host

    @property
    def target(self) -> str:
        """As effects name it."""
        return f"{self.host}:{self.port}"


def read_address(url: str) -> RemoteAddress:
    """Raises RemoteRefused: for what is neither https nor ssh nor a path."""
    if not url or len(url) > _LONGEST or not url.isprintable():
        raise RemoteRefused("The remote's address is empty, too long, or has characters that nobody sees.")
    if found := _HTTPS.fullmatch(url):
        user, host, port, path = found[1] or "", found[2], found[3], found[4] or ""
        name, _, password = user.partition(":")
        secrets = tuple(one for one in (password, name if len(name) >= _LIKE_A_TOKEN else "") if one)
        shown = f"https://{host}{f':{port}' if port else ''}{path}"
        return RemoteAddress(url, shown, host.lower(), int(port or 443), secrets)
    if found := _SSH.fullmatch(url):
        name, password, host, port, path = found[1], found[2] or "", found[3], found[4], found[5]
        shown = f"ssh://{f'{name}@' if name else ''}{host}{f':{port}' if port else ''}{path}"
        return RemoteAddress(url, shown, host.lower(), int(port or 22), (password,) if password else ())
    if url.startswith(("/", "./", "../", "file://")) or "/" in url.partition(":")[0]:
        return RemoteAddress(url, url)
    if found := _SCP.fullmatch(url):
        return RemoteAddress(url, url, found[2].lower(), 22)
    if scheme := _SCHEME.match(url):
        raise RemoteRefused(f"Forge reaches remotes by https and ssh only, not by {scheme[1]!r}.")
    if url.startswith("-") or ":" in url:
        raise RemoteRefused("That is no address of a remote: Forge reaches https, ssh, and paths of this machine.")
    return RemoteAddress(url, url)


class Refspec(NamedTuple):
    source: str
    target: str | None
    """None: there was no colon."""
    force: bool


def parse_refspec(text: str) -> Refspec:
    """Raises RemoteRefused for what git would take for an option, or for no name at all."""
    force = text.startswith("+")
    source, colon, target = text[force:].partition(":")
    for name in (source, target):
        if name.startswith("-") or len(name) > _LONGEST or re.search(r"[\x00-\x20\x7f~^:?\[\\]|\.\.|@\{", name):
            raise RemoteRefused(f"{_quoted(text)} is no refspec; write the names of branches or tags.")
    if not source and not target:
        raise RemoteRefused(f"{_quoted(text)} is no refspec; write the names of branches or tags.")
    return Refspec(source, target if colon else None, force)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitRemote:
    name: str
    """Empty: an address that no remote of the repository has."""
    urls: tuple[str, ...]
    push_urls: tuple[str, ...] = ()
    fetch: tuple[Refspec, ...] = ()
    no_tags: bool = False
    own_pushes: bool = False
    """Its settings say what a push without refspecs means (`push`, `mirror`)."""

    def tracking(self, ref: str) -> str:
        """The remote-tracking ref of a ref there; empty: there is none."""
        for spec in self.fetch:
            mapped = map_ref(spec, ref)
            if mapped.startswith(REMOTES) and is_ref_name(mapped):
                return mapped
        return ""


def map_ref(spec: Refspec, ref: str) -> str:
    """What a fetch by this refspec writes for a ref of the remote; empty: nothing."""
    if spec.target is None or not spec.source:
        return ""
    before, star, after = spec.source.partition("*")
    if not star:
        return spec.target if ref == spec.source else ""
    middle = ref[len(before) : len(ref) - len(after)]
    if not (ref.startswith(before) and ref.endswith(after) and len(ref) > len(before) + len(after)):
        return ""
    return spec.target.replace("*", middle, 1)


class RefPush(NamedTuple):
    """One ref of a push, in full."""

    source: str
    """The ref's name here, or an object's id; empty: the remote's ref is deleted."""
    new: str | None
    """The object that it is set to; None: it goes."""
    target: str
    force: bool
    """It may lose commits at the remote: forced, or deleted."""
    tracking: str = ""
    old: str | None = None
    """What the remote had when it was last seen, as its remote-tracking ref says; of a tag that goes, the tag here.
    None: nobody has seen it."""

    def describe(self) -> str:
        return f"delete {self.target}" if self.new is None else f"{self.source}:{self.target}"


_IGNORED: Final = regex(
    r"core\.(?:sshcommand|askpass|gitproxy|hookspath)|credential\..*|url\..*|include(?:if)?\..*|http\..*|ssh\..*"
    r"|remote\..*\.(?:uploadpack|receivepack|vcs|proxy|proxyauthmethod|serveroption)|push\.recursesubmodules"
    r"|protocol\..*",
    re.DOTALL,
)


def config_settings(repository: Repository, files: GitDir | None = None) -> list[GitSetting]:
    """What stands in the repository's own config, without what it includes. Raises RemoteRefused, OSError."""
    if files is None:
        folder = Handle(os.open(repository.git_dir, DIRECTORY))
        return config_settings(repository, GitDir(folder.fd, best_opener(), ()))
    found: list[GitSetting] = []
    for name in ("config", f"{repository.own}config.worktree"):
        try:
            found += read_config((files.read(name) or b"").decode("utf-8", "surrogateescape"))
        except ConfigSyntaxError:
            raise RemoteRefused("The repository's config file cannot be read as git reads it.") from None
    return found


def local_remotes(files: GitDir) -> frozenset[str]:
    """The remotes of a git directory that are paths of this machine, every address of each."""
    urls: dict[str, list[str]] = {}
    with contextlib.suppress(ConfigSyntaxError):
        for one in read_config((files.read("config") or b"").decode("utf-8", "surrogateescape")):
            if one.section == "remote" and one.subsection and one.key in ("url", "pushurl"):
                urls.setdefault(one.subsection, []).append(one.value or "")
    return frozenset(name for name, said in urls.items() if all(map(_is_path, said)))


def _is_path(url: str) -> bool:
    try:
        return read_address(url).is_local
    except RemoteRefused:
        return False


class PersonRepository:
    """Of the user, on the host. What it says was read when it was made."""

    def __init__(self, repository: Repository) -> None:
        """Raises RemoteRefused."""
        self.repository = repository
        self.git_dir = repository.git_dir
        try:
            self._handle = Handle(os.open(repository.git_dir, DIRECTORY))
        except OSError:
            raise RemoteRefused("The repository's git directory cannot be opened.") from None
        self.files = GitDir(self._handle.fd, best_opener(), ())
        self.settings = config_settings(repository, self.files)
        self.refs = {name: value for name, value in self.files.refs().items() if is_ref_name(name)}
        head = (self.files.read(f"{repository.own}HEAD") or b"").decode("utf-8", "replace").strip()
        self.branch = head.removeprefix("ref: ") if head.startswith(f"ref: {HEADS}") else ""
        """The full name of the one that is checked out; empty: none is."""
        self.head = self.refs.get(self.branch, "") if self.branch else head
        said = {one.name: one.value or "" for one in self.settings}
        self.sha256 = said.get("extensions.objectformat", "").casefold() == "sha256"
        self.partial = "extensions.partialclone" in said or any(name.endswith(".promisor") for name in said)
        if "reftable" in self.files.names() or said.get("extensions.refstorage", "files").casefold() != "files":
            raise RemoteRefused("The repository keeps its refs in another format than files, which Forge cannot read.")

    def value(self, section: str, subsection: str | None, key: str) -> str:
        """The last one; empty: there is none."""
        return next(reversed(self._values(section, subsection, key)), "")

    def _values(self, section: str, subsection: str | None, key: str) -> list[str]:
        wanted = (section, subsection, key)
        return [one.value or "" for one in self.settings if (one.section, one.subsection, one.key) == wanted]

    def unheeded(self) -> tuple[str, ...]:
        """Settings of the repository that the user's own git obeys at a push or a fetch, and Forge does not."""
        return tuple(dict.fromkeys(one.name for one in self.settings if _IGNORED.fullmatch(one.name)))

    def names(self) -> list[str]:
        """Of the remotes."""
        known = (one.subsection for one in self.settings if one.section == "remote" and one.key in ("url", "pushurl"))
        return sorted({name for name in known if name})

    def _no_remote(self, name: str) -> str:
        known = ", ".join(map(_quoted, self.names()[:10]))
        if known:
            return f"There is no remote {_quoted(name)} in the repository's config. Remotes: {known}."
        return (
            f"This repository has no remotes: name an https or ssh address in place of {_quoted(name)}. In a clone "
            "that Forge made for a session a commit is enough: `forge apply` brings it to the user's checkout."
        )

    def remote(self, name: str) -> GitRemote:
        """`name`: of a remote, or an address. Raises RemoteRefused."""
        if name not in self.names():
            if not is_remote_address(name):
                raise RemoteRefused(self._no_remote(name))
            if read_address(name).secrets:
                raise RemoteRefused("The address holds a password or token; give it without, and set up a helper.")
            return GitRemote(name="", urls=(name,))
        if not _NAME.fullmatch(name) or not is_ref_name(f"{REMOTES}{name}"):
            raise RemoteRefused(f"{_quoted(name)} is no name that a remote can have.")
        written = [text for text in self._values("remote", name, "fetch") if not text.startswith("^")]
        return GitRemote(
            name=name,
            urls=tuple(self._values("remote", name, "url")),
            push_urls=tuple(self._values("remote", name, "pushurl")),
            fetch=tuple(map(parse_refspec, written)),
            no_tags=self.value("remote", name, "tagopt") == "--no-tags",
            own_pushes=bool(self._values("remote", name, "push") or self.value("remote", name, "mirror")),
        )

    def default_remote(self, *, push: bool, personal: str = "") -> str:
        """As git chooses it. `personal`: `remote.pushDefault` of the user. Raises RemoteRefused."""
        short = self.branch.removeprefix(HEADS)
        chosen = [self.value("branch", short, "remote")] if short else []
        if push:
            of_branch = self.value("branch", short, "pushremote") if short else ""
            chosen = [of_branch, self.value("remote", None, "pushdefault") or personal, *chosen]
        names = self.names()
        chosen += names if len(names) == 1 else ["origin"]
        found = next(filter(None, chosen), "")
        if found not in names:
            raise RemoteRefused("The repository has no remote; add one with `git remote add origin ADDRESS`.")
        return found

    def upstream(self, remote: str) -> str:
        """The full name, at the remote, of what the checked-out branch follows there; empty: nothing."""
        short = self.branch.removeprefix(HEADS)
        if not short or self.value("branch", short, "remote") != remote:
            return ""
        merge = self.value("branch", short, "merge")
        return merge if is_ref_name(merge) else ""

    def follows(self, branch: str, remote: str, ref: str) -> bool:
        """`branch`: a full name here; `ref`: one at the remote."""
        short = branch.removeprefix(HEADS)
        return (self.value("branch", short, "remote"), self.value("branch", short, "merge")) == (remote, ref)

    def resolve(self, name: str) -> tuple[str, str]:
        """The full name and the object of what a refspec calls by `name`; an id is its own name. Raises
        RemoteRefused."""
        if name in ("HEAD", "@"):
            if not self.head or not is_object_id(self.head):
                raise RemoteRefused("There is no commit yet on the branch that is checked out.")
            return self.branch or self.head, self.head
        if is_object_id(name):
            return name, name
        full = [name] if name.startswith("refs/") else [f"{HEADS}{name}", f"{TAGS}{name}"]
        found = [(one, self.refs[one]) for one in full if is_object_id(self.refs.get(one, ""))]
        if len(found) > 1:
            raise RemoteRefused(f"{_quoted(name)} is a branch and a tag; write refs/heads/… or refs/tags/….")
        if not found:
            raise RemoteRefused(f"There is no branch or tag {_quoted(name)} in the repository.")
        return found[0]


class NoPersonRepository(PersonRepository):
    """Stands where there is no repository: for a remote that is given by its address, to list it or to clone it."""

    def __init__(self) -> None:
        self.repository = Repository("")
        self.git_dir = ""
        self.settings = []
        self.refs = {}
        self.branch = self.head = ""
        self.sha256 = self.partial = False


def is_remote_address(name: str) -> bool:
    return "://" in name or ":" in name or name.startswith(("/", "./", "../"))


def push_updates(
    person: PersonRepository, remote: GitRemote, refspecs: Sequence[str], *, force: bool, default: str = ""
) -> tuple[RefPush, ...]:
    """`default`: the user's `push.default`, if the repository has none. Raises RemoteRefused."""
    if len(refspecs) > _MOST_REFSPECS:
        raise RemoteRefused(f"At most {_MOST_REFSPECS} refspecs at once.")
    specs = [parse_refspec(text) for text in refspecs] or [_default_push(person, remote, default)]
    found: dict[str, RefPush] = {}
    for spec in specs:
        one = _update(person, remote, spec, force=force)
        if one.target in found:
            raise RemoteRefused(f"{one.target} is named twice.")
        found[one.target] = one
    return tuple(found.values())


def _default_push(person: PersonRepository, remote: GitRemote, default: str) -> Refspec:
    if remote.own_pushes:
        raise RemoteRefused(f"Remote '{remote.name}' has push settings of its own; name the refspecs.")
    if not person.branch:
        raise RemoteRefused("No branch is checked out; name the refspecs, as HEAD:refs/heads/NAME.")
    said = person.value("push", None, "default") or default or "simple"
    upstream = person.upstream(remote.name)
    if said in ("upstream", "tracking") and upstream:
        return Refspec(person.branch, upstream, False)
    if said in ("nothing", "matching") or (said == "simple" and upstream not in ("", person.branch)):
        raise RemoteRefused(f"Your settings (push.default {said}) do not say where this branch goes; name the refspec.")
    return Refspec(person.branch, person.branch, False)


def _update(person: PersonRepository, remote: GitRemote, spec: Refspec, *, force: bool) -> RefPush:
    if "*" in spec.source + (spec.target or ""):
        raise RemoteRefused("A push takes the names of branches and tags, no patterns; name each.")
    source, new = person.resolve(spec.source) if spec.source else ("", None)
    target = spec.target if spec.target is not None else source
    if not target.startswith("refs/"):
        kind = next((one for one in (HEADS, TAGS) if source.startswith(one)), "")
        if not source:  # deleted there: a branch, unless only a tag of this name is known
            known = person.refs.keys()
            kind = TAGS if f"{TAGS}{target}" in known and remote.tracking(f"{HEADS}{target}") not in known else HEADS
        if not kind or is_object_id(target):
            raise RemoteRefused(f"Where does {_quoted(spec.source)} go? Write it in full, as refs/heads/NAME.")
        target = f"{kind}{target}"
    if not is_ref_name(target) or not target.startswith(_PUSHED) or target == f"{HEADS}HEAD" or "/-" in target:
        raise RemoteRefused(f"A push writes branches and tags, not {_quoted(target)}.")
    tracking = remote.tracking(target)
    seen = tracking or (target if new is None and target.startswith(TAGS) else "")
    old = person.refs.get(seen) if seen else None
    if old is not None and not is_object_id(old):
        old = None
    if new is None and old is None:
        raise RemoteRefused(f"Nobody here knows what {target} is at the remote; call git_fetch first, then delete it.")
    return RefPush(source, new, target, force or spec.force or new is None, tracking, old)


class FetchSpec(NamedTuple):
    source: str
    target: str
    force: bool
    for_merge: bool
    """It is what a merge after the fetch takes."""

    def describe(self) -> str:
        return f"{'+' if self.force else ''}{self.source}:{self.target}"


def fetch_refspecs(person: PersonRepository, remote: GitRemote, refspecs: Iterable[str]) -> tuple[FetchSpec, ...]:
    """Raises RemoteRefused."""
    given = tuple(refspecs)
    if len(given) > _MOST_REFSPECS:
        raise RemoteRefused(f"At most {_MOST_REFSPECS} refspecs at once.")
    found = tuple(_fetched(remote, given)) if given else tuple(_default_fetch(person, remote))
    if not found:
        raise RemoteRefused(
            "Nothing says where the fetched branches go: name a remote of the repository, or refspecs with a "
            "destination below refs/remotes/."
        )
    return found


def _default_fetch(person: PersonRepository, remote: GitRemote) -> Iterator[FetchSpec]:
    upstream = person.upstream(remote.name)
    merged = remote.tracking(upstream) if upstream else ""
    if merged:  # first: a merge takes it
        yield FetchSpec(upstream, merged, True, True)
    for spec in remote.fetch:
        if (spec.target or "").startswith(_FETCHED) and spec.source.startswith("refs/"):
            yield FetchSpec(spec.source, spec.target or "", spec.force, False)


def _fetched(remote: GitRemote, given: Iterable[str]) -> Iterator[FetchSpec]:
    for text in given:
        spec = parse_refspec(text)
        source = spec.source if spec.source.startswith("refs/") else f"{HEADS}{spec.source}"
        target = spec.target or remote.tracking(source)
        if source.startswith(TAGS) and not spec.target:
            target = source
        force = spec.force or not spec.target
        wild = (source.count("*"), target.count("*"))
        if not target or not target.startswith(_FETCHED) or not is_ref_name(target.replace("*", "x")):
            raise RemoteRefused(f"A fetch writes below refs/remotes/ and refs/tags/, not {_quoted(target or text)}.")
        if wild not in ((0, 0), (1, 1)) or not is_ref_name(source.replace("*", "x")):
            raise RemoteRefused(f"{_quoted(text)} is no refspec; write the names of branches or tags.")
        if source.startswith(TAGS) and not spec.force:
            force = False
        yield FetchSpec(source, target, force, True)


def _quoted(text: str) -> str:
    return repr(escape_control_chars(text[:100]))
