"""Which regions a broker can serve; what `--from` may say is in `test_exporting.py`."""

from dataclasses import replace

import pytest

from quire.messages.descriptor import READY, Descriptor, Region
from quire.messages.rocketmq.ranges import first_border, shape_of
from quire.protocol.message_errors import ExportRefused

# SPDX-License-Identifier: Apache-2.0

F = 65_536


def test_borders():
    """A file can begin at a multiple of its size."""
    assert [first_border(at, F) for at in (0, 1, F, F + 1)] == [0, F, F, 2 * F]


@pytest.mark.parametrize(
    ("rules", "refused_at"),
    [
        (("dledger", "dledger"), F),
        (("dledger", "plain", "dledger"), F),
        (("plain", "dledger", "plain"), 2 * F),
        (("plain", "plain", "dledger"), None),
        (("plain", "plain", "plain"), None),
    ],
)
def test_shapes(rules, refused_at):
    """Plain regions, at most one of DLedger, and nothing behind that."""
    regions = tuple(Region(at * F, rule, "g") for at, rule in enumerate((*rules, "plain")))
    found = Descriptor((), READY, {}, ())
    if refused_at is None:
        region = shape_of(replace(found, regions=regions), 0, len(rules) * F)
        assert (region and region.rule) == ("dledger" if rules[-1] == "dledger" else None)
        return
    with pytest.raises(ExportRefused, match="NeedsRenumber") as error:
        shape_of(replace(found, regions=regions), 0, len(rules) * F)
    assert error.value.offset == refused_at
