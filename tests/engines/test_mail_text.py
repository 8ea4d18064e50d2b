"""The text of mails, their headers, addresses and signatures (RFC 5322, RFC 6376, RFC 8058)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes, policy
from html.parser import HTMLParser

import dkim
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from rookery.engines.notification_channels.dkim import DkimSigner
from rookery.engines.notification_channels.mail_text import render_mail
from rookery.engines.notification_channels.smtp_address import MailAddress, parse_mail_address, parse_smtp_address
from rookery.kernel.errors import WrongSettings
from rookery.kernel.secret import Secret
from rookery.notifications.messages import NotificationMessage
from tests.engines.channel_contract import MESSAGE

AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
SENDER = parse_mail_address("Rookery, GmbH <news@example.net>")
RECIPIENT = parse_mail_address("kim@example.org")
UNSUBSCRIBE = "https://rookery.example/u/abc.def-123?x=1&y=2"
HEADERS = [
    *("From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"),
    *("List-Unsubscribe", "List-Unsubscribe-Post", "MIME-Version", "Content-Type"),
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def render(message: NotificationMessage, *, sender: MailAddress = SENDER) -> bytes:
    """Return the mail to `RECIPIENT`."""
    return render_mail(message, sender=sender, recipient=RECIPIENT, at=AT)


class Links(HTMLParser):
    """The tags and links of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags = list[str]()
        self.links = list[str | None]()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in {"href", "src"}]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_mail_has_text_and_html_and_one_click_unsubscribe() -> None:
    """RFC 8058: both headers; no image, script or tracked link."""
    mail = message_from_bytes(render(replace(MESSAGE, unsubscribe_url=UNSUBSCRIBE, locale="de")), policy=policy.default)
    text, page = (mail.get_body(preferencelist=(kind,)) for kind in ("plain", "html"))
    assert text is not None
    assert page is not None
    html = Links(page.get_content())

    assert mail.keys() == HEADERS
    assert (mail["From"], mail["To"], mail["Subject"]) == ('"Rookery, GmbH" <news@example.net>', "kim@example.org", MESSAGE.title)
    assert mail["Message-ID"] == "<delivery-1@example.net>"
    assert mail["Date"].datetime == AT
    assert mail["List-Unsubscribe"] == f"<{UNSUBSCRIBE}>"
    assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert text.get_content().replace("\r\n", "\n") == f"{MESSAGE.body}\n\n{MESSAGE.url}\n\n-- \nUnsubscribe: {UNSUBSCRIBE}\n"
    assert html.links == [MESSAGE.url, UNSUBSCRIBE]
    assert set(html.tags) <= {"html", "head", "meta", "title", "body", "h1", "p", "br", "a", "hr"}
    assert "<b>more</b>" in html.text
    assert '<html lang="de">' in page.get_content()


def test_a_mail_is_the_same_at_each_attempt_and_has_no_unsubscribe_header_without_an_address() -> None:
    """The Message-ID tells a repeated mail from a new one."""
    mail = message_from_bytes(render(MESSAGE), policy=policy.default)

    assert mail.keys() == [name for name in HEADERS if not name.startswith("List")]
    assert render(MESSAGE) == render(MESSAGE)
    assert b"<delivery-2@" in render(replace(MESSAGE, delivery_id="delivery-2"))


@given(title=texts, body=texts, url=texts, locale=texts, delivery_id=texts, name=texts)
def test_no_value_adds_a_header_or_a_part(  # noqa: PLR0917
    title: str, body: str, url: str, locale: str, delivery_id: str, name: str
) -> None:
    """Header injection is impossible: any text leaves the same headers, two parts, and the limits of RFC 5322."""
    message = replace(MESSAGE, title=title, body=body, url=url, locale=locale, delivery_id=delivery_id, unsubscribe_url=UNSUBSCRIBE)
    raw = render(message, sender=replace(SENDER, name=name))
    mail = message_from_bytes(raw, policy=policy.default)

    assert mail.keys() == HEADERS
    assert [part.get_content_type() for part in mail.walk()] == ["multipart/alternative", "text/plain", "text/html"]
    assert max(len(line) for line in raw.split(b"\r\n")) <= 998
    assert raw.isascii()
    assert b"\n" not in raw.replace(b"\r\n", b"")
    assert b"\r" not in raw.replace(b"\r\n", b"")


