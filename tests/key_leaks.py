"""
A pytest plugin that searches the output of every test for every created key.

Collected: the plaintext of each key and secret that the product makes or reads in this process (each is a `Secret`), and those of
real servers and commands, from the only place where each is printed on purpose. Searched, whole or for their last 24 characters, plain
or as Basic credentials: what a test printed and logged, how it failed, warnings, the product's own exceptions, what commands wrote,
and the logs of the servers that `tests.processes` ran; these also for anything that looks like a key. A finding fails the test.
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

_TAIL_CHARS = 24
"""Number of characters at the end of a key that are secret; lists show the lookup part before them."""

_KEY_PATTERN = re.compile(r"(?:sk_(?:live|test)_[A-Za-z0-9]{32}|(?<![A-Za-z])ak_[A-Za-z0-9]{32}|whsec_[A-Za-z0-9+/]{24,}=*)")
_TOKEN_PATTERN = re.compile(rf"[A-Za-z0-9+/_-]{{{_TAIL_CHARS},}}")
_KEY_COMMANDS = re.compile(
    r"(?:^|\s)(?:init|(?:agent-)?keys\s+(?:create|rotate)|webhooks\s+(?:add|rotate-secret)|connect\s.*--write)(?:\s|$)"
)
"""The commands that print a key, once and on standard output only."""

_KEY_FILES = ("first-run.json", "secret.key")


@dataclass
class LeakDetector:
    """A detector of secrets in output: the known secrets, the watched logs, and the findings."""

    key_tails: set[str] = field(default_factory=set[str])
    other_secrets: set[str] = field(default_factory=set[str])
    log_offsets: dict[Path, int] = field(default_factory=dict[Path, int])
    findings: list[str] = field(default_factory=list[str])

    def add_secret(self, text: str) -> None:
        """Add *text* to the known secrets."""
        if "://" in text or len(text) < _TAIL_CHARS:
            return
        if not re.fullmatch(r"[A-Za-z0-9+/_=-]+", text):
            self.other_secrets.add(text)
            return
        self.key_tails.add(text.rstrip("=")[-_TAIL_CHARS:])
        self.key_tails.add(base64.b64encode(f"{text}:".encode()).decode().rstrip("=")[-_TAIL_CHARS:])

    def add_keys_from(self, output: str) -> None:
        """Add every key in *shown*, the output that prints keys on purpose."""
        for key in _KEY_PATTERN.findall(output):
            self.add_secret(key)

    def find_leak(self, text: str) -> str | None:
        """Return the text before the first secret in *text*, or None."""
        for run in _TOKEN_PATTERN.finditer(text):
            for start in range(run.end() - run.start() - _TAIL_CHARS + 1):
                if run[0][start : start + _TAIL_CHARS] in self.key_tails:
                    return _around(text, run.start() + start)
        for other in self.other_secrets:
            position = text.find(other)
            if position >= 0:
                return _around(text, position)
        return None

    def check(self, where: str, text: str) -> None:
        """Record a finding if *text* contains a secret."""
        leak = self.find_leak(text)
        if leak is not None:
            self.findings.append(f"a key is in {where}: {leak}")

    def check_logs(self) -> None:
        """Check new log lines of servers; they may not contain anything that looks like a key."""
        for path, offset in list(self.log_offsets.items()):
            self._add_keys_beside(path)
            try:
                with path.open("rb") as log:
                    log.seek(offset)
                    new = log.read()
            except OSError:
                del self.log_offsets[path]
                continue
            text, before = new.decode("utf-8", errors="replace"), len(self.findings)
            match = _KEY_PATTERN.search(text)
            if match is not None:
                self.findings.append(f"a key is in {path.name}: {_around(text, match.start())}")
            else:
                self.check(path.name, text)
            # The last line may be incomplete.
            self.log_offsets[path] = offset + (new.rfind(b"\n") + 1 if len(self.findings) == before else len(new))

    def _add_keys_beside(self, log: Path) -> None:
        for name in _KEY_FILES:
            try:
                text = (log.parent / name).read_text(encoding="utf-8")
            except OSError:
                continue
            self.add_keys_from(text)
            for line in text.split() if name == "secret.key" else ():
                self.add_secret(line)

    def check_command(self, command: str, out: str, err: str) -> None:
        """Check a command's output; keys that it prints on purpose are added instead."""
        shortened = command[:80]
        if _KEY_COMMANDS.search(command) is not None:
            self.add_keys_from(out)
        elif "rookery" in command:
            self.check(f"the output of {shortened!r}", out)
        self.check(f"the standard error of {shortened!r}", err)

    def take_findings(self) -> list[str]:
        """Return and clear the findings."""
        findings, self.findings = list(dict.fromkeys(self.findings)), []
        return findings


DETECTOR = LeakDetector()
_PATCHES = pytest.MonkeyPatch()


def watch_log(path: Path) -> None:
    """Check a server's log from now on."""
    DETECTOR.log_offsets.setdefault(path, 0)


