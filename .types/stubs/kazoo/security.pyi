from typing import Any

CREATOR_ALL_ACL: list[Any]
OPEN_ACL_UNSAFE: list[Any]
