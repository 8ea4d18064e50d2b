"""Rules of the project that a program can check beyond ruff and pyright."""

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

from tests.syntax_trees import parse_module

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
LOCKS = [ROOT / "requirements.lock", ROOT / "requirements-dev.lock"]

MAX_LINES = 700
"""Maximum lines of a file; a longer one usually has two ideas."""

GENERATED = {SOURCE / "rookery_client" / "generated", SOURCE / "rookery_client" / "operations"}
"""Modules that `make client` writes: lists of models, error classes and methods with their documentation, which nobody reads whole."""

ENVIRONMENT = SOURCE / "rookery" / "migrations" / "env.py"
"""The environment of alembic, which runs migrations when it is imported."""

NAMELESS = {"base", "common", "helper", "helpers", "manager", "misc", "service", "services", "util", "utils"}
"""Names that do not describe the content."""

TODO_MARKERS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|NotImplemented" + r"Error)\b")

REGISTRIES = re.compile(
    r"pypi\.(org|python)|pythonhosted\.|npmjs\.|crates\.io|proxy\.golang|repo1?\.maven|deb\.debian"
    r"|--(extra-)?index-url[ =]|--find-links[ =]"
)
"""Addresses of package registries, which depend on the machine."""

LOCAL_FOLDERS = re.compile(r"(?<![\w./])/(root|home|Users|work)/\w")
"""Folders that exist on one machine only."""

UNUSED_PACKAGES = re.compile(r"torch|triton|nvidia|cuda|transformers|huggingface")
"""Declared dependencies of the embedder's packages that nothing imports: 5.9 GB."""

EFFECTS = {
    *("connect", "create_engine", "environ", "getenv", "mkdir", "open", "Popen", "read_bytes", "read_text", "run", "socket", "start"),
    *("now", "random", "time", "today", "urandom", "utcnow", "uuid4", "uuid7"),
}
"""Names whose call at import has an effect or reads the environment."""


ALLOWED_PATCHES = {
    "tests/engines/test_embedders.py": 2,
    "tests/engines/test_embedding_services.py": 3,
    "tests/engines/test_ivf_build_process.py": 1,
    "tests/key_leaks.py": 2,  # records each secret and each error of all tests
}
"""Numbers of patches of the product by file. They may only shrink: tests pass arguments instead."""


def modules() -> list[Path]:
    """Return every module of the server."""
    return sorted(SOURCE.rglob("*.py"))


def relative_path(path: Path) -> str:
    """Return *path* relative to the repository."""
    return path.relative_to(ROOT).as_posix()


def iter_committed_files() -> Iterator[tuple[Path, str]]:
    """Yield every text file of the repository, without caches and without dist/."""
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if (
            path.is_file()
            and parts[0] != "dist"
            and not any(part == "__pycache__" or (part[0] == "." and part != ".ci") for part in parts[:-1])
        ):
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_imports_follow_the_contracts(capsys: pytest.CaptureFixture[str]) -> None:
    """Packages import each other in one direction only (the contracts are in pyproject.toml)."""
    status = lint_imports(str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True)

    assert status == 0, capsys.readouterr().out


LAZY_IMPORTERS = (
    *("kernel/db/database.py", "memory/maintenance/cleaning/__init__.py", "migrations/__init__.py", "tools/gateway/lazy_app.py"),
    *("engines/upstreams/__init__.py", "memory/transfer/formats.py", "rookery/cli/__init__.py", "tools/commands/tool_services.py"),
    *("rookery/cli/parts.py", "access/build.py", "memory/build.py", "usage/build.py"),
)
"""
Modules that import slow libraries in functions: PostgreSQL's driver, alembic, the telephone numbering plans, the server of the MCP SDK
and its client of authorisation servers. Together they take more than 0.9 s of the 2 s that a start may take.
The command line imports only the modules of the command that runs, and those of `servers` the record store only to change the file. The
`build` of a domain whose services commands use imports its API, and thus pydantic, only for a server.
"""


