"""
Python imports this module at the start of every process in whose PYTHONPATH its directory is: so the daemons and
workers of a soak say how many blocks of memory Python's objects take, which the kernel can't tell from what is only
kept for later.  Written each minute into a file named by the process, in the directory that `SOAK_BLOCKS` names.
With `SOAK_TYPES` there is a second file, with a line each two minutes: how many objects there are of each type.
"""

import gc
import os
import sys

# SPDX-License-Identifier: Apache-2.0

COUNTED = {"quire.tools.daemons.bookie", "quire.tools.daemons.autorecovery", "tests.soak.worker"}
EVERY_S, TYPES_EVERY, TYPES = 60.0, 2, 60


def count(file: str, types: bool) -> None:
    """Writes the numbers again and again."""
    pause, turn = threading.Event(), 0
    while not pause.wait(EVERY_S):
        gc.collect()  # what waits for that would look like growth for some minutes
        with open(file + ".new", "w", encoding="ascii") as new:
            new.write(str(sys.getallocatedblocks()))
        os.replace(file + ".new", file)
        turn += 1
        if types and turn % TYPES_EVERY == 0:
            found = Counter(type(each).__qualname__ for each in gc.get_objects()).most_common(TYPES)
            with open(file + ".types", "a", encoding="utf-8") as lines:
                lines.write(json.dumps(dict(found)) + "\n")


if COUNTED.intersection(sys.orig_argv) and "SOAK_BLOCKS" in os.environ:
    import json
    import threading
    from collections import Counter

    place = os.path.join(os.environ["SOAK_BLOCKS"], str(os.getpid()))
    threading.Thread(target=count, args=(place, "SOAK_TYPES" in os.environ), name="soak-blocks", daemon=True).start()
