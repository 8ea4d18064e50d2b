"""Cleaning of texts: redaction of personal data and secrets, and normalisation. Pure functions."""

from __future__ import annotations

from rookery.memory.maintenance.cleaning.redaction import PiiFinder


def load_finders() -> tuple[PiiFinder, ...]:
    """
    Return the finders of personal data and secrets, the most reliable first.

    They are imported on first use: the libraries of number formats take 0.2 s to import.
    """
    from rookery.memory.maintenance.cleaning import finders, secrets

    return (
        secrets.find_secrets,
        finders.find_emails,
        finders.find_ibans,
        finders.find_national_ids,
        finders.find_cards,
        finders.find_ips,
        finders.find_phones,
    )