def test_no_function_imports() -> None:
    """Exceptions are `open` of an engine folder and the modules of `LAZY_IMPORTERS`, which load slow libraries on demand."""
    hidden = sorted(
        {
            f"{relative_path(path)}:{node.lineno}"
            for path in modules()
            for statement in parse_module(path).body
            if not (isinstance(statement, ast.FunctionDef) and statement.name == "open" and path.match("engines/*/__init__.py"))
            if not any(path.match(pattern) for pattern in LAZY_IMPORTERS)
            for function in ast.walk(statement)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
    )

    assert hidden == []


def test_no_transaction_logs_what_it_may_roll_back() -> None:
    """A function with a transaction logs what it stores by `Tx.after_commit`: until then, it may be undone or run again."""
    found = [
        f"{relative_path(path)}:{call.lineno}"
        for path in modules()
        for function in ast.walk(parse_module(path))
        if isinstance(function, ast.FunctionDef) and any(arg.arg == "tx" for arg in (*function.args.args, *function.args.kwonlyargs))
        for call in _iter_run_now(function)
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("_log.")
    ]

    assert not found


def test_imports_have_no_effects() -> None:
    """Modules open no connection and read no environment, clock or random numbers at import."""
    effects = [
        f"{relative_path(path)}:{statement.lineno}"
        for path in modules()
        if path != ENVIRONMENT
        for statement in parse_module(path).body
        if _has_effect(statement)
    ]

    assert effects == []


def test_files_are_short_and_named_for_their_content() -> None:
    """A file over the limit is split, and named for its content."""
    counts = {path: path.read_text(encoding="utf-8").count("\n") for path in modules() if path.parent not in GENERATED}
    long = {relative_path(path): count for path, count in counts.items() if count > MAX_LINES}
    nameless = [relative_path(path) for path in modules() if path.stem in NAMELESS]

    assert (long, nameless) == ({}, [])


def test_no_file_has_a_todo_marker() -> None:
    """Open work is an issue, not a comment."""
    folders = (SOURCE, ROOT / "tests", ROOT / "benchmarks")
    markers = [
        f"{relative_path(path)}:{number}"
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if TODO_MARKERS.search(line)
    ]

    assert markers == []


def test_every_test_has_a_docstring() -> None:
    """The name of a test is a sentence, and its docstring has its source."""
    undocumented = [
        f"{relative_path(path)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(parse_module(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_") and ast.get_docstring(node) is None
    ]

    assert undocumented == []


def test_every_imported_package_is_a_declared_dependency() -> None:
    """No module imports a package that is only a dependency of a dependency."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    declared = {_normalize(re.split(r"[^\w.-]", line)[0]) for line in lines}
    distributions = metadata.packages_distributions()
    imported = {name.split(".")[0] for path in modules() for node in ast.walk(parse_module(path)) for name in _imported_names(node)}
    undeclared = {
        name
        for name in imported - sys.stdlib_module_names - {"rookery", "rookery_client"}
        if declared.isdisjoint(_normalize(distribution) for distribution in distributions.get(name, ()))
    }

    assert undeclared == set()


def test_no_committed_file_names_a_registry_or_a_folder_of_this_machine() -> None:
    """A clone works in any folder and with any registry."""
    places = [
        f"{relative_path(path)}:{number}"
        for path, text in iter_committed_files()
        for number, line in enumerate(text.splitlines(), 1)
        if REGISTRIES.search(line) or LOCAL_FOLDERS.search(line)
    ]

    assert places == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_names_exact_versions_with_their_hashes(lock: Path) -> None:
    """Installations have the tested versions."""
    unpinned = [line for line, hashes in _read_lock(lock).items() if not re.fullmatch(r"[a-z0-9.-]+==[^ ]+( ; .+)?", line) or not hashes]

    assert unpinned == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_has_no_unused_packages(lock: Path) -> None:
    """With its declared dependencies the embedder takes 5.9 GB, without them 0.2 GB."""
    assert [line for line in _read_lock(lock) if UNUSED_PACKAGES.search(line)] == []


def test_the_development_lock_contains_the_server_lock() -> None:
    """Tests run with the versions of the server."""
    server_lock, dev_lock = (_read_lock(lock) for lock in LOCKS)

    assert {line: dev_lock.get(line) for line in server_lock} == server_lock


def test_tests_do_not_patch_the_product() -> None:
    """A test passes limits, clocks and engines as arguments; it may patch the standard library to simulate a fault."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    counts = {relative_path(path): count for path in files if (count := _count_patches(parse_module(path)))}

    assert counts == ALLOWED_PATCHES


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ('monkeypatch.setattr("rookery.kernel.ids.uuid7", 1)', 1),
        ('from rookery.kernel import ids\nmonkeypatch.setattr(ids, "uuid7", 1)', 1),
        ("from rookery.kernel import ids\nids.MAX_LENGTH = 1", 1),
        ('def test(rig):\n    monkeypatch.setattr(rig.db, "write", 1)', 1),
        ("from unittest import mock", 1),
        ('import os\nmonkeypatch.setattr(os, "fsync", 1)\nmonkeypatch.setattr(os.path, "exists", 1)', 0),
        ('monkeypatch.setattr("os.fsync", 1)', 0),
    ],
)
def test_patches_of_the_product_are_found(code: str, count: int) -> None:
    """Patches of libraries do not count."""
    assert _count_patches(ast.parse(code)) == count


