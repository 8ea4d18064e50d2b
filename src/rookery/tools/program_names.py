"""The names of the packages and programs in the command lines of tool servers. No I/O."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SHELLS = frozenset("sh bash dash zsh ksh fish ash".split())
_WINDOWS_SHELLS = frozenset("cmd powershell pwsh".split())
_COMMAND_ENDS = frozenset({"&&", "||", ";", "|", "&"})
_SHELL_BUILTINS = frozenset("cd export source . set umask ulimit trap true mkdir".split())
_CONTAINER_RUNNERS = frozenset("docker podman nerdctl".split())
_CONTAINER_SWITCHES = frozenset(
    "--rm --init --privileged --read-only --tty --interactive --detach --publish-all --no-healthcheck --sig-proxy --oom-kill-disable "
    "--disable-content-trust --quiet --replace --rmi --tls-verify --no-hosts --env-host --http-proxy".split()
)
"""The options of `docker run` and `podman run` that take no value."""
_CONTAINER_LETTER_SWITCHES = frozenset("itdPq")
_PYTHON = re.compile(r"(python|pythonw|pypy)[0-9.]*$")
_MAX_NESTED_COMMANDS = 8
_DASHED_WRAPPERS = frozenset("op dotenv dotenvx doppler infisical chamber aws-vault mise direnv".split())
"""Programs that set variables for the command after `--`."""
_WRAPPERS: Mapping[str, tuple[frozenset[str], int]] = {
    "exec": (frozenset({"-a"}), 0),
    "nohup": (frozenset(), 0),
    "time": (frozenset({"-f", "-o"}), 0),
    "sudo": (frozenset({"-u", "-g", "-C", "-h", "-p", "-D"}), 0),
    "nice": (frozenset({"-n"}), 0),
    "ionice": (frozenset({"-c", "-n"}), 0),
    "setsid": (frozenset(), 0),
    "stdbuf": (frozenset({"-i", "-o", "-e"}), 0),
    "timeout": (frozenset({"-k", "-s", "--kill-after", "--signal"}), 1),
    "xvfb-run": (frozenset({"-n", "-s", "-f", "-e", "-p", "-w"}), 0),
    "tini": (frozenset({"-p", "-e"}), 0),
    "dumb-init": (frozenset({"-r"}), 0),
    "wsl": (frozenset({"-d", "-u", "--distribution", "--user", "--cd"}), 0),
    "command": (frozenset(), 0),
}
"""Programs that run the command after their options: the options that take a value, and the number of words before the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """
    The program that a command line starts in the end, behind shells, package runners and containers.

    Attributes:
        word: The word that names it: a package, an image, a module, a script or a program.
        name: The name of the package, image or program, without a version, a tag or a folder.
        args: The words after it.
        env: The variables that the command line sets for it.
        is_container: It runs in a container, so paths are those of its image.
        has_volume: A folder of the machine, or a named volume, is mounted in the container.
    """

    word: str
    name: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    is_container: bool = False
    has_volume: bool = False


def find_program(command_line: Sequence[str]) -> Program:
    """
    Return the program that *command_line*, which has at least one word, starts in the end.

    It reads `env A=1 …`, `bash -c "cd x && …"`, `npx -y …`, `uvx --from … …`, `python -m …`, `docker run … IMAGE` and the like. A command
    line that it cannot read names its first program.
    """
    program = _find(list(command_line), {}, depth=0)
    return program or Program(word=PurePath(command_line[0]).name, name=to_package_name(command_line[0]))


def find_program_word(command_line: Sequence[str]) -> str:
    """Return the word of a command line that names the package or script, not the program that runs it."""
    return find_program(command_line).word


def to_package_name(word: str) -> str:
    """Return the name of the package or program that *word* names, with a path or a version: `/opt/x`, `@a/b@1.2`, `x==1.2`."""
    path = word.replace("\\", "/")
    _, separator, inner = path.rpartition("/node_modules/")
    if separator and not inner.startswith(".bin/"):
        return "/".join(inner.split("/")[: 2 if inner.startswith("@") else 1])
    if path.startswith(("npm:", "jsr:")):
        path = path[4:]
    if path.startswith("@"):
        return path[0] + path[1:].partition("@")[0]
    name = re.split(r"@|[=<>~!]=|[<>\[]", _get_file_name(path), maxsplit=1)[0]
    return name.removesuffix(".git")


