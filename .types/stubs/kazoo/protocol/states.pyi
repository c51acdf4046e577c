from typing import Any, NamedTuple

class KazooState:
    SUSPENDED: str
    CONNECTED: str
    LOST: str

class KeeperState:
    CONNECTING: str

class Callback(NamedTuple):
    type: str
    func: Any
    args: tuple[Any, ...]

class WatchedEvent(NamedTuple):
    type: str
    state: str
    path: str | None

class ZnodeStat(NamedTuple):
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeralOwner: int
    dataLength: int
    numChildren: int
    pzxid: int
    @property
    def owner_session_id(self) -> int | None: ...
    @property
    def data_length(self) -> int: ...

def __getattr__(name: str) -> Any: ...
