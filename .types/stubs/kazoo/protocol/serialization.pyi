from typing import NamedTuple

class SASL(NamedTuple):
    challenge: bytes
    @classmethod
    def deserialize(cls, bytes: bytes, offset: int) -> tuple[bytes, int]: ...
