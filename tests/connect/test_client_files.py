"""Files of clients: mode, owner, links, line ends and byte order mark stay; a write is whole or does not happen."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rookery.connect.client_files import BACKUP_SUFFIX, FileEdit, decode, encode, read_file, render_diff, write_edits
from rookery.connect.errors import ClientFileBroken
from tests.connect.command_line import ConnectCommand, get_error
from tests.deadlines import HANG_S

TEXT = '{\r\n  // mine\r\n  "mcpServers": {\r\n    "mine": {"command": "x"},\r\n  },\r\n}\r\n'

_REWRITE = """
import pathlib, sys
from rookery.connect.client_files import FileEdit, write_edits
file = pathlib.Path(sys.argv[1])
while True:
    before = file.read_bytes()
    write_edits([FileEdit(file, before, before.translate(bytes.maketrans(b"ab", b"ba")))])
"""
"""A program that replaces a file again and again."""


def has_part_of_a_file(folder: Path, size: int) -> bool:
    """Return True if a file in *folder* has fewer than *size* bytes."""
    with os.scandir(folder) as entries, contextlib.suppress(FileNotFoundError):  # renamed meanwhile
        return any(entry.stat().st_size < size for entry in entries)
    return False


def get_mode(path: Path) -> int:
    """Return the permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o400])
def test_the_mode_of_the_file_and_of_its_backup_is_that_before(command: ConnectCommand, project: Path, mode: int) -> None:
    """A file that only its owner may read stays so, and so does the copy."""
    file = project / ".mcp.json"
    file.write_text("{}")
    file.chmod(mode)

    assert command.run("claude-code", "--write").exit_code == 0

    backup = file.with_name(file.name + BACKUP_SUFFIX)
    assert (get_mode(file), get_mode(backup), backup.read_text()) == (mode, mode, "{}")
    assert {path.name for path in project.iterdir()} == {file.name, backup.name}


def test_a_symbolic_link_is_followed_and_stays(command: ConnectCommand, project: Path, tmp_path: Path) -> None:
    """Users keep these files in a repository of dotfiles and link to them."""
    real = tmp_path / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    real.write_text("{}")
    (project / ".mcp.json").symlink_to(real)

    command.run("claude-code", "--write")

    assert (project / ".mcp.json").is_symlink()
    assert '"rookery"' in real.read_text()
    assert real.with_name(real.name + BACKUP_SUFFIX).exists()


@pytest.mark.parametrize("before", [TEXT.encode(), codecs.BOM_UTF8 + TEXT.encode()], ids=["CRLF", "CRLF and BOM"])
def test_line_ends_and_the_byte_order_mark_stay(command: ConnectCommand, project: Path, before: bytes) -> None:
    """Files from Windows keep their form, and every byte outside the entry."""
    file = project / ".mcp.json"
    file.write_bytes(before)

    command.run("claude-code", "--write")
    after = file.read_bytes()
    command.run("claude-code", "--remove")

    assert after.startswith(before[: before.index(b"},\r\n  },")])
    assert after.count(b"\n") == after.count(b"\r\n")
    assert file.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b" \n", codecs.BOM_UTF8], ids=["empty", "blank", "only a BOM"])
def test_an_empty_file_becomes_a_whole_one(command: ConnectCommand, project: Path, content: bytes) -> None:
    """Editors create empty files."""
    (project / ".mcp.json").write_bytes(content)

    assert command.run("claude-code", "--write").exit_code == 0

    text = (project / ".mcp.json").read_bytes()
    assert text.removeprefix(codecs.BOM_UTF8).startswith(b'{\n  "mcpServers": {\n    "rookery"')
    assert text.startswith(codecs.BOM_UTF8) == content.startswith(codecs.BOM_UTF8)


def test_a_missing_folder_is_made(command: ConnectCommand, project: Path) -> None:
    """A client that has not run yet has no folder."""
    assert command.run("cursor", "--write", "--file", "new/folder/mcp.json").exit_code == 0

    assert (project / "new" / "folder" / "mcp.json").exists()


def test_one_backup_has_the_content_before_the_last_change(command: ConnectCommand, project: Path) -> None:
    """A run that changes nothing leaves the backup alone."""
    file = project / ".mcp.json"
    file.write_text('{"first": 1}')
    command.run("claude-code", "--write")
    backup = file.with_name(file.name + BACKUP_SUFFIX)

    command.run("claude-code", "--write")

    assert backup.read_text() == '{"first": 1}'


