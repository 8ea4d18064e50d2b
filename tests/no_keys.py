"""
No key is ever printed: every test's own output is searched for every key that was minted (notes on the platform, 6; issue). A plugin.

Collected: the plaintext of each key and secret that the product makes or reads in this process (each is a `Secret`), and those of
real servers and commands, from the one place where each is shown on purpose. Searched, whole or for their last 24 characters, plain
or as Basic credentials: what a test printed and logged, how it failed, warnings, the product's own exceptions, what commands wrote,
and the logs of the servers that `tests.processes` ran; these also for anything of a key's form. A find fails the test.
"""

from __future__ import annotations

import base64
import inspect
import re
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner, Result

from rookery.kernel.errors import RookeryError
from rookery.kernel.secret import Secret

_TAIL = 24
"""What is known of a key without its lookup part, which lists show, is its last 24 characters."""

_FORM = re.compile(r"(?:sk_(?:live|test)_[A-Za-z0-9]{32}|(?<![A-Za-z])ak_[A-Za-z0-9]{32}|whsec_[A-Za-z0-9+/]{24,}=*)")
_RUN = re.compile(rf"[A-Za-z0-9+/_-]{{{_TAIL},}}")
_MINTS = re.compile(r"(?:^|\s)(?:init|(?:agent-)?keys\s+(?:create|rotate)|webhooks\s+(?:add|rotate-secret))(?:\s|$)")
"""The commands whose answer shows a key, this once: on standard output alone."""

_KEPT_IN_FILES = ("first-run.json", "secret.key")


@dataclass
class Watch:
    """What must not be printed, where to look for it, and where it was found."""

    tails: set[str] = field(default_factory=set[str])
    others: set[str] = field(default_factory=set[str])
    logs: dict[Path, int] = field(default_factory=dict[Path, int])
    found: list[str] = field(default_factory=list[str])

    def learn(self, text: str) -> None:
        """Take *text* for a secret."""
        if "://" in text or len(text) < _TAIL:
            return
        if not re.fullmatch(r"[A-Za-z0-9+/_=-]+", text):
            self.others.add(text)
            return
        self.tails.add(text.rstrip("=")[-_TAIL:])
        self.tails.add(base64.b64encode(f"{text}:".encode()).decode().rstrip("=")[-_TAIL:])

    def learn_from(self, shown: str) -> None:
        """Take everything of a key's form in *shown*, where keys are shown on purpose."""
        for key in _FORM.findall(shown):
            self.learn(key)

    def leaks(self, text: str) -> str | None:
        """Return where in *text* a secret is, without it."""
        for run in _RUN.finditer(text):
            for start in range(run.end() - run.start() - _TAIL + 1):
                if run[0][start : start + _TAIL] in self.tails:
                    return _around(text, run.start() + start)
        for other in self.others:
            place = text.find(other)
            if place >= 0:
                return _around(text, place)
        return None

    def look(self, where: str, text: str) -> None:
        """Note a find."""
        leak = self.leaks(text)
        if leak is not None:
            self.found.append(f"a key is in {where}: {leak}")

    def look_at_logs(self) -> None:
        """Read what servers wrote since the last look; there nothing may even have the form of a key."""
        for path, seen in list(self.logs.items()):
            self._learn_beside(path)
            try:
                with path.open("rb") as log:
                    log.seek(seen)
                    new = log.read()
            except OSError:
                del self.logs[path]
                continue
            text, before = new.decode("utf-8", errors="replace"), len(self.found)
            form = _FORM.search(text)
            if form is not None:
                self.found.append(f"a key is in {path.name}: {_around(text, form.start())}")
            else:
                self.look(path.name, text)
            # Its last line may still be in the writing.
            self.logs[path] = seen + (new.rfind(b"\n") + 1 if len(self.found) == before else len(new))

    def _learn_beside(self, log: Path) -> None:
        for name in _KEPT_IN_FILES:
            try:
                text = (log.parent / name).read_text(encoding="utf-8")
            except OSError:
                continue
            self.learn_from(text)
            for line in text.split() if name == "secret.key" else ():
                self.learn(line)

    def hear(self, command: str, out: str, err: str) -> None:
        """Look at what a command wrote; what it was asked to show is learned instead."""
        shown = command[:80]
        if _MINTS.search(command) is not None:
            self.learn_from(out)
        elif "rookery" in command:
            self.look(f"the output of {shown!r}", out)
        self.look(f"the standard error of {shown!r}", err)

    def taken(self) -> list[str]:
        """Return what was found since the last time."""
        found, self.found = list(dict.fromkeys(self.found)), []
        return found


WATCH = Watch()
_PATCHES = pytest.MonkeyPatch()


