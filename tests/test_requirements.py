"""The tests against what is asked: every test says what it proves, and everything that is asked is proven by one."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.requirements import REQUIREMENTS, SECTIONS, Requirement

TESTS = Path(__file__).resolve().parent
DECISIONS = TESTS.parent / "docs" / "decisions.md"

_DECISION = re.compile(r"D-(\d\d)(?: to D-(\d\d))?")
_SPEC = re.compile(r"\b[Ss]pec(?:ification)? (\d[^:;]*)")
_STEP = re.compile(r"\b(?:rule|step)s? \d(?:,? (?:and|to) \d)*")
_SECTION = re.compile(r"(?<![\w.-])\d(?:\.\d)?(?![\w-])")
_SOURCE = re.compile(r"\b(House|Issue|Notes?|RFC|SEP|JSON Schema)\b", re.IGNORECASE)
_REASON_WORDS = 3


@dataclass(frozen=True)
class Test:
    """One test: where it is, its name as words, its docstring, and the sections and decisions that it names."""

    __test__ = False
    where: str
    name: str
    says: str
    proves: frozenset[str]


@cache
def suite() -> tuple[Test, ...]:
    """Return every test of the suite, read without importing it."""
    found: list[Test] = []
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                says = ast.get_docstring(node) or ""
                where = f"{path.relative_to(TESTS.parent)}:{node.lineno}"
                found.append(Test(where, node.name.replace("_", " "), says, cited(says)))
    return tuple(found)


def cited(says: str) -> frozenset[str]:
    """Return the sections (`spec 4.3`) and decisions (`D-44`) that a docstring names; `D-42 to D-44` names three."""
    decisions = {f"D-{number:02}" for first, last in _DECISION.findall(says) for number in range(int(first), int(last or first) + 1)}
    lists = [_STEP.sub("", _DECISION.sub("", each)) for each in _SPEC.findall(says)]
    # The list ends where a sentence begins: after a stop, or with a word that is not of a list.
    heads = [re.split(r"\.(?:\s|$)|\s(?!and\b|\(|\d)[A-Za-z]", each)[0] for each in lists]
    return frozenset(decisions | {f"spec {section}" for head in heads for section in _SECTION.findall(re.sub(r"\([^)]*\)", "", head))})


def is_proven(asked: Requirement) -> bool:
    """Tell whether a test names it."""
    named = {asked.section, asked.also} - {""}
    return any(not named.isdisjoint(test.proves) and asked.word in f"{test.name} {test.says}".lower() for test in suite())


def test_every_test_says_where_it_comes_from() -> None:
    """House 6, tests: a line of provenance, which is a section, a decision, a source of ours, or a reason in words."""
    silent = [test.where for test in suite() if not (test.proves or _SOURCE.search(test.says) or len(test.says.split()) >= _REASON_WORDS)]

    assert silent == []


def test_every_requirement_is_proven_or_says_why_not() -> None:
    """House 5.8: no requirement without a test or a reason, and no reason where there is a test."""
    open_ones = [asked.id for asked in REQUIREMENTS if not asked.untested and not is_proven(asked)]
    excused = [asked.id for asked in REQUIREMENTS if asked.untested and is_proven(asked)]

    assert (open_ones, excused) == ([], [])


def test_what_tests_cite_exists() -> None:
    """House 5.8: no test names a section that the specification has not, or a decision that docs/decisions.md does not tell."""
    known = {f"spec {section}" for section in SECTIONS} | set(re.findall(r"D-\d\d", DECISIONS.read_text(encoding="utf-8")))
    unknown = {name: test.where for test in suite() for name in test.proves - known}

    assert unknown == {}


def test_every_answered_decision_is_a_requirement() -> None:
    """House 5.8: what docs/decisions.md answers is asked here, but for what it only lays the ground of."""
    answered = set(re.findall(r"^### (D-\d\d)", DECISIONS.read_text(encoding="utf-8"), re.MULTILINE))

    assert {asked.section for asked in REQUIREMENTS if asked.section.startswith("D-")} == answered


def test_no_requirement_is_asked_twice() -> None:
    """House 5.8: each has an id of its own."""
    counted = Counter(asked.id for asked in REQUIREMENTS)

    assert [name for name, count in counted.items() if count > 1] == []


def test_citations_are_read_as_they_are_written() -> None:
    """House 5.8: the forms that docstrings use."""
    assert cited("Spec 4.3 (recall): relevance first.") == {"spec 4.3"}
    assert cited("Spec 5.2 rule 5, 5.3 step 5: 403, 2 kinds.") == {"spec 5.2", "spec 5.3"}
    assert cited("Spec 3.2, 7: unknown keys.") == {"spec 3.2", "spec 7"}
    assert cited("D-42 to D-44 and spec 2.5, D-50.") == {"D-42", "D-43", "D-44", "spec 2.5", "D-50"}
    assert cited("Specified nowhere; 3 tries.") == frozenset()
