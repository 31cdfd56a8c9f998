"""The operations of a team's server that manage it: people, projects with roles, quotas and secrets, groups, rules, the
audit.

Every operation acts through `PersonStore`, which checks the role of the person behind the request. What `api/team.py`
shares with these stands at the top.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from golem_forge.team.accounts import rule_in_words
from golem_forge.team.people import TOKEN_LASTS_S, PersonStore, Role
from golem_forge.team.project_secrets import MAX_SEALED
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api import ApiModel
from golem_forge.ui.web.api.operation import ApiCall, Operation, operation
from golem_forge.ui.web.stream.stored_session import PERSON

_T = TypeVar("_T")
ShortText = Annotated[str, Field(max_length=1000)]


def person_store(call: ApiCall) -> PersonStore:
    found: PersonStore = call.request.scope[PERSON]
    return found


async def as_person(call: ApiCall, act: Callable[[PersonStore], _T]) -> _T:
    """Acts in a thread on the store as the person behind the request may use it."""
    who = person_store(call)
    return await run_in_thread(lambda: act(who))


class Rows(ApiModel, title="TeamRows"):
    rows: list[dict[str, Any]]
    now: float = 0
    """By the store's clock, where it is asked for."""


# ---- people


_Expiry = Annotated[float, Field(ge=0, le=36_500 * 86400.0)]
"""Seconds until a token stops working; 0: never."""


class NewPerson(ApiModel, title="TeamNewPerson"):
    name: ShortText
    role: Literal["none", "viewer", "operator", "admin"] = "viewer"
    """In all projects."""
    expires_in: _Expiry = TOKEN_LASTS_S


class NewToken(ApiModel, title="TeamNewToken"):
    expires_in: _Expiry = TOKEN_LASTS_S


class PersonToken(ApiModel, title="TeamPersonToken"):
    name: str
    role: str
    token: str
    """Shown only now."""


@operation("GET", "/api/team/people", "team_people", tag="team")
async def team_people(call: ApiCall) -> Rows:
    """Everybody with their role, when their token expires (0: never) or where they sign in, for admins."""
    rows = await as_person(call, PersonStore.people)
    shown = ("name", "role", "created", "expires", "issuer")
    return Rows(rows=[{name: each[name] for name in shown} for each in rows])


@operation("POST", "/api/team/people", "team_add_person", tag="team", status=201)
async def team_add_person(call: ApiCall, body: NewPerson) -> PersonToken:
    """A new person, for admins; gives the token, once."""
    token = await as_person(call, lambda who: who.new_person(body.name, Role(body.role), body.expires_in))
    return PersonToken(name=body.name, role=body.role, token=token)


@operation("POST", "/api/team/people/{name}/token", "team_rotate_token", tag="team", status=201)
async def team_rotate_token(call: ApiCall, body: NewToken) -> PersonToken:
    """A new token of a person, for admins; the old one stops working at once."""
    name = call.path["name"]
    return PersonToken(
        name=name, role="", token=await as_person(call, lambda who: who.rotate_token(name, body.expires_in))
    )


@operation("POST", "/api/team/people/{name}/restore", "team_restore_person", tag="team")
async def team_restore_person(call: ApiCall) -> None:
    """Lets somebody in again who signs in with OpenID Connect and was removed, for admins."""
    await as_person(call, lambda who: who.restore_person(call.path["name"]))


@operation("DELETE", "/api/team/people/{name}", "team_remove_person", tag="team")
async def team_remove_person(call: ApiCall) -> None:
    """Their token stops working at once."""
    await as_person(call, lambda who: who.remove_person(call.path["name"]))


@operation("GET", "/api/team/refusals", "team_refusals", tag="team")
async def team_refusals(call: ApiCall) -> Rows:
    """Who tried what their role does not allow, for admins; newest first."""
    return Rows(rows=await as_person(call, PersonStore.refusals))


class AuditQuery(ApiModel, title="TeamAuditQuery"):
    after: Annotated[int, Field(ge=0, le=(1 << 53) - 1)] = 0
    since: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)] = 0.0
    program: ShortText = ""


class AuditPage(ApiModel, title="TeamAuditPage"):
    rows: list[dict[str, Any]]
    begin: tuple[int, str]
    """Number and hash of the record before the first that is kept."""


@operation("GET", "/api/team/audit", "team_audit", tag="team")
async def team_audit(call: ApiCall, query: AuditQuery) -> AuditPage:
    """Records of the audit after a number, for admins, in their order."""
    who = person_store(call)

    def read() -> AuditPage:
        begin = who.audit_begin()
        rows = who.audit(after=query.after, since=query.since, program=query.program)
        return AuditPage(rows=[each.to_dict() for each in rows], begin=(begin.n, begin.hash))

    return await run_in_thread(read)


# ---- projects


class Grant(ApiModel, title="TeamGrant"):
    project: ShortText
    """Its name."""
    subject: ShortText
    """The name of a person, or `@group`."""
    role: Literal["none", "viewer", "operator", "admin"]
    """`none` takes the role back."""


class NewName(ApiModel, title="TeamProjectName"):
    name: ShortText


class GroupChange(ApiModel, title="TeamGroupChange"):
    group: ShortText
    person: ShortText
    member: bool
    """False: they leave it."""


