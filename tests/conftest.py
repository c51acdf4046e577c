"""
For every test: generated examples have no deadline, since a busy machine is not a fault of the code; and commands that tests start hear SIGINT, also
where the suite runs in the background of a shell that has turned it off for what it starts.
"""

import signal

from hypothesis import settings

# SPDX-License-Identifier: Apache-2.0

settings.register_profile("quire", deadline=None)
settings.load_profile("quire")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
