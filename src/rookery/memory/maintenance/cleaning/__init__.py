"""What tidies a text: marks for personal data and secrets, and one form for letters and white space (spec 4.4, D-52). Pure."""

from __future__ import annotations

from rookery.memory.maintenance.cleaning.marks import Finder


def finders() -> tuple[Finder, ...]:
    """
    Return what finds personal data and secrets, the surest first.

    Loaded when a text is to be cleaned: the libraries that know the world's numbers are 0.2 s of imports.
    """
    from rookery.memory.maintenance.cleaning import addresses, numbers, people, phones, secrets

    return (secrets.find, addresses.find_emails, numbers.find_ibans, people.find, numbers.find_cards, addresses.find_ips, phones.find)
