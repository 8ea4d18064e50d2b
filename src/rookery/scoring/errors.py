"""
Errors of scoring.

    ValidationFailed (kernel)   422  validation_error            a text is missing, blank or too long, or contradicts another field
    PermissionDenied (kernel)   403  permission_denied           `judge` without the scope content.write
    RookeryError
    ├── JudgeNotConfigured      503  generation_not_configured   `judge` without a language model
    └── JudgementInvalid        502  judgement_invalid           the language model's answer is no judgement
"""

from __future__ import annotations

from rookery.kernel.errors import RookeryError


class JudgeNotConfigured(RookeryError):
    """No language model is set that could judge."""

    status, code = 503, "generation_not_configured"

    def __init__(self) -> None:
        super().__init__(
            "No language model is configured, so there is no judge. The operator sets ROOKERY_GENERATION to the address of a provider. "
            "Without `judge`, texts are scored as usual."
        )


class JudgementInvalid(RookeryError):
    """The language model's answer to `judge` is no judgement."""

    status, code, is_upstream = 502, "judgement_invalid", True
