"""Keep names and texts plain: the rules of CONTRIBUTING.md that a program can check."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.syntax_trees import parse_modules

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "rookery"
CODE = (PACKAGE.parent, ROOT / "tests", ROOT / "benchmarks", ROOT / "examples", ROOT / "distribution")
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))

QUESTION_WORDS = re.compile(r"(So|Of|What|Which|Who|Whom|Whose|How|Where|Whether)\b")
"""Words that begin a riddle: a docstring begins with a verb in the imperative, or with what the thing is."""

PHRASES = re.compile(
    r"\b(?:is|are|was|were|of|that are|that is) (?-i:none)\b|\bso many\b|\bwho asks\b|\bas one of many\b|\ba word of why\b"
    r"|\b(?:is|are|was|were|be) told (?:so|of|at|why)\b|\bwhoever\b|\bthat there is not\b|\bwho (?:only looks|hangs)\b"
    r"|\banew\b|\bmend(?:s|ed|ing)?\b|\b(?:of|are) ours\b|\b(?:hang|hung|hangs) up\b|\bto the letter\b|\bone too many\b"
    r"|\b(?:refused|said|say|says|described) in words\b|\bin the place of\b|\bis as once\b|\bcounts? from the next\b"
    r"|\bkept answers\b|\bthe command's answer\b|\bsign of life\b|\b(?:and|entry|header) says so\b"
    r"|(?-i:^Most) (?:\w+ ){1,4}(?:of|in|that|per|open)\b"
    r"|\b(?:server|key|row|table|file|setting|tool|engine|index) (?:tells?|knows|hears|looks)\b",
    re.IGNORECASE,
)
"""Phrases that need a second reading."""

CITATIONS = re.compile(r"\bD-\d\d\b|\b(?:[Ss]pec|[Ii]ssue|[Hh]ouse) \d|\bnotes (?:on (?:the platform|engines|MCP)|[A-Z]\d)")
"""Numbers of decisions, sections and issues that are not in the repository."""

RIDDLES = {
    *("all", "also", "anew", "apart", "asked", "begun", "behind", "both", "chosen", "done", "each", "found", "given", "gone", "heard"),
    *("held", "here", "judged", "kept", "known", "later", "lost", "made", "meant", "named", "now", "offered", "opened", "over", "owed"),
    *("past", "placed", "put", "said", "seen", "sent", "settled", "shown", "so_far", "soon", "then", "there", "together", "told"),
    *("twin", "wanted", "within", "crowd", "crew", "sieve", "shelf", "shelves", "slabs", "portraits", "bell", "door", "arms", "warden"),
}
"""Words that say nothing about what a module holds: participles used as nouns, adverbs, metaphors."""

RIDDLE_LOCALS = {
    *("again", "asked", "begun", "chosen", "drawn", "each", "found", "given", "gone", "heard", "held", "here", "judged", "kept", "known"),
    *("lost", "made", "meant", "mine", "named", "offered", "opened", "ours", "put", "said", "says", "seen", "sent", "settled", "shown"),
    *("taken", "theirs", "told", "wanted", "who", "written"),
}
"""Names of local variables and parameters that do not name what they hold: `for memory in memories`, never `for each in found`."""

UNITLESS = re.compile(r"_(?:AT_ONCE|SOON|LATER|LONG|A_WHILE|AGAIN|EVERY|MOST)$|^(?:LONGEST|LARGEST|MOST|MANY|SOON)$")
"""Names of constants that give neither quantity nor unit; a limit is MAX_…, a time ends in its unit."""

LEFT: Mapping[str, int] = {}
"""The number of places where a rule is still broken, by rule and package. The numbers only shrink, and an entry that is at 0 leaves."""


@cache
def code() -> tuple[tuple[Path, ast.Module], ...]:
    """Return each module of the repository with its syntax tree."""
    paths = [path for folder in CODE for path in sorted(folder.rglob("*.py"))]
    return parse_modules(paths)


def place(path: Path) -> str:
    """Return the package that *path* belongs to, or its folder outside of the package: `memory`, `tests`."""
    parts = path.relative_to(PACKAGE).parts if path.is_relative_to(PACKAGE) else path.relative_to(ROOT).parts
    return parts[0]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring: of modules, classes and functions, and those under an assignment."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str):
                    yield statement.lineno, statement.value.value.strip()


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment of *path*."""
    source = io.BytesIO(path.read_bytes())
    for token in tokenize.tokenize(source.readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def texts(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string and comment of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    yield from comments(path)


def local_names(tree: ast.Module) -> set[tuple[int, str]]:
    """Return line and name of each parameter and local variable in the functions and lambdas of a module."""
    names = set[tuple[int, str]]()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.comprehension):
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    names.add((node.lineno, node.id))
                elif isinstance(node, ast.arg):
                    names.add((node.lineno, node.arg))
                elif isinstance(node, ast.ExceptHandler) and node.name:
                    names.add((node.lineno, node.name))
    return names


def unknown_references(parent: ast.AST, outer_names: set[str]) -> Iterator[tuple[int, str]]:
    """Yield line and name of each `*name*` and `Args:` entry in a docstring that is neither a parameter nor a field."""
    for node in ast.iter_child_nodes(parent):
        names = set(outer_names)
        if isinstance(node, ast.ClassDef):
            names |= {
                child.target.id for child in ast.walk(node) if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name)
            }
            names |= {child.attr for child in ast.walk(node) if isinstance(child, ast.Attribute)}
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            parameters = {
                child.arg for child in ast.walk(node if isinstance(node, ast.ClassDef) else node.args) if isinstance(child, ast.arg)
            }
            names |= parameters
            text = ast.get_docstring(node) or ""
            yield from ((node.lineno, name) for name in re.findall(r"(?<![\w*])\*(\w+)\*(?![\w*])", text) if name not in names)
            section = re.search(r"^Args:\n((?: {4}.*\n?)+)", text, re.MULTILINE)
            entries = re.findall(r"^ {4}(\w+):", section[1], re.MULTILINE) if section else []
            yield from ((node.lineno, name) for name in entries if name not in parameters)
        yield from unknown_references(node, names)


