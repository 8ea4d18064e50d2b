"""Which servers there are, and what their entries say: the file, those of workspaces, logins, headers, brakes (D-31, D-33)."""
