"""
Sealing at rest: what must be read again, but not by whoever gets hold of the record store alone (D-07).

A sealed text names the key that opens it and is bound to its place: moved to another row, or to another workspace, it does
not open. Which key seals is told by the record store itself, so that all processes change keys at the same moment.
"""

from rookery.kernel.sealing.columns import SealedColumn
from rookery.kernel.sealing.key_source import KeySource
from rookery.kernel.sealing.keys import DecryptionFailed, SealContext, SecretKey
from rookery.kernel.sealing.rotation import KeyRotation, RotationResult, SealingReport
from rookery.kernel.sealing.sealer import Sealer

__all__ = [
    "DecryptionFailed",
    "KeyRotation",
    "KeySource",
    "RotationResult",
    "SealContext",
    "SealedColumn",
    "Sealer",
    "SealingReport",
    "SecretKey",
]
