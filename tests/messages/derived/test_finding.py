"""Records by the offsets that rows name; `test_reads` has those by any offset."""

from quire.messages.core.queues import Placing
from quire.messages.derived import rows as r
from quire.messages.derived.finding import Finding, Named
from tests.messages.archives import unpack
from tests.messages.derived.stores import NAME, Dicts, store, values_of
from tests.messages.reference import parser
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_records_in_the_order_that_was_asked_for(tmp_path):
    """Of several entries, each read once; also where the row of an entry is gone."""
    directory = unpack("upgraded-clean", tmp_path)
    known = list(parser.log(directory))[50:80]
    values = values_of(directory)[50:80]

    async def story():
        dicts = Dicts()
        async with store(tmp_path, values, dicts, Placing(end=1 << 40)) as found:
            finding = Finding(found.logs, NAME, found.following)
            asked = [known[place] for place in (7, 3, 29, 3, 0, 28)]
            for _ in range(2):
                named = await found.following.look(lambda rows: Named.by(rows, [offset for offset, _record in asked]))
                assert await finding.dispatched(named) == [record["raw"] for _offset, record in asked]
                dicts.only.delete_range(r.entry_key(0), r.entry_key(values[28].position))
            assert await finding.dispatched(Named([], {})) == []

    run(story)
