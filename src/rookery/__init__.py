"""Rookery: the shared home of AI agents. The server's package; `wiring.build` makes it, `app.create_app` serves it."""
