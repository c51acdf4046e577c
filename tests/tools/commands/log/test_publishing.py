"""`quire log txns, janitor, adopt` beside a publisher in a process of its own."""

import subprocess

from quire.tools.local_cluster.cluster import LocalCluster
from tests.tools.command import PROGRAM, environment, ok, quire, refused

# SPDX-License-Identifier: Apache-2.0

TEXT = """
from quire.log import connect
with connect({uri!r}) as logs:
    sink = logs.sink("facts", "stream", {run!r}, first_batch=4)
    for batch in range({first}, {end} + 1):
        part = sink.part(batch, 0, 0)
        part.append_many([b"a", b"b"])
        part = part.close()
        if batch < {end}:
            sink.commit(batch, [part])
"""

DEAD = """
from quire.log import connect
with connect({uri!r}) as logs:
    logs.sink("stays", "stream", "one").part(0, 0, 0).append_many([b"a"])
    logs.sink("stays", "stream", "two").part(0, 0, 0)
"""


def publish(uri: str, run: str, first: int, end: int) -> None:
    """A run of the publisher with these batches, to right before the commit of the last one."""
    program = TEXT.format(uri=uri, run=run, first=first, end=end)
    subprocess.run([*PROGRAM, program], check=True, env=environment(uri), timeout=60)


def test_what_publishers_did_and_left(uri: str) -> None:
    """A part of a run that is over goes, what was published stays."""
    ok("log", "create", "facts", metadata=uri)
    assert ok("log", "txns", "facts", "--json", metadata=uri).rows == []
    publish(uri, "one", 4, 5)
    (row,) = ok("log", "txns", "facts", "--json", metadata=uri).rows
    assert (row["txn"], row["run"], row["last"], row["first"], row["end"]) == ("stream", "one", 4, 0, 2)
    (waiting,) = ok("log", "show", "facts", "--json", metadata=uri).document["unpublished"]
    assert (waiting["txn"], waiting["run"], waiting["parts"], waiting["ledgers"]) == ("stream", "one", 1, 1)
    assert "1 parts, 1 ledgers of the txn stream since 20" in ok("log", "show", "facts", metadata=uri).out
    ledgers = len(ok("ledger", "list", "--json", metadata=uri).rows)
    assert ok("log", "janitor", "facts", "--json", metadata=uri).document["parts"] == 0
    publish(uri, "two", 5, 6)
    assert "stream" in ok("log", "txns", "facts", metadata=uri).out
    publish(uri, "three", 6, 6)
    done = ok("log", "janitor", "facts", "--json", metadata=uri).document
    assert (done["txns"], done["parts"], done["forgotten"]) == (1, 1, 0)
    (waiting,) = ok("log", "show", "facts", "--json", metadata=uri).document["unpublished"]
    assert (waiting["run"], waiting["parts"]) == ("three", 1)
    assert ok("log", "read", "facts", "--values", metadata=uri).raw == b"a\nb\na\nb\n"
    assert len(ok("ledger", "list", "--json", metadata=uri).rows) == ledgers + 1


def test_a_janitor_whose_bookies_are_away(cluster: LocalCluster, uri: str) -> None:
    """It names the ledger that stays and ends with status 1; once the bookie is back the part goes."""
    ok("log", "create", "stays", "--ensemble", 1, "--write", 1, "--ack", 1, metadata=uri)
    before = {row["ledger"] for row in ok("ledger", "list", "--json", metadata=uri).rows}
    subprocess.run([*PROGRAM, DEAD.format(uri=uri)], check=True, env=environment(uri), timeout=60)
    rows = ok("ledger", "list", "--json", metadata=uri).rows
    (ledger,) = {row["ledger"] for row in rows} - before
    (fragment,) = ok("ledger", "show", ledger, "--json", metadata=uri).document["fragments"]
    (bookie,) = fragment["bookies"]
    cluster.kill(bookie)
    try:
        done = quire("log", "janitor", "stays", "--json", metadata=uri)
    finally:
        cluster.restart(bookie)
    assert done.code == 1
    assert f"ledger {ledger} stays: LedgerRecovery" in done.err
    assert (done.document["parts"], list(done.document["stayed"])) == (0, [str(ledger)])
    assert ok("log", "janitor", "stays", "--json", metadata=uri).document["parts"] == 1


def test_plain_ledgers_are_taken_in(uri: str) -> None:
    """In the order given, each entry a record; once only."""
    ok("log", "create", "archive", metadata=uri)
    plain = [ok("ledger", "write", "--lines", metadata=uri, stdin=data).out.strip() for data in (b"a\nb\n", b"c\n")]
    done = ok("log", "adopt", "archive", *plain, "--json", metadata=uri).document
    assert (done["first"], done["end"], done["again"], len(done["segments"])) == (0, 3, False, 2)
    assert ok("log", "read", "archive", "--values", metadata=uri).raw == b"a\nb\nc\n"
    assert "2 ledgers are index 0 to 2" in ok("log", "adopt", "archive", *plain, metadata=uri).out
    ok("log", "create", "other", metadata=uri)
    assert plain[0] in refused(1, "log", "adopt", "other", plain[0], metadata=uri)