def pytest_configure() -> None:
    """Install the hooks: secrets, Rookery's errors, commands, and captured output."""
    _PATCHES.setattr(Secret, "__init__", _wrap_secret(Secret.__init__))
    _PATCHES.setattr(RookeryError, "__init__", _wrap_error(RookeryError.__init__))
    _PATCHES.setattr(subprocess, "run", _wrap_run(subprocess.run))
    _PATCHES.setattr(CliRunner, "invoke", _wrap_invoke(CliRunner.invoke))
    _PATCHES.setattr(pytest.CaptureFixture, "readouterr", _wrap_readouterr(pytest.CaptureFixture[str].readouterr))


def pytest_unconfigure() -> None:
    """Remove the hooks."""
    _PATCHES.undo()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail the test if its output contains a key."""
    report = yield
    for name, text in report.sections:
        if name.endswith(report.when or ""):  # others were checked after an earlier phase
            DETECTOR.check(name, text)
    if report.longrepr is not None:
        DETECTOR.check("the failure report", str(report.longrepr))
    DETECTOR.check_logs()
    findings = DETECTOR.take_findings()
    if findings:
        report.outcome = "failed"
        before = f"{report.longrepr}\n\n" if report.longrepr is not None else ""
        report.longrepr = before + "\n".join(findings)
    return report


def pytest_warning_recorded(warning_message: object, nodeid: str) -> None:
    """Check warnings; they are reported after the test, so the run fails instead of the test."""
    leak = DETECTOR.find_leak(str(warning_message))
    if leak is not None:
        _LATE_FINDINGS.append(f"{nodeid}: a key is in a warning: {leak}")


_LATE_FINDINGS = list[str]()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run for findings that belong to no test."""
    DETECTOR.check_logs()
    _LATE_FINDINGS.extend(DETECTOR.take_findings())
    if _LATE_FINDINGS:
        output = cast("dict[str, object] | None", getattr(session.config, "workeroutput", None))
        if output is not None:
            output["key_leaks"] = list(_LATE_FINDINGS)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """Collect the late findings of an xdist worker."""
    output = cast("Mapping[str, list[str]]", getattr(node, "workeroutput", {}))
    _LATE_FINDINGS.extend(output.get("key_leaks", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the late findings."""
    for finding in _LATE_FINDINGS:
        terminalreporter.write_line(f"FAILED {finding}", red=True)


def _around(text: str, position: int) -> str:
    """Return the line up to the key, without the key itself."""
    return repr(text[max(text.rfind("\n", 0, position) + 1, position - 100) : position] + "…")


def _wrap_secret(init: Callable[[Secret, str], None]) -> Callable[[Secret, str], None]:
    """Record each secret that the product creates; secrets that tests create are not checked."""

    def record(self: Secret, text: str) -> None:
        init(self, text)
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        if caller is not None and str(caller.f_globals.get("__name__")).startswith("rookery."):
            DETECTOR.add_secret(text)

    return record


def _wrap_error(init: Callable[..., None]) -> Callable[..., None]:
    def check(self: RookeryError, message: str, *, headers: Mapping[str, str] | None = None, **detail: object) -> None:
        init(self, message, headers=headers, **detail)
        DETECTOR.check(type(self).__name__, f"{message} {headers} {detail}")

    return check


def _wrap_run(run: Callable[..., subprocess.CompletedProcess[object]]) -> Callable[..., subprocess.CompletedProcess[object]]:
    def record(command: Sequence[object] | str, **options: object) -> subprocess.CompletedProcess[object]:
        text = command if isinstance(command, str) else " ".join(map(str, command))
        try:
            process = run(command, **options)
        except subprocess.CalledProcessError as error:
            DETECTOR.check_command(text, _to_text(error.stdout), _to_text(error.stderr))
            raise
        DETECTOR.check_command(text, _to_text(process.stdout), _to_text(process.stderr))
        return process

    return record


def _wrap_invoke(invoke: Callable[..., Result]) -> Callable[..., Result]:
    def record(self: CliRunner, app: object, args: Sequence[str] | str | None = None, **options: object) -> Result:
        result = invoke(self, app, args, **options)
        text = args if isinstance(args, str) else " ".join(args or ())
        DETECTOR.check_command(f"rookery {text}", result.stdout, result.stderr)
        return result

    return record


def _wrap_readouterr(
    read: Callable[[pytest.CaptureFixture[str]], tuple[str, str]],
) -> Callable[[pytest.CaptureFixture[str]], tuple[str, str]]:
    """Check the output that a test reads with `capsys`, which no report contains."""

    def check(self: pytest.CaptureFixture[str]) -> tuple[str, str]:
        captured = read(self)
        for text in captured:
            DETECTOR.check("the output of the test", text)
        return captured

    return check


def _to_text(output: object) -> str:
    return output.decode("utf-8", errors="replace") if isinstance(output, bytes) else str(output or "")
