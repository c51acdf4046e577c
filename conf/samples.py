"""
The sample files that come with quire, rendered from the options; a test compares them with `conf/samples/`.

Write them again after a change of an option: `python -m quire.conf.samples`.
"""

from pathlib import Path

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.properties import sample

# SPDX-License-Identifier: Apache-2.0

DIRECTORY = Path(__file__).parent / "samples"


def bookie_conf() -> str:
    """The text of `samples/bookie.conf`."""
    return sample(BookieOptions, "A bookie: quire bookie start --conf FILE")


def autorecovery_conf() -> str:
    """The text of `samples/autorecovery.conf`."""
    return sample(AutoRecoveryOptions, "AutoRecovery: quire autorecovery start --conf FILE")


def client_conf() -> str:
    """The text of `samples/client.conf`."""
    return sample(ClientOptions, "A client: quire.client.ClientOptions, in the order of its fields")


def write_all(directory: Path = DIRECTORY) -> None:
    (directory / "bookie.conf").write_text(bookie_conf(), encoding="utf-8")
    (directory / "autorecovery.conf").write_text(autorecovery_conf(), encoding="utf-8")
    (directory / "client.conf").write_text(client_conf(), encoding="utf-8")


if __name__ == "__main__":
    write_all()
