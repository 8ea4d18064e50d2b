#!/bin/sh
# sse-starlette 3.7.0 with uvicorn 0.54.0: once two servers of one process have stopped in the order in which they started, an event stream
# of an application that is called in that process, as tests do, has status 200 and ends without its events.
#
# The guess: stopped servers have no effect on an application without a server. But uvicorn restores the handler of SIGTERM that it found at
# its start, so the server that started second brings back the handler of the first, a method of a server that has stopped. sse-starlette
# looks for the running server in exactly this handler, sees that it should exit, and ends each stream. Nothing is logged.
#
# Seen with Python 3.11.7: "two at once, stopped in the order of their start: 0 events; in the reverse order: 3 events"; exit code 0 of this
# script.
# Needs: Linux, and python3 (3.11 or later) with venv and a package index.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check 'sse-starlette==3.7.0' 'uvicorn==0.54.0' 'starlette==1.10.0'
cat >"$folder/streams.py" <<'PYTHON'
import asyncio, socket, sys
import uvicorn
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.routing import Route

async def events():
    for number in range(3):
        await asyncio.sleep(0.4)
        yield {"data": str(number)}

async def stream(request):
    return EventSourceResponse(events())

app = Starlette(routes=[Route("/", stream)])

def open_server():
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    return server, asyncio.create_task(server.serve(sockets=[listener]))

async def wait_started(server):
    while not server.started:
        await asyncio.sleep(0.01)

async def stop(server, task):
    server.should_exit = True
    await task

async def main(order):
    first, second = open_server(), open_server()
    await wait_started(first[0]); await wait_started(second[0])
    for server, task in ((first, second) if order == "same" else (second, first)):
        await stop(server, task)
    messages, connected = [], asyncio.Event()

    async def receive():
        await connected.wait()  # the client stays

    async def send(message):
        messages.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    await app(scope, receive, send)
    assert messages[0]["status"] == 200
    print(b"".join(message.get("body", b"") for message in messages).count(b"data:"))

asyncio.run(main(sys.argv[1]))
PYTHON
same=$(timeout 60 "$folder/env/bin/python" "$folder/streams.py" same)
reverse=$(timeout 60 "$folder/env/bin/python" "$folder/streams.py" reverse)
echo "two at once, stopped in the order of their start: $same events; in the reverse order: $reverse events"
[ "$same" = 0 ] && [ "$reverse" = 3 ]
