"""Redirects of MCP requests: which of them the SDK's client follows, and the message for the others. No I/O."""

from __future__ import annotations

import httpx2

_SAME_METHOD = frozenset({307, 308})
"""Redirects that keep the method. With another one, the message would be lost."""
_MAX_REDIRECTS = 5
_COUNT_KEY = "rookery.redirects"
"""The extension of a request that counts the redirects which led to it. A redirected request has the extensions of the first."""


def follow_redirect(request: httpx2.Request, response: httpx2.Response) -> bool:
    """Return whether the SDK's client follows the redirect of *response*, and count it. After five, the last one is an error."""
    location = _find_location(request, response)
    if location is None or response.status_code not in _SAME_METHOD or not _is_same_origin(request.url, location):
        return False
    count = int(request.extensions.get(_COUNT_KEY, 0)) + 1
    request.extensions[_COUNT_KEY] = count
    return count <= _MAX_REDIRECTS


def describe_redirect(request: httpx2.Request, response: httpx2.Response) -> str:
    """Return a sentence about a redirect that was not followed; empty if *response* names no other URL. Queries may contain secrets."""
    location = _find_location(request, response)
    if location is None:
        return ""
    target = location.copy_with(userinfo=b"", query=None, fragment=None)
    if request.url.scheme == "https" and location.scheme == "http":
        secure = target.copy_with(scheme="https")
        return f"The redirect to {target} was not followed, because it is not encrypted. Set `url` in the entry to {secure}, if this works."
    if response.status_code in _SAME_METHOD and _is_same_origin(request.url, location):
        return f"After {_MAX_REDIRECTS} redirects, that to {target} was not followed."
    return f"The redirect to {target} was not followed. Set `url` in the entry to this address, if it is the right server."


def _find_location(request: httpx2.Request, response: httpx2.Response) -> httpx2.URL | None:
    """Return the URL that a redirect names; None for any other response."""
    if not response.has_redirect_location:
        return None
    try:
        return request.url.join(response.headers["location"])
    except httpx2.InvalidURL:
        return None


def _is_same_origin(url: httpx2.URL, location: httpx2.URL) -> bool:
    """Return whether *location* is on the server of *url*, or is the same server by HTTPS. The SDK follows no other redirect."""
    if location.userinfo and location.userinfo != url.userinfo:
        return False
    if (url.scheme, url.host, url.port) == (location.scheme, location.host, location.port):
        return True
    return url.host == location.host and (url.scheme, location.scheme) == ("http", "https") and url.port is None is location.port
