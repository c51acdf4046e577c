"""
The sample files that come with quire, rendered from the options; a test compares them with `conf/samples/`.

Write them again after a change of an option: `python -m quire.conf.sample_files`.
"""

from pathlib import Path

from pydantic import BaseModel

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.properties import sample

# SPDX-License-Identifier: Apache-2.0

DIRECTORY = Path(__file__).parent / "samples"
SAMPLES: dict[str, tuple[type[BaseModel], str]] = {
    "bookie.conf": (BookieOptions, "A bookie: quire bookie start --conf FILE"),
    "autorecovery.conf": (AutoRecoveryOptions, "AutoRecovery: quire autorecovery start --conf FILE"),
    "client.conf": (ClientOptions, "A client: quire.client.ClientOptions, in the order of its fields"),
}


def text_of(name: str) -> str:
    """The text of a file in `samples/`."""
    return sample(*SAMPLES[name])


def write_all(directory: Path = DIRECTORY) -> None:
    for name in SAMPLES:
        (directory / name).write_text(text_of(name), encoding="utf-8")


if __name__ == "__main__":
    write_all()
