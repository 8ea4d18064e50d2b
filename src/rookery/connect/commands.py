"""`rookery connect`: set-up of MCP clients and coding agents for this server."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

import typer

from rookery.coding_agents.projects import PROJECT_FILE
from rookery.connect.check import check_setup
from rookery.connect.client_files import is_readable_by_others, render_diff, write_edits
from rookery.connect.clients import CONFIGS, Places, Scope
from rookery.connect.errors import ClientFileBroken, Report, ServerUnusable
from rookery.connect.hook_entries import HookTarget
from rookery.connect.key_files import describe_exposed, list_exposed, read_key
from rookery.connect.list_modes import choose_mode, find_key, follow_entry
from rookery.connect.mcp_entries import get_file_key
from rookery.connect.own_keys import KeyRequest, create_locally, create_over_http, describe_key
from rookery.connect.server_client import ServerClient
from rookery.connect.setups import Changes, Setup, is_in_repository, prepare_removal, prepare_write, read_entries
from rookery.kernel.config import Settings
from rookery.kernel.errors import RookeryError
from rookery.kernel.running_server import find_server
from rookery.kernel.secret import Secret
from rookery.kernel.sentences import find_nearest, format_count
from rookery.terminal.context import get_settings, run
from rookery.terminal.options import JsonOption, WorkspaceOption, raise_usage_error
from rookery.terminal.output import print_json, print_notice
from rookery.tools.discovery.client_guides import CLIENTS, KEY_PLACEHOLDER, KEY_VARIABLE, SEARCH_QUERY, SetupGuide, SetupTarget, list_setups
from rookery.tools.servers.entries import BUILTIN_IDS
from rookery.tools.servers.servers_file import SERVER_ID_PATTERN, InvalidServersFile, read_servers_file

if TYPE_CHECKING:  # only for a key that is created
    from rookery.access.build import AccessServices


_Action: TypeAlias = Literal["show", "write", "check", "remove"]


@dataclass(frozen=True, slots=True)
class _OwnKey:
    """
    A key for the client, or the reason why it has no new one. Neither: the client has a key already.

    Attributes:
        is_new: It was created by this run. Otherwise it is that of the variable, to be put into a key file.
    """

    secret: Secret | None = None
    notice: str | None = None
    is_new: bool = True


def connect(
    context: typer.Context,
    client: Annotated[str, typer.Argument(help=f"{', '.join(CLIENTS[:-1])} or {CLIENTS[-1]}.")],
    *,
    server: Annotated[str | None, typer.Option(help="Only this tool server; default: all servers.", show_default=False)] = None,
    search: Annotated[
        bool | None,
        typer.Option(
            "--search/--no-search",
            help="Serve three tools that find and call all others, or all tools. Default for --write: by the size of the list.",
            show_default=False,
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="The URL of a server on another machine; default: the one on this data folder.", show_default=False)
    ] = None,
    to_write: Annotated[bool, typer.Option("--write", help="Write the set-up to the client's file instead of showing it.")] = False,
    to_check: Annotated[
        bool, typer.Option("--check", help="Read the client's files, call the server, and report problems. Exit code 1 if there is one.")
    ] = False,
    to_remove: Annotated[bool, typer.Option("--remove", help="Remove what --write has added, and nothing else.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes of --write or --remove as a diff. Write nothing.")] = False,
    is_project: Annotated[
        bool | None,
        typer.Option("--project/--user", help="The files of this folder, or your own for all folders.", show_default=False),
    ] = None,
    hooks: Annotated[
        bool | None,
        typer.Option(
            "--hooks/--no-hooks", help="Add or remove the hooks that give the agent its memory. Default: leave them.", show_default=False
        ),
    ] = None,
    no_key: Annotated[bool, typer.Option("--no-key", help="Create no key.")] = False,
    name: Annotated[
        str | None,
        typer.Option(
            help="Name of the agent, in place of the host, such as in containers. Also `agent` in .rookery.toml.", show_default=False
        ),
    ] = None,
    workspace: WorkspaceOption = None,
    file: Annotated[Path | None, typer.Option(help="The client's file, if it is not in its usual place.", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """
    Show the configuration that connects a client to this server, write it, check it or remove it.

    The key stays in an environment variable, or in the client's own secret store.
    """
    action = _choose_action(to_write=to_write or file is not None, to_check=to_check, to_remove=to_remove, dry_run=dry_run)
    settings = get_settings(context)
    if server is not None and search:
        raise_usage_error("Use either --server or --search: the search covers all servers.")
    target, base_url = _build_target(settings, server, url)
    shown_target = replace(target, url=target.url + SEARCH_QUERY) if search else target
    guide = next((guide for guide in list_setups(shown_target) if guide.client == client), None)
    if guide is None:
        raise_usage_error(f"Unknown client {client!r}; use {', '.join(guide.client for guide in list_setups(target))}.")
    _print_warnings(settings, shown_target, client, is_here=url is None, search=bool(search))
    if client not in CONFIGS:
        if action != "show":
            raise_usage_error(f"{guide.name} has no file to write to; omit --write and the other options for files.")
        _show(guide, as_json=as_json)
        return
    setup = Setup(
        client=CONFIGS[client],
        scope=_choose_scope(client, is_project=is_project),
        places=Places(home=Path.home(), project=Path.cwd(), platform=sys.platform, environ=os.environ),
        target=target,
        hook_target=HookTarget(url=base_url, program=_find_program()),
        file=file,
        hooks=hooks,
    )
    try:
        if action == "show" and not _offer_to_write(guide, setup, is_chosen=is_project is not None, as_json=as_json):
            return
        if action == "check":
            _check(follow_entry(setup, search=search), any_scope=is_project is None and file is None, as_json=as_json)
        elif action == "remove":
            _remove(setup, prepare_removal(setup), dry_run=dry_run, as_json=as_json)
        elif dry_run:
            setup, size_notice = choose_mode(setup, find_key(setup), search=search)
            _show_changes(setup, _add_notice(prepare_write(setup), size_notice), as_json=as_json)
        else:
            prepare_write(setup)  # an invalid file ends the command before a key is created
            own_key = _OwnKey() if no_key else _provide_key(context, setup, _describe_key(setup, name), url, workspace)
            setup, size_notice = choose_mode(setup, own_key.secret or find_key(setup), search=search)
            _write(setup, own_key, size_notice, as_json=as_json)
    except ClientFileBroken as error:
        raise RookeryError(str(error)) from error


def _print_warnings(settings: Settings, target: SetupTarget, client: str, *, is_here: bool, search: bool) -> None:
    config = CONFIGS.get(client)
    if search and config is not None and config.defers_tools:
        print_notice(f"{config.name} searches the tools of a server itself. With --search, its model searches twice.")
    if is_here:
        _warn_if_not_running(settings, target)
        _warn_if_unlisted(settings, target.server)


def _choose_action(*, to_write: bool, to_check: bool, to_remove: bool, dry_run: bool) -> _Action:
    if to_check and (to_remove or dry_run):
        raise_usage_error("--check changes nothing. Omit --remove and --dry-run.")
    if to_check:
        return "check"
    if to_remove:
        return "remove"
    return "write" if to_write or dry_run else "show"


def _offer_to_write(guide: SetupGuide, setup: Setup, *, is_chosen: bool, as_json: bool) -> bool:
    """Show the set-up. On a terminal, ask whether to write it, and return the answer."""
    _show(_with_place(guide, setup) if is_chosen else guide, as_json=as_json)
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return typer.confirm(f"Write it to {setup.mcp_file}?", default=False, err=True)


def _build_target(settings: Settings, server: str | None, url: str | None) -> tuple[SetupTarget, str]:
    """Return the endpoint with all tools, and the base URL of the hooks."""
    if server is not None and not SERVER_ID_PATTERN.fullmatch(server):
        raise_usage_error(f"{server!r} is not a valid server id; see `rookery servers list`.")
    if url is not None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
            raise_usage_error(f"--url takes the address of a server, such as https://agents.example.org, not {url!r}.")
        settings = settings.with_public_url(url.rstrip("/").removesuffix("/mcp"))
    elif not settings.has_public_urls:
        running = find_server(settings.data_dir)
        settings = settings if running is None else settings.with_public_url(running.url)
    path = "/mcp" + (f"/{server}" if server else "")
    target = SetupTarget(
        name=server or "rookery",
        url=settings.public_url_of("/mcp") + path,
        api=settings.public_url_of("/api/v1/mcp") + "/api/v1/mcp",
        server=server,
    )
    return target, settings.public_url_of("/api/agent")


def _choose_scope(client: str, *, is_project: bool | None) -> Scope:
    config = CONFIGS[client]
    if is_project is None:
        return config.default_scope
    scope: Scope = "project" if is_project else "user"
    if scope not in config.scopes:
        raise_usage_error(f"{config.name} has no files of a project. Omit --project.")
    return scope


def _find_program() -> tuple[str, ...]:
    """
    Return the words that start this program from any folder and shell.

    A virtual environment is on PATH only while it is active, so its program is named by its path.
    """
    beside = Path(sys.executable).with_name("rookery")
    on_path = shutil.which("rookery")
    if on_path is not None and not (sys.prefix != sys.base_prefix and Path(on_path) == beside):
        return ("rookery",)
    return (str(beside),) if beside.exists() else (sys.executable, "-m", "rookery")


def _warn_if_not_running(settings: Settings, target: SetupTarget) -> None:
    if not settings.has_public_urls and find_server(settings.data_dir) is None:
        print_notice(f"No Rookery runs on {settings.data_dir}. Its URL will be {target.url} if it is started with these settings.")


def _warn_if_unlisted(settings: Settings, server: str | None) -> None:
    """Print a notice if neither Rookery nor servers.json has the server. A workspace may have added it over HTTP."""
    if server is None:
        return
    try:
        known_ids = {*BUILTIN_IDS, *read_servers_file(settings.servers_file, os.environ).servers}
    except InvalidServersFile:  # `servers check` and `doctor` report it
        return
    if server not in known_ids:
        near = find_nearest(server, known_ids)
        hint = f"Did you mean {near!r}?" if near else "`rookery servers list` shows its servers."
        print_notice(f"servers.json has no server {server!r}. {hint} A workspace may have added it over HTTP.")


def _with_place(guide: SetupGuide, setup: Setup) -> SetupGuide:
    """Return the guide with the file of the chosen scope."""
    command = guide.command and guide.command.replace("--scope project", f"--scope {setup.scope}")
    return replace(guide, file=_shorten(setup.mcp_file, setup), command=command)


def _shorten(path: Path, setup: Setup) -> str:
    """Return *path* relative to the project or to the home folder, as the pages show it."""
    if path.is_relative_to(setup.places.project):
        return str(path.relative_to(setup.places.project))
    return f"~/{path.relative_to(setup.places.home)}" if path.is_relative_to(setup.places.home) else str(path)


def _show(guide: SetupGuide, *, as_json: bool) -> None:
    if as_json:
        print_json({"client": guide.client, "file": guide.file, "text": guide.text, "note": guide.note, "command": guide.command})
        return
    typer.echo(guide.text, nl=False)
    location = f"{guide.file}: " if guide.file else ""
    typer.echo(f"{location}{guide.note}", err=True)
    if guide.command is not None:
        typer.echo(f"Or: {guide.command}", nl=False, err=True)


def _show_changes(setup: Setup, changes: Changes, *, as_json: bool) -> None:
    diff = render_diff(changes.edits)
    if as_json:
        files = [str(edit.path) for edit in changes.edits if edit.is_change]
        print_json({"client": setup.client.id, "files": files, "diff": diff, "notices": changes.notices})
        return
    typer.echo(diff, nl=False)
    _print_notices(changes.notices)
    if changes.is_empty:
        typer.echo("Nothing would change.", err=True)


def _remove(setup: Setup, changes: Changes, *, dry_run: bool, as_json: bool) -> None:
    if dry_run:
        _show_changes(setup, changes, as_json=as_json)
    else:
        _apply(setup, changes, _OwnKey(), as_json=as_json)


def _add_notice(changes: Changes, notice: str | None) -> Changes:
    changes.notices += [] if notice is None else [notice]
    return changes


def _write(setup: Setup, own_key: _OwnKey, size_notice: str | None, *, as_json: bool) -> None:
    secret, place = own_key.secret, _get_key_place(setup)
    if secret is None or place is None:
        changes = prepare_write(setup)
    elif is_in_repository(place):
        changes = prepare_write(setup)
        changes.notices.append(f"{place} lies in a git repository, so the key is not written to it. Put it there by hand.")
    else:
        changes = prepare_write(setup, key=secret.reveal())
    changes.notices += _list_next_steps(setup, changes)
    _apply(setup, _add_notice(changes, size_notice), own_key, as_json=as_json)


def _get_key_place(setup: Setup) -> Path | None:
    """Return the file that gets the key, or None for a client that reads it from elsewhere."""
    return setup.mcp_file if setup.client.key_source == "file" else setup.key_file


def _apply(setup: Setup, changes: Changes, own_key: _OwnKey, *, as_json: bool) -> None:
    """Write the changes, and print them and the key."""
    secret = own_key.secret
    try:
        backups = write_edits(changes.edits)
    except ClientFileBroken:
        if secret is not None and own_key.is_new:  # it exists now, and no other run can show it
            typer.echo(secret.reveal())
        raise
    files = [str(edit.path) for edit in changes.edits if edit.is_change]
    exposed = list_exposed([*(path for path in map(Path, files) if path.name == "settings.local.json"), *backups])
    notices = [*changes.notices, *([] if own_key.notice is None else [own_key.notice]), *map(describe_exposed, exposed)]
    if as_json:
        print_json(
            {
                "client": setup.client.id,
                "file": str(setup.mcp_file),
                "name": setup.target.name,
                "url": setup.target.url,
                "key_variable": KEY_VARIABLE,
                "changed": files,
                "backups": [str(path) for path in backups],
                "notices": notices,
                **({} if secret is None or not own_key.is_new else {"key": secret.reveal()}),
            }
        )
        return
    for edit in changes.edits:
        if edit.is_change:
            state = "is deleted" if edit.after is None else "is changed" if edit.before is not None else "is new"
            typer.echo(f"{edit.path} {state}.")
    for path in backups:
        typer.echo(f"{path} has the content before.", err=True)
    if not files:
        typer.echo("Nothing has changed.", err=True)
    if secret is not None and own_key.is_new:
        _print_key(setup, secret)
    _print_notices(notices)


def _print_key(setup: Setup, secret: Secret) -> None:
    """Print a new key on standard output, once."""
    place = _get_key_place(setup)
    match setup.client.key_source:
        case "variable" | "key_file" if place is None:
            typer.echo(f"A new key for {setup.client.name} on this machine; it is shown only once:", err=True)
            typer.echo(f"export {KEY_VARIABLE}={secret.reveal()}")
        case "input":
            typer.echo(
                f"A new key for {setup.client.name} on this machine; it is shown only once. Paste it when {setup.client.name} asks:",
                err=True,
            )
            typer.echo(secret.reveal())
        case _:
            if place is None or is_in_repository(place):
                typer.echo("A new key; it is shown only once:", err=True)
                typer.echo(secret.reveal())
            else:
                typer.echo(f"{place} has a new key for {setup.client.name} on this machine.", err=True)


def _list_next_steps(setup: Setup, changes: Changes) -> list[str]:
    """Return what the user must do before the client uses what was written."""
    changed_files = {edit.path for edit in changes.edits if edit.is_change and edit.after is not None}
    steps = list[str]()
    if setup.hooks_file in changed_files and setup.client.id == "codex":
        steps.append("Codex runs these hooks only after you trust them. It asks when it starts; or open /hooks in Codex.")
    if setup.hooks_file in changed_files and setup.client.id == "vscode":
        steps.append(f"The hooks read the key from {KEY_VARIABLE}: set it in the environment of VS Code too.")
    if setup.client.key_source == "file":
        steps += _list_key_steps(setup, changes)
    return steps


def _list_key_steps(setup: Setup, changes: Changes) -> list[str]:
    """Return what is left to do for a client that reads its key from its file alone."""
    edit = next((edit for edit in changes.edits if edit.path == setup.mcp_file and edit.after is not None), None)
    if edit is None:
        return []
    if not edit.is_secret:
        placeholder = KEY_PLACEHOLDER.encode() in (edit.after or b"")
        return [f"Put a key in place of {KEY_PLACEHOLDER} in {setup.mcp_file}."] if placeholder else []
    if is_readable_by_others(setup.mcp_file):
        return [f"Other users of this machine can read {setup.mcp_file}, which has the key now: chmod 600 {setup.mcp_file}"]
    return []


def _print_notices(notices: list[str]) -> None:
    for notice in notices:
        print_notice(notice)


def _describe_key(setup: Setup, name: str | None) -> KeyRequest:
    try:
        return describe_key(setup.client.id, name, folder=setup.places.project, environ=setup.places.environ)
    except (OSError, ValueError) as error:
        msg = f"The name of the agent cannot be read: {error}. Correct {PROJECT_FILE}, or use --name."
        raise RookeryError(msg) from error


def _provide_key(context: typer.Context, setup: Setup, request: KeyRequest, url: str | None, workspace: str | None) -> _OwnKey:
    """
    Create a key for this client on this machine if it is possible and it has no key.

    A local record store is used if the variable has no key; with --url, the key of the variable creates it if it may.
    """
    entry = read_entries(setup.client, setup.mcp_file).get(setup.target.name)
    if setup.client.key_source == "file" and entry is not None and get_file_key(entry) is not None:
        return _OwnKey()
    if setup.key_file is not None and read_key(setup.key_file) is not None:
        return _OwnKey()
    present = setup.places.environ.get(KEY_VARIABLE)
    if url is not None:
        if not present:
            return _OwnKey(
                notice=f"Set {KEY_VARIABLE} to a key of {url}. With a key that may create keys, this command creates one for you."
            )
        return _create_remotely(setup, request, Secret(present))
    if present and setup.client.key_source != "file":
        return _use_present(setup, Secret(present))
    return _create_in_store(context, setup, request, workspace)


def _use_present(setup: Setup, present: Secret) -> _OwnKey:
    """Return the key of the variable if the client has a key file, which needs it."""
    return _OwnKey() if setup.key_file is None else _OwnKey(present, is_new=False)


def _create_remotely(setup: Setup, request: KeyRequest, present: Secret) -> _OwnKey:
    try:
        secret = create_over_http(ServerClient(setup.hook_target.url, present), request)
    except ServerUnusable as error:
        if error.code == "key_lacks_scope":  # it is the key of this client, or one that another person gave
            return _use_present(setup, present)
        return _OwnKey(notice=f"No key was created: {error}.")
    return _OwnKey(secret, request.notice if secret is not None else _describe_existing(request))


def _create_in_store(context: typer.Context, setup: Setup, request: KeyRequest, workspace: str | None) -> _OwnKey:
    async def work(services: AccessServices) -> Secret | None:
        return await create_locally(services, workspace, request)

    advice = f"Create one: rookery agent-keys create --name {setup.client.id} --preset agent"
    try:
        secret = run(context, work, part="keys")
    except typer.BadParameter as error:
        return _OwnKey(notice=f"No key was created: {error.message}")
    except RookeryError as error:
        return _OwnKey(notice=f"No key was created: {error.message} {advice}")
    return _OwnKey(secret, request.notice if secret is not None else _describe_existing(request))


def _describe_existing(request: KeyRequest) -> str:
    notice = "" if request.notice is None else f"{request.notice} "
    return (
        f"{notice}The agent {request.agent_id} has a key already, which is not changed. If it is lost, `rookery agent-keys list` shows its "
        "id and `rookery agent-keys rotate` replaces it."
    )


def _check(setup: Setup, *, any_scope: bool, as_json: bool) -> None:
    """Print the findings. Exit with code 1 if there is a problem."""
    report = check_setup(setup, any_scope=any_scope)
    if as_json:
        print_json(_to_fields(setup, report))
    else:
        for finding in report.findings:
            typer.echo(f"{'problem' if finding.is_problem else 'note'}: {finding.message}")
        if report.tools is not None:
            count, tokens = report.tools.count, report.tools.tokens
            typer.echo(f"{setup.target.url} answers with {format_count(count, 'tool')}, about {tokens:,} tokens.")
        if report.is_ok:
            typer.echo(f"{setup.client.name} is connected.")
    if not report.is_ok:
        raise typer.Exit(1)


def _to_fields(setup: Setup, report: Report) -> dict[str, object]:
    findings = [
        {
            "code": finding.code,
            "is_problem": finding.is_problem,
            "message": finding.message,
            "file": None if finding.file is None else str(finding.file),
        }
        for finding in report.findings
    ]
    size = report.tools
    return {
        "client": setup.client.id,
        "ok": report.is_ok,
        "url": setup.target.url,
        "tools": None if size is None else size.count,
        "tokens": None if size is None else size.tokens,
        "findings": findings,
    }
