"""The form in which a client gets the tools: all of them, or search mode, which finds and calls them."""

from __future__ import annotations

from dataclasses import replace

from rookery.connect import key_files
from rookery.connect.errors import ClientFileBroken, ServerUnusable
from rookery.connect.mcp_entries import get_file_key, get_url
from rookery.connect.server_client import ServerClient
from rookery.connect.setups import Setup, find_entries
from rookery.kernel.secret import Secret
from rookery.kernel.sentences import format_count
from rookery.tools.discovery.client_guides import KEY_VARIABLE, SEARCH_QUERY, CatalogueSize, needs_search_mode


def follow_entry(setup: Setup, *, search: bool | None) -> Setup:
    """Return *setup* in the mode that *search* names. None: that of the client's present entry."""
    if search is None:
        search = _has_search(setup)
    return _use_search(setup) if search and setup.target.server is None else setup


def choose_mode(setup: Setup, key: Secret | None, *, search: bool | None) -> tuple[Setup, str | None]:
    """
    Return *setup* in the mode that *search* names or that fits the client, and what the tools cost its model.

    Search mode fits a long list, unless the client defers tools. Otherwise the mode of the present entry stays. Without a key, or if the
    server cannot be reached, nothing is said about the cost.
    """
    followed = follow_entry(setup, search=search)
    size = None if key is None else _measure(setup, key)
    if size is None:
        return followed, None
    client, cost = setup.client, f"{format_count(size.count, 'tool')}, about {size.tokens:,} tokens"
    if search is None and setup.target.server is None and needs_search_mode(size, defers_tools=client.defers_tools):
        followed = _use_search(setup)
    if followed is not setup:
        return followed, f"{client.name} gets search mode. The whole list has {cost}; --no-search gives it to the model of each session."
    if client.defers_tools:
        return followed, f"{client.name} finds {cost} in all, by its own search. Its model loads a definition when it needs one."
    return followed, f"The model of {client.name} gets {cost} in each session."


def find_key(setup: Setup) -> Secret | None:
    """Return the key that the client would send, from its files or the variable, or None."""
    file_key = None if setup.key_file is None else key_files.read_key(setup.key_file)
    entries = find_entries(setup, setup.target.name)
    written_key = get_file_key(entries[0].entry) if entries else None
    key = written_key or file_key or setup.places.environ.get(KEY_VARIABLE)
    return Secret(key) if key else None


def _has_search(setup: Setup) -> bool:
    try:
        entries = find_entries(setup, setup.target.name)
    except ClientFileBroken:  # the command that reads it next reports it
        return False
    return bool(entries) and get_url(entries[0].entry) == setup.target.url + SEARCH_QUERY


def _measure(setup: Setup, key: Secret) -> CatalogueSize | None:
    try:
        return ServerClient(setup.hook_target.url, key).measure_tools(setup.target.url)
    except ServerUnusable:  # --check names the reason
        return None


def _use_search(setup: Setup) -> Setup:
    return replace(setup, target=replace(setup.target, url=setup.target.url + SEARCH_QUERY))