@pytest.mark.parametrize(
    "injection", ["a\r\nBcc: eve@example.org", "a\nBcc: eve@example.org\n\nbody", "a\x00\x1b[31m", "=?utf-8?q?=0ABcc?="]
)
def test_known_injections_stay_in_the_subject(injection: str) -> None:
    """The text is kept, in one line."""
    mail = message_from_bytes(render(replace(MESSAGE, title=injection)), policy=policy.default)

    assert "Bcc" not in mail
    assert mail["Subject"].startswith(("a", "=?"))


@pytest.mark.parametrize(
    "name", ["\r", "a\r\nBcc: eve@example.org", "\nBcc: eve@example.org\n\nbody", "a\x00\x1b[31m", "=?utf-8?q?=0ABcc?="]
)
def test_the_name_of_a_sender_stays_in_its_header(name: str) -> None:
    """RFC 5322: also a name of control characters alone, which hypothesis found."""
    raw = render(MESSAGE, sender=replace(SENDER, name=name))
    mail = message_from_bytes(raw, policy=policy.default)

    assert mail.keys() == [header for header in HEADERS if not header.startswith("List")]
    assert mail["From"].addresses[0].addr_spec == "news@example.net"
    assert all(byte >= 32 for byte in raw.partition(b"\r\n")[0])


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", 'https://x/"onclick="y', "//x.example/a", "https://x/ y"])
def test_only_web_addresses_become_links(url: str) -> None:
    """A template variable must not run code in a mail client."""
    mail = message_from_bytes(render(replace(MESSAGE, url=url)), policy=policy.default)
    page = mail.get_body(preferencelist=("html",))
    assert page is not None

    assert Links(page.get_content()).links == []


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kim@example.org", "kim@example.org"),
        ("kim+news@EXAMPLE.org", "kim+news@example.org"),
        ("kim@bücher.example", "kim@xn--bcher-kva.example"),
        ("jürgen@example.org", "jürgen@example.org"),
        ("Kim Lee <kim@example.org>", "kim@example.org"),
        ("o'hara@localhost", "o'hara@localhost"),
    ],
)
def test_addresses_are_parsed(text: str, address: str) -> None:
    """The domain is sent in its ASCII form, which every server understands."""
    assert str(parse_mail_address(text)) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "@", "kim", "kim@", "@example.org", "kim@example..org", "a b@example.org", "kim@-x.org", "kim@example.org\r\nBcc: x@y"),
        *("kim@example.org, eve@example.org", "<kim@example.org", "kim@[127.0.0.1]", "k" * 65 + "@example.org", "kim@" + "x" * 64),
        *(
            ".kim@example.org",
            "kim.@example.org",
            "k..m@example.org",
            "kim@example.org>",
            'a"b@example.org',
            "kim@exam\x00ple.org",
            "\udcff@x.org",
        ),
        "kim\n@example.org",
    ],
)
def test_other_texts_are_no_addresses(text: str) -> None:
    """One mail goes to one recipient."""
    with pytest.raises(ValueError, match="one e-mail address"):
        parse_mail_address(text)


