"""The quick reader never differs from the whole parser: it gives the same nodes and lines, or leaves the text to it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from golem_forge.config.yaml_file import YamlDocument, read_full_document, read_simple_document

MANIFESTS = Path(__file__).parents[1] / "usertools" / "manifest" / "manifests"

_VALUES = (
    "", "a", "a b", "1.10", "-5", "- 5", "-", "'q'", '"q"', '"a\\nb"', "'it''s'", "a: b", "a:", "a:b",
    "a #c", "a#c", "# c", "|", "|-", "|+", "|2", ">", "[]", "{}", "[a, b]", "[a , 1.5 ]", "[a,]", "[a b]",
    "[[a]]", "{a: b}", "[a] # c", "&x a", "*x", "!t a", "%x", "@x", "`x`", "? x", ", x", "é ü", "a\u00a0b",
    "a\tb", "a  ", "'a' b", '"a" # c', "'a'# c", "~", "=x", "=", "http://x/y", "a, b", "a]", "a}", "(x)",
    ".5", "...", "---", "x:#y", "x :y", "x : y", "a\\b", "😀", "'a", "--x=y", "<<", ":a", "?a", "-a", "a?",
    "[ ]", "{ }", "[a, b", "a [b", "|x", "a|", ">x", "!", "&", "[1,2]", "[a#b]", "[a:b]", "[- a]",
)  # fmt: skip
_KEYS = (
    "a",
    "b",
    "name",
    "k-1",
    "_x",
    "'q'",
    "a b",
    "1",
    "<<",
    "?",
    "- a",
    "-",
    "a:b",
    "true",
    "é",
    "- - a",
    "- name",
    "--- a",
)
_FLOW = st.lists(
    st.sampled_from((*_KEYS, *_VALUES, "{", "{", "}", "}", "[", "]", ": ", ": ", ":", ", ", ", ", ",", "a: b", '"a": '))
).map("".join)
_LINES = st.one_of(
    st.builds(
        lambda indent, key, gap, value: " " * indent + key + ":" + gap + value,
        st.sampled_from((0, 0, 0, 2, 2, 4, 1, 3)),
        st.sampled_from(_KEYS),
        st.sampled_from((" ", " ", " ", "  ", "", "   ")),
        st.sampled_from(_VALUES),
    ),
    st.builds(
        lambda indent, gap, value: " " * indent + "-" + gap + value,
        st.sampled_from((0, 2, 4, 1)),
        st.sampled_from((" ", " ", "  ", "")),
        st.sampled_from(_VALUES),
    ),
    st.builds(lambda indent, text: " " * indent + text, st.integers(0, 5), st.sampled_from(_VALUES)),
    st.sampled_from(
        ("", "  ", "# comment", "  # comment", "   text", "   more: text", "---", "...", "\ta: b", "%YAML 1.2")
    ),
)


def agree(text: str) -> bool:
    """Whether the quick reader took it."""
    quick = read_simple_document(text, strict=True)
    if quick is not None:
        assert everything(read_full_document(text, strict=True)) == everything(quick)
    config = read_simple_document(text)
    if config is not None:
        assert everything(read_full_document(text)) == everything(config)
    return quick is not None


def everything(document: YamlDocument) -> object:
    """Values with their types (text without quotes is not text in quotes) and lines."""

    def typed(value: object) -> object:
        if isinstance(value, dict):
            return {key: typed(item) for key, item in value.items()}
        return [typed(item) for item in value] if isinstance(value, list) else (type(value), value)

    return typed(document.value), document.lines, document.starts, document.problems


class Writer:
    """Manifests as people write them, and now and then a line that nobody should."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.odd = seed % 2 == 0

    def text(self) -> str:
        return "\n".join(self.mapping(0, 0)) + self.dice.choice(["\n", "\n", "\n\n", "\n# end\n", "\n  \n"])

    def mapping(self, indent: int, depth: int) -> list[str]:
        lines: list[str] = []
        for key in self.dice.sample(["a", "b", "name", "k-1", "_x", "on"], self.dice.randint(1, 4)):
            lines += self.between(indent)
            lines += self.entry(" " * indent + key + ":", indent, depth)
        return lines

    def between(self, indent: int) -> list[str]:
        kind = self.dice.random()
        if kind < 0.1:
            return [self.dice.choice(["", "# note: [", "   ", " " * indent + "# note"])]
        if self.odd and kind < 0.14:
            return [" " * self.dice.randint(0, 6) + self.dice.choice(_VALUES)]
        return []

    def entry(self, head: str, indent: int, depth: int) -> list[str]:
        kind = self.dice.random()
        deeper = indent + self.dice.choice([1, 2, 2, 4])
        if depth < 3 and kind < 0.15:
            return [
                head + self.dice.choice(["", " ", " # below"]),
                *self.between(deeper),
                *self.mapping(deeper, depth + 1),
            ]
        if depth < 3 and kind < 0.4:
            return [head, *self.between(deeper), *self.items(self.dice.choice([indent, deeper]), depth + 1)]
        if kind < 0.5:
            return [f"{head} {self.dice.choice(['|', '|', '|-'])}", *self.block(deeper)]
        return [f"{head}{self.dice.choice([' ', ' ', '  '])}{self.scalar()}"]

    def items(self, indent: int, depth: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self.dice.randint(1, 3)):
            gap = self.dice.choice([1, 1, 1, 3])
            if self.dice.random() < 0.5:
                inner = [line for line in self.mapping(indent + 1 + gap, depth + 1) if self.odd or line.strip()]
                first = next((at for at, line in enumerate(inner) if line.strip() and "#" not in line), 0)
                lines.append(" " * indent + "-" + " " * gap + inner[first].lstrip(" "))
                lines += inner[first + 1 :]
            else:
                lines.append(" " * indent + "-" + " " * gap + (self.scalar() or "x"))
            lines += self.between(indent)
        return lines

    def block(self, indent: int) -> list[str]:
        first = self.dice.choice(["text", "# text", "key: value", "- item", "é"])
        more = ["", " " * indent + "more", " " * (indent + 2) + "- deeper", " " * indent + "# no"]
        return [" " * indent + first, *self.dice.choices(more, k=self.dice.randint(0, 4))]

    def scalar(self) -> str:
        usual = [
            "word",
            "two words",
            "1.10",
            "-5",
            "'quoted # text'",
            '"quoted: text"',
            "a # note",
            "x#y",
            "[]",
            "[a, b]",
        ]
        return self.dice.choice(_VALUES) if self.odd and self.dice.random() < 0.1 else self.dice.choice(usual)


