"""HostRepository: a bare repository of Forge's own that borrows the user's objects, from which git reaches remotes.

Takes the user's repository and a remote. `look` asks git about commits, without network and without any settings of the
user. `reach` runs git with the user's own credentials: ssh agent and config, credential helpers, proxies and the
settings that they have for all repositories. Nothing of the repository's own settings, no hook, no submodule, no
prompt, no redirect to another address; https and ssh only; a time limit and bounds on all that comes back.

It stands in a private directory that `close` removes. Children in walls see neither it nor the processes. `refusals`
turns what goes wrong there into a failed call.

Threats: a repository that somebody else made (its config is not read by git at all); a server that never ends, sends
without end or leads elsewhere; an object store that borrows from where commands can write.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ToolFailed
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.sandbox.git.command import (
    CREDENTIAL_VARIABLES,
    NETWORK_VARIABLES,
    QUIET_ENVIRONMENT,
    QUIET_SETTINGS,
    GitIdle,
    GitLimits,
    GitMissing,
    GitOutputLimit,
    GitRun,
    GitStopped,
    GitTimeout,
    run_git,
)
from golem_forge.sandbox.git.directory import PACKED_REFS, GitDir, is_object_id
from golem_forge.sandbox.git.formats import git_words
from golem_forge.sandbox.git.remotes import (
    HEADS,
    GitRemote,
    PersonRepository,
    RemoteAddress,
    RemoteRefused,
    read_address,
)
from golem_forge.sandbox.git.transport import alternate_stores
from golem_forge.sandbox.handles import DIRECTORY, Handle, best_opener
from golem_forge.sandbox.host import is_below, safe_path
from golem_forge.sandbox.process.cleanup import remove_tree

REMOTE_SECONDS: Final = 600.0
IDLE_SECONDS: Final = 120.0
"""So long nothing may come from a remote, or from a program that knows a password: a person may have to touch a key."""
_LOOK_SECONDS: Final = 60.0
_SHORT_ANSWER: Final = GitLimits(seconds=_LOOK_SECONDS, output=1 << 16)
_MOST_OUTPUT: Final = 4 << 20
_LARGEST_PACK: Final = 16 << 30
_PREFIX: Final = "git-"
_SETTINGS: Final = (
    *QUIET_SETTINGS,
    "http.followRedirects=false",
    "push.recurseSubmodules=no",
    "push.followTags=false",
    "push.gpgSign=false",
    "fetch.fsckObjects=true",
    "fetch.prune=false",
    "fetch.pruneTags=false",
    "core.alternateRefsCommand=true",
    "credential.interactive=false",
    "transfer.credentialsInUrl=allow",
)
"""`transfer.credentialsInUrl`: else git names the address in a warning."""
_CONDITIONAL: Final = regex(
    r"core\.sshcommand|ssh\.variant|(?:credential|url|http)\..*|push\.default|remote\.pushdefault", re.DOTALL
)
_PROTOCOLS: Final = "https:ssh"
_REDIRECTED: Final = regex(r"unable to update url base from redirection|requested URL returned error: 30\d|redirect")
_OF_A_REMOTE: Final = frozenset({"git", "ssh", "git-remote-http", "git-remote-https", "git-remote-htt"})
"""Processes that wait for nobody but the server."""
_UNKNOWN_HOST_KEY: Final = regex(r"Host key verification failed")
_NO_CREDENTIALS: Final = regex(
    r"could not read (?:Username|Password)|terminal prompts disabled|Authentication failed|Permission denied \("
    r"|unable to read askpass|returned error: 40[13]"
)


class HostRepository:
    def __init__(
        self, person: PersonRepository, cache: Path | None, environ: Mapping[str, str], zones: Sequence[str]
    ) -> None:
        """`cache`: where its private directory is made; `environ`: the user's; `zones`: host directories that commands
        can write. Raises RemoteRefused, OSError."""
        self._person = person
        store = os.path.join(person.git_dir, "objects") if person.git_dir else ""
        if "\n" in store or store.startswith(('"', "#")):
            raise RemoteRefused("The path of the repository has characters that git cannot take there.")
        for place in alternate_stores(store) if store else ():
            if any(is_below(os.path.realpath(place), zone) for zone in zones) and not is_below(place, person.git_dir):
                raise RemoteRefused("The repository borrows objects from a directory that commands can write.")
        if cache is not None:
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=cache))
        self._environ = environ
        self._kept_out = tuple(zones)
        self.remote = f"forge-{os.urandom(8).hex()}"
        """The name that the remote has here: no setting of anybody's is about it."""
        self.git_dir = self.folder / "repository"
        self.copy = self.folder / "copy"
        """What `lay_out_copy` fills; a child may see it."""
        self._conditional: list[str] = []
        self._settings: dict[str, str] | None = None
        """What holds for all repositories, once somebody has asked."""
        try:
            self._make(store)
            if conditional := list(self._conditional_settings()):
                self._conditional = conditional
                self.settle_remote(None)
        except BaseException:
            self.close()
            raise

    def _make(self, store: str) -> None:
        person = self._person
        for name in ("objects/info", "objects/pack", "refs"):
            (self.git_dir / name).mkdir(mode=0o700, parents=True)
        (self.git_dir / "HEAD").write_text("ref: refs/heads/none\n")
        if store:
            (self.git_dir / "objects/info/alternates").write_bytes(os.fsencode(f"{store}\n"))
        if store and (shallow := person.files.read("shallow")) is not None:
            (self.git_dir / "shallow").write_bytes(shallow)
        self.settle_remote(None)

    def settle_remote(self, remote: GitRemote | None) -> None:
        """The remote's addresses, as the repository's config has them."""
        person = self._person
        extended = person.sha256 or person.partial
        lines = ["[core]", f"\trepositoryformatversion = {int(extended)}", "\tbare = true"]
        lines += ["[extensions]"] if extended else []
        lines += ["\tobjectformat = sha256"] if person.sha256 else []
        lines += ["\tpartialclone = forge-promisor", '[remote "forge-promisor"]'] if person.partial else []
        lines += ["\tpromisor = true"] if person.partial else []
        lines += self._conditional
        if remote is not None:
            lines.append(f'[remote "{self.remote}"]')
            lines += [f"\turl = {_quoted(url)}" for url in remote.urls]
            lines += [f"\tpushurl = {_quoted(url)}" for url in remote.push_urls]
        content = "\n".join((*lines, "")).encode("utf-8", "surrogateescape")
        (self.git_dir / "config").write_bytes(content)
        os.chmod(self.git_dir / "config", 0o600)

    def _conditional_settings(self) -> Iterator[str]:
        """What the user has set for repositories in certain places only (`includeIf`): it holds here too, though this
        one stands elsewhere."""
        if not self._person.git_dir:
            return
        there = _global_settings(self._person.git_dir, self._environ, self.folder)
        if not any(name.startswith("includeif.") for name, _ in there):
            return
        here = _global_settings(str(self.git_dir), self._environ, self.folder)
        for name, value in there:
            section, _, rest = name.partition(".")
            middle, dot, key = rest.rpartition(".")
            if (name, value) not in here and _CONDITIONAL.fullmatch(name) and (middle + value).isprintable():
                yield f"[{section} {_quoted(middle)}]" if dot else f"[{section}]"
                yield f"\t{key} = {_quoted(value)}"

    def address(self, remote: GitRemote, *, push: bool) -> RemoteAddress:
        """Where git goes for this remote, once the settings that the user has for all repositories (`insteadOf`) are
        applied; git does it. Raises RemoteRefused."""
        named = f"remote '{remote.name}'" if remote.name else "that address"
        if not remote.urls and not remote.push_urls:
            raise RemoteRefused(f"{named} has no address.")
        self.settle_remote(remote)
        words = ["remote", "get-url", "--all", *(["--push"] if push else []), self.remote]
        ran = self._run(words, self._reaching(), _SHORT_ANSWER)
        urls = ran.output.decode("utf-8", "replace").splitlines()
        if ran.code or not urls:
            raise RemoteRefused(f"Git does not say where {named} is: {ran.errors or 'it has no address'}")
        if len(urls) > 1 and push:
            raise RemoteRefused(f"{named} has {len(urls)} addresses to push to; name one of them instead.")
        return read_address(urls[0])

    def personal(self, name: str) -> str:
        """A setting that the user has for all repositories, by its name in small letters; empty: there is none."""
        if self._settings is None:
            limits = GitLimits(seconds=_LOOK_SECONDS, output=_MOST_OUTPUT)
            self._settings = dict(_entries(self._run(["config", "-z", "--list"], self._reaching(), limits)))
        return self._settings.get(name, "")

    def put_refs(self, refs: Mapping[str, str]) -> None:
        """What the user has: git tells the remote of it, so that only the rest is sent."""
        lines = [f"{value} {name}" for name, value in sorted(refs.items()) if is_object_id(value)]
        content = "\n".join(("# pack-refs with: sorted ", *lines, "")).encode("utf-8", "surrogateescape")
        (self.git_dir / PACKED_REFS).write_bytes(content)

    def refs(self) -> dict[str, str]:
        folder = Handle(os.open(self.git_dir, DIRECTORY))
        return GitDir(folder.fd, best_opener(), ()).refs()

    def lay_out_copy(self, head: str) -> None:
        """Moves objects and refs into `copy`, a bare repository with plain settings. Threat: the settings of this one
        hold what the user has set for remotes, a token in `http.extraHeader` for instance."""
        lines = ["[core]", "\trepositoryformatversion = 0", "\tbare = true", ""]
        (self.copy / "config").write_text("\n".join(lines))
        (self.copy / "HEAD").write_text(f"ref: {head}\n")
        for name in ("objects", "refs", PACKED_REFS, "shallow"):
            if (self.git_dir / name).exists():
                (self.git_dir / name).rename(self.copy / name)

    def look(self, *words: str, given: bytes = b"", most: int = _MOST_OUTPUT) -> str:
        """About objects; longer answers are cut. Raises RemoteRefused."""
        limits = GitLimits(seconds=_LOOK_SECONDS, output=most, cut=True)
        ran = self._run(["--literal-pathspecs", *words], self._looking(), limits, given)
        if ran.code and not ran.cut:
            raise RemoteRefused(f"Git could not read the repository: {ran.errors or f'exit code {ran.code}'}")
        return ran.output.decode("utf-8", "replace")

    def _looking(self) -> dict[str, str]:
        return {
            **QUIET_ENVIRONMENT,
            "PATH": safe_path(self._environ.get("PATH", os.defpath), self._kept_out),
            "HOME": "/nonexistent",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_DIR": str(self.git_dir),
            "GIT_ALLOW_PROTOCOL": "none",
        }

    def reach(self, *words: str, stopped: Callable[[], bool]) -> GitRun:
        """Raises RemoteRefused where git could not be started or took too long, GitStopped."""
        limits = GitLimits(
            seconds=REMOTE_SECONDS,
            idle=IDLE_SECONDS,
            output=_MOST_OUTPUT,
            file=_LARGEST_PACK,
            cut=True,
            stopped=stopped,
        )
        return self._run(words, self._reaching(), limits)

    def _reaching(self) -> dict[str, str]:
        kept = (*NETWORK_VARIABLES, *CREDENTIAL_VARIABLES)
        environ = {name: self._environ[name] for name in kept if name in self._environ}
        quiet = {name: value for name, value in QUIET_ENVIRONMENT.items() if name != "GIT_CONFIG_NOSYSTEM"}
        return {
            **environ,
            **quiet,
            "PATH": safe_path(self._environ.get("PATH", os.defpath), self._kept_out),
            "GIT_DIR": str(self.git_dir),
            "GIT_ALLOW_PROTOCOL": _PROTOCOLS,
            "SSH_ASKPASS_REQUIRE": "never",
            "GCM_INTERACTIVE": "never",
        }

    def _run(self, words: Sequence[str], environ: Mapping[str, str], limits: GitLimits, given: bytes = b"") -> GitRun:
        options = [word for setting in _SETTINGS for word in ("-c", setting)]
        try:
            return run_git([*options, *words], folder=self.folder, environ=environ, limits=limits, stdin=given)
        except GitMissing:
            raise RemoteRefused("There is no git on this machine.") from None
        except GitIdle as error:
            raise RemoteRefused(_silence(str(error), limits.idle)) from None
        except GitTimeout:
            raise RemoteRefused(f"Git took longer than {limits.seconds:g} s and was ended.") from None
        except GitOutputLimit:
            raise RemoteRefused("Git or the remote sent too much, and was ended.") from None

    def set_tracking(self, ref: str, value: str | None, note: str) -> bool:
        """A ref of the user's, below refs/remotes/, with an entry in its log; None: it goes. False: git did not."""
        environ = self._looking() | {"GIT_DIR": self._person.git_dir}
        words = ["update-ref", "-m", note, *(["-d", ref] if value is None else [ref, value])]
        return self._run(words, environ, _SHORT_ANSWER).code == 0

    def set_upstream(self, branch: str, remote: str, ref: str) -> bool:
        """In the config of the user's repository: what a branch follows. False: git did not."""
        environ = self._looking() | {"GIT_DIR": self._person.git_dir}
        name = f"branch.{branch.removeprefix(HEADS)}"
        settings = ((f"{name}.remote", remote), (f"{name}.merge", ref))
        return all(self._run(["config", "--local", *each], environ, _SHORT_ANSWER).code == 0 for each in settings)

    def close(self) -> None:
        remove_tree(str(self.folder))


