"""The roster: references, unique names, delegates, and what of strangers' files counts (workers.md §2)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.conftest import put

from golem_forge.agent.files.roster import Roster, load_roster
from golem_forge.agent.files.worker import Worker
from golem_forge.agent.session_plan import BUILT_IN_WORKER
from golem_forge.agent.trust import trust_store
from golem_forge.config.program import Program, load_program
from golem_forge.core.errors import ConfigError
from golem_forge.storage.home import forge_home


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.trust = trust_store(forge_home())

    def put(self, name: str, text: str) -> Path:
        return put(self.root, name, text)

    def worker(self, name: str, front: str = "") -> Path:
        said = front if front.startswith("name:") else f"name: {Path(name).stem}\n{front}"
        return self.put(name, f"---\n{said}\n---\nInstructions")

    @property
    def program(self) -> Program:
        trust = self.trust
        return load_program(self.root, forge_home(), trusted=trust.trusted, trusted_with=trust.trusted_with)

    def load(self, entry: str | Path | Worker | None = None) -> Roster:
        return load_roster(self.program, entry, trusted_with=self.trust.trusted_with)

    def problems(self, entry: str | Path | None = None) -> tuple[str, ...]:
        with pytest.raises(ConfigError) as caught:
            self.load(entry)
        return caught.value.problems


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "app").mkdir()
    return Place(tmp_path / "app")


def allow(*references: str) -> str:
    return f"toolsets: {{workers: {{allow: [{', '.join(references)}]}}}}"


def test_without_a_program_it_is_the_built_in_worker(place: Place) -> None:
    assert place.load().root is BUILT_IN_WORKER
    place.put("forge.yaml", "approval: {mode: strict}\n")
    assert place.load().root is BUILT_IN_WORKER, "a program that names no entry and has no main.worker"
    assert place.load("default").root is BUILT_IN_WORKER


def test_entry_is_what_starts_W6(place: Place) -> None:
    place.worker("main.worker")
    place.worker("other.worker")
    assert place.load().root.name == "main"
    place.put("forge.yaml", "entry: other.worker\n")
    assert place.load().root.name == "other"
    place.put("forge.yaml", "model: a:b\nentry: gone.worker\n")
    assert place.problems() == ("forge.yaml:2: entry: worker 'gone.worker' not found: there is no gone.worker",)
    place.put("forge.yaml", "entry: othr.worker\n")
    assert place.problems()[0].endswith("there is no othr.worker; did you mean 'other.worker'?")
    place.put("forge.yaml", "entry: workers/\n")
    place.worker("workers/a.worker")
    assert place.problems() == ("forge.yaml:1: entry: worker 'workers/' is a directory; name the worker file in it",)


def test_names_are_looked_up_in_order(place: Place) -> None:
    place.put("forge.yaml", "worker_paths: [team, more]\n")
    place.worker("more/a.worker", "name: fourth")
    found: list[str] = []
    for name, said in (("team/a/a.worker", "third"), ("team/a.worker", "second"), ("a.worker", "first")):
        found.append(place.load("a").root.name)
        place.worker(name, f"name: {said}")
    found.append(place.load("a").root.name)
    assert found == ["fourth", "third", "second", "first"]


def test_worker_paths_default_to_workers_W6(place: Place) -> None:
    place.worker("workers/helper.worker")
    assert place.load("helper").root.shown_path == "workers/helper.worker"
    assert place.problems("helpr") == ("worker 'helpr' not found in the program root, workers; did you mean 'helper'?",)
    place.put("forge.yaml", "worker_paths: [elsewhere]\n")
    assert "not found in the program root, elsewhere" in place.problems("helper")[0]


def test_paths_are_relative_to_the_file_that_refers(place: Place) -> None:
    place.worker("main.worker", allow("./team/lead.worker"))
    place.worker("team/lead.worker", allow("./near.worker", "../far.worker", "named"))
    place.worker("team/near.worker")
    place.worker("far.worker")
    place.worker("workers/named.worker")
    roster = place.load()
    [lead] = roster.delegates(roster.root)
    assert [each.name for each in roster.delegates(lead)] == ["near", "far", "named"]
    assert roster.delegates(roster.delegates(lead)[0]) == ()
    assert [each.name for each in roster.workers] == ["main", "lead", "near", "far", "named"]


def test_a_file_given_by_path_from_anywhere(place: Place, tmp_path: Path) -> None:
    path = place.worker("sub/one.worker")
    (tmp_path / "link").symlink_to(place.root)
    assert place.load(path).root.name == "one"
    assert place.load(tmp_path / "link/sub/one.worker").root.name == "one"
    outside = tmp_path / "out.worker"
    outside.write_text("---\nname: out\n---\n")
    assert "lies outside the program" in place.problems(outside)[0]


def test_cycles_load_and_are_judged_when_called(place: Place) -> None:
    place.worker("main.worker", allow("main", "b", "./b.worker"))
    place.worker("b.worker", allow("main"))
    roster = place.load()
    assert [each.name for each in roster.delegates(roster.root)] == ["main", "b"], "one worker is one tool"


def test_an_unknown_delegate_is_a_load_error_W4(place: Place) -> None:
    place.worker("main.worker", "toolsets:\n  workers:\n    allow: [helper,\n      nope, ../../x.worker]")
    place.worker("helper.worker", "bogus: 1")
    assert place.problems() == (
        "helper.worker:3: bogus: unknown key 'bogus'; known: allow_empty_input, attachment_policy, batch, budget, "
        "compatible_models, description, input_schema, max_context_tokens, max_iterations, mode, model, "
        "model_settings, name, output_schema, sandbox, tool_format, toolsets",
        "main.worker:6: toolsets.workers.allow[1]: worker 'nope' not found in the program root, workers",
        "main.worker:6: toolsets.workers.allow[2]: worker '../../x.worker' lies outside the program",
    )


def test_two_files_with_one_name_are_named_W4(place: Place) -> None:
    place.worker("main.worker")
    place.worker("workers/x.worker", "name: a")
    assert place.load().root.name == "main"
    place.worker("workers/y/y.worker", "name: a")
    assert place.problems() == ("two workers are called 'a': workers/x.worker and workers/y/y.worker; rename one",)
    place.worker("workers/w.worker", "name: a")
    assert place.problems() == (
        "3 workers are called 'a': workers/w.worker, workers/x.worker and workers/y/y.worker; rename all but one",
    )
    (place.root / "workers/w.worker").unlink()
    (place.root / "workers/y/y.worker").unlink()
    (place.root / "workers/z.worker").symlink_to("x.worker")
    assert place.load().root.name == "main", "one file under two names is one worker"


def test_approval_in_a_workers_block_names_its_delegates_W4(place: Place) -> None:
    place.worker("helper.worker")
    place.worker("main.worker", "toolsets: {workers: {allow: [helper], approval: {tools: {helpr: ask}}}}")
    assert place.problems() == (
        "main.worker:3: toolsets.workers.approval.tools.helpr: not a tool of this block; did you mean 'helper'?",
    )
    place.worker("main.worker", "toolsets: {filesystem: , workers: {allow: [read_file]}}")
    place.worker("read_file.worker")
    assert place.problems() == (
        "main.worker:3: toolsets: tool 'read_file' is exposed by 'filesystem' and 'workers'; "
        "leave it out of one of them",
    )


@pytest.mark.parametrize("linked", ["main.worker", "workers"])
def test_links_that_lead_outside_are_refused(place: Place, tmp_path: Path, linked: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "main.worker").write_text("---\nname: out\n---\n")
    (place.root / linked).symlink_to(outside / "main.worker" if linked == "main.worker" else outside)
    place.put("forge.yaml", "")
    assert "outside the program" in place.problems()[0]


def test_files_and_warnings(place: Place) -> None:
    place.worker("main.worker", "toolsets: {filesystem: , workers: {allow: [b]}}")
    place.worker("b.worker")
    before = place.load()
    assert before.files.keys() == {"main.worker", "b.worker"}
    assert [text.split("\n")[0] for text in before.warnings] == [
        "main.worker:3: toolset 'filesystem' has no file access: the file has no `sandbox`. "
        "To give it the program's workspace, add:"
    ]
    place.put("b.worker", "---\nname: b\n---\nOther instructions")
    after = place.load()
    assert after.files["main.worker"] == before.files["main.worker"]
    assert after.files["b.worker"] != before.files["b.worker"]


FRONT = """\
toolsets:
  custom: {module: ./tools.py, tools: [x], approval: {tools: {x: preApproved}}, env: {pass: [CANARY]}}
