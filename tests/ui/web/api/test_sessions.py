"""Sessions over HTTP: a title, an export and a deletion, with the guards of every other route."""

from __future__ import annotations

from typing import Any

from golem_forge.events.journal_files import sessions_dir
from golem_forge.storage.home import ForgeHome

pytest_plugins = ("tests.ui.web.asking",)
SECRET = "sk-live-0123456789abcdefghij"


async def test_a_session_is_named_exported_and_when_it_ended_deleted(
    sessions: Any, forge_home: ForgeHome, monkeypatch: Any
) -> None:
    asked = await sessions()
    one = f"/api/sessions/{asked.session}"
    await asked.runtime.turn(f"Buy milk {SECRET}\n# not a heading")
    assert (await asked.get(one))["title"].startswith("Buy milk")

    assert (await asked.ask("PATCH", one, {"title": "Shopping\nlist"}))["title"] == "Shopping list"
    listed = await asked.get("/api/sessions?query=shopping")
    assert [each["title"] for each in listed["sessions"]] == ["Shopping list"]
    for wrong in ({"title": "x" * 201}, {"title": 5}, {}, {"title": "a", "worker": "b"}):
        await asked.ask("PATCH", one, wrong, status=422)

    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    answer = await asked.client.get(f"{one}/export")
    assert answer.headers["content-type"].startswith("text/markdown")
    assert answer.headers["content-disposition"] == f'attachment; filename="session-{asked.session[:12]}.md"'
    assert answer.text.startswith("# Shopping list\n") and "> # not a heading" in answer.text
    whole = await asked.get("export?format=json")
    assert whole["title"] == "Shopping list" and whole["events"][0]["sessionId"] == asked.session
    await asked.get("export?format=pdf", status=422)

    busy = await asked.ask("DELETE", one, status=409)
    assert "end it first" in busy["problem"]
    await asked.runtime.aclose()
    folder = sessions_dir(forge_home.path)
    assert sorted(path.suffix for path in folder.iterdir() if path.stem == asked.session) == [
        ".head",
        ".jsonl",
        ".title",
    ]


async def test_another_session_is_deleted_and_hostile_names_find_nothing(
    sessions: Any, forge_home: ForgeHome, tmp_path: Any
) -> None:
    first, second = await sessions(), await sessions()
    await first.runtime.turn("Hello")
    await first.runtime.aclose()
    one = f"/api/sessions/{first.session}"
    (sessions_dir(forge_home.path) / "x.jsonl.bak").write_text("kept")
    outside = await second.client.delete(one, headers={"Origin": "http://elsewhere.test"})
    assert outside.status_code == 403
    stranger = await second.client.delete(one, headers={"Cookie": "none=1"})
    assert stranger.status_code == 401
    for name in ("..", "%2e%2e%2fconfig", "x.jsonl", "..%5c..%5cx", "a" * 400, "%00"):
        for method, path in (("DELETE", ""), ("PATCH", ""), ("GET", "/export")):
            body = {"json": {"title": "x"}} if method == "PATCH" else {}
            answer = await second.client.request(method, f"/api/sessions/{name}{path}", **body)
            assert answer.status_code in (404, 405), (name, method, answer.status_code)
    await second.ask("DELETE", one, status=204)
    await second.get(one, status=404)
    await second.ask("DELETE", one, status=404)
    left = {path.name for path in sessions_dir(forge_home.path).iterdir()}
    assert "x.jsonl.bak" in left and not any(first.session in name for name in left)


async def test_the_files_behind_an_at_sign_are_those_of_the_zones_without_secrets(
    sessions: Any, project: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    for name in ("src/cart.py", "src/deep/er/a.txt", ".env", "keys/server.pem", "keys/id_rsa", "built/out.bin"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x")
    (project / ".gitignore").write_text("built/\n")
    (tmp_path / "outside.txt").write_text("x")
    (project / "way_out").symlink_to(tmp_path)
    asked = await sessions()
    found = (await asked.get("files"))["files"]
    assert {"/workspace/src/cart.py", "/workspace/src/deep/er/a.txt"} <= set(found)
    shown = " ".join(found)
    assert not [word for word in (".env", ".pem", "id_rsa", "outside", "out.bin", str(tmp_path)) if word in shown]
    monkeypatch.setattr("golem_forge.ui.web.api.sessions._MOST_FILES", 1)
    assert len((await asked.get("files"))["files"]) == 1
    stranger = await asked.client.get(f"/api/sessions/{asked.session}/files", headers={"Cookie": "none=1"})
    assert stranger.status_code == 401
