"""The hooks of each client: their form, and edits that leave the hooks of others alone."""

from __future__ import annotations

import json
import shlex
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.coding_agents import hook_declarations
from rookery.coding_agents.hook_command import HookOptions, parse_options
from rookery.coding_agents.hook_declarations import HOOKS
from rookery.connect.errors import UneditableText
from rookery.connect.hook_entries import (
    HookTarget,
    add_hooks,
    build_hooks,
    find_client,
    find_hooks,
    get_address,
    get_key_file,
    get_program,
    remove_hooks,
)
from rookery.connect.own_keys import LEAST_PERMISSIONS

TARGET = HookTarget(url="https://agents.example.org")
OTHER_TARGET = HookTarget(url="http://127.0.0.1:9000", program=("/a b/rookery",))
HANDLERS = st.sampled_from(
    [
        {"type": "command", "command": "echo hello"},
        {"type": "command", "command": "echo rookery hook stop"},
        {"type": "http", "url": "http://other/api/agent/hooks"},
        {"type": "command", "command": "python", "args": ["hook", "stop"]},
    ]
)
GROUPS = st.fixed_dictionaries({"hooks": st.lists(HANDLERS, max_size=2)}, optional={"matcher": st.just("startup")})
SETTINGS = st.fixed_dictionaries(
    {"theme": st.just("dark")},
    optional={
        "hooks": st.dictionaries(
            st.sampled_from(["SessionStart", "Stop", "PreToolUse"]), st.lists(GROUPS, min_size=1, max_size=2), min_size=1
        )
    },
)


def test_claude_code_starts_a_session_by_a_program_and_sends_the_rest_over_http() -> None:
    """SessionStart has no HTTP hooks. The program is started without a shell; the key comes from the variable."""
    hooks = build_hooks("claude-code", TARGET)

    assert hooks == {
        "SessionStart": {
            "type": "command",
            "command": "rookery",
            "args": ["hook", "session-start", "--client", "claude-code", "--url", "https://agents.example.org"],
            "timeout": 5,
        },
        **{
            name: {
                "type": "http",
                "url": f"https://agents.example.org/api/agent/hooks/claude-code/{event}",
                "headers": {"Authorization": "Bearer $ROOKERY_KEY"},
                "allowedEnvVars": ["ROOKERY_KEY"],
                "timeout": timeout,
            }
            for name, event, timeout in (("UserPromptSubmit", "prompt", 3), ("Stop", "stop", 5), ("SessionEnd", "end", 5))
        },
    }


@pytest.mark.parametrize(("client", "units_per_s"), [("codex", 1), ("vscode", 1), ("cursor", 1), ("gemini", 1000), ("qwen-code", 1)])
def test_the_others_run_the_program_for_each_event(client: str, units_per_s: int) -> None:
    """A shell reads their command as the program and its arguments, also with a space in the path. Gemini CLI counts milliseconds."""
    hooks = build_hooks(client, OTHER_TARGET)

    for declaration in HOOKS[client]:
        words = shlex.split(str(hooks[declaration.name]["command"]))
        assert words == ["/a b/rookery", "hook", declaration.event, "--client", client, "--url", "http://127.0.0.1:9000"]
        assert hooks[declaration.name]["timeout"] == declaration.timeout_s * units_per_s


def test_a_hook_that_is_no_longer_declared_is_removed() -> None:
    """VS Code's Stop has no message to record, and earlier versions wrote a hook for it."""
    stop = {"type": "command", "command": "rookery hook stop --client vscode --url http://h", "timeout": 5}
    text = json.dumps({"hooks": {"Stop": [stop, {"type": "command", "command": "make check"}]}})

    hooks = cast("dict[str, dict[str, list[object]]]", json.loads(add_hooks("vscode", text, TARGET)))["hooks"]

    assert set(hooks) == {"Stop", "SessionStart", "UserPromptSubmit", "SessionEnd"}
    assert hooks["Stop"] == [{"type": "command", "command": "make check"}]


