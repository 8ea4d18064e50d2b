"""Cleaning of texts: redaction of personal data and secrets, and normalisation (spec 4.4, D-52). Pure functions."""

from __future__ import annotations

from rookery.memory.maintenance.cleaning.redaction import PiiFinder


def load_finders() -> tuple[PiiFinder, ...]:
    """
    Return the finders of personal data and secrets, the most reliable first.

    They are imported on first use: the libraries of number formats take 0.2 s to import.
    """
    from rookery.memory.maintenance.cleaning import account_numbers, addresses, national_ids, phones, secrets

    return (
        secrets.find_secrets,
        addresses.find_emails,
        account_numbers.find_ibans,
        national_ids.find_national_ids,
        account_numbers.find_cards,
        addresses.find_ips,
        phones.find_phones,
    )
