"""Subscribers: creation, changes, lists, import and export (D-70)."""

from __future__ import annotations

import json
from typing import cast

import pytest

from tests.notifications.rig import Json, NotificationRig

_KEYS = {
    "p256dh": "BNcRdreALRFXTkOOUHK1EtK2wtaz5Ry4YfYCA_0QTpQtUbVlUls0VJXg7A8u-Ts1XbjhazAkj7I99e8QcYP7DkM",
    "auth": "tBHItJI5svbpez7KI4CCXg",
}


async def test_a_subscriber_is_found_by_both_ids_and_changed(rig: NotificationRig) -> None:
    """D-70: fields that are left out keep their value; a channel that is listed again keeps its id and status."""
    created = await rig.add_subscriber("user-1", tags=["b", "a", "b"], attributes={"name": "Kim", "age": 4, "vip": True}, locale="de-AT")
    channel = cast("list[Json]", created["channels"])[0]

    assert created["tags"] == ["a", "b"]
    assert await rig.get("/subscribers/user-1") == await rig.get(f"/subscribers/{created['id']}") == created
    body = {"channels": [{"type": "email", "address": "kim@example.org"}, {"type": "webhook", "url": channel["url"]}], "locale": None}
    changed = (await rig.caller.send("PATCH", "/v1/notify/subscribers/user-1", body)).json()
    assert [entry["type"] for entry in changed["channels"]] == ["email", "webhook"]
    assert changed["channels"][1] == channel
    assert (changed["tags"], changed["attributes"], changed["locale"]) == (["a", "b"], {"name": "Kim", "age": 4, "vip": True}, None)
    assert (await rig.caller.send("DELETE", "/v1/notify/subscribers/user-1")).status_code == 204
    assert (await rig.caller.get("/v1/notify/subscribers/user-1")).status_code == 404


async def test_an_external_id_is_unique_in_the_workspace(rig: NotificationRig) -> None:
    """D-70: the second one is 409; another workspace may use it."""
    await rig.add_subscriber("user-1")
    second = await rig.caller.post("/v1/notify/subscribers", {"external_id": "user-1"})
    other = await rig.instance.api_key(workspace_id=await rig.instance.workspace("other"))

    assert (second.status_code, second.json()["error"], second.json()["external_id"]) == (409, "conflict", "user-1")
    assert (await other.post("/v1/notify/subscribers", {"external_id": "user-1"})).status_code == 201


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
        ({"type": "webpush", "endpoint": "https://push.example/a", "keys": {**_KEYS, "auth": "c2hvcnQ"}}, "16 bytes"),
        ({"type": "webpush", "endpoint": "https://push.example/a", "keys": {**_KEYS, "p256dh": "AAAA"}}, "P-256"),
    ],
)
async def test_a_bad_channel_is_rejected_with_the_reason(rig: NotificationRig, channel: Json, reason: str) -> None:
    """D-70, D-82: the error names the channel, what is wrong, and what is allowed."""
    response = await rig.caller.post("/v1/notify/subscribers", {"external_id": "a", "channels": [channel]})

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
    """D-10, D-70: nothing that a caller sends is stored in another form, or is a 500."""
    response = await rig.caller.post("/v1/notify/subscribers", {"external_id": "a", **fields})

    assert (response.status_code, response.json()["error"]) == (422, "validation_error")


async def test_tokens_of_addresses_are_hidden_and_kept(rig: NotificationRig) -> None:
    """D-70: GET hides the token of an ntfy topic; writing the hidden form back changes nothing; an export has it."""
    url = "http://tk_secrettoken@127.0.0.1:1/topic"
    created = await rig.post("/subscribers", {"external_id": "a", "channels": [{"type": "ntfy", "url": url}]}, 201)
    shown = cast("list[Json]", created["channels"])[0]
    body = {"channels": [{"type": "ntfy", "url": shown["url"]}]}
    changed = (await rig.caller.send("PATCH", "/v1/notify/subscribers/a", body)).json()

    assert shown["url"] == "http://***@127.0.0.1:1/topic"
    assert changed["channels"][0]["id"] == shown["id"]
    assert url in (await rig.caller.get("/v1/notify/subscribers/export")).text
    assert "secrettoken" not in json.dumps([created, changed, await rig.get("/subscribers")])


