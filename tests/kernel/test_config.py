"""Settings: their sources, and values that stop the start."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from rookery.kernel.config import Settings, load_settings
from rookery.kernel.errors import WrongSettings
from rookery.kernel.secret import Secret


def test_the_command_line_overrides_the_environment_and_that_the_file(tmp_path: Path) -> None:
    """Variables have the prefix ROOKERY_, and the file is rookery.toml."""
    file = tmp_path / "rookery.toml"
    file.write_text('port = 1\nhost = "10.0.0.1"\nallowed_hosts = ["a", "b"]\nasync_embedding = false\n', encoding="utf-8")
    environment = {"ROOKERY_CONFIG": str(file), "ROOKERY_PORT": "2", "ROOKERY_TRUSTED_PROXIES": "10.0.0.0/8, ::1"}

    loaded = load_settings(environment, overrides={"host": "10.0.0.2"}).settings

    assert (loaded.port, loaded.host, loaded.allowed_hosts) == (2, "10.0.0.2", ("a", "b"))
    assert (loaded.async_embedding, loaded.trusted_proxies) == (False, ("10.0.0.0/8", "::1"))


def test_the_file_in_the_data_folder_is_read_by_default(tmp_path: Path) -> None:
    """ROOKERY_CONFIG overrides this file, and the environment overrides both."""
    (tmp_path / "rookery.toml").write_text("port = 1\nmax_backlog = 7\n", encoding="utf-8")
    (tmp_path / "other.toml").write_text("port = 2\n", encoding="utf-8")
    folder = {"ROOKERY_DATA_DIR": str(tmp_path)}

    assert load_settings(folder).settings.port == 1
    assert load_settings({}, overrides={"data_dir": str(tmp_path)}).settings.port == 1
    assert load_settings({**folder, "ROOKERY_PORT": "3"}).settings.port == 3
    assert load_settings({**folder, "ROOKERY_CONFIG": str(tmp_path / "other.toml")}).settings.max_backlog == 100_000
    with pytest.raises(WrongSettings, match="nowhere"):
        load_settings({**folder, "ROOKERY_CONFIG": str(tmp_path / "nowhere.toml")})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ROOKERY_PORT", "-1"),
        ("ROOKERY_PORT", "65536"),
        ("ROOKERY_PORT", "8400.0"),
        ("ROOKERY_ASYNC_EMBEDDING", "maybe"),
        ("ROOKERY_ENVIRONMENT", "staging"),
        ("ROOKERY_BASE_URL", "rookery.example.org"),
        ("ROOKERY_API_URL", "https://user:hunter2@example.org"),
        ("ROOKERY_BCRYPT_COST", "31"),
        ("ROOKERY_DATA_DIR", ""),
        ("ROOKERY_DATA_DIR", "a" * 300),
        ("ROOKERY_DATA_DIR", "~no-such-user-here/rookery"),
        ("ROOKERY_CONFIG", "a" * 300),
        ("ROOKERY_CONFIG", "~no-such-user-here/rookery.toml"),
    ],
)
def test_a_wrong_value_is_rejected_in_one_line(variable: str, value: str) -> None:
    """The line has the name of the variable."""
    with pytest.raises(WrongSettings, match=variable) as error:
        load_settings({variable: value})

    assert "\n" not in error.value.message


def test_secrets_can_be_references_and_are_never_printed(tmp_path: Path) -> None:
    """A secret part may be ${NAME} or a file, and the type of secrets has no readable repr."""
    (tmp_path / "password").write_text("from-a-file\n", encoding="utf-8")
    address = "postgresql://rookery:${DB_PASSWORD}@${DB_HOST}/rookery"
    environment = {"ROOKERY_DATABASE_URL": address, "DB_PASSWORD_FILE": str(tmp_path / "password"), "DB_HOST": "db"}

    loaded = load_settings(environment).settings

    assert loaded.database_url.reveal() == "postgresql://rookery:from-a-file@db/rookery"
    assert "from-a-file" not in repr(loaded)
    with pytest.raises(WrongSettings, match="DB_HOST"):
        load_settings({**environment, "DB_HOST": ""} | {"ROOKERY_DATABASE_URL": "postgresql://${DB_HOSTT}/x"})


SECRETS = {
    "database_url": "postgresql://rookery:${pass@db/rookery",  # an address in a file is taken as it is
    "vectors": "postgresql://rookery:hunter2@db/rookery",
    "database_replica": "postgresql://rookery:hunter2@replica/rookery",
    "texts": "opensearch://rookery:hunter2@search:9200/memories",
    "counters": "redis://:hunter2@valkey:6379/0",
    "embedder": "openai+https://:hunter2@embeddings.example/v1?model=m",
    "embedder_previous": "openai+https://:hunter2@embeddings.example/v1?model=m",
    "generation": "openai+https://:hunter2@models.example/v1?model=m",
    "traces": "http://:hunter2@collector:4318",
    "secret_key": "PbJ8BvMDBlkxGf6dTbmLw3/8FzYqJTN9v9u3GJNIPcI=",
    "secret_key_previous": "yR4hWmI2UI9o5mLOV0pcMyC4lDPMzUkxyHLfxA3gGoE=",
    "smtp": "smtp://rookery:hunter2@mail:587?from=rookery@example.org",
    "dkim_key": "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----",
    "vapid_private_key": "hunter2-hunter2-hunter2",
}


@pytest.mark.parametrize(("name", "value"), SECRETS.items())
def test_each_secret_can_be_the_content_of_a_file(tmp_path: Path, name: str, value: str) -> None:
    """Secrets by file. Docker and Kubernetes mount a secret as a file, often with a line break at its end."""
    (tmp_path / "secret").write_text(f"{value}\n", encoding="utf-8")
    (tmp_path / "rookery.toml").write_text(f"{name} = 'overridden by the environment'\n", encoding="utf-8")
    environment = {"ROOKERY_DATA_DIR": str(tmp_path), f"ROOKERY_{name.upper()}_FILE": str(tmp_path / "secret")}

    loaded = load_settings(environment)

    assert getattr(loaded.settings, name) == Secret(value)
    assert loaded.warnings == ()
    assert value not in repr(loaded)


def test_every_setting_with_a_secret_type_can_be_in_a_file() -> None:
    """The list above is complete."""
    assert {setting.name for setting in fields(Settings) if "Secret" in str(setting.type)} == set(SECRETS)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), (b"", "non-empty"), (b"\xffhunter2", "not a text in UTF-8"), (b"hunter2", "32 random characters")],
)
def test_an_unusable_secret_file_stops_the_start_without_showing_its_content(tmp_path: Path, content: bytes | None, message: str) -> None:
    """The line names the variable, but neither the content nor the path, which may be a secret set by mistake."""
    if content is not None:
        (tmp_path / "secret").write_bytes(content)

    with pytest.raises(WrongSettings, match=f"^ROOKERY_SECRET_KEY_FILE.*{message}") as error:
        load_settings({"ROOKERY_SECRET_KEY_FILE": str(tmp_path / "secret")})

    assert "hunter2" not in error.value.message
    assert str(tmp_path) not in error.value.message


def test_a_secret_and_its_file_cannot_both_be_set(tmp_path: Path) -> None:
    """Neither would win without a surprise."""
    with pytest.raises(WrongSettings, match="ROOKERY_SMTP and ROOKERY_SMTP_FILE are both set"):
        load_settings({"ROOKERY_SMTP": "smtp://mail", "ROOKERY_SMTP_FILE": str(tmp_path / "smtp")})


def test_only_secrets_can_be_in_files_of_their_own() -> None:
    """An unknown variable is a warning with the nearest name."""
    assert load_settings({"ROOKERY_PORT_FILE": "/run/port"}).warnings != ()
    assert "ROOKERY_SECRET_KEY_FILE" in load_settings({"ROOKERY_SECRT_KEY_FILE": "/run/key"}).warnings[0]


def test_an_unknown_name_in_the_file_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    """Unknown settings are errors in rookery.toml."""
    file = tmp_path / "rookery.toml"
    file.write_text("prot = 1\n", encoding="utf-8")

    with pytest.raises(WrongSettings, match="port"):
        load_settings({"ROOKERY_CONFIG": str(file)})


def test_a_too_deeply_nested_file_is_rejected_in_one_line(tmp_path: Path) -> None:
    """The error is one clear line."""
    (tmp_path / "rookery.toml").write_text("port = " + "[" * 100_000, encoding="utf-8")

    with pytest.raises(WrongSettings, match="nested too deeply"):
        load_settings({"ROOKERY_DATA_DIR": str(tmp_path)})


def test_an_unknown_variable_is_a_warning_and_in_strict_mode_an_error() -> None:
    """The warning has the nearest setting; variables of Kubernetes are ignored with a warning."""
    environment = {"ROOKERY_DATABSE_URL": "x", "ROOKERY_PORT": "tcp://10.0.0.1:8400", "ROOKERY_SERVICE_HOST": "10.0.0.1"}

    loaded = load_settings(environment)

    assert loaded.settings.port == 8400
    assert len(loaded.warnings) == 3
    assert any("ROOKERY_DATABASE_URL" in warning for warning in loaded.warnings)
    with pytest.raises(WrongSettings, match="ROOKERY_DATABASE_URL"):
        load_settings({**environment, "ROOKERY_STRICT": "true"})


@pytest.mark.parametrize(
    ("path", "expected_url"),
    [
        ("/v1/brain/recall", "https://api.example"),
        ("/api/v1/mcp/servers", "https://tools.example"),
        ("/api/agent/plans", "https://mcp.example"),
    ],
)
def test_public_urls_have_the_configured_hosts(path: str, expected_url: str) -> None:
    """There are three public URLs, by default with one host."""
    separate_urls = Settings(base_url="https://tools.example", api_url="https://api.example", mcp_url="https://mcp.example")

    assert separate_urls.public_url_of(path) == expected_url
    assert Settings(base_url="https://one.example").public_url_of(path) == "https://one.example"
    assert Settings(host="0.0.0.0", port=9).public_url_of(path) == "http://127.0.0.1:9"
    assert Settings(host="::1", port=9).public_url_of(path) == "http://[::1]:9"


def test_half_lives_are_days_or_never() -> None:
    """The half-life of a type is a setting."""
    assert load_settings({"ROOKERY_HALF_LIVES": "research=90, plan=never"}).settings.half_lives == (("research", 90), ("plan", None))
    for invalid in ("research", "research=0", "Research=5", "plan=-1", "plan=soon"):
        with pytest.raises(WrongSettings, match="ROOKERY_HALF_LIVES"):
            load_settings({"ROOKERY_HALF_LIVES": invalid})
