"""Authentication and authorisation: workspaces, API keys, agent keys, rate limits, and the guard in front of every route."""
