"""Mirrors of package registries: which variables commands get, which hosts they name, and that no password is left."""

from __future__ import annotations

from tests.tables import table

from golem_forge.core.globs import HostGroup
from golem_forge.sandbox.network.registries import (
    MIRRORS,
    PUBLIC_HOSTS,
    group_of_place,
    group_places,
    mirror_places,
    person_mirrors,
    without_credentials,
)


@table(
    ("name", "value", "group", "place"),
    [
        ("PIP_INDEX_URL", "https://a.test/simple", HostGroup.PYTHON, ("a.test", 443)),
        ("UV_INDEX", "corp=http://a.test:81/s", HostGroup.PYTHON, ("a.test", 81)),
        ("npm_config_registry", "http://A.test/", HostGroup.NODE, ("a.test", 80)),
        ("YARN_NPM_REGISTRY_SERVER", "https://[fd00::1]:8443", HostGroup.NODE, ("fd00::1", 8443)),
        ("CARGO_REGISTRIES_CORP_INDEX", "sparse+https://a.test/index/", HostGroup.RUST, ("a.test", 443)),
        ("GOPROXY", "https://a.test,direct", HostGroup.GO, ("a.test", 443)),
        ("GOSUMDB", "sum.golang.org https://a.test", HostGroup.GO, ("a.test", 443)),
    ],
)
def test_a_mirror_belongs_to_its_group(name: str, value: str, group: HostGroup, place: tuple[str, int]) -> None:
    environ = {name: value}
    assert person_mirrors(environ).env == environ
    assert group_places(group, environ) == (*((host, 443) for host in PUBLIC_HOSTS[group]), place)
    assert mirror_places(environ) == {place} and group_of_place(place, environ) is group
    assert all(place not in group_places(other, environ) for other in HostGroup if other is not group)


@table(
    ("value", "shown"),
    [
        ("https://ada:canary@a.test/s", "https://a.test/s"),
        ("https://canary@a.test/s https://b.test/s", "https://a.test/s https://b.test/s"),
        ("corp=https://ada:can%40ary@a.test/s", "corp=https://a.test/s"),
        ("https://a.test/s?api_key=canary", "https://a.test/s"),
        ("https://a.test/s?access_token=canary&x=1,direct", "https://a.test/s,direct"),
        ("https://a.test/s?arch=arm", "https://a.test/s?arch=arm"),
    ],
)
def test_what_lets_somebody_in_is_taken_out_and_told(value: str, shown: str) -> None:
    found = person_mirrors({"PIP_INDEX_URL": value, "PIP_TRUSTED_HOST": "a.test"})
    assert found.env == {"PIP_INDEX_URL": shown, "PIP_TRUSTED_HOST": "a.test"}
    assert ("PIP_INDEX_URL" in found.notice) is ("canary" in value or "can%40ary" in value)
    assert "canary" not in found.notice and without_credentials(value) == shown


def test_nothing_else_of_the_environment_is_handed_on() -> None:
    environ = {
        "UV_INDEX_CORP_PASSWORD": "canary",
        "npm_config__authToken": "canary",
        "CARGO_REGISTRIES_CORP_TOKEN": "canary",
        "CARGO_REGISTRY_TOKEN": "canary",
        "PIP_CONFIG_FILE": "/x",
        "GOFLAGS": "-toolexec=/x",
        "PIP_INDEX_URL": "https://a.test/\nX: y",
        "GOPROXY": "x" * 10_000,
        "RUSTUP_DIST_SERVER": "",
    }
    assert person_mirrors(environ).env == {}
    assert not any("TOKEN" in row.settings or "PASSWORD" in row.settings for row in MIRRORS)