def _find(words: list[str], env: dict[str, str], *, depth: int) -> Program | None:
    """Return the program that *words* start; None if they name none."""
    while words and _ASSIGNMENT.match(words[0]):
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    if not words or depth > _MAX_NESTED_COMMANDS:
        return None
    runner, rest = _get_file_name(words[0]), words[1:]
    if runner in _SHELLS or runner in _WINDOWS_SHELLS:
        return _find_in_shell(runner, rest, env, depth=depth)
    if runner == "env":
        return _find_after_env(rest, env, depth=depth)
    if runner in _WRAPPERS:
        valued, count = _WRAPPERS[runner]
        return _find(_skip_options(rest, valued)[count:], env, depth=depth + 1)
    if runner in _DASHED_WRAPPERS and "--" in rest:
        return _find(rest[rest.index("--") + 1 :], env, depth=depth + 1)
    if runner in _CONTAINER_RUNNERS:
        return _find_image(rest, env)
    package_runner = _PYTHON_RUNNER if _PYTHON.match(runner) or runner == "py" else _RUNNERS.get(runner)
    return _to_program(words[0], rest, env) if package_runner is None else package_runner.find(rest, env, depth=depth)


def _to_program(word: str, args: Sequence[str], env: Mapping[str, str]) -> Program:
    return Program(word=word, name=to_package_name(word), args=tuple(args), env=env)


def _skip_options(words: Sequence[str], valued: frozenset[str]) -> list[str]:
    """Return *words* without the options at their beginning. Those in *valued* take the next word."""
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        option = rest.pop(0)
        if option == "--":
            break
        if option in valued and rest:
            rest.pop(0)
    return rest


def _find_in_shell(shell: str, words: Sequence[str], env: dict[str, str], *, depth: int) -> Program | None:
    """Return the program of the last command in the script that a shell runs, or the script file."""
    if shell in _WINDOWS_SHELLS:
        rest = list(words)
        while rest and (rest[0].startswith(("/", "-"))):
            rest.pop(0)
        words_of_script = rest if len(rest) != 1 else _split(rest[0])
        return _find(_get_last_command(words_of_script), env, depth=depth + 1)
    for index, word in enumerate(words):
        if word.startswith("-") and not word.startswith("--") and "c" in word[1:]:
            script = words[index + 1] if index + 1 < len(words) else ""
            return _find(_get_last_command(_split(script)), env, depth=depth + 1)
        if not word.startswith("-"):
            return _to_program(word, words[index + 1 :], env)
    return None


def _split(script: str) -> list[str]:
    lexer = shlex.shlex(script.replace("\n", " ; "), posix=True, punctuation_chars=";|")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        return script.split()


def _get_last_command(words: Sequence[str]) -> list[str]:
    """Return the words of the last command that starts a program; of a pipeline, those of its first one, which reads the input."""
    commands: list[list[str]] = [[]]
    is_piped = False
    for word in words:
        if word in _COMMAND_ENDS:
            is_piped = word == "|"
            if not is_piped:
                commands.append([])
        elif not is_piped:
            commands[-1].append(word)
    programs = [command for command in commands if command and command[0] not in _SHELL_BUILTINS]
    return programs[-1] if programs else []


def _find_after_env(words: Sequence[str], env: dict[str, str], *, depth: int) -> Program | None:
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in {"-S", "--split-string"} and rest:
            rest[:1] = _split(rest[0])
        elif option.startswith("-S") and len(option) > 2:
            rest[:0] = _split(option[2:])
        elif option in {"-u", "--unset", "-C", "--chdir"} and rest:
            rest.pop(0)
    return _find(rest, env, depth=depth + 1)


def _find_image(words: Sequence[str], env: dict[str, str]) -> Program | None:
    """Return the image of `docker run …`, `docker container run …` and `docker compose run …`."""
    rest = list(words)
    if "run" not in rest:
        return None
    rest = rest[rest.index("run") + 1 :]
    has_volume = False
    while rest and rest[0].startswith("-"):
        option, separator, value = rest.pop(0).partition("=")
        if not separator and not _is_container_switch(option) and rest:
            value = rest.pop(0)
        if option in {"-e", "--env"} and "=" in value:
            name, _, text = value.partition("=")
            env[name] = text
        has_volume = has_volume or option in {"-v", "--volume", "--mount"}
    if not rest:
        return None
    name = _to_image_name(rest[0])
    return Program(word=name, name=name, args=tuple(rest[1:]), env=env, is_container=True, has_volume=has_volume)


def _is_container_switch(option: str) -> bool:
    if option.startswith("--"):
        return option in _CONTAINER_SWITCHES
    return set(option[1:]) <= _CONTAINER_LETTER_SWITCHES