def test_a_file_that_changes_during_the_run_stays_as_it_is(tmp_path: Path) -> None:
    """Claude Code writes its own file often; its change must not be lost."""
    file = tmp_path / "file.json"
    file.write_text("{}")
    edit = FileEdit(file, read_file(file), b'{"ours": 1}')
    file.write_text('{"theirs": 1}')

    with pytest.raises(ClientFileBroken, match=r"has changed meanwhile.*Run the command again"):
        write_edits([edit])

    assert file.read_text() == '{"theirs": 1}'
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]


def test_a_process_killed_while_it_writes_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    """Files are replaced atomically. A client that reads meanwhile, or after a crash, never gets a part of one."""
    file = tmp_path / "settings.json"
    contents = [json.dumps({"mine": letter * 8_000_000}).encode() for letter in "ab"]
    file.write_bytes(contents[0])
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", _REWRITE, str(file)]) as process:
            deadline = time.monotonic() + HANG_S
            while not has_part_of_a_file(tmp_path, len(contents[0])):
                assert process.poll() is None
                assert time.monotonic() < deadline
            process.kill()
        backup = file.with_name(file.name + BACKUP_SUFFIX)
        for path in tmp_path.iterdir():
            if path in {file, backup}:
                assert path.read_bytes() in contents
            else:
                path.unlink()  # the part that was written beside the file


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_reported(command: ConnectCommand, project: Path) -> None:
    """The message names the file and the reason."""
    project.chmod(0o500)
    try:
        error = get_error(command.run("claude-code", "--write"))
    finally:
        project.chmod(0o700)

    assert ".mcp.json cannot be written: Permission denied" in error


def test_a_file_in_the_place_of_a_folder_is_reported(command: ConnectCommand, project: Path) -> None:
    """The message names the file and the reason, also for root."""
    (project / ".cursor").write_text("")

    error = get_error(command.run("cursor", "--write"))

    assert ".cursor/mcp.json cannot be read: Not a directory" in error


def test_a_new_file_with_a_key_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    """Claude Desktop and Zed keep the key in their file."""
    edit = FileEdit(tmp_path / "folder" / "settings.json", None, b"{}", is_secret=True)

    assert write_edits([edit]) == []

    assert get_mode(edit.path) == 0o600


def test_a_diff_shows_the_lines_that_change_and_no_key() -> None:
    """The file may have keys of this and of other servers near the entry."""
    key, token = "ak_" + "a1" * 16, "gh" + "p_0123456789"
    before = f'{{\n  "key": "{key}",\n  "other": "Bearer {token}",\n  "ours": "Bearer ${{ROOKERY_KEY}}"\n}}'.encode()

    diff = render_diff([FileEdit(Path("/f.json"), before, before + b"\n"), FileEdit(Path("/same.json"), before, before)])

    assert diff.splitlines()[:3] == ["--- /f.json", "+++ /f.json", "@@ -2,4 +2,4 @@"]
    assert "\\ No newline at end of file" in diff
    assert (key in diff, token in diff) == (False, False)
    assert '"key": "ak_***"' in diff
    assert '"other": "Bearer ***"' in diff
    assert "${ROOKERY_KEY}" in diff
    assert "same" not in diff


def test_a_text_that_is_decoded_is_encoded_to_the_same_bytes() -> None:
    """The mark is no part of the text, so a parser does not see it."""
    content = codecs.BOM_UTF8 + "ä\r\n".encode()

    assert (decode(Path("f"), content), encode(decode(Path("f"), content), content)) == ("ä\r\n", content)
    assert (decode(Path("f"), None), encode("ä", None)) == ("", "ä".encode())


def test_leftovers_of_a_killed_run_are_removed(command: ConnectCommand, project: Path) -> None:
    """A temporary file may contain a key. One that is new may belong to a run in progress."""
    old, new = project / "..mcp.json.0123456789ab", project / "..mcp.json.ba9876543210"
    other = project / "..mcp.json.notes"
    for file in (old, new, other):
        file.write_text("{}")
    os.utime(old, (time.time() - 3600, time.time() - 3600))
    os.utime(other, (time.time() - 3600, time.time() - 3600))

    assert command.run("claude-code", "--write", "--no-key").exit_code == 0
    assert {path.name for path in project.iterdir()} == {".mcp.json", new.name, other.name}