sandbox:
  zones: [{name: workspace, approval: {write: preApproved}}]"""


def test_untrusted_workers_loosen_nothing_until_trusted_W15(place: Place) -> None:
    place.worker("main.worker", FRONT)
    place.put("tools.py", "raise SystemExit('imported')\n")
    place.put("forge.yaml", "pricing: {'a:b': {input: 1, output: 2}}\n")
    roster = place.load()
    assert not roster.trusted and roster.needs_code
    assert roster.unused == (
        "main.worker:4: toolsets.custom.approval.tools.x: preApproved counts as ask",
        "main.worker:4: toolsets.custom.env",
        "main.worker:6: sandbox.zones.workspace.approval.write: preApproved counts as ask",
    )
    assert "CANARY" not in str(roster.root.toolsets) and "preApproved" not in str(roster.root)
    notice = place.program.notice_with(roster.unused)
    assert (
        notice.count("forge trust") == 1 and "forge.yaml:1: pricing.a:b" in notice and "toolsets.custom.env" in notice
    )

    place.trust.give(place.root)
    trusted = place.load()
    assert trusted.trusted and trusted.unused == ()
    assert "preApproved" in str(trusted.root.toolsets) and "CANARY" in str(trusted.root.toolsets)


def test_bytes_that_were_not_the_trusted_ones_are_not_believed(place: Place) -> None:
    """A file that is changed between the question about trust and its reading."""
    path = place.worker("main.worker", FRONT)
    place.put("tools.py", "")
    place.trust.give(place.root)
    program = place.program
    assert program.trusted
    path.write_text(path.read_text().replace("CANARY", "OTHER_CANARY"))
    roster = load_roster(program, trusted_with=place.trust.trusted_with)
    assert not roster.trusted and "OTHER_CANARY" not in str(roster.root.toolsets)


def test_a_worker_that_trust_does_not_cover_is_not_trusted(place: Place) -> None:
    place.worker("main.worker")
    aside = place.worker("aside/far.worker", FRONT)
    place.put("aside/tools.py", "")
    place.trust.give(place.root)
    assert place.load().trusted
    assert not place.load(aside).trusted


def test_a_worker_made_in_python_speaks_for_its_maker(place: Place) -> None:
    made = Worker(name="mine", toolsets={"exec": {"walled": "preApproved"}})
    roster = place.load(made)
    assert roster.root == made and not roster.trusted


@pytest.mark.parametrize("name", ["pattern", "module", "package", "import", "entry_point"])
def test_a_worker_named_like_a_key_is_not_preapproved_by_an_untrusted_file_W15(place: Place, name: str) -> None:
    place.worker(
        "main.worker", f"toolsets: {{workers: {{allow: [{name}], approval: {{tools: {{{name}: preApproved}}}}}}}}"
    )
    place.worker(f"{name}.worker")
    roster = place.load()
    assert "preApproved" not in str(roster.root.toolsets)
    assert roster.unused == (f"main.worker:3: toolsets.workers.approval.tools.{name}: preApproved counts as ask",)


def test_a_worker_does_not_take_the_name_of_the_tool_that_is_always_there_W4(place: Place) -> None:
    place.worker("main.worker", allow("read_output"))
    place.worker("read_output.worker")
    assert "tool 'read_output' is exposed by 'Forge itself' and 'workers'" in place.problems()[0]


def test_more_worker_files_than_anybody_has_are_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.agent.files.roster.MAX_WORKER_FILES", 3)
    for name in ("main", "a", "b", "c"):
        place.worker(f"{name}.worker")
    assert place.problems() == ("the program has more than 3 worker files; move some elsewhere",)


# Workers in YAML files


DOCUMENT = "name: helper\ndescription: Helps.\ninstructions: |\n  You help.\n  Well.\n"


@pytest.mark.parametrize(
    ("name", "text", "instructions"),
    [
        ("helper.yaml", DOCUMENT, "You help.\nWell."),
        ("team/helper.yml", f"---\n{DOCUMENT}", "You help.\nWell."),
        ("helper.yaml", "---\nname: helper\n---\nYou help.\n", "You help."),
        ("helper.yaml", "name: helper\n", ""),
    ],
)
def test_a_worker_may_be_a_yaml_file_that_is_named(place: Place, name: str, text: str, instructions: str) -> None:
    path = place.put(name, text)
    for entry in (path, name if "/" in name else f"./{name}", name):
        root = place.load(entry).root
        assert (root.name, root.instructions, root.shown_path) == ("helper", instructions, name)
    place.worker("lead.worker", f"toolsets: {{workers: {{allow: [./{name}]}}}}")
    lead = place.load("lead")
    assert [worker.name for worker in lead.delegates(lead.root)] == ["helper"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("forge.yaml", "entry: a.worker\n", "forge.yaml: is the config of a program, not a worker; `forge run DIR`"),
        ("other.yaml", "mcp: {servers: {}}\n", "other.yaml: is the config of a program, not a worker"),
        ("x/tool.yaml", "name: t\nversion: 1.0.0\nentrypoint: t.sh\n", "is the manifest of a user tool, not a worker"),
        ("data.yaml", "a: 1\n", "data.yaml: is not a worker: it has no `name`"),
        ("bad.yaml", "name: bad\ninstructions: [1]\n", "bad.yaml:2: instructions: expected a text"),
        (
            "bad.yaml",
            "name: bad\ntoolset: {}\n",
            "bad.yaml:2: toolset: unknown key 'toolset'; did you mean 'toolsets'?",
        ),
        ("bad.worker", "name: bad\ninstructions: x\n", "bad.worker:1: the first line must be `---`"),
    ],
)
def test_a_yaml_file_that_is_no_worker_is_told_apart(place: Place, name: str, text: str, said: str) -> None:
    assert any(said in problem for problem in place.problems(place.put(name, text)))


def test_trust_covers_a_worker_in_a_yaml_file(place: Place) -> None:
    place.put("tools.py", "def word(): return 'x'\n")
    place.put("data.yaml", "name: nothing\n")
    front = "toolsets: {custom: {module: ./tools.py, tools: [word]}}\n"
    place.put("helper.yaml", DOCUMENT + front)
    assert not place.load("helper.yaml").trusted
    place.trust.give(place.root)
    assert place.load("helper.yaml").trusted
    place.put("data.yaml", "name: other\n")
    assert place.load("helper.yaml").trusted
    place.put("helper.yaml", DOCUMENT.replace("Well", "Badly") + front)
    assert not place.load("helper.yaml").trusted


def test_mcp_servers_in_a_worker_file_names_those_it_may_use(place: Place) -> None:
    place.worker("a.worker", "mcp_servers: [git]")
    assert place.load("a").root.toolsets == {"mcp": {"servers": ["git"]}}
    place.worker("a.worker", "mcp_servers: [git]\ntoolsets: {mcp: {servers: [git]}}")
    assert place.load("a").root.toolsets == {"mcp": {"servers": ["git"]}}
    place.worker("a.worker", "mcp_servers: [git]\ntoolsets: {mcp: {servers: [docs]}}")
    assert place.problems("a") == (
        "a.worker:3: mcp_servers: is another spelling of `toolsets.mcp.servers`; keep one of the two",
    )
    place.worker("a.worker", "mcp_servers: {git: {command: x}}")
    (said,) = place.problems("a")
    assert "servers are set up in forge.yaml, under `mcp.servers`" in said and "[git]" in said
    place.worker("a.worker", "mcp_servers: git")
    assert place.problems("a") == ("a.worker:3: toolsets.mcp.servers: expected a list, got 'git'",)
