"""The generated part of the client agrees with the server."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import cast

from distribution.client.__main__ import FOLDER, load_document, write_client
from distribution.client.operations import SKIPPED_TAGS
from rookery_client import AsyncRookery, Rookery
from rookery_client.generated.inputs import RememberBody, ScoreItemBody
from rookery_client.generated.models import Hook


def test_the_generated_modules_are_current() -> None:
    """The client is made from the declarations of the operations, so it cannot drift. `make client` writes it again."""
    files = write_client()
    stale = [name for name, text in files.items() if not (path := FOLDER / name).exists() or path.read_text(encoding="utf-8") != text]
    generated = [*(FOLDER / "generated").glob("*.py"), *(FOLDER / "operations").glob("*.py")]

    assert (stale, {str(Path(path).relative_to(FOLDER)) for path in generated}) == ([], files.keys())


def test_both_clients_have_every_operation() -> None:
    """Typed, for all operations, but for MCP, the documentation and pages for browsers."""
    with Rookery(api_key="sk_test_unused") as client:
        methods = {name for group in vars(client).values() for name, _ in inspect.getmembers(group, inspect.ismethod)}
    asynchronous = {
        name for group in vars(AsyncRookery(api_key="sk_test_unused")).values() for name, _ in inspect.getmembers(group, inspect.ismethod)
    }
    operations = dict[str, list[str]]()
    for item in cast("dict[str, dict[str, dict[str, object]]]", load_document()["paths"]).values():
        for operation in item.values():
            if not SKIPPED_TAGS.intersection(cast("list[str]", operation["tags"])):
                responses = cast("dict[str, dict[str, object]]", operation["responses"])
                operations[str(operation["operationId"])] = [
                    kind for each in responses.values() for kind in cast("dict[str, object]", each.get("content", {}))
                ]
    pages = {
        name for name, kinds in operations.items() if name not in methods and ("text/html" in kinds or "image/vnd.microsoft.icon" in kinds)
    }

    assert operations.keys() - pages <= methods
    assert methods - {"__init__"} == asynchronous - {"__init__"}
    assert pages == {"confirm_login", "finish_login", "get_subscribe_page", "get_unsubscribe_page", "cancel_subscription", "get_favicon"}


def test_two_fields_with_one_name_in_python_stay_two() -> None:
    """The answer of a hook has `additionalContext` for one client, and `additional_context`, which has no field, for another."""
    hook = Hook.model_validate({"additionalContext": "for Copilot CLI", "additional_context": "for Cursor"})

    assert hook.additional_context == "for Copilot CLI"
    assert hook.model_extra == {"additional_context": "for Cursor"}


def test_items_that_are_validated_one_by_one_have_types() -> None:
    """
    A batch accepts invalid items and rejects each on its own; the description has the form of valid ones.

    pyright checks the items below, and the description has their fields.
    """
    memory: RememberBody = {"content": "The otter sleeps.", "tags": ["otter"], "confidence": 0.5}
    text: ScoreItemBody = {"response": "Yes, you are right.", "history": [{"role": "user", "content": "Is it?"}]}
    components = cast("dict[str, dict[str, dict[str, dict[str, dict[str, object]]]]]", load_document()["components"])
    schemas = components["schemas"]
    forms = {name: schemas[name]["properties"][field]["items"] for name, field in (("ScoreBatchBody", "items"), ("BatchBody", "memories"))}

    assert forms == {
        "ScoreBatchBody": {"$ref": "#/components/schemas/ScoreItemBody"},
        "BatchBody": {"$ref": "#/components/schemas/RememberBody"},
    }
    assert schemas["RememberBody"]["properties"].keys() >= memory.keys()
    assert schemas["ScoreItemBody"]["properties"].keys() >= text.keys()
