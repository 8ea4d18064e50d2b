"""The reason why a server did not start, and the advice on it."""

from __future__ import annotations

import json
import sys

import pytest

from rookery.engines import upstreams
from rookery.tools.errors import ConnectFailed
from rookery.tools.models import CommandTarget, Server
from rookery.tools.process_output import ProcessOutput, find_error_line
from rookery.tools.servers.server_check import ServerChecker
from rookery.tools.servers.start_advice import advise_on_start
from rookery.tools.supervision.circuit_breaker import SupervisionTimeouts
from tests.conftest import eventually
from tests.stopwatch import Stopwatch
from tests.tools.conftest import Start
from tests.tools.makers import CALLER, OTHER, call, list_children

pytestmark = pytest.mark.embedded_store  # nothing here depends on the dialect

USAGE = [f"  --option-{number}=VALUE  An option; an error is reported as JSON" for number in range(60)]


def make_failing_server(lines: list[str], code: int | str, stream: str = "stderr", **fields: object) -> Server:
    """Make the entry of a program that writes *lines* to standard error or output and exits with *code*, or runs on ("hang")."""
    end = "time.sleep(60)" if code == "hang" else f"sys.exit({code})"
    program = f"import sys, time; sys.{stream}.write({chr(10).join(lines)!r}); sys.{stream}.flush(); {end}"
    target = CommandTarget(command=sys.executable, args=("-I", "-S", "-c", program), **fields)  # pyright: ignore[reportArgumentType]
    return Server(id="failing", name="failing", target=target, start_timeout_s=1 if code == "hang" else None)


def make_failing_entry(lines: list[str], code: int | str) -> dict[str, object]:
    """Make the entry of a file for the same program."""
    server = make_failing_server(lines, code)
    assert isinstance(server.target, CommandTarget)
    return {"command": server.target.command, "args": list(server.target.args), "start_timeout_s": server.start_timeout_s}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["Error: No access token was provided.", "Run `x login` first.", *USAGE], "Error: No access token was provided."),
        (["error: unable to create the provider: no context", "Usage:", *USAGE], "error: unable to create the provider: no context"),
        (["fatal: not a git repository", *USAGE], "fatal: not a git repository"),
        (["usage: x [-h] --key KEY", "x: error: the following arguments are required: --key"], None),
        (["2026-11-28 12:00:00,1 ERROR root no key", "2026-11-28 12:00:01,1 INFO root bye"], "2026-11-28 12:00:00,1 ERROR root no key"),
        (['time=1 level=ERROR msg="no key"', "time=2 level=INFO msg=bye"], 'time=1 level=ERROR msg="no key"'),
        (["Please set the API_KEY variable; it is required", *USAGE], "Please set the API_KEY variable; it is required"),
        (["TypeError: fetch failed", "at node:x", "[cause]: Error: ENOTFOUND a.example {"],
         "TypeError: fetch failed (Error: ENOTFOUND a.example)"),
        (['{"level":"error","msg":"no key"}', '{"level":"info","msg":"bye"}'], '{"level":"error","msg":"no key"}'),
        (['{"level":50,"msg":"no key"}', '{"level":30,"msg":"no error"}'], '{"level":50,"msg":"no key"}'),
        (["2026-11-28T12:00:00Z [error    ] no key", "2026-11-28T12:00:00Z [info     ] bye"], "2026-11-28T12:00:00Z [error    ] no key"),
        (["E1128 12:00:00.000000  1 main.go:10] no key", "I1128 12:00:00.000000  1 main.go:11] bye"],
         "E1128 12:00:00.000000  1 main.go:10] no key"),
        (['Exception in thread "main" a.b.StartException: no store', "\tat a.b.Main.run()", "Caused by: a.b.KeyException: no key"],
         'Exception in thread "main" a.b.StartException: no store (a.b.KeyException: no key)'),
        (["Unhandled exception. System.InvalidOperationException: no key", "   at Program.Main()"],
         "Unhandled exception. System.InvalidOperationException: no key"),
        (["thread 'main' (7) panicked at src/main.rs:1:2:", "no key", "note: run with `RUST_BACKTRACE=1`"],
         "thread 'main' (7) panicked at src/main.rs:1:2:"),
    ],
)  # fmt: skip
def test_the_reason_precedes_usage_text(lines: list[str], expected: str | None) -> None:
    """Programs write the reason first or last, and words such as "error" stand in the description of their options."""
    assert find_error_line(lines) == (expected or lines[-1])


