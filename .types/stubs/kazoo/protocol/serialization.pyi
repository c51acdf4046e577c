from struct import Struct
from typing import NamedTuple

int_struct: Struct

class SASL(NamedTuple):
    challenge: bytes
    @classmethod
    def deserialize(cls, bytes: bytes, offset: int) -> tuple[bytes, int]: ...
