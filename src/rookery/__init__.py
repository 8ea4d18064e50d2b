"""Rookery: the shared home of AI agents. `wiring.build` builds the server, `app.create_app` serves it."""
