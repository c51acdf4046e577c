"""Files of a source in memory, for what needs thousands of them: the fuzzer, the simulator."""

from quire.messages.rocketmq.source import Name, Tree

# SPDX-License-Identifier: Apache-2.0


class MemoryTree(Tree):
    """`files`: bytes by path."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__()
        self.files = files

    def names(self, path: str) -> list[Name]:
        below = {}
        for name, data in self.files.items():
            if name.startswith(f"{path}/"):
                first, slash, _rest = name[len(path) + 1 :].partition("/")
                below[first] = Name(first, bool(slash), 0 if slash else len(data))
        return sorted(below.values())

    def size(self, path: str) -> int | None:
        return len(self.files[path]) if path in self.files else None

    def read(self, path: str, at: int, count: int) -> bytes:
        return self.files[path][at : at + count]

    def holder(self, path: str) -> int | None:
        return None
