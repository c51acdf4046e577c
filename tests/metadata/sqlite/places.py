"""Where a place's file is."""

from pathlib import Path

# SPDX-License-Identifier: Apache-2.0


def path_of(place) -> Path:
    return Path(place.uri.removeprefix("sqlite://"))
