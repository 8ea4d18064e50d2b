"""The surroundings of a driver: the addresses of Rookery and of the model, and the key."""

import os

MCP_URL = os.environ["MCP_URL"]
MODEL_URL = os.environ["MODEL_URL"] + "/v1"
HEADERS = {"Authorization": f"Bearer {os.environ.get('ROOKERY_KEY', '')}"}
PROMPT = "Use the tools of Rookery as you need them, then say that you are done."
