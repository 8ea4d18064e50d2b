"""Invalid archives: damaged, truncated, forged, newer, or of another kind."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.backup.creation import BackupRequest, create_backup
from rookery.backup.errors import FolderNotEmpty, InvalidArchive
from rookery.backup.restoration import restore_backup, verify_backup
from rookery.kernel.errors import RookeryError
from rookery.migrations import migrate

Edit = Callable[[dict[str, bytes]], Mapping[str, bytes]]


def _quiet(_: int) -> None:
    """Ignore progress."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one backup of an empty store in each format."""
    folder = tmp_path_factory.mktemp("archives")
    data = folder / "data"
    data.mkdir()
    migrate("embedded:", data_dir=data)
    (data / "servers.json").write_text('{"mcpServers": {}}', encoding="utf-8")
    for ending in (".tar", ".tar.gz", ".tar.zst"):
        create_backup(BackupRequest(folder=data, out=folder / f"good{ending}"), progress=_quiet)
    return folder


def _write_edited(archives: Path, to: Path, edit: Edit) -> Path:
    """Write an archive with the files that *edit* returns for those of the valid archive, in order."""
    with tarfile.open(archives / "good.tar") as tar:
        files = {member.name: cast("io.BufferedReader", tar.extractfile(member)).read() for member in tar}
    with tarfile.open(to, "w") as tar:
        for name, content in edit(files).items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return to


def _with_manifest(**fields: object) -> Edit:
    return lambda files: files | {"manifest.json": json.dumps(json.loads(files["manifest.json"]) | fields).encode()}


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tar.zst"])
def test_a_valid_archive_is_restored_byte_by_byte(archives: Path, tmp_path: Path, ending: str) -> None:
    """The restored files equal the saved ones, in each format; verifying writes nothing."""
    archive, new = archives / f"good{ending}", tmp_path / "new"
    verified = verify_backup(archive, progress=_quiet)
    assert not new.exists()

    restored = restore_backup(archive, new, progress=_quiet)

    assert restored.manifest == verified.manifest
    assert {entry.name: entry.stat().st_size for entry in new.iterdir()} == {file.name: file.size for file in verified.manifest.files}
    assert (new / "servers.json").read_bytes() == (archives / "data" / "servers.json").read_bytes()
    assert {entry.stat().st_mode & 0o777 for entry in new.iterdir()} == {0o600}


@given(data=st.data(), ending=st.sampled_from([".tar", ".tar.gz", ".tar.zst"]))
def test_a_changed_archive_is_rejected_or_has_the_same_content(archives: Path, data: st.DataObject, ending: str) -> None:
    """Changed, removed and inserted bytes are detected before anything is written, and always raise InvalidArchive."""
    good = (archives / f"good{ending}").read_bytes()
    position = data.draw(st.integers(0, len(good) - 1))
    inserted = data.draw(st.binary(max_size=3))
    removed = data.draw(st.sampled_from([0, 1, len(inserted), 512, len(good)]))
    path = archives / f"bad{ending}"
    path.write_bytes(good[:position] + inserted + good[position + removed :])

    try:
        manifest = verify_backup(path, progress=_quiet).manifest
    except InvalidArchive:
        return
    # Parts that no reader uses may differ: padding, times, the end of the tar.
    assert manifest == verify_backup(archives / f"good{ending}", progress=_quiet).manifest


_FORGED: list[tuple[Edit, str]] = [
    (lambda files: {"../evil": b"x", **files}, "'../evil'"),
    (lambda files: {"/etc/evil": b"x", **files}, "'/etc/evil'"),
    (lambda files: {"sub/records.db": b"x", **files}, "'sub/records.db'"),
    (lambda files: {".restoring": b"x", **files}, "'.restoring'"),
    (lambda files: {"secret.key": b"x" * 40, **files}, "does not list secret.key"),
    (lambda files: {**files, "secret.key": b"x" * 40}, "manifest.json is not its last file"),
    (lambda files: {name: content for name, content in files.items() if name != "servers.json"}, "servers.json is missing"),
    (lambda files: {name: content for name, content in files.items() if name != "manifest.json"}, "manifest.json is missing"),
    (lambda files: files | {"servers.json": b"{}"}, "SHA-256"),
    (lambda files: files | {"manifest.json": b"[" * 60_000}, "manifest.json"),
    (lambda files: files | {"manifest.json": b" " * 100_000}, "100,000 bytes"),
    (_with_manifest(format=2), "Use the version that created it"),
    (_with_manifest(format="1"), "format is '1'"),
    (_with_manifest(revision="9999"), "revision 9999"),
    (_with_manifest(revision="0032"), "Restore it with commit 7bcf9942"),
    (_with_manifest(revision="0034"), "differs from its manifest"),
    (_with_manifest(files=[]), "no files"),
    (_with_manifest(files=[{"name": "../evil", "size": 1, "sha256": "0" * 64}]), "'../evil'"),
    (_with_manifest(files=[{"name": "records.db", "size": -1, "sha256": "0" * 64}]), "-1"),
    (_with_manifest(files=[7]), "None"),
    (_with_manifest(version=None), "version"),
]