async def test_the_list_is_filtered(rig: NotificationRig) -> None:
    """D-70: by tag, channel, status and a part of the external id or an address."""
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
    response = await rig.caller.http.post("/v1/notify/subscribers/import", content=content, headers={"Content-Type": kind})
    assert response.status_code == 200, response.text
    return cast("Json", response.json())


async def test_an_import_stores_good_lines_and_names_bad_ones(rig: NotificationRig) -> None:
    """D-70: a report with the numbers of created, updated, unchanged and failed lines; an import can be repeated."""
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
    """D-70: cells that do not match the header, bytes that are not UTF-8 and broken quotes are errors of their line only."""
    text = b'external_id,email,tags,first_name\na,a@example.org,x;y,Kim\nb,b@example.org\nc,\xff,,\nd,nobody,,\n"e ""f",,,\n'
    report = await _import(rig, text, "text/csv")
    header = await rig.caller.http.post("/v1/notify/subscribers/import", content="name,Bad Name\n", headers={"Content-Type": "text/csv"})
    other = await rig.caller.http.post("/v1/notify/subscribers/import", content="x", headers={"Content-Type": "text/plain"})

    assert (report["created"], report["failed"]) == (1, 4)
    assert [error["line"] for error in cast("list[Json]", report["errors"])] == [3, 4, 5, 6]
    assert (await rig.get("/subscribers/a"))["attributes"] == {"first_name": "Kim"}
    assert (header.status_code, other.status_code) == (422, 415)
    assert "external_id" in header.text


async def test_an_import_does_not_undo_an_unsubscription(rig: NotificationRig) -> None:
    """D-70: an export of JSON Lines restores statuses; CSV has only active channels, and formulas are escaped."""
    unsubscribed = {"type": "email", "address": "a@example.org", "status": "unsubscribed"}
    await rig.post("/subscribers", {"external_id": "a", "channels": [unsubscribed], "attributes": {"name": "=1+1"}}, 201)
    exported = (await rig.caller.get("/v1/notify/subscribers/export")).text
    table = (await rig.caller.get("/v1/notify/subscribers/export?format=csv")).text
    await _import(rig, '{"external_id": "a", "channels": [{"type": "email", "address": "a@example.org"}]}')

    channel = cast("list[Json]", (await rig.get("/subscribers/a"))["channels"])[0]
    assert channel["status"] == "unsubscribed"
    assert "a@example.org" not in table
    assert "'=1+1" in table
    assert (await rig.caller.send("DELETE", "/v1/notify/subscribers/a")).status_code == 204
    assert (await _import(rig, exported))["created"] == 1
    channel = cast("list[Json]", (await rig.get("/subscribers/a"))["channels"])[0]
    assert channel["status"] == "unsubscribed"


async def test_an_import_of_many_lines(rig: NotificationRig) -> None:
    """Issue 18: of 100,000 lines with 3 bad ones, the good ones are stored and the bad ones named; here 5,000."""
    lines = [f'{{"external_id": "u{number}", "tags": ["all"]}}' for number in range(5_000)]
    for place in (10, 2_500, 4_999):
        lines[place] = '{"external_id": ""}'
    report = await _import(rig, "\n".join(lines))

    assert (report["lines"], report["created"], report["failed"]) == (5_000, 4_997, 3)
    assert [error["line"] for error in cast("list[Json]", report["errors"])] == [11, 2_501, 5_000]
    assert cast("Json", (await rig.get("/subscribers?tag=all&per_page=1"))["meta"])["total"] == 4_997


async def test_an_import_over_the_limit_is_413(rig: NotificationRig) -> None:
    """D-16: 10 MiB."""
    response = await rig.caller.http.post(
        "/v1/notify/subscribers/import", content=b"x" * (10 * 1024 * 1024 + 1), headers={"Content-Type": "application/x-ndjson"}
    )

    assert (response.status_code, response.json()["error"]) == (413, "payload_too_large")
