"""Gateway URIs of resources."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.tools.gateway_names import list_server_ids, list_upstream_candidates, to_gateway_uri

SCHEMES = st.from_regex(r"[a-z][a-z0-9+.-]{0,8}", fullmatch=True)
RESTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)
URIS = st.one_of(st.builds("{}://{}".format, SCHEMES, RESTS), st.builds("{}:{}".format, SCHEMES, RESTS))
IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{0,10}", fullmatch=True)


@pytest.mark.parametrize(
    ("server", "uri", "gateway_uri"),
    [
        ("sqlite", "memo://insights", "sqlite://memo/insights"),
        ("memo", "memo://insights", "memo://insights"),
        ("files", "file:///a%20b.txt", "files://file//a%20b.txt"),
        ("books", "urn:isbn:1", "books://urn:isbn:1"),
        ("kanban", "ui://board/app.html", "ui://kanban/board/app.html"),
        ("ui", "ui://board/app.html", "ui://ui/board/app.html"),
    ],
)
def test_a_gateway_uri_begins_with_the_server_id(server: str, uri: str, gateway_uri: str) -> None:
    """`://` becomes `/`; a scheme that is the server's id is kept."""
    assert to_gateway_uri(server, uri) == gateway_uri
    assert list_upstream_candidates(server, gateway_uri, [], [])[0] == uri
    assert list_upstream_candidates(server, gateway_uri, [uri], []) == [uri]


@given(IDS, URIS)
def test_a_gateway_uri_maps_back_to_the_upstream_uri(server: str, uri: str) -> None:
    """A listed URI is found exactly; an unlisted one is among the candidates."""
    gateway_uri = to_gateway_uri(server, uri)

    assert server in list_server_ids(gateway_uri)
    assert list_upstream_candidates(server, gateway_uri, [uri], []) == [uri]
    assert uri in list_upstream_candidates(server, gateway_uri, [], [])


@given(IDS, st.builds("{}://{}".format, SCHEMES, st.from_regex(r"(%20|[a-z/]){1,12}", fullmatch=True)))
def test_a_raw_uri_whose_escapes_the_path_decoded_is_found(server: str, uri: str) -> None:
    """Raw or percent-encoded in the path, decoded once."""
    assert list_upstream_candidates(server, unquote(to_gateway_uri(server, uri)), [uri], []) == [uri]


def test_a_template_selects_one_of_the_possible_uris() -> None:
    """A URI template identifies which of several URIs is meant."""
    assert (
        list_upstream_candidates("demo", "demo://resource/static/1", [], ["demo://resource/{kind}/{id}"])[0] == "demo://resource/static/1"
    )
    assert list_upstream_candidates("demo", "demo://resource/static/1", [], ["resource://static/{id}"])[0] == "resource://static/1"


def test_a_uri_whose_slashes_a_proxy_merged_is_accepted() -> None:
    """Some proxies merge slashes in paths."""
    assert list_server_ids("sqlite:/memo/insights") == ["sqlite"]
    assert list_upstream_candidates("sqlite", "sqlite:/memo/insights", ["memo://insights"], []) == ["memo://insights"]


def test_a_uri_without_a_server_is_invalid() -> None:
    """A URI without a known server is invalid."""
    assert list_server_ids("nothing") == []


def test_a_hostile_template_is_matched_in_linear_time() -> None:
    """Patterns from upstreams are matched in linear time."""
    assert list_upstream_candidates("s", "s://x/" + "a" * 50_000, [], ["x://" + "{v}a" * 2_000 + "b"])[0].startswith("x://")
