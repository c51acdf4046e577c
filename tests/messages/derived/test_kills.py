"""
Dispatch that is killed at its points and at any moment: what is left are rows of a prefix of the log, and another go
ends with the rows of one in one go.  A copy of the directory, taken while it is written, opens so or is made again.
"""

import pytest

from tests.alone import alone

# SPDX-License-Identifier: Apache-2.0

KILLED = """
    import os, random, shutil, signal, sys
    from quire.messages.core.queues import Placing
    from quire.messages.core.record import unpack
    from quire.messages.derived import rows as r
    from quire.messages.derived.dispatch import Dispatch
    from quire.rows.files import StorageError
    from quire.rows.rocks import RocksRows
    from tests.messages.derived.stores import LOG, cut, made, portions
    from tests.rows.fakes import DictRows

    directory, rounds, seed = sys.argv[1], {rounds}, {seed}
    chance = random.Random(seed)
    values = made(
        [("T", n % 4, n // 4, dict(body=bytes(40), properties=b"KEYS\\1k%d\\2" % n)) for n in range({records})]
    )
    whole = DictRows()
    Dispatch(whole, LOG, Placing()).take(portions(values, 300))
    by_place = {{each.position: unpack(each.value) for each in values}}

    def child(fn):
        pid = os.fork()
        if pid == 0:
            try:
                fn()
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        return os.waitpid(pid, 0)[1]

    def dispatch(kill_at):
        points = iter(range(1 << 30))
        def reached(name):
            if next(points) == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        if kill_at < 0:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.001, 0.06))  # ends the process wherever it is
        rows = RocksRows(directory, write_buffer_bytes=64 << 10)
        found = Dispatch(rows, LOG, Placing(), reached)
        first = 0 if found.checkpoint is None else found.checkpoint.index
        given = [each for each in portions(values, 300) if each.first + len(each.values) > first]
        for each in given:
            found.take([cut(each, max(0, first - each.first))])
        signal.setitimer(signal.ITIMER_REAL, 0)
        rows.close()

    def check(path):
        rows = RocksRows(path)
        stored = rows.get(b"d")
        checkpoint = None if stored is None else r.checkpoint_of(stored)
        count = 0 if checkpoint is None else checkpoint.index
        if count:
            assert checkpoint.position == values[count - 1].position + len(values[count - 1].value)
        for queue in range(4):
            low, high = r.range_of(r.queue_prefix("T", queue))
            found = [r.queue_row(*row) for row in rows.scan(low, high)]
            assert [row.position for row in found] == list(range(len(range(queue, count, 4))))
            for row in found:
                record = by_place[row.offset]
                assert (record.queue, record.queue_offset, record.size) == (queue, row.position, row.size)
        rows.close()

    def copied():
        copy = directory + ".copy"
        shutil.rmtree(copy, ignore_errors=True)
        try:
            shutil.copytree(directory, copy)
        except shutil.Error:
            return  # a file went meanwhile
        try:
            check(copy)
        except (StorageError, OSError):
            pass  # it would be made again

    killed = copies = 0
    for round in range(rounds):
        chance.random()
        kill_at = chance.choice([-1, chance.randrange(6)])
        pid = os.fork()
        if pid == 0:
            dispatch(kill_at)
            os._exit(0)
        if round % 2 == 0 and os.path.exists(directory):
            copies += 1
            assert child(copied) == 0
        killed += os.waitpid(pid, 0)[1] != 0
        if os.path.exists(directory):
            assert child(lambda: check(directory)) == 0
        if chance.random() < 0.1:
            shutil.rmtree(directory, ignore_errors=True)  # as a rebuild
    assert child(lambda: dispatch(1 << 30)) == 0
    rows = RocksRows(directory, write_buffer_bytes=64 << 10)
    assert dict(rows.scan(b"", b"\\xff")) == whole.as_dict()
    rows.close()
    print(killed, copies)
"""


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_dispatch_that_is_killed(tmp_path, seed):
    """Half at points, half at any moment, a hundred times in all; some copies are taken meanwhile."""
    said = alone(KILLED.format(rounds=50, seed=seed, records=6000).replace("sys.argv[1]", repr(str(tmp_path / "rows"))))
    killed, copies = map(int, said.split())
    assert killed > 20
    assert copies > 5
