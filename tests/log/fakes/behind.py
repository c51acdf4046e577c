"""A server of the metadata store that is behind the others."""

from twisted.internet.defer import fail, succeed

from quire.metadata.records import NoRecord
from quire.metadata.store import Versioned
from quire.protocol.errors import NoSuchLedgerExistsOnMetadataServer
from tests.metadata import stored

# SPDX-License-Identifier: Apache-2.0


class Behind:
    """
    What this handle reads is as of when this was made, ledgers and records, until it syncs or changes something: then
    its server has caught up, which `caught_up` says.
    """

    def __init__(self, logs):
        self.caught_up = False
        self._store, records = logs.bk.store, logs.bk.store.records
        self._tree, self._ledgers = stored.records(self._store.shared), dict(stored.Ledgers(self._store.shared))
        for of, name, old in (
            (records, "read", self._read),
            (records, "children", self._children),
            (records, "watch", self._watch),
            (self._store, "read_ledger", self._read_ledger),
            (self._store, "ledger_ids", self._ledger_ids),
        ):
            self._replace(of, name, old)
        for of, name in (
            *((records, name) for name in ("sync", "multi")),
            *((self._store, name) for name in ("create_ledger", "write_ledger", "delete_ledger")),
        ):
            self._replace(of, name, None)

    def _replace(self, of, name, old):
        """Without `old`: an operation that the server has to have caught up for."""
        now = getattr(of, name)

        def operation(*arguments, **more):
            self.caught_up |= old is None
            return now(*arguments, **more) if self.caught_up else old(*arguments, **more)

        setattr(of, name, operation)
        if name == "watch":
            self._watch_now = now

    def _read(self, path):
        found = self._tree.get(path)
        return fail(NoRecord(f"no {path} yet")) if found is None else succeed(Versioned(found.data, found.stat.version))

    def _children(self, path, after="", limit=1000):
        if path not in self._tree:
            return fail(NoRecord(f"no {path} yet"))
        names = {name.rpartition("/")[2] for name in self._tree if name.rpartition("/")[0] == path}
        return succeed(sorted(name for name in names if name > after)[:limit])

    def _watch(self, path, fn):
        """News come when it has caught up."""

        def heard(_found):
            found = self._tree.get(path)
            if self.caught_up:
                fn(_found)
            else:
                fn(None if found is None else Versioned(found.data, found.stat.version))

        return self._watch_now(path, heard)

    def _read_ledger(self, ledger):
        found = self._ledgers.get(ledger)
        return succeed(found) if found is not None else fail(NoSuchLedgerExistsOnMetadataServer(f"no {ledger} yet"))

    def _ledger_ids(self, after=-1, limit=1000):
        return succeed(sorted(ledger for ledger in self._ledgers if ledger > after)[:limit])
