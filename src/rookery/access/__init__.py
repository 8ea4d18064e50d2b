"""Who may do what, and how often: workspaces, API keys, agent keys, the guard in front of every route."""
