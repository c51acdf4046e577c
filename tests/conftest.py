"""For every test: generated examples have no deadline, since a busy machine is not a fault of the code."""

from hypothesis import settings

# SPDX-License-Identifier: Apache-2.0

settings.register_profile("quire", deadline=None)
settings.load_profile("quire")
