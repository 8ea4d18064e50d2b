"""
Start one command and see to it that nothing of it is left when we are gone.

Run as a script of its own (python -I -S warden.py LIFELINE GRACE -- command args…) between Rookery and each stdio server,
so it imports little and nothing of ours: 20 ms to start. The command gets our stdin, stdout and stderr
themselves, so no message passes through here. LIFELINE is one end of a socket pair whose other end Rookery holds: we write
the command's process id to it, and when it ends, because Rookery closed it or was killed (kill -9 too: the kernel closes
it), the command's process group gets SIGTERM, and after GRACE seconds SIGKILL. A byte written to our end of the socket pair sends
SIGTERM alone, for a command that needs more time to end. When the command ends by itself, whatever it
started is killed too, also what moved to another process group (on Linux, where orphans come to us).
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

_PARENT_POLL_INTERVAL_S = 2.0
"""Beside the lifeline, which another child of a forking parent might hold open: is our parent still our parent?"""

_REAP_TIMEOUT_S = 1.0
_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36
"""prctl(2); linux/prctl.h."""


def main(lifeline: int, grace_s: float, command: list[str]) -> int:
    """Run *command* until it ends or the lifeline does; return its exit code, 128 + n for signal n, 127 if it cannot start."""
    parent = os.getppid()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    # Handlers, not SIG_IGN: a handler is reset by exec, an ignored signal would be ignored by the command too.
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
    """Do nothing: the wake-up pipe says that a signal came."""
    del number, frame


def _send_pid(lifeline: int, child: int) -> None:
    try:
        os.write(lifeline, b"%d\n" % child)
    except OSError:
        return  # Rookery is gone already: the lifeline has ended, and the loop sees that


def _is_lifeline_open(lifeline: int) -> bool:
    """Read what woke us; return whether Rookery still holds the other end."""
    try:
        return os.read(lifeline, 64) != b""
    except OSError:
        return False


def _release_pipes() -> None:
    """Hold none of the command's pipes, or Rookery would not see them close when it ends."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)


def _prepare_process() -> None:
    """Adopt orphans of the command; be continued when our parent dies, because a stopped process sees no lifeline end."""
    if sys.platform != "linux":
        return
    try:
        library = ctypes.CDLL(None)
        library.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        library.prctl(_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)
    except (OSError, AttributeError):
        return


def _reap(child: int) -> int | None:
    """Take note of every ended process; return the command's status once it is among them, negative for a signal."""
    found: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = os.waitstatus_to_exitcode(status)


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
    """Return the processes below us, however deep; none where there is no /proc."""
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
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


if __name__ == "__main__":
    _dashes = sys.argv.index("--")
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[_dashes + 1 :]))