@pytest.mark.parametrize(("edit", "message"), _FORGED)
def test_a_forged_archive_is_rejected_and_nothing_is_written(archives: Path, tmp_path: Path, edit: Edit, message: str) -> None:
    """Only known files are restored, to known places; a newer archive names the version that it needs."""
    forged = _write_edited(archives, tmp_path / "forged.tar", edit)

    with pytest.raises(InvalidArchive) as error:
        restore_backup(forged, tmp_path / "new", progress=_quiet)

    assert message in error.value.message
    assert [entry for entry in tmp_path.rglob("*") if entry.is_file()] == [forged]
    assert not list((tmp_path / "new").glob("*"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_link_in_an_archive_is_rejected(tmp_path: Path, kind: bytes) -> None:
    """An entry that is not a regular file is rejected, also under an expected name."""
    with tarfile.open(tmp_path / "forged.tar", "w") as tar:
        member = tarfile.TarInfo("records.db")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)

    with pytest.raises(InvalidArchive):
        restore_backup(tmp_path / "forged.tar", tmp_path / "new", progress=_quiet)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_an_oversized_header_is_rejected_before_it_is_read(tmp_path: Path, kind: bytes) -> None:
    """A small file may unpack to a header of any length, and headers are read into memory."""
    header = tarfile.TarInfo("manifest.json")
    header.type, header.size = kind, 1 << 32
    (tmp_path / "forged.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + b"\0" * 10_240)

    with pytest.raises(InvalidArchive, match="4,294,967,296 bytes"):
        verify_backup(tmp_path / "forged.tar", progress=_quiet)


def test_a_sparse_file_is_rejected(tmp_path: Path) -> None:
    """A few bytes of a sparse file may stand for any number of zeros."""
    header = tarfile.TarInfo("records.db")
    header.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(1 << 60)}
    (tmp_path / "forged.tar").write_bytes(header.tobuf(tarfile.PAX_FORMAT) + b"\0" * 10_240)

    with pytest.raises(InvalidArchive, match=r"contains 'records\.db'"):
        verify_backup(tmp_path / "forged.tar", progress=_quiet)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08", b"\x00" * 20_480])
def test_a_file_that_is_not_an_archive_is_rejected(tmp_path: Path, content: bytes) -> None:
    """Wrong, empty and truncated files."""
    (tmp_path / "x.tar").write_bytes(content)

    with pytest.raises(InvalidArchive):
        verify_backup(tmp_path / "x.tar", progress=_quiet)
    with pytest.raises(RookeryError, match="cannot be read"):
        verify_backup(tmp_path / "missing.tar", progress=_quiet)
    with pytest.raises(RookeryError, match="cannot be read"):
        verify_backup(tmp_path, progress=_quiet)


def test_a_folder_that_is_in_use_is_left_alone(archives: Path, tmp_path: Path) -> None:
    """A backup goes into an empty folder only; existing files are kept."""
    archive = archives / "good.tar"
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").write_text("mine", encoding="utf-8")
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    (tmp_path / "both" / ".restoring").mkdir(parents=True)
    (tmp_path / "both" / "notes.txt").write_text("mine", encoding="utf-8")

    for name in ("used", "file", "both"):
        with pytest.raises(FolderNotEmpty):
            restore_backup(archive, tmp_path / name, progress=_quiet)

    assert (tmp_path / "both" / "notes.txt").read_text(encoding="utf-8") == "mine"
    (tmp_path / "empty").mkdir()
    restore_backup(archive, tmp_path / "empty", progress=_quiet)
    with pytest.raises(FolderNotEmpty):
        restore_backup(archive, tmp_path / "empty", progress=_quiet)


def test_a_replaced_archive_is_detected_by_its_digest(archives: Path, tmp_path: Path) -> None:
    """The manifest can be forged with the archive, the SHA-256 that `backup` printed cannot."""
    backup = create_backup(BackupRequest(folder=archives / "data", out=tmp_path / "mine.tar.zst"), progress=_quiet)

    assert verify_backup(backup.path, progress=_quiet, sha256=backup.sha256.upper()).manifest == backup.manifest
    with pytest.raises(InvalidArchive, match="does not have the expected SHA-256"):
        verify_backup(archives / "good.tar.zst", progress=_quiet, sha256=backup.sha256)
