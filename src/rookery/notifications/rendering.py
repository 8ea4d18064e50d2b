"""
The texts of a campaign for one subscriber. Pure: no I/O, no settings.

A placeholder is a variable of the campaign or an attribute of the subscriber, which takes precedence, or `external_id` or `locale`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast
from urllib.parse import quote

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.placeholders import fill_placeholders, find_placeholder_faults, find_placeholder_names, to_text
from rookery.kernel.urls import find_url_error
from rookery.kernel.variables import TemplateValue
from rookery.notifications.models import EXTERNAL_ID, LOCALE, RESERVED_NAMES, Campaign, CampaignSettings, RenderedMessage

_SAMPLE_VALUE = "x"


def list_names(campaign: CampaignSettings) -> set[str]:
    """Return the names of all placeholders of a campaign."""
    return find_placeholder_names([campaign.title, campaign.body, campaign.url or ""])


def list_subscriber_names(campaign: Campaign) -> list[str]:
    """Return the names of placeholders that each member of the audience must have a value for, sorted."""
    return sorted(list_names(campaign) - campaign.variables.keys() - {EXTERNAL_ID})


def uses_attributes(campaign: Campaign) -> bool:
    """Return whether the texts depend on attributes, so that these are copied when the campaign starts."""
    return bool(list_names(campaign) - RESERVED_NAMES)


def find_text_faults(campaign: CampaignSettings) -> dict[str, list[str]]:
    """Return the errors in the texts of a campaign, by field."""
    texts = {"title": campaign.title, "body": campaign.body, **({} if campaign.url is None else {"url": campaign.url})}
    faults = find_placeholder_faults(texts, dict.fromkeys(list_names(campaign)))
    if campaign.url is not None and "url" not in faults:
        sample = _render_url(campaign.url, dict.fromkeys(list_names(campaign), _SAMPLE_VALUE))
        error = None if _is_placeholder(campaign.url) else find_url_error(sample)
        if error is not None:
            faults["url"] = [error]
    return faults


def render(campaign: Campaign, *, external_id: str, locale: str | None, attributes: Mapping[str, TemplateValue]) -> RenderedMessage:
    """
    Return the texts for one subscriber. The title is one line. In `url`, values are percent-encoded, unless one is the whole URL.

    Raises:
        ValidationFailed: A value is missing, or makes the URL invalid.
    """
    own = {EXTERNAL_ID: external_id} if locale is None else {EXTERNAL_ID: external_id, LOCALE: locale}
    values: dict[str, TemplateValue] = {**campaign.variables, **attributes, **own}
    missing = sorted(list_names(campaign) - values.keys())
    if missing:
        raise ValidationFailed({f"variables.{name}": [f"has no value for the subscriber {external_id!r}"] for name in missing})
    url = None if campaign.url is None else _render_url(campaign.url, values)
    error = None if url is None else find_url_error(url)
    if error is not None:
        raise ValidationFailed({"url": [error]})
    title = cast("str", fill_placeholders(campaign.title, values))
    return RenderedMessage(title=" ".join(title.split()), body=cast("str", fill_placeholders(campaign.body, values)), url=url)


def _render_url(url: str, values: Mapping[str, TemplateValue]) -> str:
    if _is_placeholder(url):
        return cast("str", fill_placeholders(url.strip(), values))
    return cast("str", fill_placeholders(url, {name: quote(to_text(value), safe="") for name, value in values.items()}))


def _is_placeholder(text: str) -> bool:
    stripped = text.strip()
    return stripped.startswith("{{") and stripped.endswith("}}") and stripped.count("{{") == 1
