"""
A program whose text is the argument, in a process of its own, which is forked where its modules are loaded (`forked`).

    python -m tests.tools.program TEXT
"""

import sys

# SPDX-License-Identifier: Apache-2.0


def main(arguments: list[str]) -> None:
    (text,) = arguments
    exec(compile(text, "<program>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main(sys.argv[1:])
