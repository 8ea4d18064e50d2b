"""
Errors of the client.

    RookeryClientError
    ├── WebhookRejected     a delivery that must not be trusted; answer 401
    ├── ConnectionFailed    no response: the server cannot be reached, or the connection was lost
    │   └── ResponseTimeout no response in time
    ├── UnexpectedResponse  a response that is not the API's; usually that of a proxy
    └── ApiError            an error response; `code` has the server's code
        ├── ClientError     4xx: AuthenticationError, ForbiddenError, NotFoundError, ConflictError, InvalidRequestError, RateLimitError
        └── ServerError     5xx
                            and below these a class for each code: `ScopeMissing` for `scope_missing`, `KeyExpired` for `key_expired`
"""

from __future__ import annotations

from rookery_client.client_errors import *  # noqa: F403 - the classes above
from rookery_client.generated.errors import *  # noqa: F403 - the class of each code, which `make client` writes
