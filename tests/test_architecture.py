"""House rules that a machine can check beyond ruff and pyright."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
LOCKS = [ROOT / "requirements.lock", ROOT / "requirements-dev.lock"]

LONGEST = 700
"""Lines of a file: more than this is usually two ideas."""

ENVIRONMENT = SOURCE / "rookery" / "migrations" / "env.py"
"""Run by alembic, which imports it to have it act."""

NAMELESS = {"base", "common", "helper", "helpers", "manager", "misc", "service", "services", "util", "utils"}
"""Names that say nothing about what is inside."""

LEFT_OPEN = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|NotImplemented" + r"Error)\b")

REGISTRIES = re.compile(
    r"pypi\.(org|python)|pythonhosted\.|npmjs\.|crates\.io|proxy\.golang|repo1?\.maven|deb\.debian"
    r"|--(extra-)?index-url[ =]|--find-links[ =]"
)
"""Addresses of package registries: which one is asked is a matter of the machine."""

PLACES_OF_OURS = re.compile(r"(?<![\w./])/(root|home|Users|work)/\w")
"""Folders that exist on one machine only."""

NEVER_INSTALLED = re.compile(r"torch|triton|nvidia|cuda|transformers|huggingface")
"""What the embedder's packages ask for and nothing imports: 5.9 GB."""

ACTS = {
    *("connect", "create_engine", "environ", "getenv", "mkdir", "open", "Popen", "read_bytes", "read_text", "run", "socket", "start"),
    *("now", "random", "time", "today", "urandom", "utcnow", "uuid4", "uuid7"),
}
"""Names that do something to the world, or ask it, when they are called at import."""


def modules() -> list[Path]:
    """Every module of the server."""
    return sorted(SOURCE.rglob("*.py"))


def shown(path: Path) -> str:
    """*path* as a reader of the repository knows it."""
    return path.relative_to(ROOT).as_posix()


def parsed(path: Path) -> ast.Module:
    """The syntax tree of *path*."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=shown(path))


def committed() -> Iterator[tuple[Path, str]]:
    """Yield every text of the repository; not what a tool writes for itself, nor what `make dist` and `make sbom` leave in dist/."""
    for path in sorted(ROOT.rglob("*")):
        inside = path.relative_to(ROOT).parts
        if (
            path.is_file()
            and inside[0] != "dist"
            and not any(part == "__pycache__" or (part[0] == "." and part != ".ci") for part in inside[:-1])
        ):
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_every_arrow_points_the_way_the_contracts_say(capsys: pytest.CaptureFixture[str]) -> None:
    """House rule: arrows point one way (the contracts are in pyproject.toml)."""
    status = lint_imports(str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True)

    assert status == 0, capsys.readouterr().out


LATER = (
    *("kernel/db/database.py", "memory/maintenance/cleaning/__init__.py", "migrations/__init__.py", "tools/gateway/lazy_app.py"),
    *("engines/upstreams/__init__.py", "memory/transfer/formats.py", "rookery/cli/__init__.py"),
)
"""
PostgreSQL's driver where there is none, alembic where nothing is to migrate, the world's numbering plans where nothing is cleaned, the
server of the protocol's SDK where no MCP client comes, and its client of authorisation servers where nobody logs in at one (`authorities`,
which is there before `open`, for that takes the logins): more than 0.9 s of the 2 s that a start may take.
The command line imports the modules of the command that runs.
"""


def test_no_import_hides_in_a_function() -> None:
    """House rule: but for `open` of an engine folder, and those of `LATER`, which load what is asked for and slow to load."""
    hidden = sorted(
        {
            f"{shown(path)}:{node.lineno}"
            for path in modules()
            for statement in parsed(path).body
            if not (isinstance(statement, ast.FunctionDef) and statement.name == "open" and path.match("engines/*/__init__.py"))
            if not any(path.match(later) for later in LATER)
            for function in ast.walk(statement)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
    )

    assert hidden == []


def test_nothing_happens_at_import() -> None:
    """House rule: no connection, no environment, no clock, no chance outside a function."""
    acts = [
        f"{shown(path)}:{statement.lineno}"
        for path in modules()
        if path != ENVIRONMENT
        for statement in parsed(path).body
        if _acts(statement)
    ]

    assert acts == []


def test_no_file_is_two_nouns() -> None:
    """House rule: a file past its limit is split, and named for what is in it."""
    long = {shown(path): lines for path in modules() if (lines := path.read_text(encoding="utf-8").count("\n")) > LONGEST}
    nameless = [shown(path) for path in modules() if path.stem in NAMELESS]

    assert (long, nameless) == ({}, [])


def test_nothing_is_left_open() -> None:
    """House rule: what is not done is an issue, not a comment."""
    folders = (SOURCE, ROOT / "tests", ROOT / "benchmarks")
    found = [
        f"{shown(path)}:{number}"
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if LEFT_OPEN.search(line)
    ]

    assert found == []


def test_every_test_says_what_it_proves() -> None:
    """House rule: a test is a sentence, and a line on where it comes from."""
    silent = [
        f"{shown(path)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_") and ast.get_docstring(node) is None
    ]

    assert silent == []


def test_every_package_that_is_imported_is_asked_for() -> None:
    """House rule: no module imports a package that is only a dependency of a dependency."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    asked = {_normal(re.split(r"[^\w.-]", line)[0]) for line in lines}
    homes = metadata.packages_distributions()
    imported = {name.split(".")[0] for path in modules() for node in ast.walk(parsed(path)) for name in _imported(node)}
    strangers = {
        name
        for name in imported - sys.stdlib_module_names - {"rookery", "rookery_client"}
        if asked.isdisjoint(_normal(distribution) for distribution in homes.get(name, ()))
    }

    assert strangers == set()


