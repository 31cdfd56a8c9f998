"""`store`: where shared sessions are kept, and how a runner here takes them.

    store:
      url: sqlite | postgresql://… | https://team.example | env:NAME
      token: env:NAME
      runner: {slots: 4, labels: []}
      limits: {per_person: 8, per_program: 16}
      hold: 30m
      retention: 90d
      audit: {retention: 400d}
      page: https://team.example
    oidc: {client_id: forge, client_secret: env:NAME, roles: {admin: [ops], operator: [dev], viewer: ["*"]}}
    notify:
      - {webhook: https://chat.example/hook, secret: env:NAME, on: [question, finished, failed]}

`oidc` is for `forge web --team --oidc ISSUER`: groups that the provider names become roles. A runner tells the webhooks
of `notify` what happens to its sessions: those of its account's config.yaml, and those of a trusted forge.yaml where it
was started.

Of an untrusted program none of it counts: a stranger's program could send sessions to a database of its own. A password
is never written here: the address comes from a variable (`env:NAME`), or the password from PostgreSQL's own
(`PGPASSWORD`, `~/.pgpass`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from golem_forge.config.sandbox_block import whole_number
from golem_forge.config.validation import (
    INVALID,
    Check,
    ConfigLayer,
    ConfigProblems,
    MappingSchema,
    duration,
    flag,
    list_of,
    one_of,
    refuse,
    text,
)
from golem_forge.config.yaml_file import YamlPath, is_override
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, field

_URL: Final = "`sqlite`, sqlite:///path, postgresql://…, https://… or env:NAME"
_SCHEMES: Final = frozenset({"sqlite", "postgresql", "postgres", "https", "http"})
NOTIFY_ON: Final = ("question", "finished", "failed")
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
FROM_VARIABLE: Final = "env:"
TOKEN_VARIABLE: Final = "FORGE_TEAM_TOKEN"


def address_problem(url: str, *, may_hold_password: bool = False) -> str:
    """Why this cannot be the address of a store; empty: it can. Does not repeat it: it may hold a password."""
    if url == "sqlite":
        return ""
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        return f"expected {_URL}"
    if parts.scheme not in _SCHEMES:
        return f"expected {_URL}"
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        return "a team's page is reached by https (http only on this machine)"
    if not may_hold_password and (password is not None or "password=" in unquote(parts.query)):
        return "holds a password: put the whole address into a variable and write env:NAME, or set PGPASSWORD"
    return ""


def _address(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if not isinstance(value, str):
        return refuse(problems, path, value, _URL)
    if _is_variable(value):
        return value
    if problem := address_problem(value):
        problems.add(path, problem)
        return ""
    return value


def _token(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if _is_variable(value):
        return value
    problems.add(path, "expected env:NAME, the variable that holds your token of the team; never the token itself")
    return ""


def _secret(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    if _is_variable(value):
        return value
    problems.add(path, "expected env:NAME, the variable that holds the secret; never the secret itself")
    return INVALID


def _web_address(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    """Checks an address. The error does not repeat it, because it may hold a secret."""
    if isinstance(value, str) and not _web_problem(value):
        return value
    problems.add(path, _web_problem(value) if isinstance(value, str) else "expected https://…")
    return INVALID


def _web_problem(url: str) -> str:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        return "expected an address like https://example.com/path"
    return "holds a user name or a password, which is never sent; leave that part out" if "@" in parts.netloc else ""


def _hook_address(value: Any, path: YamlPath, problems: ConfigProblems) -> Any:
    return value if _is_variable(value) else _web_address(value, path, problems)


def _is_variable(value: Any) -> bool:
    return (
        isinstance(value, str) and value.startswith(FROM_VARIABLE) and value.removeprefix(FROM_VARIABLE).isidentifier()
    )


STORE_KEYS: Final[dict[str, Check]] = {
    "notify": list_of(
        MappingSchema(
            {
                "webhook": _hook_address,
                "secret": _secret,
                "on": list_of(one_of(*NOTIFY_ON)),
                "projects": list_of(text),
                "allow_private": flag,
            },
            required=("webhook", "secret"),
        )
    ),
    "store": MappingSchema(
        {
            "url": _address,
            "token": _token,
            "runner": MappingSchema({"slots": whole_number, "labels": list_of(text)}),
            "limits": MappingSchema({"per_person": whole_number, "per_program": whole_number}),
            "hold": duration,
            "retention": duration,
            "audit": MappingSchema({"retention": duration}),
            "page": _web_address,
        }
    ),
    "oidc": MappingSchema(
        {
            "client_id": text,
            "client_secret": _secret,
            "groups": text,
            "name": text,
            "scopes": list_of(text),
            "recheck": duration,
            "roles": MappingSchema({role: list_of(text) for role in ("viewer", "operator", "admin")}),
        },
        required=("client_id", "roles"),
    ),
    "workspace": MappingSchema({"git": text, "ref": text}, required=("git",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyHook:
    """A webhook that a runner calls, and the events that it reports."""

    webhook: str
    secret: str
    on: tuple[str, ...] = NOTIFY_ON
    allow_private: bool = False
    """Whether the address may be one of this machine or of a local network."""
    projects: tuple[str, ...] = ()
    """Names: it is told of their sessions alone; empty: of all."""
    folder: Path | None = None
    """The program whose forge.yaml has it; it is called for that program's sessions only."""
    origin: str = ""

    def url(self, environ: Mapping[str, str] = os.environ) -> str:
        """Returns the address. Raises ConfigError."""
        if not self.webhook.startswith(FROM_VARIABLE):
            return self.webhook
        found = self._variable(self.webhook, "the address of the webhook", environ)
        if problem := _web_problem(found):
            raise ConfigError(f"{self.origin}: the variable {self.webhook.removeprefix(FROM_VARIABLE)}: {problem}")
        return found

    def key(self, environ: Mapping[str, str] = os.environ) -> bytes:
        """Returns the signing key. Raises ConfigError."""
        return self._variable(self.secret, "the secret of the webhook", environ).encode()

    def secrets(self, environ: Mapping[str, str] = os.environ) -> Iterator[tuple[str, str]]:
        """(name of the variable, its value): what nobody may read."""
        for said in (self.webhook, self.secret):
            if said.startswith(FROM_VARIABLE):
                name = said.removeprefix(FROM_VARIABLE)
                yield name, environ.get(name, "").strip()

    def _variable(self, said: str, what: str, environ: Mapping[str, str]) -> str:
        name = said.removeprefix(FROM_VARIABLE)
        if not (found := environ.get(name, "").strip()):
            raise ConfigError(f"{self.origin}: the variable {name} is not set; it holds {what}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInSettings:
    """This server's registration at an OpenID Connect provider, and the roles of its groups."""

    client_id: str = ""
    client_secret: str = ""
    groups: str = "groups"
    """The claim that holds the groups."""
    name: str = "preferred_username"
    """The claim that holds the person's name."""
    scopes: tuple[str, ...] = ("openid", "profile", "email", "offline_access")
    recheck: float = 60.0
    """Seconds after which the provider is asked again."""
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origin: str = ""

    def secret(self, environ: Mapping[str, str] = os.environ) -> str:
        """Empty: it has none. Raises ConfigError where a variable is named that is not set."""
        name = self.client_secret.removeprefix(FROM_VARIABLE)
        if name and not environ.get(name, "").strip():
            raise ConfigError(f"{self.origin}: the variable {name} is not set; it holds the secret of the client")
        return environ.get(name, "").strip() if name else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    url: str = "sqlite"
    token: str = ""
    slots: int = 4
    labels: tuple[str, ...] = ()
    per_person: int = 8
    per_program: int = 16
    hold: float = 1800.0
    retention: float = 90 * 86400.0
    audit_retention: float = 400 * 86400.0
    page: str = ""
    """The address of `forge web --team`, for links."""
    notify: tuple[NotifyHook, ...] = ()
    sign_in: SignInSettings = SignInSettings()
    origins: Mapping[str, str] = field(default_factory=dict)

    def address(self, environ: Mapping[str, str] = os.environ) -> str:
        """The address itself. Raises ConfigError where a variable is named that is not set."""
        if not self.url.startswith(FROM_VARIABLE):
            return self.url
        name = self.url.removeprefix(FROM_VARIABLE)
        where = self.origins.get("url", "store.url")
        if not (found := environ.get(name, "").strip()):
            raise ConfigError(f"{where}: the variable {name} is not set; it holds the address of the store")
        if (problem := address_problem(found, may_hold_password=True)) != "":
            raise ConfigError(f"{where}: the variable {name} holds no address of a store: {problem}")
        return found

    @property
    def is_remote(self) -> bool:
        """Whether it is a team's page, and not a database."""
        return self.address().startswith(("https://", "http://"))

    def person_token(self, environ: Mapping[str, str] = os.environ) -> str:
        """The token of the person who acts here; empty: there is none, and the account itself acts."""
        if not self.token:
            return environ.get(TOKEN_VARIABLE, "").strip()
        name = self.token.removeprefix(FROM_VARIABLE)
        if not (found := environ.get(name, "").strip()):
            where = self.origins.get("token", "store.token")
            raise ConfigError(f"{where}: the variable {name} is not set; it holds your token of the team")
        return found


def effective_store(project: ConfigLayer, person: ConfigLayer) -> StoreSettings:
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    notify: list[NotifyHook] = []
    for layer in (person, project):
        block = layer.block("store")
        values |= {name: block[name] for name in ("url", "token", "hold", "retention", "page") if name in block}
        values |= layer.block("store", "limits")
        values |= {f"audit_{name}": value for name, value in layer.block("store", "audit").items()}
        runner = layer.block("store", "runner")
        values |= {"slots": runner["slots"]} if "slots" in runner else {}
        values |= {"labels": tuple(runner["labels"])} if "labels" in runner else {}
        origins |= {name: layer.at("store", name) for name in block}
        notify += [
            NotifyHook(
                **{**each, "on": tuple(each.get("on", NOTIFY_ON)), "projects": tuple(each.get("projects", ()))},
                folder=layer.folder if layer is project and not is_override(layer.at("notify")) else None,
                origin=layer.at("notify", number),
            )
            for number, each in enumerate(layer.values.get("notify") or ())
        ]
        if said := dict(layer.block("oidc")):
            roles = {role: tuple(groups) for role, groups in said.pop("roles", {}).items()}
            said |= {"scopes": tuple(said["scopes"])} if "scopes" in said else {}
            values["sign_in"] = SignInSettings(**said, roles=roles, origin=layer.at("oidc"))
    return StoreSettings(**values, notify=tuple(notify), origins=origins)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSettings:
    """The repository that each background session gets a clone of."""

    git: str = ""
    ref: str = ""
    folder: Path = Path()
    """The directory that a relative path starts from."""
    origin: str = ""
    is_withheld: bool = False
    """A program that is not trusted names it: nothing is cloned, and no session starts without a word about it."""


def effective_workspace(project: ConfigLayer, person: ConfigLayer, withheld: str = "") -> WorkspaceSettings:
    """`withheld`: where a stranger's program names one; empty: it does not, or is trusted."""
    for layer in (project, person):
        if block := layer.block("workspace"):
            return WorkspaceSettings(**block, folder=layer.folder, origin=layer.at("workspace"))
        if withheld:
            return WorkspaceSettings(origin=withheld, is_withheld=True)
    return WorkspaceSettings()


def restrict_untrusted_block(project: ConfigLayer, key: str, unused: list[str]) -> dict[str, Any]:
    """`workspace` or `oidc`, whole or not at all. Threat: a stranger's program names a repository, which is fetched
    with the person's credentials, or who may do what on the page of a team."""
    block = project.block(key)
    if all(is_override(project.at(key, name)) for name in block):
        return block
    unused.append(f"{project.at(key)}: {key}")
    return {}


def restrict_untrusted_store(project: ConfigLayer, unused: list[str]) -> dict[str, Any]:
    """Removes the store settings of an untrusted program, except those of the command line."""
    kept: dict[str, Any] = {}
    for name, value in project.block("store").items():
        origin = project.at("store", name)
        if is_override(origin):
            kept[name] = value
        else:
            unused.append(f"{origin}: store.{name}")
    return kept


def restrict_untrusted_notify(project: ConfigLayer, unused: list[str]) -> list[Any]:
    """Removes the webhooks of an untrusted program."""
    said: list[Any] = project.values.get("notify") or []
    if not said or is_override(project.at("notify")):
        return said
    unused.append(f"{project.at('notify')}: notify")
    return []