def test_the_first_and_the_last_lines_are_kept() -> None:
    """A line between them counts what was left out."""
    log = ProcessOutput()
    for number in range(100):
        log.append(f"Error: {number}" if number == 0 else str(number))

    assert list(log) == ["Error: 0", "1", "2", "… 91 lines …", *(str(number) for number in range(94, 100))]
    assert log.find_error_line() == "Error: 0"
    log.mark_started()
    log.append("100")
    assert log.find_error_line() == "100"


def test_an_error_between_many_lines_is_found_and_shown_with_what_follows_it() -> None:
    """However many lines a start writes, a few are kept."""
    output = ProcessOutput()
    for number in range(10_000):
        output.append("" if number == 5_001 else f"step {number}")
        if number == 5_000:
            output.append("fatal: no token")
            output.append("Set DEMO_TOKEN.")

    assert output.find_error_line() == "fatal: no token"
    assert list(output) == [
        *("step 0", "step 1", "step 2", "… 4998 lines …", "fatal: no token", "Set DEMO_TOKEN.", "", "… 4992 lines …"),
        *(f"step {number}" for number in range(9_994, 10_000)),
    ]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_the_reason_is_found_wherever_a_program_writes_it(stream: str) -> None:
    """Some programs write everything to standard output. Secrets are redacted there too, and the last line needs no end."""
    steps = [f"step {number}" for number in range(100)]
    lines = ["Banner", *steps, "Error: no access token was provided for key-0123456789.", "Pass DEMO_ACCESS_TOKEN.", *steps, *USAGE, "Bye"]
    server = make_failing_server(lines, 1, stream=stream, env={"OTHER": "key-0123456789"})

    check = await ServerChecker(upstreams.open([])).check(server)

    assert check.error == "The server exited with code 1: Error: no access token was provided for ***."
    assert check.advice == "Set DEMO_ACCESS_TOKEN in `env` of its entry."
    assert "Error: no access token was provided for ***." in check.stderr
    assert (check.stderr[0], check.stderr[-1]) == ("Banner", "Bye")


async def test_protocol_messages_are_not_taken_for_what_a_program_writes() -> None:
    """They may contain data of callers, also those that cannot be read."""
    unreadable = '{"jsonrpc": "2.0", "id": 77, "result": {"text": "private error"}'
    server = make_failing_server(
        ['{"jsonrpc": "2.0", "method": "x", "params": {"text": "private error"}}', unreadable, unreadable], 1, stream="stdout"
    )

    check = await ServerChecker(upstreams.open([])).check(server)

    assert (check.error, check.stderr) == ("The server exited with code 1", ())


async def test_a_check_shows_the_reason_before_the_usage_text_and_the_variable_to_set() -> None:
    """Secrets are redacted, colours are left out, and the last line needs no end."""
    lines = ["\x1b[31mError: no access token for key-0123456789.\x1b[39m", "Pass --token or DEMO_ACCESS_TOKEN.", *USAGE]
    server = make_failing_server(lines, 1, env={"OTHER": "key-0123456789"})

    check = await ServerChecker(upstreams.open([])).check(server)

    assert check.error == "The server exited with code 1: Error: no access token for ***."
    assert check.stderr[:2] == ("Error: no access token for ***.", "Pass --token or DEMO_ACCESS_TOKEN.")
    assert check.stderr[-1] == USAGE[-1].rstrip()
    assert len(check.stderr) <= 10


async def test_a_check_of_a_server_that_does_not_answer_shows_what_it_wrote() -> None:
    """A server may report an error and run on."""
    server = make_failing_server(["listening", "TypeError: fetch failed"], "hang")

    check = await ServerChecker(upstreams.open([])).check(server)

    assert check.error == (
        "The server did not answer within 1 s of its start (`start_timeout_s` in its entry); it wrote: TypeError: fetch failed"
    )
    assert check.advice == "It cannot reach a service that it needs. Check that the service runs, and the network of Rookery's host."


