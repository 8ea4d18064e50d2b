"""Subscribers: creation, changes, lists, import and export."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import cast

import pytest

from tests.notifications.rig import Json, NotificationRig

_KEYS = {
    "p256dh": "BNcRdreALRFXTkOOUHK1EtK2wtaz5Ry4YfYCA_0QTpQtUbVlUls0VJXg7A8u-Ts1XbjhazAkj7I99e8QcYP7DkM",
    "auth": "tBHItJI5svbpez7KI4CCXg",
}


async def test_a_subscriber_is_found_by_both_ids_and_changed(rig: NotificationRig) -> None:
    """Fields that are left out keep their value; a channel that is listed again keeps its id and status."""
    created = await rig.add_subscriber("user-1", tags=["b", "a", "b"], attributes={"name": "Kim", "age": 4, "vip": True}, locale="de-AT")
    channel = cast("list[Json]", created["channels"])[0]

    assert created["tags"] == ["a", "b"]
    assert await rig.get("/subscribers/user-1") == await rig.get(f"/subscribers/{created['id']}") == created
    body = {"channels": [{"type": "email", "address": "kim@example.org"}, {"type": "webhook", "url": channel["url"]}], "locale": None}
    changed = (await rig.caller.send("PATCH", "/api/agent/notify/subscribers/user-1", body)).json()
    assert [entry["type"] for entry in changed["channels"]] == ["email", "webhook"]
    assert changed["channels"][1] == channel
    assert (changed["tags"], changed["attributes"], changed["locale"]) == (["a", "b"], {"name": "Kim", "age": 4, "vip": True}, None)
    assert (await rig.caller.send("DELETE", "/api/agent/notify/subscribers/user-1")).status_code == 204
    assert (await rig.caller.get("/api/agent/notify/subscribers/user-1")).status_code == 404


async def test_an_external_id_is_unique_in_the_workspace(rig: NotificationRig) -> None:
    """The second one is 409; another workspace may use it."""
    await rig.add_subscriber("user-1")
    second = await rig.caller.post("/api/agent/notify/subscribers", {"external_id": "user-1"})
    other = await rig.instance.api_key(workspace_id=await rig.instance.workspace("other"))

    assert (second.status_code, second.json()["error"], second.json()["external_id"]) == (409, "conflict", "user-1")
    assert (await other.post("/api/agent/notify/subscribers", {"external_id": "user-1"})).status_code == 201


@pytest.mark.parametrize(
    ("channel", "reason"),
    [
        ({"type": "pigeon", "url": "http://a.example/"}, "must be one of 'webhook'"),
        ({"type": "webhook"}, "url: is required"),
        ({"type": "webhook", "address": "a@b.example"}, "address: is not a field"),
        ({"type": "webhook", "url": "ftp://a.example/"}, "http or https URL"),
        ({"type": "webhook", "url": "http://10.1.2.3/"}, "private address"),
        ({"type": "email", "address": "kim"}, "e-mail address"),
        ({"type": "ntfy", "url": "https://ntfy.example/"}, "URL of a topic"),
        ({"type": "apprise", "url": "not a url"}, "Apprise URL"),
        ({"type": "ntfy", "url": "https://***@127.0.0.1/topic"}, "is masked"),
        ({"type": "webhook", "url": "http://a.example/", "expirationTime": 1}, "expirationTime: is not a field"),
        ({"type": "webpush", "endpoint": "https://push.example/a", "keys": {**_KEYS, "auth": "c2hvcnQ"}}, "16 bytes"),
        ({"type": "webpush", "endpoint": "https://push.example/a", "keys": {**_KEYS, "p256dh": "AAAA"}}, "P-256"),
    ],
)
async def test_a_bad_channel_is_rejected_with_the_reason(rig: NotificationRig, channel: Json, reason: str) -> None:
    """The error names the channel, what is wrong, and what is allowed."""
    response = await rig.caller.post("/api/agent/notify/subscribers", {"external_id": "a", "channels": [channel]})

    assert response.status_code == 422, response.text
    assert reason in json.dumps(response.json()["errors"]), response.text
    assert all(field.startswith("channels.0") for field in response.json()["errors"])


@pytest.mark.parametrize(
    "fields",
    [
        {"external_id": "a b"},
        {"external_id": ""},
        {"tags": ["a,b"]},
        {"attributes": {"First": "x"}},
        {"attributes": {"locale": "x"}},
        {"attributes": {"a": {"b": 1}}},
        {"attributes": {"a": None}},
        {"locale": "not a locale"},
        {"channels": [{"type": "email", "address": "a@b.example"}] * 2},
        {"unknown": 1},
    ],
)
async def test_a_bad_field_is_rejected(rig: NotificationRig, fields: Json) -> None:
    """Nothing that a caller sends is stored in another form, or is a 500."""
    response = await rig.caller.post("/api/agent/notify/subscribers", {"external_id": "a", **fields})

    assert (response.status_code, response.json()["error"]) == (422, "validation_error")


async def test_tokens_of_webhooks_are_hidden_and_kept(rig: NotificationRig) -> None:
    """As those of ntfy are. Two URLs that differ only in their tokens stay two channels."""
    tokens = ("tkn4aXq81LzPw03MbYs7", "tkn9bKw52QmRt84NcVd6")
    urls = [f"http://127.0.0.1:1/services/T1/{token}?key={token}" for token in tokens]
    body = {"external_id": "a", "channels": [{"type": "webhook", "url": url} for url in urls]}
    shown = cast("list[Json]", (await rig.post("/subscribers", body, 201))["channels"])
    change = {"channels": [{"type": "webhook", "url": channel["url"]} for channel in reversed(shown)]}
    changed = (await rig.caller.send("PATCH", "/api/agent/notify/subscribers/a", change)).json()["channels"]

    assert all(token not in json.dumps([shown, changed]) for token in tokens)
    assert str(shown[0]["url"]).startswith("http://127.0.0.1:1/services/T1/***-")
    assert [channel["id"] for channel in changed] == [channel["id"] for channel in reversed(shown)]
    export = (await rig.caller.get("/api/agent/notify/subscribers/export")).text
    assert all(url in export for url in urls)


async def test_tokens_of_addresses_are_hidden_and_kept(rig: NotificationRig) -> None:
    """GET hides the token of an ntfy topic; writing the hidden form back changes nothing; an export has it."""
    url = "http://tk_secrettoken@127.0.0.1:1/topic"
    created = await rig.post("/subscribers", {"external_id": "a", "channels": [{"type": "ntfy", "url": url}]}, 201)
    shown = cast("list[Json]", created["channels"])[0]
    body = {"channels": [{"type": "ntfy", "url": shown["url"]}]}
    changed = (await rig.caller.send("PATCH", "/api/agent/notify/subscribers/a", body)).json()

    assert shown["url"] == "http://***@127.0.0.1:1/topic"
    assert changed["channels"][0]["id"] == shown["id"]
    assert url in (await rig.caller.get("/api/agent/notify/subscribers/export")).text
    assert "secrettoken" not in json.dumps([created, changed, await rig.get("/subscribers")])


async def test_the_list_is_filtered(rig: NotificationRig) -> None:
    """By tag, channel, status and a part of the external id or an address."""
    await rig.add_subscriber("anna", tags=["beta"])
    await rig.post("/subscribers", {"external_id": "bert", "channels": [{"type": "email", "address": "Bert@example.org"}]}, 201)

    async def find(query: str) -> list[str]:
        return [str(entry["external_id"]) for entry in cast("list[Json]", (await rig.get(f"/subscribers?{query}"))["data"])]

    assert await find("") == ["bert", "anna"]
    assert await find("tag=beta") == ["anna"]
    assert await find("channel=email") == ["bert"]
    assert await find("channel=email&status=invalid") == []
    assert await find("q=BERT@") == ["bert"]
    assert await find("q=%25") == []


async def _import(rig: NotificationRig, text: str | bytes, kind: str = "application/x-ndjson") -> Json:
    content = text.encode() if isinstance(text, str) else text
    response = await rig.caller.http.post("/api/agent/notify/subscribers/import", content=content, headers={"Content-Type": kind})
    assert response.status_code == 200, response.text
    return cast("Json", response.json())


async def test_an_import_stores_good_lines_and_names_bad_ones(rig: NotificationRig) -> None:
    """A report with the numbers of created, updated, unchanged and failed lines; an import can be repeated."""
    lines = [
        '{"external_id": "a", "tags": ["x"], "channels": [{"type": "email", "address": "a@example.org"}]}',
        "nonsense",
        "",
        '{"external_id": "b", "channels": [{"type": "webhook", "url": "http://10.0.0.1/"}]}',
        '{"external_id": "c"}',
        '{"external_id": "a", "attributes": {"name": "Kim"}}',
        "[]",
    ]
    report = await _import(rig, "\n".join(lines))
    again = await _import(rig, "\n".join(lines))

    assert {name: report[name] for name in ("lines", "created", "updated", "unchanged", "failed")} == {
        "lines": 6,
        "created": 2,
        "updated": 1,
        "unchanged": 0,
        "failed": 3,
    }
    assert [error["line"] for error in cast("list[Json]", report["errors"])] == [2, 4, 7]
    assert (again["created"], again["updated"], again["unchanged"], again["failed"]) == (0, 0, 3, 3)
    stored = await rig.get("/subscribers/a")
    assert (stored["tags"], stored["attributes"]) == (["x"], {"name": "Kim"})


async def test_an_import_of_csv_with_bad_lines(rig: NotificationRig) -> None:
    """Cells that do not match the header, bytes that are not UTF-8 and broken quotes are errors of their line only."""
    text = b'external_id,email,tags,first_name\na,a@example.org,x;y,Kim\nb,b@example.org\nc,\xff,,\nd,nobody,,\n"e ""f",,,\n'
    report = await _import(rig, text, "text/csv")
    header = await rig.caller.http.post(
        "/api/agent/notify/subscribers/import", content="name,Bad Name\n", headers={"Content-Type": "text/csv"}
    )
    other = await rig.caller.http.post("/api/agent/notify/subscribers/import", content="x", headers={"Content-Type": "text/plain"})

    assert (report["created"], report["failed"]) == (1, 4)
    assert [error["line"] for error in cast("list[Json]", report["errors"])] == [3, 4, 5, 6]
    assert (await rig.get("/subscribers/a"))["attributes"] == {"first_name": "Kim"}
    assert (header.status_code, other.status_code) == (422, 415)
    assert "external_id" in header.text


async def test_a_broken_quote_in_csv_is_an_error_of_its_line_only(rig: NotificationRig) -> None:
    """
    The good lines are stored, and the bad ones named.

    A quote that was never closed once took the next 4,800 lines along, and the error named the last of them.
    """
    lines = ["external_id,email,first_name", *(f"u{number},u{number}@example.org,Kim" for number in range(6_000))]
    lines[10] = 'u9,u9@example.org,"Kim'
    lines[3_000] = 'u2999,u2999@example.org,"Kim"s'
    lines[5_000] = 'u4999,u4999@example.org,"of\ntwo lines"'
    lines[6_000] = 'u5999,"'
    report = await _import(rig, "\n".join(lines), "text/csv")

    assert (report["lines"], report["created"], report["failed"]) == (6_000, 5_997, 3)
    assert [error["line"] for error in cast("list[Json]", report["errors"])] == [11, 3_001, 6_002]
    assert cast("Json", (await rig.get("/subscribers/u4999"))["attributes"]) == {"first_name": "of\ntwo lines"}


async def test_a_column_of_csv_changes_only_what_it_is_about(rig: NotificationRig) -> None:
    """Other channels, channels that are not active, and other attributes stay as they are."""
    channels = [
        {"type": "email", "address": "old@example.org", "status": "unsubscribed"},
        {"type": "email", "address": "a@example.org"},
        {"type": "webpush", "endpoint": "http://127.0.0.1:9/push", "keys": _KEYS},
    ]
    await rig.post("/subscribers", {"external_id": "a", "channels": channels, "attributes": {"name": "Kim", "city": "Graz"}}, 201)
    report = await _import(rig, "external_id,email,city\na,b@example.org;c@example.org,\n", "text/csv")
    stored = await rig.get("/subscribers/a")

    assert (report["updated"], report["failed"]) == (1, 0)
    assert [(channel.get("address"), channel["type"], channel["status"]) for channel in cast("list[Json]", stored["channels"])] == [
        ("old@example.org", "email", "unsubscribed"),
        (None, "webpush", "active"),
        ("b@example.org", "email", "active"),
        ("c@example.org", "email", "active"),
    ]
    assert stored["attributes"] == {"name": "Kim"}
    many = ";".join(f"k{number}@example.org" for number in range(19))
    refused = await _import(rig, f"external_id,email\na,{many}\nb,nobody\nc,c@example.org\n", "text/csv")
    errors = {cast("int", error["line"]): error["errors"] for error in cast("list[Json]", refused["errors"])}
    assert (refused["created"], list(errors)) == (1, [2, 3])
    assert "21 channels" in str(errors[2])
    assert list(cast("Json", errors[3])) == ["email"]


async def test_an_exported_table_can_be_imported(rig: NotificationRig) -> None:
    """Into the same workspace it changes nothing; into another one it restores all active channels and texts."""
    odd = {
        "quote": 'say "hi", ok;\n two',
        "formula": "=1+1",
        "escaped": "'=1+1",
        "number": 5,
        "is_vip": True,
        "empty": "",
        "wide": "𝄞 \u202eé",
        "email": "private@example.org",
        "id": "crm-7",
        "created_at": "2020-01-01",
    }
    channels = [
        {"type": "webhook", "url": "http://127.0.0.1:9/a;b?c=1,2"},
        {"type": "webhook", "url": "http://127.0.0.1:9/second"},
        {"type": "ntfy", "url": "http://tk_secret@127.0.0.1:9/topic"},
        *({"type": "webpush", "endpoint": f"http://127.0.0.1:9/push/{number}", "keys": _KEYS} for number in range(2)),
    ]
    body = {"external_id": "a", "channels": channels, "attributes": odd, "tags": ["-dash", "=eq", "two words"], "locale": "de-AT"}
    before = await rig.post("/subscribers", body, 201)
    table = (await rig.caller.get("/api/agent/notify/subscribers/export?format=csv")).content
    again = await _import(rig, table, "text/csv")
    other = replace(rig, caller=await rig.instance.api_key(workspace_id=await rig.instance.workspace("other")))
    elsewhere = await _import(other, table, "text/csv")
    after = await other.get("/subscribers/a")

    assert (again["unchanged"], elsewhere["created"]) == (1, 1)
    assert await rig.get("/subscribers/a") == before
    addresses = [
        [channel.get("url", channel.get("endpoint")) for channel in cast("list[Json]", view["channels"])] for view in (before, after)
    ]
    assert sorted(map(str, addresses[0])) == sorted(map(str, addresses[1]))
    assert after["attributes"] == {name: str(value).lower() if value is True else str(value) for name, value in odd.items() if value != ""}
    assert (after["tags"], after["locale"]) == (before["tags"], "de-AT")


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("external_id;email", "separated by commas"),
        ("external_id\temail", "separated by commas"),
        ("name", "must have the column external_id"),
        ("external_id,Email", "'Email'"),
        ("external_id,email,email", "twice"),
        ("external_id,city,attributes.city", "two columns of the attribute 'city'"),
        ("external_id,attributes.locale", "write locale"),
        ("external_id,attributes.a.b", "'attributes.a.b'"),
        ("\ufeffexternal_id,email".encode("utf-16"), "not UTF-8"),
        ("", "must begin with a header"),
    ],
)
async def test_a_bad_header_of_csv_is_rejected(rig: NotificationRig, header: str | bytes, reason: str) -> None:
    """The error says what is wrong with the first line; nothing is stored."""
    content = header if isinstance(header, bytes) else f"{header}\n".encode()
    response = await rig.caller.http.post("/api/agent/notify/subscribers/import", content=content, headers={"Content-Type": "text/csv"})

    assert (response.status_code, reason in response.text) == (422, True), response.text


async def test_a_masked_address_in_an_import_is_an_error_of_its_line(rig: NotificationRig) -> None:
    """The good lines are stored; a list of GET, whose tokens are hidden, once ended the whole import with 422."""
    masked = '{"external_id": "b", "channels": [{"type": "ntfy", "url": "http://***@127.0.0.1:9/topic"}]}'
    report = await _import(rig, f'{{"external_id": "a"}}\n{masked}\n{{"external_id": "c"}}')

    assert (report["created"], report["failed"]) == (2, 1)
    assert "is masked" in str(report["errors"])


async def test_an_import_does_not_undo_an_unsubscription(rig: NotificationRig) -> None:
    """An export of JSON Lines restores statuses; CSV has only active channels, and formulas are escaped."""
    unsubscribed = {"type": "email", "address": "a@example.org", "status": "unsubscribed"}
    await rig.post("/subscribers", {"external_id": "a", "channels": [unsubscribed], "attributes": {"name": "=1+1"}}, 201)
    exported = (await rig.caller.get("/api/agent/notify/subscribers/export")).text
    table = (await rig.caller.get("/api/agent/notify/subscribers/export?format=csv")).text
    await _import(rig, '{"external_id": "a", "channels": [{"type": "email", "address": "a@example.org"}]}')

    channel = cast("list[Json]", (await rig.get("/subscribers/a"))["channels"])[0]
    assert channel["status"] == "unsubscribed"
    assert "a@example.org" not in table
    assert "'=1+1" in table
    assert (await rig.caller.send("DELETE", "/api/agent/notify/subscribers/a")).status_code == 204
    assert (await _import(rig, exported))["created"] == 1
    channel = cast("list[Json]", (await rig.get("/subscribers/a"))["channels"])[0]
    assert channel["status"] == "unsubscribed"


async def test_an_import_of_many_lines(rig: NotificationRig) -> None:
    """The good lines of a file are stored and its three bad ones named, also if it has 5,000 lines."""
    lines = [f'{{"external_id": "u{number}", "tags": ["all"]}}' for number in range(5_000)]
    for place in (10, 2_500, 4_999):
        lines[place] = '{"external_id": ""}'
    report = await _import(rig, "\n".join(lines))

    assert (report["lines"], report["created"], report["failed"]) == (5_000, 4_997, 3)
    assert [error["line"] for error in cast("list[Json]", report["errors"])] == [11, 2_501, 5_000]
    assert cast("Json", (await rig.get("/subscribers?tag=all&per_page=1"))["meta"])["total"] == 4_997


async def test_an_import_over_the_limit_is_413(rig: NotificationRig) -> None:
    """10 MiB."""
    response = await rig.caller.http.post(
        "/api/agent/notify/subscribers/import", content=b"x" * (10 * 1024 * 1024 + 1), headers={"Content-Type": "application/x-ndjson"}
    )

    assert (response.status_code, response.json()["error"]) == (413, "payload_too_large")


@pytest.mark.parametrize(("ends_at_ms", "status"), [(None, "active"), (4_102_444_800_000, "active"), (1_700_000_000_000.5, "invalid")])
async def test_a_subscription_is_taken_as_the_browser_gives_it(rig: NotificationRig, ends_at_ms: float | None, status: str) -> None:
    """`PushSubscription.toJSON()` has `expirationTime`. One that has passed makes the channel invalid, not the request."""
    subscription = {"endpoint": "https://127.0.0.1/push/a", "expirationTime": ends_at_ms, "keys": _KEYS}
    channel = {"type": "webpush", **subscription}
    created = await rig.post("/subscribers", {"external_id": "api", "channels": [channel]}, 201)
    line = json.dumps({"external_id": "jsonl", "channels": [channel]}).encode()
    cell = json.dumps(subscription).replace('"', '""')
    for content, kind in ((line, "application/x-ndjson"), (f'external_id,webpush\ncsv,"{cell}"\n'.encode(), "text/csv")):
        response = await rig.caller.http.post("/api/agent/notify/subscribers/import", content=content, headers={"Content-Type": kind})
        assert response.json()["created"] == 1, response.text
    rows = cast("list[Json]", (await rig.get("/subscribers"))["data"])
    channels = [cast("list[Json]", row["channels"])[0] for row in rows]

    assert {row["external_id"] for row in rows} == {"api", "jsonl", "csv"}
    assert {channel["status"] for channel in channels} == {status}
    assert ("expirationTime" in str(channels[0]["status_reason"])) == (status == "invalid")
    assert created["external_id"] == "api"
