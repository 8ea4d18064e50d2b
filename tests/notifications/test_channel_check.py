"""The check of the channels at the start and by `rookery doctor`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from structlog.testing import capture_logs

from rookery.doctor import DoctorFinding, examine
from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from rookery.notifications.channel_check import ChannelChecker
from rookery.notifications.messages import ChannelType
from rookery.wiring import Rookery
from tests.conftest import eventually, run_instance
from tests.deadlines import HANG_S
from tests.engines.smtp_service import PASSWORD, USER, run_raw_service, run_smtp_service


def with_smtp(settings: Settings, port: int, *, password: str = PASSWORD) -> Settings:
    """Return *settings* with a server on this host, whose certificate is of no authority."""
    login = f"{quote(USER, safe='')}:{quote(password, safe='')}"
    address = Secret(f"smtp://{login}@127.0.0.1:{port}?from=news@example.net")
    return replace(settings, smtp=address, verify_ssl=False)


async def list_findings(rookery: Rookery) -> list[DoctorFinding]:
    """Return what the doctor reports about notifications."""
    return [finding for finding in await examine(rookery) if finding.about == "notifications"]


async def test_an_installation_without_channels_has_nothing_to_check(settings: Settings) -> None:
    """Neither the start nor the doctor creates a VAPID key that nobody uses."""
    async with run_instance(settings) as instance:
        findings = await list_findings(instance.rookery)
        has_key = await instance.rookery.notifications.installation_keys.has_vapid_key()

    assert (findings, has_key) == ([], False)


async def test_the_doctor_logs_in_to_the_smtp_server(settings: Settings, tmp_path: Path) -> None:
    """A right login is fine; a wrong one is a problem, without the password."""
    grades = list[str]()
    async with run_smtp_service(tmp_path) as service:
        for password in (PASSWORD, "wrong-password"):
            async with run_instance(with_smtp(settings, service.port, password=password)) as instance:
                (finding,) = await list_findings(instance.rookery)
                grades.append(finding.grade)

    assert grades == ["ok", "problem"]
    assert finding.says == "e-mail cannot send: The SMTP server refuses the login (535)."
    assert "ROOKERY_SMTP" in (finding.advice or "")
    assert "wrong-password" not in repr(finding)


async def test_the_start_logs_a_refused_login_and_continues(settings: Settings, tmp_path: Path) -> None:
    """The operator learns it before the first campaign; all else works."""
    async with run_smtp_service(tmp_path) as service:
        with capture_logs() as logs:
            async with run_instance(with_smtp(settings, service.port, password="wrong-password")) as instance:
                (line,) = await eventually(lambda: [each for each in logs if each["event"] == "notifications.channel_not_ready"])
                healthy = await instance.admin.get("/healthz")

    assert (line["channel"], line["reason"], line["log_level"]) == ("email", "The SMTP server refuses the login (535).", "warning")
    assert healthy.status_code == 200
    assert "wrong-password" not in repr(logs)


async def test_a_silent_smtp_server_delays_neither_the_start_nor_the_stop(settings: Settings) -> None:
    """The check runs beside the start, within its own time limit, and ends with the server."""
    arrived, released = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader, writer
        arrived.set()
        await released.wait()

    async with run_raw_service(serve) as port, asyncio.timeout(HANG_S):
        async with run_instance(with_smtp(settings, port)) as instance:
            await arrived.wait()
            services = instance.rookery.notifications
            checker = ChannelChecker(services.channels, services.installation_keys, with_smtp(settings, port), timeout_s=0.05)
            (check,) = await checker.check_all()
        released.set()

    assert (check.channel, check.fault) == (ChannelType.EMAIL, "The check did not finish within 0.05 seconds.")


async def test_the_doctor_checks_the_vapid_key_and_its_subject(settings: Settings) -> None:
    """RFC 8292: Apple's push service refuses a subject that is not on the Internet."""
    grades = list[str]()
    for subject in (None, "mailto:admin@rookery.example.org"):
        async with run_instance(replace(settings, vapid_subject=subject)) as instance:
            await instance.rookery.notifications.get_vapid_public_key()  # the first use creates the key
            (finding,) = await list_findings(instance.rookery)
            grades.append(finding.grade)
            if subject is None:
                assert "mailto:rookery@localhost" in finding.says
                assert "ROOKERY_VAPID_SUBJECT" in (finding.advice or "")

    assert grades == ["warning", "ok"]


async def test_the_start_reads_the_stored_vapid_key_and_warns_of_its_subject(settings: Settings) -> None:
    """The key is decrypted at the start, so a lost secret key is noticed before the first campaign."""
    async with run_instance(settings) as instance:
        await instance.rookery.notifications.get_vapid_public_key()
    with capture_logs() as logs:
        async with run_instance(settings):
            (line,) = await eventually(lambda: [each for each in logs if each["event"].startswith("notifications.ch")])

    assert (line["event"], line["channel"]) == ("notifications.channel_warning", "webpush")
    assert "mailto:rookery@localhost" in line["reason"]


@pytest.mark.parametrize("command", ["serve", "worker", "doctor"])
def test_a_wrong_vapid_key_is_refused_in_one_line(command: str, tmp_path: Path) -> None:
    """The setting and the allowed forms, not the value."""
    environment = os.environ | {"ROOKERY_DATA_DIR": str(tmp_path), "ROOKERY_VAPID_PRIVATE_KEY": "no-key-of-mine"}
    arguments = [sys.executable, "-m", "rookery", command]
    refused = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)

    (line,) = refused.stderr.strip().splitlines()
    assert refused.returncode != 0
    assert line == "error: ROOKERY_VAPID_PRIVATE_KEY: must be a P-256 private key: 32 bytes in base64url, DER in base64url, or PEM"
    assert "no-key-of-mine" not in refused.stdout + refused.stderr