def _count_patches(tree: ast.Module) -> int:
    """Return the number of patches of anything but names of imported libraries."""
    product, libraries = set[str](), set[str]()
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            is_product = any(name.split(".")[0] in {"rookery", "rookery_client", "tests"} for name in _imported_names(node))
            (product if is_product else libraries).update((alias.asname or alias.name).split(".")[0] for alias in node.names)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="setattr") | ast.Attribute(attr="setattr"), args=[ast.Constant(value=str(name)), *_]):
                is_patch = name.startswith("rookery.")
            case ast.Call(func=ast.Name(id="setattr") | ast.Attribute(attr="setattr"), args=[target, *_]):
                is_patch = _root_name(target) not in libraries
            case ast.Assign(targets=[ast.Attribute(value=target)]):
                is_patch = _root_name(target) in product
            case ast.ImportFrom(module="unittest", names=[ast.alias(name="mock")]) | ast.ImportFrom(module="unittest.mock" | "pytest_mock"):
                is_patch = True
            case _:
                is_patch = False
        count += is_patch
    return count


def _root_name(node: ast.AST) -> str | None:
    """Return the first name of a dotted expression."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _has_effect(statement: ast.stmt) -> bool:
    """Return whether *statement* of a module does more than define or declare names."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Import() | ast.ImportFrom():
            return False
        case ast.Expr(value=value) | ast.Assign(value=value) | ast.AnnAssign(value=value):
            return value is not None and any(_called_name(node) in EFFECTS for node in _iter_evaluated(value))
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Compare(left=ast.Name(id="__name__"))):
            return False
        case _:
            return True


def _iter_run_now(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs when *node* does: not the bodies of the functions that it makes."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Lambda | ast.FunctionDef):
            yield child
            yield from _iter_run_now(child)


def _iter_evaluated(value: ast.expr) -> Iterator[ast.AST]:
    """Yield the parts of *value* that are evaluated with it: all but the bodies of lambdas."""
    if isinstance(value, ast.Lambda):
        return
    yield value
    for child in ast.iter_child_nodes(value):
        if isinstance(child, ast.expr):
            yield from _iter_evaluated(child)
        else:
            yield from ast.walk(child)


def _called_name(node: ast.AST) -> str | None:
    """Return the name that *node* calls, or `environ`."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) | ast.Attribute(attr="environ" as name):
            return name
        case _:
            return None


def _imported_names(node: ast.AST) -> list[str]:
    """Return the absolute names that *node* imports."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
        case _:
            return []


def _normalize(distribution: str) -> str:
    """Return the normalised name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _read_lock(lock: Path) -> dict[str, list[str]]:
    """Return the requirements of *lock* with their hashes."""
    requirements: dict[str, list[str]] = {}
    for requirement in lock.read_text(encoding="utf-8").replace("\\\n", "").splitlines():
        if requirement.startswith("#"):
            continue
        line, *hashes = re.split(r" +--hash=", requirement)
        requirements[line.strip()] = [value for value in hashes if value.startswith("sha256:")]
    return requirements
