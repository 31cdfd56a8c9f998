"""`forge rules check | explain | list | revoke`: what the rules say, whether they hold, and taking one back."""

from __future__ import annotations

from typing import Final

HELP: Final = """usage: forge rules check [FILE…] [--cases FILE]
       forge rules explain TOOL [JSON] [--worker PATH] [--mode MODE] [--json]
       forge rules explain [--worker PATH] [--mode MODE] [--json] -- WORD…
       forge rules list [--json]
       forge rules revoke ID… | --remembered

  check     loads the rules (of the named files, else yours, the remembered ones and this project's), tries their own
            examples, and a YAML list of cases: `{call: git push, verdict: ask}` or
            `{call: {tool: write_file, args: {path: a.txt, content: x}}, verdict: ask}`. Files in force count as they
            are; others, and an untrusted project's, are tried in addition. Each failure is printed with file:line.
            Exit: 0 all hold, 1 something does not, 2 usage
  explain   how a call would be judged, without running it, asking anybody or writing anything: what it touches,
            everybody who has a say, and who decides. After `--` come a command's words; a single word is the text of
            a command. Exit: 0 preApproved, 3 ask, 4 blocked or out of reach, 2 bad input
  list      every rule, what it matches, how often calls met it and when last; those that do not act, with the reason.
            Exit: 0
  revoke    takes remembered rules back, for running sessions too. A rule somebody wrote by hand is theirs to remove:
            its place is printed. Exit: 0 done, 1 not (all) removed, 2 usage"""


def run(words: list[str]) -> int:
    verb, rest = (words[0], words[1:]) if words else ("", [])
    if not words or verb in ("-h", "--help") or {"-h", "--help"} & set(_before_dashes(rest)):
        print(HELP)
        return 0 if words else 2
    if verb == "check":
        from golem_forge.cli.rules.check import run_check

        return run_check(rest)
    if verb == "explain":
        from golem_forge.cli.rules.explain import run_explain

        return run_explain(rest)
    if verb == "list":
        from golem_forge.cli.rules.listing import run_list

        return run_list(rest)
    if verb == "revoke":
        from golem_forge.cli.rules.revoking import run_revoke

        return run_revoke(rest)
    from golem_forge.cli.plain import complain

    complain("rules", f"unknown verb '{verb}': check, explain, list or revoke. `forge rules --help` says more.")
    return 2


def _before_dashes(words: list[str]) -> list[str]:
    return words[: words.index("--")] if "--" in words else words
