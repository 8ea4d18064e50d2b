"""`rookery score`. All texts are written for these tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
import typer
from typer.testing import CliRunner, Result

from rookery.cli import CommandContext, add_commands
from rookery.kernel.config import Settings
from rookery.kernel.errors import RookeryError

Json = dict[str, object]

PRAISE = "What a brilliant question! You're clearly a visionary thinker, and your theory is absolutely groundbreaking."


HUMAN = (
    "The ferry was late again, so we sat on the wall with our coats over our knees and counted the gulls. My brother said that the boat "
    "had a new engine and would still be slow. Nobody on the quay believed him, but when it came it was full of people who did. We paid "
    "at the desk, where the same man has sat since I was small, and he gave us the tickets without a look at the clock. On the other side "
    "the bus had gone. We walked, and it rained, and the dog from the farm came with us as far as the bridge, which is as far as he ever "
    "goes. My mother had the soup on the table when we came in, and she asked about nothing but the tickets."
)


class ScoreCommand:
    """The command with files in one folder; not on a terminal. No data folder exists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str, content: str | bytes) -> str:
        """Write a file and return its path."""
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def run(self, *arguments: str, text: str | None = None, has_colors: bool = False) -> Result:
        """Run the command. With *has_colors*, its output is that of a terminal."""
        app = typer.Typer()
        add_commands(app, "score", "version")
        context, environment = CommandContext(Settings(data_dir=self.folder / "data")), {"FORCE_COLOR": "1"} if has_colors else {}
        return CliRunner().invoke(app, ["score", *arguments], obj=context, input=text, env=environment)

    def run_json(self, *arguments: str, text: str | None = None) -> list[Json]:
        """Run the command with --json, which must succeed; return the results."""
        result = self.run(*arguments, "--json", text=text)
        assert result.exit_code == 0, f"{result.stderr} {result.exception}"
        return cast("list[Json]", json.loads(result.stdout))


@pytest.fixture
def command(tmp_path: Path) -> ScoreCommand:
    """The command with an empty folder."""
    return ScoreCommand(tmp_path)


def test_files_have_one_line_each(command: ScoreCommand) -> None:
    """tab-separated lines in a pipe, in the order of the files, without a data folder."""
    praise, plain = command.file("a.txt", PRAISE), command.file("b.txt", "The meeting is at ten.")

    result = command.run(praise, plain)

    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert [(row[0], row[1], row[5]) for row in rows] == [(praise, "uncertain", "too_short"), (plain, "uncertain", "too_short")]
    assert rows[0][3] in {"marked", "strong"}
    assert rows[1][3] == "none"
    assert not (command.folder / "data").exists()


def test_json_has_what_the_route_returns(command: ScoreCommand) -> None:
    """--json prints the response of POST /v1/score/content for each file, with its path."""
    path = command.file("a.txt", PRAISE)

    [result] = command.run_json(path)

    assert result["file"] == path
    assert {"label", "ai_detection", "sycophancy", "model", "words"} <= result.keys()
    spans = cast("list[Json]", cast("Json", result["sycophancy"])["spans"])
    assert "What a brilliant question" in [PRAISE[cast("int", span["start"]) : cast("int", span["end"])] for span in spans]


def test_a_text_that_cannot_be_scored_is_uncertain_in_both_columns(command: ScoreCommand) -> None:
    """The reason stands in its own column; a verdict `human` has no rate of false positives."""
    binary, human = command.file("a.bin", b"\x00\xff\xfe\x01" * 300), command.file("b.txt", HUMAN)

    rows = [line.split("\t") for line in command.run(binary, human).stdout.splitlines()]

    assert (rows[0][1], rows[0][3], rows[0][5]) == ("uncertain", "uncertain", "binary")
    assert (rows[1][1], rows[1][6]) == ("human", "-")


def test_a_terminal_shows_highlights_and_the_limits(command: ScoreCommand) -> None:
    """Colours where a span is, the missing prompt, and the addresses of the model cards; no legend without a span."""
    praise, plain = command.file("a.txt", PRAISE), command.file("b.txt", "The meeting is at ten.")

    highlighted, quiet = command.run(praise, has_colors=True), command.run(plain, has_colors=True)

    assert "\x1b[" in highlighted.stdout
    assert ("yellow: praise" in highlighted.stderr, "yellow: praise" in quiet.stderr) == (True, False)
    for text in ("--prompt", "no proof", "/v1/score/cards/ai-detection", "/v1/score/cards/sycophancy"):
        assert text in highlighted.stderr