@pytest.mark.parametrize("client", HOOKS)
def test_the_program_understands_the_command_of_each_hook(client: str) -> None:
    """`rookery hook` gets the event, the client and the server that the file names."""
    hooks = build_hooks(client, TARGET)

    for declaration in HOOKS[client]:
        if declaration.transport == "command":
            hook = hooks[declaration.name]
            words = [str(hook["command"]), *cast("list[str]", hook["args"])] if "args" in hook else shlex.split(str(hook["command"]))
            options = parse_options(words[2:])
            assert (words[:2], options) == (["rookery", "hook"], HookOptions(event=declaration.event, client=client, url=TARGET.url))


@pytest.mark.parametrize("client", HOOKS)
def test_a_hook_is_recognised_by_what_it_calls(client: str) -> None:
    """The marker of a hook is its route or its command."""
    for hook in build_hooks(client, OTHER_TARGET).values():
        assert find_client(hook) == client
        assert get_address(hook).startswith("http://127.0.0.1:9000")
        assert get_program(hook) == (None if "url" in hook else "/a b/rookery")


@pytest.mark.parametrize("client", HOOKS)
@given(settings=SETTINGS)
def test_the_hooks_of_others_keep_their_places(client: str, settings: dict[str, object]) -> None:
    """Codex trusts a hook by its position; a removal restores every byte."""
    text = json.dumps(settings, indent=2)

    added = add_hooks(client, text, TARGET)

    content = cast("dict[str, dict[str, list[object]]]", json.loads(added))
    for name, groups in cast("dict[str, list[object]]", settings.get("hooks", {})).items():
        assert content["hooks"][name][: len(groups)] == groups
    assert {found.event for found in find_hooks(added)} == set(build_hooks(client, TARGET))
    assert add_hooks(client, added, TARGET) == added
    expected = text if client != "cursor" else json.dumps({**settings, "version": 1}, indent=2) if "version" in added else text
    assert json.loads(remove_hooks(added)) == json.loads(expected)
    if client != "cursor":
        assert remove_hooks(added) == text


@pytest.mark.parametrize("client", HOOKS)
def test_hooks_that_are_there_are_changed_in_their_place(client: str) -> None:
    """A new address replaces the old one; what the user added to a hook stays, and a second copy goes."""
    text = add_hooks(client, "", OTHER_TARGET)
    content = json.loads(text)
    groups = content["hooks"][HOOKS[client][0].name]
    handler = groups[0]["hooks"][0] if "hooks" in groups[0] else groups[0]
    handler["statusMessage"] = "mine"
    groups.append(groups[0])

    changed = add_hooks(client, json.dumps(content), TARGET)

    found = find_hooks(changed)
    assert [hook.event for hook in found] == [declaration.name for declaration in HOOKS[client]]
    assert found[0].handler["statusMessage"] == "mine"
    assert "9000" not in changed
    assert "/a b/" not in changed


def test_a_hook_gets_the_key_file() -> None:
    """`~/` is for `rookery hook` to expand, so that the file of a project fits each developer."""
    hooks = build_hooks("codex", HookTarget(url="http://h", key_file="~/.codex/rookery.key"))

    assert {get_key_file(hook) for hook in hooks.values()} == {"~/.codex/rookery.key"}
    options = parse_options(shlex.split(str(hooks["Stop"]["command"]))[2:])
    assert options == HookOptions(event="stop", client="codex", url="http://h", key_file="~/.codex/rookery.key")


def test_a_hook_beside_another_in_one_group_is_taken_out_alone() -> None:
    """A user may have moved our hook into a group of his own."""
    ours = build_hooks("claude-code", TARGET)["Stop"]
    text = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}, ours]}]}})

    assert json.loads(remove_hooks(text)) == {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}}


def test_hooks_of_another_form_are_not_overwritten() -> None:
    """A file that the client itself could not read is left to its user."""
    with pytest.raises(UneditableText):
        add_hooks("claude-code", '{"hooks": []}', TARGET)
    with pytest.raises(UneditableText):
        add_hooks("claude-code", '{"hooks": {"SessionStart": {}}}', TARGET)


def test_the_key_of_a_client_has_the_permissions_that_hooks_use() -> None:
    """The route needs one, and the texts have more with the others."""
    assert {hook_declarations.REQUIRED_SCOPE, *hook_declarations.OPTIONAL_SCOPES} <= set(LEAST_PERMISSIONS)
