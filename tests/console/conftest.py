"""Bookies in this process for the tests of the console: those of the doctor's."""

from tests.tools.commands.doctor.conftest import world

# SPDX-License-Identifier: Apache-2.0

__all__ = ["world"]