def test_manifests_as_people_write_them_are_read_the_same(is_long: bool) -> None:
    texts = [Writer(seed).text() for seed in range(700 if is_long else 150)]
    taken = [text for text in texts if agree(text)]
    assert len(taken) > len(texts) / 3, "a reader that leaves everything to the parser would prove nothing"
    assert max(text.count("\n") for text in taken) > 20


@given(st.lists(_LINES, min_size=1, max_size=8).map("\n".join), st.sampled_from(("\n", "\n", "\n\n", "", "\n   \n")))
@example("a: |\n  x\n\n  y\n\n\nb: c", "\n")
@example("a: |\n  x\n # c\n  y", "\n")
@example("a:\n- b: c\n  d: e\n- f", "\n")
@example("a:\n# c\n  b: c", "\n")
@example("a: |\n  # not a comment\n   deeper\nb: c", "\n")
def test_what_it_reads_is_what_the_whole_parser_reads(text: str, end: str) -> None:
    agree(text + end)


@given(_FLOW, _FLOW, st.sampled_from(("", "\n", " # c\n")))
@example('"a": "\\"\\n", "b": [-1.5, null, {}], ', "c: {'d e' : x y}", "")
def test_mappings_and_lists_on_one_line_are_read_the_same(first: str, second: str, end: str) -> None:
    for text in (f"{{{first}{second}}}", f"a: {{{first}}}\nb: [{second}]", f"- {first}{second}"):
        agree(text + end)


@given(st.text(st.sampled_from("ab:- #'\"|[]{},\n\n  "), max_size=40))
def test_nor_does_any_other_text_make_a_difference(text: str) -> None:
    agree(f"a: b\n{text}\n")


def test_ordinary_manifests_are_read_the_quick_way() -> None:
    assert agree((MANIFESTS / "seed.yaml").read_text())
    assert agree(
        "# a comment\nname: x   # another\nparameters:\n- name: a\n  type: string\n  enum: [a, b]\n\n"
        "tests:\n  - name: 'greets'\n    arguments:\n      who: \"Ada\"\n    expect:\n      stdout: |-\n        Hello\n"
    )
    assert agree(
        "sandbox: {zones: [{name: workspace, mode: rw}]}\ntoolsets: {files: , code: }\ntools: [a b, 'c', {}] # both"
    )
    assert agree('{"hooks": [{"on": "turn_end", "run": "/bin/echo a\\nb", "max": 3}], "url": "http://x/y?z#k"}')


@pytest.mark.parametrize(
    "text", ["", "\n", "- a\n", "a: &x b\n", "a: |\n  b", " a: b\n", "a: b\n  c\n", "a: b\na: c\n", "a: >\n  b\n"]
)
def test_everything_else_is_left_to_the_parser(text: str) -> None:
    assert read_simple_document(text, strict=True) is None


@pytest.mark.parametrize("text", ["".join(" " * level + "a:\n" for level in range(60)), f"a: {'[' * 60}{']' * 60}\n"])
def test_depth_is_bounded(text: str) -> None:
    assert read_simple_document(text, strict=True) is None


def test_an_empty_value_is_an_empty_text() -> None:
    made = read_simple_document("a:\nb: c\n", strict=True)
    assert made is not None
    assert made.value == {"a": "", "b": "c"}
    assert everything(made) == everything(read_full_document("a:\nb: c\n", strict=True))