def watch_log(path: Path) -> None:
    """Look into a server's log from now on."""
    WATCH.logs.setdefault(path, 0)


def pytest_configure() -> None:
    """Listen where keys are born, where our own errors are made, and where commands answer."""
    _PATCHES.setattr(Secret, "__init__", _heard(Secret.__init__))
    _PATCHES.setattr(RookeryError, "__init__", _looked_at(RookeryError.__init__))
    _PATCHES.setattr(subprocess, "run", _run(subprocess.run))
    _PATCHES.setattr(CliRunner, "invoke", _invoked(CliRunner.invoke))
    _PATCHES.setattr(pytest.CaptureFixture, "readouterr", _read(pytest.CaptureFixture[str].readouterr))


def pytest_unconfigure() -> None:
    """Leave everything as it was."""
    _PATCHES.undo()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail the test of whose output a key is a part."""
    report = yield
    for name, text in report.sections:
        if name.endswith(report.when or ""):  # else it was looked at after the phase before
            WATCH.look(name, text)
    if report.longrepr is not None:
        WATCH.look("how it failed", str(report.longrepr))
    WATCH.look_at_logs()
    found = WATCH.taken()
    if found:
        report.outcome = "failed"
        before = f"{report.longrepr}\n\n" if report.longrepr is not None else ""
        report.longrepr = before + "\n".join(found)
    return report


def pytest_warning_recorded(warning_message: object, nodeid: str) -> None:
    """Look at what is warned of; it is told after the test, so the run fails, not the test."""
    leak = WATCH.leaks(str(warning_message))
    if leak is not None:
        _LATE.append(f"{nodeid}: a key is in a warning: {leak}")


_LATE = list[str]()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run for what belongs to no test any more."""
    WATCH.look_at_logs()
    _LATE.extend(WATCH.taken())
    if _LATE:
        output = cast("dict[str, object] | None", getattr(session.config, "workeroutput", None))
        if output is not None:
            output["no_keys"] = list(_LATE)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """Take over what a worker of xdist found late."""
    output = cast("Mapping[str, list[str]]", getattr(node, "workeroutput", {}))
    _LATE.extend(output.get("no_keys", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was found late."""
    for each in _LATE:
        terminalreporter.write_line(f"FAILED {each}", red=True)


def _around(text: str, place: int) -> str:
    """Return the line of a find up to it, so that the report does not print it once more."""
    return repr(text[max(text.rfind("\n", 0, place) + 1, place - 100) : place] + "…")


def _heard(init: Callable[[Secret, str], None]) -> Callable[[Secret, str], None]:
    """Learn what the product takes for a secret; a test's own are no minted ones, and stand in its source."""

    def heard(self: Secret, text: str) -> None:
        init(self, text)
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        if caller is not None and str(caller.f_globals.get("__name__")).startswith("rookery."):
            WATCH.learn(text)

    return heard


def _looked_at(init: Callable[..., None]) -> Callable[..., None]:
    def looked_at(self: RookeryError, message: str, *, headers: Mapping[str, str] | None = None, **detail: object) -> None:
        init(self, message, headers=headers, **detail)
        WATCH.look(type(self).__name__, f"{message} {headers} {detail}")

    return looked_at


def _run(run: Callable[..., subprocess.CompletedProcess[object]]) -> Callable[..., subprocess.CompletedProcess[object]]:
    def heard(command: Sequence[object] | str, **options: object) -> subprocess.CompletedProcess[object]:
        said = command if isinstance(command, str) else " ".join(map(str, command))
        try:
            done = run(command, **options)
        except subprocess.CalledProcessError as error:
            WATCH.hear(said, _text(error.stdout), _text(error.stderr))
            raise
        WATCH.hear(said, _text(done.stdout), _text(done.stderr))
        return done

    return heard


def _invoked(invoke: Callable[..., Result]) -> Callable[..., Result]:
    def heard(self: CliRunner, app: object, args: Sequence[str] | str | None = None, **options: object) -> Result:
        result = invoke(self, app, args, **options)
        said = args if isinstance(args, str) else " ".join(args or ())
        WATCH.hear(f"rookery {said}", result.stdout, result.stderr)
        return result

    return heard


def _read(read: Callable[[pytest.CaptureFixture[str]], tuple[str, str]]) -> Callable[[pytest.CaptureFixture[str]], tuple[str, str]]:
    """Look at what a test takes out of its own output, which is in no report then."""

    def looked_at(self: pytest.CaptureFixture[str]) -> tuple[str, str]:
        taken = read(self)
        for text in taken:
            WATCH.look("what the test printed", text)
        return taken

    return looked_at


def _text(written: object) -> str:
    return written.decode("utf-8", errors="replace") if isinstance(written, bytes) else str(written or "")