def personal_config(git_dir: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What the user has set for all repositories, as it holds for this one (`includeIf`); names in small letters but
    for a part in the middle. Empty where git does not say."""
    with tempfile.TemporaryDirectory() as folder:
        return dict(_global_settings(git_dir, environ, Path(folder)))


def _global_settings(git_dir: str, environ: Mapping[str, str], folder: Path) -> list[tuple[str, str]]:
    kept = {name: environ[name] for name in ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL") if name in environ}
    own = {**QUIET_ENVIRONMENT, **kept, "PATH": safe_path(environ.get("PATH", os.defpath)), "GIT_DIR": git_dir}
    limits = GitLimits(seconds=_LOOK_SECONDS, output=_MOST_OUTPUT)
    try:
        ran = run_git(["config", "--global", "--includes", "-z", "--list"], folder=folder, environ=own, limits=limits)
    except (GitMissing, GitTimeout, GitOutputLimit, OSError):
        return []
    return _entries(ran)


def _entries(listed: GitRun) -> list[tuple[str, str]]:
    """Of `git config -z --list`; none where it failed."""
    entries = listed.output.decode("utf-8", "surrogateescape").split("\0") if not listed.code else []
    found = (entry.partition("\n") for entry in entries if entry)
    return [(name, value if newline else "true") for name, newline, value in found]


def _silence(name: str, seconds: float) -> str:
    """`name`: of the process that git waited for."""
    if name in _OF_A_REMOTE:
        return f"The remote said nothing for {seconds:g} s, so git was ended. Try again, or look whether it is up."
    return (
        f"Git waited {seconds:g} s for '{escape_control_chars(name)}', which said nothing, and was ended. Nobody can "
        "answer a question there: see that `git push` works in your own terminal without one."
    )


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """What cannot be done with a repository fails the call, in its own words."""
    try:
        yield
    except RemoteRefused as error:
        raise ToolFailed(str(error), code="REMOTE_REFUSED") from None
    except GitStopped:
        raise ToolFailed("It was interrupted.", status=Status.INTERRUPTED) from None
    except OSError as error:
        raise ToolFailed(f"The repository cannot be read ({os.strerror(error.errno or 0)}).") from None


def failure_hint(errors: str) -> str:
    """What to do about a remote that could not be reached, by git's own words; empty: nothing is known."""
    if _UNKNOWN_HOST_KEY.search(errors):
        return "Your ssh does not know this host's key: connect to it once yourself, and check the key."
    if _REDIRECTED.search(errors):
        return "The remote leads to another address, which Forge does not follow: set the remote to the new address."
    if _NO_CREDENTIALS.search(errors):
        return (
            "Forge uses your ssh agent, ssh config and credential helpers, and cannot ask for a password: see that "
            "`git push` works in your own terminal without a question."
        )
    return ""


def remote_words(errors: str, address: RemoteAddress) -> str:
    """Git's own words, without what stands in the address."""
    for secret in address.secrets:
        errors = errors.replace(secret, "…")
    return git_words(errors.encode("utf-8", "replace"))


def _quoted(value: str) -> str:
    if not value.isprintable():
        raise RemoteRefused("The remote's address has characters that nobody sees.")
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