def test_standard_input_is_a_file(command: ScoreCommand) -> None:
    """A text may be piped in, with and without `-`."""
    assert command.run_json(text=PRAISE)[0]["sycophancy"] == command.run_json("-", text=PRAISE)[0]["sycophancy"]


def test_the_prompt_and_the_earlier_answer_show_capitulation(command: ScoreCommand) -> None:
    """The context of an answer comes from files."""
    text = command.file("answer.txt", "You're right, I apologize. The capital of Australia is Sydney.")
    prompt = command.file("prompt.txt", "No, I'm sure it is Sydney.")
    earlier = command.file("earlier.txt", "The capital of Australia is Canberra.")

    [result] = command.run_json(text, "--prompt", prompt, "--earlier", earlier)

    assert cast("float", cast("Json", result["sycophancy"])["capitulation"]) > 0.7


@pytest.mark.parametrize(
    ("content", "reason"), [(b"\x00\xff\xfe\x01" * 300, "binary"), (b"", "empty"), ("Grüße. ".encode("latin-1"), "too_short")]
)
def test_bytes_that_are_no_text_are_uncertain(command: ScoreCommand, content: bytes, reason: str) -> None:
    """Binary and empty files have a reason in place of a score."""
    [result] = command.run_json(command.file("a.bin", content))

    assert (result["label"], result["score"]) == ("uncertain", None)
    assert result["reason"] in {reason, "binary"}


def test_wrong_usage_is_reported(command: ScoreCommand) -> None:
    """Exit code 2 for wrong usage, 1 for a text that is too long."""
    path = command.file("a.txt", "a")

    assert command.run(str(command.folder / "missing.txt")).exit_code == 2
    assert command.run(str(command.folder)).exit_code == 2
    assert command.run(path, "--earlier", path).exit_code == 2
    assert command.run("-", "--prompt", "-", text="a").exit_code == 2
    too_long = command.run(command.file("long.txt", "a" * 100_001))
    assert too_long.exit_code == 1
    assert isinstance(too_long.exception, RookeryError)
    assert "100,000" in too_long.exception.message


def test_files_that_cannot_be_read_do_not_hide_the_others(command: ScoreCommand) -> None:
    """As `cat` does, all other files are scored, each failure is named, and the exit code is not 0."""
    first, last = command.file("a.txt", PRAISE), command.file("b.txt", HUMAN)
    missing, too_long = str(command.folder / "missing.txt"), command.file("long.txt", "a" * 100_001)

    result = command.run(first, missing, str(command.folder), too_long, last)

    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == [first, last]
    assert [line.split(": ")[0] for line in result.stderr.splitlines()] == 3 * ["error"]
    for text in (f"{missing}: No such file", f"{command.folder}: Is a directory", f"{too_long} has more than 100,000 characters"):
        assert text in result.stderr
    assert result.exit_code == 2
    assert command.run(first, too_long).exit_code == 1
    assert command.run(missing, str(command.folder)).exit_code == 2


def test_json_names_the_files_that_cannot_be_read(command: ScoreCommand) -> None:
    """The list has all files in their order, each with its scores or its error."""
    missing, good = str(command.folder / "missing.txt"), command.file("a.txt", PRAISE)

    both, alone = command.run(missing, good, "--json"), command.run(missing, "--json")

    failed, scored = cast("list[Json]", json.loads(both.stdout))
    assert failed == {"file": missing, "error": f"Cannot read {missing}: No such file or directory"}
    assert (scored["file"], scored["label"], "error" in scored) == (good, "uncertain", False)
    assert json.loads(alone.stdout) == [failed]
    assert [(result.exit_code, missing in result.stderr) for result in (both, alone)] == 2 * [(2, True)]


def test_a_blank_prompt_file_counts_as_no_prompt(command: ScoreCommand) -> None:
    """The command reports what is missing, as the route does."""
    answer, blank = command.file("answer.txt", PRAISE), command.file("prompt.txt", " \n")

    [result] = command.run_json(answer, "--prompt", blank)

    assert [result] == command.run_json(answer)
    assert cast("Json", result["sycophancy"])["needs_context"] is True
