"""
Encryption at rest of confidential values, so that a copy of the record store alone does not reveal them.

An encrypted value names its key and is bound to its row and workspace, so it cannot be decrypted anywhere else. The record store
itself holds the current key's id, so that all processes switch keys at the same moment.
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