@operation("GET", "/api/team/projects", "team_projects", tag="team")
async def team_projects(call: ApiCall) -> Rows:
    """The projects that whoever asks may see; with the roles of others for those who manage them."""
    rows = await as_person(call, PersonStore.projects)
    return Rows(rows=[asdict(row) for row in rows])


@operation("POST", "/api/team/projects/roles", "team_grant", tag="team")
async def team_grant(call: ApiCall, body: Grant) -> None:
    """Gives somebody a role in a project, or takes it back, for admins of it."""
    await as_person(call, lambda who: who.grant(body.project, body.subject, Role(body.role)))


@operation("POST", "/api/team/projects/{name}/name", "team_rename_project", tag="team")
async def team_rename_project(call: ApiCall, body: NewName) -> None:
    """Another name for a project, for admins of it."""
    await as_person(call, lambda who: who.rename_project(call.path["name"], body.name))


class NewQuota(ApiModel, title="TeamQuota"):
    project: ShortText
    """Its name, or `*` for all projects."""
    person: ShortText = ""
    """A name, `*` for each person, empty for everybody together."""
    cost: Annotated[float, Field(ge=-1, le=1e9, allow_inf_nan=False)] = -1
    """US dollars in a day; -1: no limit."""
    sessions: Annotated[int, Field(ge=-1, le=1_000_000_000)] = -1
    """That are started in a day; -1: no limit."""


@operation("GET", "/api/team/quotas", "team_quotas", tag="team")
async def team_quotas(call: ApiCall) -> Rows:
    """The quotas of the projects that whoever asks manages, with what was used today."""
    return Rows(rows=await as_person(call, PersonStore.quotas))


@operation("POST", "/api/team/quotas", "team_set_quota", tag="team")
async def team_set_quota(call: ApiCall, body: NewQuota) -> None:
    """What may be spent and started in a day, for admins of the project; no limit takes the quota away."""
    await as_person(call, lambda who: who.set_quota(body.project, body.person, body.cost, body.sessions))


class NewSecret(ApiModel, title="TeamSecret"):
    project: ShortText
    """Its name."""
    name: ShortText
    sealed: Annotated[str, Field(max_length=MAX_SEALED)]
    """To the runners' public key, by whoever sets it: this server cannot open it."""


class SecretsKey(ApiModel, title="TeamSecretsKey"):
    key: str
    """The runners' public key."""
    project: str
    """The id of the project, which a secret is bound to."""


@operation("GET", "/api/team/secrets", "team_secrets", tag="team")
async def team_secrets(call: ApiCall) -> Rows:
    """The names of the secrets of the projects that whoever asks manages."""
    return Rows(rows=await as_person(call, PersonStore.secrets))


@operation("GET", "/api/team/projects/{name}/secrets-key", "team_secrets_key", tag="team")
async def team_secrets_key(call: ApiCall) -> SecretsKey:
    """What a secret of this project is sealed with, for admins of it."""
    key, project = await as_person(call, lambda who: who.secrets_key(call.path["name"]))
    return SecretsKey(key=key, project=project)


@operation("POST", "/api/team/secrets", "team_set_secret", tag="team")
async def team_set_secret(call: ApiCall, body: NewSecret) -> None:
    """Keeps a secret that was sealed elsewhere, for admins of the project."""
    await as_person(call, lambda who: who.put_secret(body.project, body.name, body.sealed))


@operation("DELETE", "/api/team/projects/{name}/secrets/{secret}", "team_remove_secret", tag="team")
async def team_remove_secret(call: ApiCall) -> None:
    """Deletes a secret, for admins of the project."""
    name, secret = call.path["name"], call.path["secret"]
    await as_person(call, lambda who: who.remove_secret(name, secret))


@operation("GET", "/api/team/groups", "team_groups", tag="team")
async def team_groups(call: ApiCall) -> Rows:
    """The groups with their people, for admins of all projects."""
    found = await as_person(call, PersonStore.groups)
    return Rows(rows=[{"name": name, "people": people} for name, people in found.items()])


@operation("POST", "/api/team/groups", "team_change_group", tag="team")
async def team_change_group(call: ApiCall, body: GroupChange) -> None:
    """Puts somebody into a group or takes them out, for admins of all projects."""
    change = PersonStore.join if body.member else PersonStore.leave
    await as_person(call, lambda who: change(who, body.group, body.person))


# ---- rules


@operation("GET", "/api/team/rules", "team_rules", tag="team")
async def team_rules(call: ApiCall) -> Rows:
    """The rules of the store, with their authors; `what` is the rule in words."""
    rows = await as_person(call, PersonStore.rules)
    return Rows(rows=[each | {"what": rule_in_words(each["rule"])} for each in rows])


@operation("DELETE", "/api/team/rules/{id}", "team_remove_rule", tag="team")
async def team_remove_rule(call: ApiCall) -> None:
    """Takes a rule back, for admins; from then on Forge asks again."""
    await as_person(call, lambda who: who.remove_rule(call.path["id"]))


def management_operations() -> tuple[Operation, ...]:
    return tuple(value for value in globals().values() if isinstance(value, Operation))
