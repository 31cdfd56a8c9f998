"""Codes and cookies: good once, for a time, kept nowhere, and written to no log."""

from __future__ import annotations

import logging

import pytest
from tests.ui.web.front import Clock, Front, cookie_in, front

from golem_forge.ui.web.api import ApiRefusal
from golem_forge.ui.web.security import LoginStore


class TestCodes:
    def test_one_is_good_once(self) -> None:
        login = LoginStore()
        code = login.new_code()
        cookie = login.exchange(code)
        assert cookie is not None and login.knows(cookie)
        assert login.exchange(code) is None
        assert login.knows(cookie)

    def test_for_five_minutes(self) -> None:
        clock = Clock()
        login = LoginStore(clock)
        early, late = login.new_code(), login.new_code()
        clock.now += 299
        assert login.exchange(early) is not None
        clock.now += 1
        assert login.exchange(late) is None

    def test_what_was_never_given(self) -> None:
        login = LoginStore()
        code = login.new_code()
        for wrong in ("", "x", code[:-1], code + "x", code.swapcase(), "\ud800", "ä" * 40, "x" * 10_000):
            assert login.exchange(wrong) is None
        assert login.exchange(code) is not None

    def test_only_the_latest_are_kept(self) -> None:
        login = LoginStore()
        codes = [login.new_code() for _ in range(40)]
        assert login.exchange(codes[0]) is None
        assert login.exchange(codes[-1]) is not None

    def test_guessing_is_slowed_down_and_locks_nobody_out(self) -> None:
        clock = Clock()
        login = LoginStore(clock)
        code = login.new_code()
        for _ in range(20):
            assert login.exchange("wrong") is None
        with pytest.raises(ApiRefusal) as caught:
            login.exchange("wrong")
        assert caught.value.status == 429
        assert login.exchange(code) is not None
        clock.now += 61
        assert login.exchange("wrong") is None

    def test_codes_do_not_resemble_each_other_and_are_not_kept(self) -> None:
        login = LoginStore()
        code = login.new_code()
        cookie = login.exchange(login.new_code())
        assert cookie is not None
        assert len({login.new_code() for _ in range(100)}) == 100 and len(code) >= 43
        kept = repr({name: repr(value) for name, value in vars(login).items()})
        assert code not in kept and cookie not in kept


class TestCookies:
    def test_one_lasts_twelve_hours(self) -> None:
        clock = Clock()
        login = LoginStore(clock)
        cookie = login.exchange(login.new_code())
        assert cookie is not None
        clock.now += 12 * 3600 - 1
        assert login.knows(cookie)
        clock.now += 1
        assert not login.knows(cookie)

    def test_a_forgotten_one_is_told_to_those_who_use_it(self) -> None:
        login = LoginStore()
        mine, other = login.exchange(login.new_code()), login.exchange(login.new_code())
        assert mine is not None and other is not None
        told: list[str] = []
        login.when_forgotten(mine, lambda: told.append("mine"))
        login.when_forgotten(other, lambda: told.append("other"))
        login.when_forgotten(mine, lambda: told.append("left"))()
        login.forget(mine)
        login.forget(mine)
        assert told == ["mine"]
        assert not login.knows(mine) and login.knows(other)

    def test_they_do_not_pile_up(self) -> None:
        login = LoginStore()
        first = login.exchange(login.new_code())
        assert first is not None
        for _ in range(256):
            login.exchange(login.new_code())
        assert not login.knows(first)


class TestOverTheWire:
    async def test_the_link_works_once(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        async with front() as served:
            link = served.server.url
            address, _, code = link.partition("#code=")
            assert address == served.address + "/"
            first = await served.log_in(code, Origin=served.address)
            assert (first.status, first.body) == (204, b"")
            morsel = cookie_in(first)
            assert morsel.key == f"forge_{served.port}"
            assert first.headers["set-cookie"] == (
                f"{morsel.key}={morsel.value}; Max-Age=43200; Path=/; HttpOnly; SameSite=Strict"
            )
            assert (await served.ask("/api/thing", Cookie=f"{morsel.key}={morsel.value}")).status == 200
            second = await served.log_in(code, Origin=served.address)
            assert second.status == 401 and "set-cookie" not in second.headers
            assert code.encode() not in second.body
            secrets = [code, morsel.value]
        said = "\n".join(str(record.__dict__) for record in caplog.records)
        assert not any(secret in said for secret in secrets)

    async def test_each_link_has_a_code_of_its_own(self, served: Front) -> None:
        codes = [served.server.url.partition("#code=")[2] for _ in range(2)]
        assert codes[0] != codes[1]
        assert [(await served.log_in(code)).status for code in codes] == [204, 204]

    async def test_secure_where_the_browser_came_by_https(self, served: Front) -> None:
        https = f"https://127.0.0.1:{served.port}"
        answer = await served.log_in(served.login.new_code(), Origin=https)
        assert answer.headers["set-cookie"].endswith("; Secure")
        plain = await served.log_in(served.login.new_code(), X_Forwarded_Proto="https", Forwarded="proto=https")
        assert "Secure" not in plain.headers["set-cookie"]

    async def test_too_many_wrong_ones(self, served: Front) -> None:
        statuses = [(await served.log_in("wrong")).status for _ in range(22)]
        assert statuses == [401] * 20 + [429] * 2
        assert (await served.log_in(served.login.new_code())).status == 204

    async def test_logging_out(self, served: Front) -> None:
        cookie = served.cookie
        own = {"Cookie": cookie, "Origin": served.address}
        answer = await served.ask("/api/logout", method="POST", **own)
        assert answer.status == 204
        assert cookie_in(answer)["max-age"] == "0"
        assert (await served.ask("/api/thing", Cookie=cookie)).status == 401