async def test_after_a_start_that_timed_out_calls_fail_at_once_with_the_reason(start: Start) -> None:
    """Also those of another key: the start for the list of tools has shown that the server does not answer."""
    before = {child.pid for child in list_children()}
    tools = await start({"failing": make_failing_entry(["TypeError: fetch failed"], "hang")}, timing=SupervisionTimeouts())
    server = tools.catalogue.get_server(CALLER, "failing")
    error = await eventually(lambda: tools.sessions.get_health_state(server).last_error)
    assert error.endswith("it wrote: TypeError: fetch failed")
    await eventually(lambda: {child.pid for child in list_children()} <= before)

    watch = Stopwatch().start()
    outcomes = [await call(tools, "any", server="failing", caller=caller) for caller in (CALLER, OTHER, CALLER)]
    watch.stop()

    assert all("it wrote: TypeError: fetch failed" in str(outcome.error) for outcome in outcomes)
    assert all("attempt is in" in str(outcome.error) for outcome in outcomes)
    assert tools.sessions.failure_counts["failing"] == 1


@pytest.mark.parametrize(
    ("error", "lines", "words"),
    [
        ("The program 'nope' was not found. Install it, or correct the command.", [], "Install it on Rookery's host"),
        ("The directory '/nope' does not exist. Correct `cwd` in the entry.", [], "Create the directory, or correct `cwd`"),
        ("The server exited with code 1: no access token was provided.", ["no access token was provided.", "Pass DEMO_TOKEN."],
         "Set DEMO_TOKEN in `env`"),
        ("The server exited with code 1: set the DEMO_ACCESS_TOKEN environment variable", [], "Set DEMO_ACCESS_TOKEN in `env`"),
        ("The server exited with code 1: KeyError: 'DATABASE_URL'", [], "Set DATABASE_URL in `env`"),
        ("The server exited with code 1: SET_ALREADY is required", [], "Check the value of SET_ALREADY in `env`"),
        ("The server exited with code 1: Missing A_URL or B_URL", [], "Set what it needs in `env` of its entry: A_URL, B_URL"),
        ("The server exited with code 1: an API key is required", [], "Set the variable that its documentation names"),
        ("The server exited with code 1: 401 Unauthorized", [], "Its credential was rejected"),
        ("The server exited with code 1: AttributeError: 'Server' object has no attribute 'list_resources'", [], '"mcp<2"'),
        ("The server exited with code 1: ImportError: cannot import name 'Server' from 'mcp.server'", [], '"mcp<2"'),
        ("The server exited with code 1: TypeError: fetch failed (getaddrinfo ENOTFOUND mcp.example.com)", [], "cannot reach a service"),
        ("The server exited with code 1: FileNotFoundError: No such file or directory: '/srv/x'", [], "Check the folders and files"),
        ("The server exited with code 1: ModuleNotFoundError: No module named 'x'", [], "A package that it needs is missing"),
        ("The server exited with code 1: npm error 404 Not Found - GET nope", [], "the name and the version of the package"),
        ("The server exited with code 0: /srv/x is not a valid Git repository", [], "Check the folders and files"),
        ("The server exited with code 2: x: error: unrecognized arguments: --y", [], "Correct `args`"),
        ("The server exited with code 0", [], "ended without serving"),
        ("The server exited with code 3: oops", [], "Run its command in a terminal with the variables"),
    ],
)  # fmt: skip
def test_the_advice_fits_the_reason(error: str, lines: list[str], words: str) -> None:
    """Each cause has its own advice."""
    assert words in advise_on_start(CommandTarget(command="x", env={"SET_ALREADY": "1"}), ConnectFailed(error), lines)


async def test_the_reason_is_shown_in_the_health_of_the_server(start: Start) -> None:
    """The first lines are there too."""
    tools = await start({"failing": make_failing_entry(["Error: no kubeconfig", *USAGE], 1)})
    server = tools.catalogue.get_server(CALLER, "failing")

    await eventually(lambda: tools.sessions.get_health_state(server).last_error)
    state = tools.sessions.get_health_state(server)

    assert state.last_error == "The server exited with code 1: Error: no kubeconfig"
    assert "Error: no kubeconfig" in state.stderr
    assert json.dumps(state.stderr).count("option-59") == 1
