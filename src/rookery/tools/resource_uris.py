"""Resolution of the URIs that callers use into servers and the servers' own URIs, and the reverse for links in results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from rookery.access.models import Caller
from rookery.kernel.errors import NotFound, RookeryError
from rookery.tools.call_options import DEFAULT_CALL_OPTIONS, CallOptions
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import AmbiguousName, ServerNotFound
from rookery.tools.gateway_names import (
    find_listed_uri,
    list_interface_uris,
    list_server_ids,
    list_upstream_candidates,
    matches_template,
    names_scheme,
    restore_slashes,
    to_gateway_uri,
)
from rookery.tools.models import JsonObject, Server
from rookery.tools.recent_links import RecentLinks

_ADDRESS_SCHEMES = frozenset(
    "about blob data file ftp ftps geo git gs http https imap irc ircs ldap ldaps mailto news nfs rtsp s3 sftp sip sips smb sms ssh svn "
    "tel telnet urn vscode ws wss xmpp".split()
)
"""Schemes of addresses that programs other than tool servers open. Their links stay as they are."""


@dataclass(frozen=True, slots=True)
class ResourceTarget:
    """
    The server and its own URIs that a caller's URI stands for.

    Attributes:
        candidates: The server's own URIs that it may be, the likeliest first.
        is_listed: The server lists the only candidate.
    """

    server: Server
    candidates: tuple[str, ...]
    is_listed: bool = False


class ResourceUris:
    """
    The URIs of resources as callers use them: gateway URIs, which name the server, and URIs as a server gave them.

    A URI as given is accepted if exactly one server that the caller sees has it.
    """

    def __init__(self, catalogue: Catalogue, links: RecentLinks) -> None:
        self._catalogue = catalogue
        self._links = links

    async def resolve(self, caller: Caller, uri: str, options: CallOptions = DEFAULT_CALL_OPTIONS) -> ResourceTarget:
        """
        Return the server and its own URIs for *uri*.

        Raises:
            NotFound: No server that the caller sees can have it.
            AmbiguousName: Several servers have it.
            RookeryError: Its server is disabled, or excluded for this key.
        """
        restored_uri = restore_slashes(uri)
        named_servers, problem = self._find_named(caller, uri)
        for server in named_servers:
            await self._catalogue.wait_listed(server, caller, options)
            own_uri = find_listed_uri(server.id, restored_uri, self._list_uris(caller, server, options.session_id))
            if own_uri is not None:
                return ResourceTarget(server, (own_uri,), is_listed=True)
        matches = await self._find_given(caller, restored_uri, options.session_id)
        if not matches:
            for server in named_servers:
                templates = [template for template in self._list_templates(caller, server, options.session_id) if names_scheme(template)]
                candidates = list_upstream_candidates(server.id, restored_uri, (), templates)
                if any(matches_template(candidates[0], template) for template in templates):
                    return ResourceTarget(server, tuple(candidates))
            matches = [
                ResourceTarget(server, (restored_uri,))
                for server in self._catalogue.list_servers(caller)
                if self._matches_template(caller, server, restored_uri, options.session_id)
            ]
        if len(matches) > 1:
            raise AmbiguousName("resource", uri, [to_gateway_uri(match.server.id, match.candidates[0]) for match in matches])
        if matches:
            return matches[0]
        if not named_servers:
            raise problem or NotFound("resource", uri)
        return ResourceTarget(
            named_servers[0],
            tuple(
                list_upstream_candidates(
                    named_servers[0].id, restored_uri, (), self._list_templates(caller, named_servers[0], options.session_id)
                )
            ),
        )

    async def resolve_in_server(
        self, caller: Caller, server: Server, uri: str, options: CallOptions = DEFAULT_CALL_OPTIONS
    ) -> ResourceTarget:
        """Return the server's own URIs for *uri*, which is one of them or a gateway URI of this server."""
        await self._catalogue.wait_listed(server, caller, options)
        listed_uris = self._list_uris(caller, server, options.session_id)
        own_uri = uri if uri in listed_uris else find_listed_uri(server.id, uri, listed_uris)
        if own_uri is not None:
            return ResourceTarget(server, (own_uri,), is_listed=True)
        return ResourceTarget(
            server, tuple(list_upstream_candidates(server.id, uri, listed_uris, self._list_templates(caller, server, options.session_id)))
        )

    async def resolve_template(self, caller: Caller, uri: str, options: CallOptions = DEFAULT_CALL_OPTIONS) -> ResourceTarget:
        """
        Return the server and its own form of the resource template *uri*, or of a single resource.

        Raises:
            RookeryError: See `resolve`.
        """
        for server in self._find_named(caller, uri)[0]:
            await self._catalogue.wait_listed(server, caller, options)
            for template in self._list_templates(caller, server, options.session_id):
                if to_gateway_uri(server.id, template) == uri:
                    return ResourceTarget(server, (template,))
        matches = [
            server for server in self._catalogue.list_servers(caller) if uri in self._list_templates(caller, server, options.session_id)
        ]
        if len(matches) > 1:
            raise AmbiguousName("resource template", uri, [to_gateway_uri(server.id, uri) for server in matches])
        return ResourceTarget(matches[0], (uri,)) if matches else await self.resolve(caller, uri, options)

    def build_link_renamer(self, caller: Caller, server: Server, session_id: str | None = None) -> Callable[[str], str]:
        """
        Return a function that returns the URI of a link in a result of *server* as it is named at /mcp.

        A URI that the server lists, or has a template for, becomes a gateway URI. An address such as `https://…` stays an address. A URI
        in a scheme of the server's own becomes a gateway URI too, because no other program could open it.
        """
        listed_uris: frozenset[str] | None = None  # read if there is a link: most results have none

        def rename(uri: str) -> str:
            nonlocal listed_uris
            listed_uris = self._list_uris(caller, server, session_id) if listed_uris is None else listed_uris
            scheme, separator, rest = uri.partition(":")
            is_address = not separator or not rest.startswith("//") or scheme.lower() in _ADDRESS_SCHEMES
            if is_address and uri not in listed_uris and not self._matches_template(caller, server, uri, session_id):
                return uri
            return to_gateway_uri(server.id, uri)

        return rename

    def _find_named(self, caller: Caller, uri: str) -> tuple[list[Server], RookeryError | None]:
        """Return the servers whose gateway URI *uri* may be, and the reason why the caller may not use one of them."""
        servers: list[Server] = []
        problem: RookeryError | None = None
        for server_id in list_server_ids(uri):
            try:
                servers.append(self._catalogue.get_server(caller, server_id))
            except ServerNotFound:
                continue
            except RookeryError as error:
                problem = error
        return servers, problem

    async def _find_given(self, caller: Caller, uri: str, session_id: str | None) -> list[ResourceTarget]:
        """Return the resource of each server that lists *uri* or gave it to this key in a result. Percent-escapes may be decoded."""
        link = await self._links.find_link(caller, uri)
        matches: list[ResourceTarget] = []
        for server in self._catalogue.list_servers(caller):
            uris = self._list_uris(caller, server, session_id)
            own_uri = uri if uri in uris else next((own for own in uris if "%" in own and unquote(own) == uri), None)
            if own_uri is not None:
                matches.append(ResourceTarget(server, (own_uri,), is_listed=True))
            elif link is not None and server.key in link[1]:
                matches.append(ResourceTarget(server, (link[0],)))
        return matches

    def _list_uris(self, caller: Caller, server: Server, session_id: str | None) -> frozenset[str]:
        """Return the URIs that a server lists or that its tools refer to. Servers need not list their interfaces."""
        features = self._catalogue.get_features(server, caller, session_id)
        interfaces = (uri for tool in features.tools if "_meta" in tool for uri in list_interface_uris(tool))
        return frozenset((*list_texts(features.resources, "uri"), *interfaces))

    def _list_templates(self, caller: Caller, server: Server, session_id: str | None) -> list[str]:
        return list_texts(self._catalogue.get_features(server, caller, session_id).templates, "uriTemplate")

    def _matches_template(self, caller: Caller, server: Server, uri: str, session_id: str | None) -> bool:
        return any(
            names_scheme(template) and matches_template(uri, template) for template in self._list_templates(caller, server, session_id)
        )


def list_texts(items: Iterable[JsonObject], field: str) -> list[str]:
    """Return *field* of each item in which it is a text."""
    return [value for item in items if isinstance(value := item.get(field), str)]
