"""Errors."""

from __future__ import annotations

from tests.contract.statements import Api, assert_error, statement, statement_per_value


@statement("401 unauthorised: a missing key.")
def _(api: Api) -> None:
    assert_error(api.get("/v1/plans", key=None), 401, "unauthorised")


@statement("401 unauthorised: an invalid key.")
def _(api: Api) -> None:
    assert_error(api.get("/v1/plans", key="ak_" + "x" * 32), 401, "unauthorised")


@statement("403 permission_denied: a missing permission.")
def _(api: Api) -> None:
    assert_error(api.get("/v1/plans", key=api.agent_key("tools.read")["key"]), 403, "permission_denied")


@statement("403: a missing scope has error and required_scope.")
def _(api: Api) -> None:
    assert "required_scope" in assert_error(api.get("/v1/plans", key=api.api_key("brain:read")["plaintext_key"]), 403)


@statement("422: a validation error.")
def _(api: Api) -> None:
    assert_error(api.post("/v1/plans", {}), 422, "validation_error")


@statement("500: a failed tool call carries success and an error string.")
def _(api: Api) -> None:
    response = api.call("toolbox", "fail")
    assert response.status_code == 500
    assert response.json()["success"] is False
    assert isinstance(response.json()["error"], str)


@statement("An unknown route is 404 not_found.")
def _(api: Api) -> None:
    assert_error(api.get("/v1/no-such-route"), 404, "not_found")


@statement("A missing resource is 404 resource_not_found.")
def _(api: Api) -> None:
    assert_error(api.get("/v1/plans/no-such-plan"), 404, "resource_not_found")


@statement("A method that a route does not have is 405.")
def _(api: Api) -> None:
    assert_error(api.send("PUT", "/v1/plans"), 405)


@statement("A body that is not JSON is 415.")
def _(api: Api) -> None:
    response = api.send("POST", "/v1/plans", b"<plan/>", headers={"Content-Type": "application/xml"})
    assert_error(response, 415)


@statement("Invalid JSON is 400 invalid_json.")
def _(api: Api) -> None:
    assert_error(api.send("POST", "/v1/plans", b"{"), 400, "invalid_json")


@statement("An unknown field of a body is 422, and the message names the nearest field.")
def _(api: Api) -> None:
    body = assert_error(api.post("/v1/brain/remember", {"content": "x", "type": "fact", "projct": "p"}), 422)
    assert "project" in str(body)


@statement("An unknown field of a query is 422.")
def _(api: Api) -> None:
    assert_error(api.get("/v1/plans?statuss=active"), 422)


@statement("A validation error lists messages by field.")
def _(api: Api) -> None:
    body = assert_error(api.post("/v1/brain/remember", {"content": "", "type": "fact"}), 422)
    assert all(isinstance(texts, list) for texts in body["errors"].values())
    assert "content" in body["errors"]


WITHOUT_BODY = [
    *("/v1/brain/memories/{memory}/archive", "/v1/brain/memories/{memory}/restore", "/api/v1/api-keys/{key}/suspend"),
    *("/api/v1/api-keys/{key}/resume", "/api/v1/agent-keys/{agent}/revoke", "/v1/plans/{plan}/restore", "/v1/sessions/{session}/heartbeat"),
]


def rejects_body(api: Api, path: str) -> None:
    """Assert that a route without a body rejects one."""
    values = {
        "memory": api.remember()["id"],
        "key": api.api_key("brain:read")["id"],
        "agent": api.agent_key("plans.read")["id"],
        "plan": api.plan("One")["slug"],
        "session": api.post("/v1/sessions", {"agent_type": "x", "agent_id": api.name("a")}).json()["session"]["id"],
    }
    assert_error(api.send("POST", path.format(**values), b"{bad"), 400, "invalid_json")
    assert_error(api.post(path.format(**values), {"zz": 1}), 422, "validation_error")


statement_per_value("A route without a body rejects one: {}.", WITHOUT_BODY, rejects_body)


@statement("required_permission and required_scope name a permission that can be granted.")
def _(api: Api) -> None:
    key = api.api_key("brain:write", orgs=["one"])["plaintext_key"]
    body = assert_error(api.post("/v1/brain/remember", {"content": "x", "type": "fact", "org": "two"}, key=key), 403, "permission_denied")
    assert body.get("required_permission") != "orgs"
