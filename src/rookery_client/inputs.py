"""
The objects in arguments as typed dictionaries, for annotations.

    from rookery_client.inputs import PhaseBody, TaskBody
"""

from __future__ import annotations

from rookery_client.generated.inputs import *  # noqa: F403 - all objects, which `make client` writes
