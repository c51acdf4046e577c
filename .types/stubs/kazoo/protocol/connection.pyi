import logging
from typing import Any

class ConnectionHandler:
    client: Any
    def __init__(self, client: Any, retry_sleeper: Any, logger: logging.Logger | None = ..., sasl_options: Any = ...) -> None: ...
    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]: ...
