"""The command line as a whole."""

from __future__ import annotations

import pytest

from rookery.cli import with_spaces


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["brain:reindex", "--stale"], ["brain", "reindex", "--stale"]),
        (["--data-dir", "brain:x", "brain:reindex"], ["--data-dir", "brain:x", "brain", "reindex"]),
        (["brain", "reindex"], ["brain", "reindex"]),
        (["keys", "create", "--scope", "brain:read"], ["keys", "create", "--scope", "brain:read"]),
        (["other:reindex"], ["other:reindex"]),
        (["--help"], ["--help"]),
        ([], []),
    ],
)
def test_the_specs_spelling_of_a_command_is_known(given: list[str], read: list[str]) -> None:
    """D-04: `rookery brain:reindex` is `rookery brain reindex`; a scope of the same look stays one."""
    assert with_spaces(given, ["brain"]) == read
