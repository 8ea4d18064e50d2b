"""What every domain stands on: settings, errors, the record store, jobs, events, the HTTP shell. Imports nothing of ours."""