def left(rule: str, found: list[tuple[Path, int, str]]) -> tuple[dict[str, int], dict[str, int], list[str]]:
    """Return the counts found and allowed of *rule*, by package, and the places to look at when they differ."""
    counts = Counter(place(path) for path, _, _ in found)
    allowed = {key.partition(": ")[2]: count for key, count in LEFT.items() if key.startswith(f"{rule}: ")}
    differing = [
        f"{path.relative_to(ROOT)}:{line} {text}" for path, line, text in found if counts[place(path)] != allowed.get(place(path), 0)
    ]
    return dict(counts), allowed, differing


def test_no_public_class_name_stands_twice() -> None:
    """A class name is unique in the package, so that a search for it finds one class."""
    homes = defaultdict[str, list[str]](list)
    for path, tree in code():
        for node in tree.body if path.is_relative_to(PACKAGE) else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(PACKAGE)))

    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_no_module_is_named_by_a_riddle() -> None:
    """A module is named for what a reader would search for."""
    found = [str(path.relative_to(ROOT)) for path in sorted(PACKAGE.rglob("*.py")) if path.stem in RIDDLES or path.parent.name in RIDDLES]

    assert found == []


def test_locals_name_what_they_hold() -> None:
    """Local variables and parameters of the package are named for their content."""
    found = [
        (path, line, name)
        for path, tree in code()
        if path.is_relative_to(PACKAGE.parent)
        for line, name in sorted(local_names(tree))
        if name in RIDDLE_LOCALS
    ]
    counts, allowed, differing = left("locals", found)

    assert counts == allowed, differing


def test_docstrings_refer_to_names_that_exist() -> None:
    """A `*name*` in a docstring is a parameter or a field, and so is each entry under `Args:`."""
    found = [
        (path, line, name)
        for path, tree in code()
        if path.is_relative_to(PACKAGE.parent)
        for line, name in unknown_references(tree, set[str]())
    ]

    assert found == []


def test_constants_say_quantity_and_unit() -> None:
    """`MAX_ERRORS`, `POLL_INTERVAL_S`; never `_AT_ONCE`."""
    found = [
        (path, node.lineno, node.id)
        for path, tree in code()
        if path.is_relative_to(PACKAGE)
        for statement in tree.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.isupper() and UNITLESS.search(node.id.lstrip("_"))
    ]
    counts, allowed, differing = left("constants", found)

    assert counts == allowed, differing


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    """Such as `Return` or `A limiter for …`; never So, Of, What, Which, Who, How, Where, Whether."""
    found = [
        (path, line, text.split("\n", maxsplit=1)[0])
        for path, tree in code()
        for line, text in docstrings(tree)
        if QUESTION_WORDS.match(text)
    ]
    counts, allowed, differing = left("openings", found)

    assert counts == allowed, differing


def test_no_text_cites_what_is_not_in_the_repository() -> None:
    """A sentence is complete without the number of a decision, of a section of a specification, or of an issue."""
    cited = [
        f"{path}:{line}: {match[0]}"
        for path, tree in code()
        if path != Path(__file__)
        for line, text in [*docstrings(tree), *comments(path)]
        if (match := CITATIONS.search(text))
    ]

    assert cited == []


def test_no_text_uses_a_phrase_that_needs_a_second_reading() -> None:
    """Strings, docstrings and comments, and the pages of the documentation."""
    found = [
        (path, line, match[0])
        for path, tree in code()
        if path != Path(__file__)
        for line, text in texts(path, tree)
        for match in PHRASES.finditer(text)
    ]
    found += [
        (path, number, match[0])
        for path in PAGES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in PHRASES.finditer(line)
    ]
    counts, allowed, differing = left("phrases", found)

    assert counts == allowed, differing


@pytest.mark.parametrize(
    ("text", "found"),
    [("So many leases", True), ("Return the number", False), ("Whether it counts", True), ("Something", False)],
)
def test_the_first_word_decides(text: str, found: bool) -> None:
    """The rule matches whole words."""
    assert bool(QUESTION_WORDS.match(text)) is found
