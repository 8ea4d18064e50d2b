"""The name of a version: a hash of what the template says. Pure."""

from __future__ import annotations

import hashlib

import orjson

from rookery.agents.models.templates import JsonObject

_VERSION_LENGTH = 16


def compute_version(document: JsonObject) -> str:
    """Return the version of a template: the first 16 digits of the SHA-256 of its document, whatever the order of the fields."""
    return hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()[:_VERSION_LENGTH]
