"""
Python imports this module at the start of every process in whose PYTHONPATH its directory is.  `tests/conftest.py` puts
it there, so that the reactor of each bookie that a test starts is watched, by whichever command it is started; long
turns are reported in the file that `TURNS_WATCHED` names.
"""

import os
import sys

# SPDX-License-Identifier: Apache-2.0

if "quire.tools.daemons.bookie" in sys.orig_argv and "TURNS_WATCHED" in os.environ:
    import reactor_turns

    reactor_turns.watch(os.environ["TURNS_WATCHED"])
