"""Edits of Codex's file: everything but the table of the server keeps every byte."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.connect.toml_edits import UneditableToml, remove_server, set_server

FIELDS = {"url": "http://h/mcp", "bearer_token_env_var": "ROOKERY_KEY"}
LINES = (
    "# a comment",
    "",
    'model = "gpt"  # mine',
    "numbers = [\n  1, # one\n  2,\n]",
    "[profiles.fast]",
    'effort = "low"',
    "[mcp_servers.mine]",
    'command = "x"',
    '[mcp_servers.other]\nargs = [\'a\', """b\n[mcp_servers.rookery]\n"""]',
    '[projects."/a b"]\ntrust_level = "trusted"',
    "[[lists]]",
    "a.b = 1",
)


def is_toml(text: str) -> bool:
    """Return whether a text can be read."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


TEXTS = st.lists(st.sampled_from(LINES), max_size=8).map(lambda lines: "".join(f"{line}\n" for line in lines)).filter(is_toml)


@given(text=TEXTS, newline=st.sampled_from(["\n", "\r\n"]))
def test_a_table_is_added_at_the_end_and_removed_again(text: str, newline: str) -> None:
    """Comments, order, quotes and line ends stay; a second edit changes nothing."""
    text = text.replace("\n", newline)

    added = set_server(text, "rookery", FIELDS)

    assert added.startswith(text)
    assert tomllib.loads(added)["mcp_servers"]["rookery"] == FIELDS
    assert set_server(added, "rookery", FIELDS) == added
    assert newline not in text or newline == "\n" or added.count("\n") == added.count("\r\n")
    removed = remove_server(added, "rookery")
    assert removed == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '[mcp_servers.rookery] # ours\nurl = "old" # here\nx = 9\n\n[other]\n',
            '[mcp_servers.rookery] # ours\nurl = "http://h/mcp" # here\nx = 9\nbearer_token_env_var = "ROOKERY_KEY"\n\n[other]\n',
        ),
        (
            'mcp_servers.rookery.url = "old"\n',
            'mcp_servers.rookery.url = "http://h/mcp"\nmcp_servers.rookery.bearer_token_env_var = "ROOKERY_KEY"\n',
        ),
        (
            '[mcp_servers]\nrookery = {url = "old"}\n',
            '[mcp_servers]\nrookery = {url = "http://h/mcp",bearer_token_env_var = "ROOKERY_KEY"}\n',
        ),
    ],
)
def test_a_table_is_changed_in_its_place(before: str, after: str) -> None:
    """Fields and comments of the user stay, in each notation."""
    assert set_server(before, "rookery", FIELDS) == after


def test_a_table_between_others_is_removed() -> None:
    """The tables before and after it stay."""
    text = '[mcp_servers.a]\nx = 1\n\n[mcp_servers.rookery]\nurl = "u"\n\n[mcp_servers.b]\ny = 2 # two\n'

    assert remove_server(text, "rookery") == "[mcp_servers.a]\nx = 1\n\n[mcp_servers.b]\ny = 2 # two\n"


def test_an_edit_that_would_move_other_lines_is_rejected() -> None:
    """The library that edits in place joins arrays of tables that are not together."""
    text = '[[lists]]\n[mcp_servers.rookery]\nurl = "old"\n[[lists]]\n'

    with pytest.raises(UneditableToml, match="without moving other lines"):
        set_server(text, "rookery", FIELDS)

    assert remove_server(text, "rookery") == "[[lists]]\n[[lists]]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a = "x\n', "at line 1, column 7"),
        ("a = 1\na = 2\n", "at line 2"),
        ("mcp_servers = 1\n", "is not a table"),
        ("mcp_servers = {}\n", "cannot be edited"),
        ("a = " + "[" * 3000, "nested too deeply"),
    ],
)
def test_a_text_that_cannot_be_edited_is_rejected_with_the_reason(text: str, message: str) -> None:
    """A file that cannot be parsed, or not extended, is not edited."""
    with pytest.raises(UneditableToml, match=message):
        set_server(text, "rookery", FIELDS)


@given(text=st.text(alphabet="[]mcp_servs.rokey=\"'{}#\n 1,", max_size=40))
def test_any_text_is_edited_or_rejected(text: str) -> None:
    """No other error occurs, and the rest has the same content."""
    try:
        before = tomllib.loads(text)
        edited = set_server(text, "rookery", FIELDS)
    except (UneditableToml, tomllib.TOMLDecodeError):
        return
    assert {**tomllib.loads(edited), "mcp_servers": None} == {**before, "mcp_servers": None}
    assert tomllib.loads(edited)["mcp_servers"]["rookery"].items() >= FIELDS.items()
