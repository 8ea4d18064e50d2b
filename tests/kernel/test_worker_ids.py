"""Worker ids: a process is alive if it runs on this host and is the one that made the id."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from rookery.kernel.worker_ids import find_dead_workers, make_worker_id
from tests.processes import earlier_worker_id

_PRINT_ID = "from rookery.kernel.worker_ids import make_worker_id; print(make_worker_id('x'), flush=True); input()"


@contextmanager
def run_worker() -> Generator[str]:
    """Run another process and yield the id of a worker of it."""
    command = [sys.executable, "-c", _PRINT_ID]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()


def test_all_workers_of_this_process_are_alive() -> None:
    """Claims of a running process are never taken over (D-14)."""
    assert find_dead_workers([make_worker_id("one"), make_worker_id("two")]) == []


def test_a_worker_of_an_earlier_process_with_this_pid_is_dead() -> None:
    """A server in a container is process 1 after each restart."""
    earlier = earlier_worker_id(make_worker_id("x"))

    assert find_dead_workers([earlier, make_worker_id("x")]) == [earlier]


def test_a_worker_of_another_process_is_alive_until_that_exits() -> None:
    """The claims of a process that has exited are free immediately (D-14)."""
    with run_worker() as worker_id:
        assert worker_id.split(":")[1] != str(os.getpid())
        assert find_dead_workers([worker_id]) == []

    assert find_dead_workers([worker_id]) == [worker_id]


@pytest.mark.skipif(sys.platform != "linux", reason="only /proc has the start of other processes")
def test_a_worker_whose_pid_now_belongs_to_another_process_is_dead() -> None:
    """The system reuses process ids (D-14)."""
    with run_worker() as worker_id:
        earlier = earlier_worker_id(worker_id)

        assert find_dead_workers([earlier]) == [earlier]


def test_two_processes_with_one_pid_have_different_ids() -> None:
    """Each child below is process 1 of a container of its own, if the system allows this test to make them."""
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", sys.executable, "-c", _PRINT_ID]
    try:
        outputs = [subprocess.run(command, input="\n", capture_output=True, text=True, check=True, timeout=60).stdout for _ in range(2)]
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("this user may not make containers")
    first, second = (output.strip().split(":") for output in outputs)

    assert first[:2] == second[:2]
    assert first[1] == "1"
    assert first != second


def test_an_id_of_an_older_version_is_checked_by_its_pid() -> None:
    """The store may have claims of the previous version (D-08)."""
    host, pid, _, unique = make_worker_id("x").split(":")

    assert find_dead_workers([f"{host}:{pid}:{unique}"]) == []


def test_a_worker_on_another_host_is_never_dead() -> None:
    """Its claims end with their leases (D-14)."""
    earlier = earlier_worker_id(make_worker_id("x"))

    assert find_dead_workers([f"another-{earlier}"]) == []