def test_no_committed_file_names_a_registry_or_a_folder_of_this_machine() -> None:
    """House rule: a clone works wherever it lies, with whatever registry its machine has."""
    named = [
        f"{shown(path)}:{number}"
        for path, text in committed()
        for number, line in enumerate(text.splitlines(), 1)
        if REGISTRIES.search(line) or PLACES_OF_OURS.search(line)
    ]

    assert named == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_names_exact_versions_with_their_hashes(lock: Path) -> None:
    """House rule: what is installed is what was tested."""
    loose = [line for line, hashes in _locked(lock).items() if not re.fullmatch(r"[a-z0-9.-]+==[^ ]+( ; .+)?", line) or not hashes]

    assert loose == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_holds_nothing_that_only_metadata_asks_for(lock: Path) -> None:
    """A measurement: with its declared dependencies the embedder takes 5.9 GB, without them 0.2."""
    assert [line for line in _locked(lock) if NEVER_INSTALLED.search(line)] == []


def test_what_is_tested_is_what_is_served() -> None:
    """House rule: the tests' lock is the server's and more."""
    served, tested = (_locked(lock) for lock in LOCKS)

    assert {line: tested.get(line) for line in served} == served


def _acts(statement: ast.stmt) -> bool:
    """Return whether *statement* of a module does more than define or declare names."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Import() | ast.ImportFrom():
            return False
        case ast.Expr(value=value) | ast.Assign(value=value) | ast.AnnAssign(value=value):
            return value is not None and any(_named(node) in ACTS for node in _run_at_once(value))
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Compare(left=ast.Name(id="__name__"))):
            return False
        case _:
            return True


def _run_at_once(value: ast.expr) -> Iterator[ast.AST]:
    """Yield the parts of *value* that are evaluated with it: all but the bodies of lambdas."""
    if isinstance(value, ast.Lambda):
        return
    yield value
    for child in ast.iter_child_nodes(value):
        if isinstance(child, ast.expr):
            yield from _run_at_once(child)
        else:
            yield from ast.walk(child)


def _named(node: ast.AST) -> str | None:
    """The name that *node* calls, or reads the environment by."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) | ast.Attribute(attr="environ" as name):
            return name
        case _:
            return None


def _imported(node: ast.AST) -> list[str]:
    """The absolute names that *node* imports."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
        case _:
            return []


def _normal(distribution: str) -> str:
    """A distribution's name as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _locked(lock: Path) -> dict[str, list[str]]:
    """Each requirement of *lock* with its hashes."""
    found: dict[str, list[str]] = {}
    for requirement in lock.read_text(encoding="utf-8").replace("\\\n", "").splitlines():
        if requirement.startswith("#"):
            continue
        line, *hashes = re.split(r" +--hash=", requirement)
        found[line.strip()] = [one for one in hashes if one.startswith("sha256:")]
    return found