def _to_image_name(image: str) -> str:
    """Return the name of an image without a registry, a tag and a digest: `registry.acme.example/mcp/memory:1` is `mcp/memory`."""
    path = image.partition("@")[0]
    folder, separator, name = path.rpartition("/")
    host, rest = folder.partition("/")[::2]
    if "." in host or ":" in host or host == "localhost":
        folder, separator = rest, separator if rest else ""
    return f"{folder}{separator}{name.partition(':')[0]}".removeprefix("library/")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runner:
    """
    The options of a program that runs a package, a module or a script.

    Attributes:
        valued: Options that take the next word.
        packages: Options whose value is the package; the word after the options is then one of its programs.
        modules: Options whose value is the program, with all that follows.
        scripts: Options whose value is source code, which names no program.
        subcommands: Words before the package.
    """

    valued: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    scripts: frozenset[str] = frozenset()
    subcommands: frozenset[str] = frozenset()

    def find(self, words: Sequence[str], env: dict[str, str], *, depth: int) -> Program | None:
        """Return the program that the words after the runner name; None if they name none."""
        rest = list(words)
        package: str | None = None
        while rest and (rest[0].startswith("-") or rest[0] in self.subcommands):
            option, separator, value = rest.pop(0).partition("=")
            if option in self.scripts:
                return None
            if not separator and rest and option in self.valued | self.packages | self.modules:
                value = rest.pop(0)
            if option in self.modules and value:
                return _to_program(value, rest, env)
            if option in self.packages and value:
                package = package or value
        if package is None:
            return _find(rest, env, depth=depth + 1)
        program = _to_program(package, rest[1:], env)
        return replace(program, word=package if "/" in program.name else program.name)


_PYTHON_RUNNER = _Runner(valued=frozenset({"-X", "-W", "--check-hash-based-pycs"}), modules=frozenset({"-m"}), scripts=frozenset({"-c"}))


def _name_options(names: str, letters: str = "") -> frozenset[str]:
    """Return long options by their names, and short ones by their letters."""
    return frozenset({*(f"--{name}" for name in names.split()), *(f"-{letter}" for letter in letters)})


_UV_OPTIONS = _name_options(
    "with with-editable with-requirements python directory project index index-url extra-index-url default-index env-file extra group "
    "cache-dir config-file constraints overrides refresh-package link-mode resolution prerelease find-links python-preference "
    "exclude-newer no-binary-package no-build-package",
    "picf",
)
_NPM_OPTIONS = _name_options("prefix workspace registry userconfig cache loglevel", "w")
_NODE_OPTIONS = frozenset({"-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions"})
_RUNNERS: Mapping[str, _Runner] = {
    "npx": _Runner(valued=_NPM_OPTIONS, packages=frozenset({"-p", "--package"}), scripts=frozenset({"-c", "--call"})),
    "npm": _Runner(valued=_NPM_OPTIONS, packages=frozenset({"--package"}), subcommands=frozenset({"exec", "x", "run"})),
    "pnpm": _Runner(valued=frozenset({"-C", "--dir"}), packages=frozenset({"--package"}), subcommands=frozenset({"dlx", "exec", "run"})),
    "pnpx": _Runner(packages=frozenset({"--package"})),
    "yarn": _Runner(packages=frozenset({"-p", "--package"}), subcommands=frozenset({"dlx", "exec", "run"})),
    "bunx": _Runner(packages=frozenset({"-p", "--package"})),
    "bun": _Runner(valued=_NODE_OPTIONS, packages=frozenset({"-p", "--package"}), subcommands=frozenset({"x", "run"})),
    "deno": _Runner(valued=frozenset({"-c", "--config", "--import-map", "--lock"}), subcommands=frozenset({"run"})),
    "node": _Runner(valued=_NODE_OPTIONS, scripts=frozenset({"-e", "--eval", "-p", "--print"})),
    "tsx": _Runner(valued=_NODE_OPTIONS),
    "uvx": _Runner(valued=_UV_OPTIONS, packages=frozenset({"--from"})),
    "uv": _Runner(
        valued=_UV_OPTIONS, packages=frozenset({"--from"}), subcommands=frozenset({"run", "tool"}), modules=frozenset({"-m", "--module"})
    ),
    "pipx": _Runner(valued=_name_options("python index-url pip-args", "i"), packages=frozenset({"--spec"}), subcommands=frozenset({"run"})),
    "dnx": _Runner(valued=frozenset({"--source", "--version"})),
    "dotnet": _Runner(valued=frozenset({"--project"}), subcommands=frozenset({"tool", "exec", "run"})),
}
"""Runners of packages and scripts, with the options of their current versions, from their documentation."""


def _get_file_name(word: str) -> str:
    return word.replace("\\", "/").rpartition("/")[2].removesuffix(".cmd").removesuffix(".exe")