def test_the_address_of_the_server_is_parsed() -> None:
    """Connections, mails per connection and rate are settings of the SMTP address."""
    server = parse_smtp_address(
        "smtp://u%40x:p%23%3A@mail.example:2525?from=A%20<a@example.net>&connections=8&mails_per_connection=5&rate=50&dkim_selector=m1"
    )

    assert (server.host, server.port, server.encryption, server.user, server.password.reveal()) == (
        *("mail.example", 2525, "starttls"),
        *("u@x", "p#:"),
    )
    assert (server.connections, server.mails_per_connection, server.rate, server.dkim_selector) == (8, 5, 50, "m1")
    assert server.sender == MailAddress(local_part="a", domain="example.net", name="A")
    assert "p#:" not in repr(server)
    assert parse_smtp_address("smtps://mail.example?from=a@example.net").port == 465
    assert parse_smtp_address("smtp://mail.example?from=a@example.net").port == 587
    assert parse_smtp_address("smtp://mail.example?from=a@example.net&tls=none").port == 25


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://mail.example?from=a@b.c", "unknown scheme"),
        ("smtp://?from=a@b.c", "host is missing"),
        ("smtp://mail.example", "from is missing"),
        ("smtp://mail.example?from=nobody", "from must be one e-mail address"),
        ("smtp://mail.example:99999?from=a@b.c", "invalid URL"),
        ("smtp://mail.example?from=a@b.c&tls=maybe", "starttls or none"),
        ("smtps://mail.example?from=a@b.c&tls=none", "always begins with TLS"),
        ("smtp://mail.example?from=a@b.c&connections=0", "from 1 to 100"),
        ("smtp://mail.example?from=a@b.c&rate=fast", "whole number"),
        ("smtp://mail.example?from=a@b.c&speed=1", "unknown option 'speed'"),
        ("smtp://user@mail.example?from=a@b.c", "user and a password"),
        ("smtp://mail.example/x?from=a@b.c", "path has no meaning"),
        ("smtp://u:SECRET@mail.example?from=a@b.c&dkim_selector=a_b", "dkim_selector"),
    ],
)
def test_an_invalid_address_of_the_server_is_one_clear_line(address: str, message: str) -> None:
    """The message has the fault and the allowed values, without the password."""
    with pytest.raises(WrongSettings, match=message) as error:
        parse_smtp_address(address)

    assert "SECRET" not in error.value.message
    assert "\n" not in error.value.message


def make_key(bits: int = 2048) -> tuple[Secret, bytes]:
    """Return a private key as PEM, and the public key as DER in base64."""
    key = rsa.generate_private_key(65537, bits)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return Secret(pem.decode()), b"".join(public.splitlines()[1:-1])


@given(title=texts, body=texts)
def test_signatures_are_verified_by_the_code_of_others(title: str, body: str) -> None:
    """RFC 6376, with dkimpy as the receiver; RFC 8058: both List-Unsubscribe headers are signed."""
    mail = SIGNER.sign(render(replace(MESSAGE, title=title, body=body, unsubscribe_url=UNSUBSCRIBE)), at=AT)

    assert is_signed(mail)
    signed = re.sub(r"\s", "", message_from_bytes(mail)["DKIM-Signature"]).partition(";h=")[2].partition(";")[0].split(":")
    assert {"from", "subject", "list-unsubscribe", "list-unsubscribe-post"} <= set(signed)


def test_a_changed_mail_is_not_verified() -> None:
    """The signature covers the headers that a phisher would change."""
    mail = SIGNER.sign(render(replace(MESSAGE, unsubscribe_url=UNSUBSCRIBE)), at=AT)
    for old, new in {b"Line one": b"Line two", b"To: kim": b"To: eve", b"u/abc": b"u/xyz", b"One-Click": b"One-Clack"}.items():
        assert old in mail
        assert not is_signed(mail.replace(old, new))


@pytest.mark.parametrize("kind", ["text", "elliptic", "short", "encrypted"])
def test_an_invalid_dkim_key_refuses_to_start(kind: str) -> None:
    """Keys are checked at the start; the message has no part of the key."""
    if kind == "text":
        pem = "no key at all"
    elif kind == "short":
        pem = subprocess.run(["openssl", "genrsa", "-traditional", "512"], check=True, capture_output=True, text=True).stdout
    else:
        key = ec.generate_private_key(ec.SECP256R1()) if kind == "elliptic" else rsa.generate_private_key(65537, 2048)
        how = serialization.BestAvailableEncryption(b"x") if kind == "encrypted" else serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how).decode()

    with pytest.raises(WrongSettings, match="ROOKERY_DKIM_KEY") as error:
        DkimSigner(Secret(pem), domain="example.net", selector="m1")
    assert pem.strip().splitlines()[-1] not in error.value.message


KEY, PUBLIC_KEY = make_key()
SIGNER = DkimSigner(KEY, domain="example.net", selector="m1")


def is_signed(mail: bytes) -> bool:
    """Verify as a receiver does."""
    return dkim.verify(mail, dnsfunc=find_public_key)  # pyright: ignore[reportUnknownMemberType] - the library has no types


def find_public_key(name: bytes, timeout: float = 5, **_: Mapping[str, object]) -> bytes | None:
    """Answer as the DNS of example.net."""
    return b"v=DKIM1; k=rsa; p=" + PUBLIC_KEY if name == b"m1._domainkey.example.net." else None
