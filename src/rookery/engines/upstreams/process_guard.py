"""
Run one command, and kill everything it started when Rookery ends.

Rookery runs it as a script (python -I -S process_guard.py LIFELINE GRACE -- command args…) between itself and each stdio server, so it
imports little and nothing of Rookery: it starts in 20 ms. The command inherits stdin, stdout and stderr, so no message passes through this
process.

LIFELINE is one end of a socket pair whose other end Rookery holds. The guard writes the command's process id to it. When it closes, because
Rookery closed it or was killed (the kernel closes it even after kill -9), the command's process group receives SIGTERM, and after GRACE
seconds SIGKILL. A byte from Rookery sends SIGTERM alone, for a command that needs more time to exit.

When the command exits by itself, all processes that it started are killed too, on Linux also those that moved to another process group (the
guard adopts orphans).
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

_PARENT_POLL_INTERVAL_S = 2.0
"""Interval of a second check, whether the parent process is still the same. Another child of a forking parent could hold the lifeline open.
"""

_REAP_TIMEOUT_S = 1.0
_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36
"""Options of prctl(2), from linux/prctl.h."""


def main(lifeline: int, grace_s: float, command: list[str]) -> int:
    """
    Run *command* until it exits or the lifeline closes.

    Return its exit code, 128 + n for signal n, or 127 if it cannot start.
    """
    parent = os.getppid()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    # Handlers, not SIG_IGN: exec resets a handler, but the command would inherit an ignored signal.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _wake_up)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    os.set_inheritable(lifeline, False)
    _prepare_process()
    try:
        child = os.posix_spawnp(command[0], command, os.environ, setpgroup=0)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    _release_pipes()
    _send_pid(lifeline, child)
    kill_at: float | None = None
    while True:
        status = _reap(child)
        if status is not None:
            _kill_remaining(child)
            return 128 - status if status < 0 else status
        now = time.monotonic()
        if kill_at is not None and now >= kill_at:
            _signal_group(child, signal.SIGKILL)
            kill_at = now + grace_s
        wait = _PARENT_POLL_INTERVAL_S if kill_at is None else max(kill_at - now, 0.01)
        watched = [woken] if kill_at is not None else [woken, lifeline]
        ready = select.select(watched, [], [], wait)[0]
        if woken in ready:
            os.read(woken, 4096)
        has_message = lifeline in ready
        has_ended = (has_message and not _is_lifeline_open(lifeline)) or os.getppid() != parent
        if kill_at is None and (has_message or has_ended):
            _signal_group(child, signal.SIGTERM)
            kill_at = time.monotonic() + grace_s if has_ended else None


def _wake_up(number: int, frame: object) -> None:
    """Do nothing: the wake-up pipe reports the signal."""
    del number, frame


def _send_pid(lifeline: int, pid: int) -> None:
    try:
        os.write(lifeline, b"%d\n" % pid)
    except OSError:
        return  # Rookery has exited: the lifeline has closed, and the main loop detects that


def _is_lifeline_open(lifeline: int) -> bool:
    """Read from the lifeline. Return whether Rookery still holds the other end."""
    try:
        return os.read(lifeline, 64) != b""
    except OSError:
        return False


def _release_pipes() -> None:
    """Release the command's pipes; otherwise Rookery would not see them close when the command exits."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)


def _prepare_process() -> None:
    """Adopt orphans of the command. Request SIGCONT when the parent exits: a stopped process cannot detect that the lifeline closes."""
    if sys.platform != "linux":
        return
    try:
        library = ctypes.CDLL(None)
        library.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        library.prctl(_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)
    except (OSError, AttributeError):
        return


def _reap(child: int) -> int | None:
    """Reap all exited processes. Return the command's status if it is one of them, negative for a signal."""
    result: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return result
        if pid == 0:
            return result
        if pid == child:
            result = os.waitstatus_to_exitcode(status)


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def _kill_remaining(group: int) -> None:
    _signal_group(group, signal.SIGKILL)
    deadline = time.monotonic() + _REAP_TIMEOUT_S
    while time.monotonic() < deadline:
        orphans = _descendants()
        if not orphans:
            return
        for pid in orphans:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        time.sleep(0.005)
        _reap(0)


def _descendants() -> list[int]:
    """Return all descendants of this process; an empty list without /proc."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - pathlib would double the start
    except OSError:
        return []
    children: dict[int, list[int]] = {}
    for name in names:
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123 - as above
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] not in b"ZX":
            children.setdefault(int(fields[1]), []).append(int(name))
    descendants: list[int] = []
    todo = [os.getpid()]
    while todo:
        pids = children.get(todo.pop(), [])
        descendants += pids
        todo += pids
    return descendants


if __name__ == "__main__":
    _dashes = sys.argv.index("--")
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[_dashes + 1 :]))
