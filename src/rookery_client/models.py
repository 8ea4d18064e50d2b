"""
The models of responses, for annotations.

    from rookery_client.models import Memory, Plan
"""

from __future__ import annotations

from rookery_client.generated.models import *  # noqa: F403 - all models, which `make client` writes
