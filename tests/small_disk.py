"""Small disks for tests of full ones: file systems in memory that only some programs see."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deadlines import HANG_S

_MOUNT = 'for folder; do mount -t tmpfs -o "$0" tmpfs "$folder" || exit; done; echo mounted; exec cat'
_NOBODY = 65534


@contextmanager
def mount_small_disks(*folders: Path, size_mib: int, is_root: bool = True) -> Generator[Sequence[str]]:
    """
    Mount an empty disk of *size_mib* on each of *folders* until the end of the block. Skip the test if this user may not.

    Yield the words before a command that let it see the disks.

    Args:
        is_root: Run the command as the user of the tests. False: as `nobody` if that is root.
    """
    is_super_user = os.geteuid() == 0
    user_namespace = [] if is_super_user else ["--user", "--map-current-user", "--keep-caps"]
    owner = _NOBODY if is_super_user and not is_root else os.geteuid()
    options = f"size={size_mib}m,mode=700,uid={owner},gid={owner if owner == _NOBODY else os.getegid()}"
    command = ["unshare", "--mount", *user_namespace, "sh", "-c", _MOUNT, options, *map(str, folders)]
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        if holder.stdout.readline() != "mounted\n":
            pytest.skip("this user may not mount a disk")
        user = [] if is_super_user else ["--user", "--preserve-credentials"]
        if is_super_user and not is_root:
            user = ["--setgid", str(owner), "--setuid", str(owner)]
        yield ["nsenter", "--target", str(holder.pid), "--mount", *user]
        holder.stdin.close()


def fill_disk(wrapper: Sequence[str], folder: Path) -> None:
    """Fill the disk of *folder* to the last byte."""
    command = [*wrapper, "sh", "-c", 'cat /dev/zero >> "$0"', str(folder / "ballast")]
    assert b"No space left" in subprocess.run(command, capture_output=True, timeout=HANG_S, check=False).stderr


def free_disk(wrapper: Sequence[str], folder: Path) -> None:
    """Delete what `fill_disk` wrote."""
    subprocess.run([*wrapper, "rm", str(folder / "ballast")], timeout=HANG_S, check=True)
