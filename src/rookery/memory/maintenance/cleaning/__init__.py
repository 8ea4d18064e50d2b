"""What tidies a text: marks for personal data and secrets, and one form for letters and white space (spec 4.4, D-52). Pure."""

from __future__ import annotations

from rookery.memory.maintenance.cleaning.redaction import PiiFinder


def load_finders() -> tuple[PiiFinder, ...]:
    """
    Return what finds personal data and secrets, the surest first.

    Loaded when a text is to be cleaned: the libraries that know the world's numbers are 0.2 s of imports.
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
