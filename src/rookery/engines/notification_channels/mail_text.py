"""Notifications as mails: headers, and the text as plain text and HTML (RFC 5322, RFC 8058)."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from email.header import Header
from email.utils import format_datetime
from hashlib import sha256
from html import escape
from urllib.parse import urlsplit

from rookery.engines.notification_channels.smtp_address import MailAddress
from rookery.notifications.messages import NotificationMessage

_HEADER_LINE_CHARS = 76
_MAX_TITLE_CHARS = 900
_SPECIAL_CHARACTERS = frozenset('()<>[]:;@\\,."')


def render_mail(message: NotificationMessage, *, sender: MailAddress, recipient: MailAddress, at: datetime) -> bytes:
    """
    Return the mail with CRLF line ends. Its Message-ID is the same at each attempt.

    No value can add a header: control characters are removed, and text beyond ASCII is encoded.
    """
    # A boundary that no quoted-printable line can contain, and the same at each attempt.
    boundary = "=_" + sha256(message.delivery_id.encode()).hexdigest()[:32]
    headers = [
        f"From: {_format_mailbox(sender)}",
        f"To: {_format_mailbox(recipient)}",
        f"Subject: {_encode_text(message.title[:_MAX_TITLE_CHARS], 'Subject')}",
        f"Date: {format_datetime(at)}",
        f"Message-ID: <{_encode_id(message.delivery_id)}@{sender.domain}>",
        "Auto-Submitted: auto-generated",
    ]
    if message.unsubscribe_url is not None and _is_web_url(message.unsubscribe_url):
        headers += [
            f"List-Unsubscribe: <{message.unsubscribe_url}>",
            "List-Unsubscribe-Post: List-Unsubscribe=One-Click",
        ]
    headers += ["MIME-Version: 1.0", f'Content-Type: multipart/alternative; boundary="{boundary}"']
    parts = [("plain", _render_text(message)), ("html", _render_html(message))]
    lines = [line.encode() for line in headers]
    for subtype, text in parts:
        lines += [
            b"",
            f"--{boundary}".encode(),
            f"Content-Type: text/{subtype}; charset=utf-8".encode(),
            b"Content-Transfer-Encoding: quoted-printable",
            b"",
            _encode_quoted_printable(text),
        ]
    return b"\r\n".join([*lines, b"", f"--{boundary}--".encode(), b""])


def _render_text(message: NotificationMessage) -> str:
    sections = [message.body]
    if message.url is not None:
        sections.append(message.url)
    if message.unsubscribe_url is not None:
        sections.append(f"-- \nUnsubscribe: {message.unsubscribe_url}")
    return "\n\n".join(sections)


def _render_html(message: NotificationMessage) -> str:
    paragraphs = [part for part in _unify_line_ends(message.body).split("\n\n") if part.strip()]
    content = [f'<h1 style="font-size:1.25em">{escape(message.title)}</h1>']
    content += ["<p>" + escape(part).replace("\n", "<br>\n") + "</p>" for part in paragraphs]
    if message.url is not None:
        content.append(f"<p>{_render_link(message.url, message.url)}</p>")
    if message.unsubscribe_url is not None:
        content.append(f'<hr><p style="font-size:0.85em">{_render_link(message.unsubscribe_url, "Unsubscribe")}</p>')
    language = f' lang="{escape(message.locale)}"' if message.locale else ""
    return "\n".join(
        [
            "<!doctype html>",
            f"<html{language}>",
            f'<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(message.title)}</title></head>',
            '<body style="font-family:system-ui,sans-serif;line-height:1.5;max-width:40em">',
            *content,
            "</body>",
            "</html>",
        ]
    )


def _render_link(url: str, text: str) -> str:
    return f'<a href="{escape(url)}">{escape(text)}</a>' if _is_web_url(url) else escape(text)


def _is_web_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc) and url.isascii() and url.isprintable() and not set(url) & set(' <>"')


def _unify_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _encode_quoted_printable(text: str) -> bytes:
    encoded = binascii.b2a_qp(_unify_line_ends(text).encode("utf-8", "replace"), quotetabs=False, istext=True)
    return encoded.replace(b"\n", b"\r\n")


def _encode_text(text: str, header_name: str) -> str:
    """Return *text* as the value of a header, folded; text beyond ASCII as encoded words (RFC 2047)."""
    clean = _remove_controls(text)
    is_plain = clean.isascii() and "=?" not in clean
    header = Header(clean, "us-ascii" if is_plain else "utf-8", maxlinelen=_HEADER_LINE_CHARS, header_name=header_name)
    return header.encode(linesep="\r\n")


def _remove_controls(text: str) -> str:
    """Return *text* in one line without control characters, with single spaces."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def _format_mailbox(address: MailAddress) -> str:
    name = _remove_controls(address.name)
    if not name:
        return str(address)
    if not name.isascii() or "=?" in name:
        return f"{_encode_text(name, 'From')} <{address}>"
    if set(name) & _SPECIAL_CHARACTERS:
        name = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{name} <{address}>"


def _encode_id(delivery_id: str) -> str:
    """Return *delivery_id*, encoded if it has characters that a Message-ID may not have."""
    if delivery_id.isascii() and delivery_id.replace("-", "").replace("_", "").isalnum():
        return delivery_id
    return base64.urlsafe_b64encode(delivery_id.encode()).rstrip(b"=").decode()
