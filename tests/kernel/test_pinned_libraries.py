"""Libraries whose private parts we use: pinned to a minor version, and with those parts."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import httpx2
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("library", "minor_version"), [("uvicorn", "0.54"), ("httpx2", "2.16"), ("httpcore2", "2.16")])
def test_a_library_is_pinned_to_the_version_for_which_our_code_is_written(library: str, minor_version: str) -> None:
    """A newer minor version is used only after a look at its changes."""
    dependencies: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    major, _, minor = minor_version.partition(".")

    assert f"{library}>={minor_version},<{major}.{int(minor) + 1}" in dependencies
    assert re.match(rf"{re.escape(minor_version)}\.", version(library))


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (HttpToolsProtocol, "config server_state app_state _loop"),
        (HttpToolsProtocol._start_asgi_task, "self cycle app"),  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the part in question
        (HttpToolsProtocol._unset_keepalive_if_required, "self"),  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the part in question
        (HttpToolsProtocol.on_response_complete, "self"),
        (RequestResponseCycle.send, "self message"),
        (
            RequestResponseCycle,
            "scope transport flow logger access_logger access_log default_headers message_event expect_100_continue keep_alive on_response",
        ),
        (httpx2.AsyncHTTPTransport.handle_async_request, "self request"),
    ],
)
def test_the_private_parts_have_the_parameters_that_we_pass(function: Callable[..., object], parameters: str) -> None:
    """`kernel.http.connection` and `kernel.egress.transport` extend these."""
    assert list(inspect.signature(function).parameters) == parameters.split()


def test_the_private_attributes_exist() -> None:
    """Without `_pool`, the transport would connect without the guard."""
    cycle_source, protocol_source = inspect.getsource(RequestResponseCycle), inspect.getsource(HttpToolsProtocol)
    cycle_attributes = "default_headers expected_content_length keep_alive message_event response_complete response_started flow scope"
    protocol_attributes = "app client connections cycle expect_100_continue flow loop parser pipeline scope server_state transport url"

    assert not [name for name in cycle_attributes.split() if f"self.{name}" not in cycle_source]
    assert not [name for name in protocol_attributes.split() if f"self.{name}" not in protocol_source]
    assert "self._pool.handle_async_request" in inspect.getsource(httpx2.AsyncHTTPTransport.handle_async_request)
