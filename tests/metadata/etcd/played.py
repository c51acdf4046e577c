"""etcd's keys as far as transactions go, in memory: what the real one does with them is in the contract's tests."""

from quire.metadata.etcd.messages import CLASSES, EQUAL, GREATER, LESS, MOD, VERSION, TxnResponse

# SPDX-License-Identifier: Apache-2.0

KeyValue = CLASSES["KeyValue"]


class PlayedKeys:
    """`between` is called before each transaction."""

    def __init__(self) -> None:
        self.keys = {}
        self.revision = 1
        self.transactions = 0
        self.between = lambda: None

    def transact(self, request):
        self.between()
        self.transactions += 1
        holds = all(self._holds(each) for each in request.compare)
        response = TxnResponse(succeeded=holds)
        operations = request.success if holds else request.failure
        puts = [each.request_put.key for each in operations if each.HasField("request_put")]
        removed = [each.request_delete_range.key for each in operations if each.HasField("request_delete_range")]
        assert len({*puts, *removed}) == len(puts) + len(removed), "duplicate key given in txn request"
        if puts or any(key in self.keys for key in removed):
            self.revision += 1
        for each in operations:
            self._do(each, response.responses.add())
        response.header.revision = self.revision
        return response

    def expire(self, lease) -> None:
        """Removes what goes with a lease."""
        self.revision += 1
        self.keys = {key: kv for key, kv in self.keys.items() if kv.lease != lease}

    def grant(self, lease, key) -> None:
        """Makes the key of a session."""
        self.revision += 1
        self.keys[key] = KeyValue(
            key=key, lease=lease, version=1, create_revision=self.revision, mod_revision=self.revision
        )

    def _range(self, request):
        if not request.HasField("range_end"):
            return [self.keys[request.key]] if request.key in self.keys else []
        return [self.keys[key] for key in sorted(self.keys) if request.key <= key < request.range_end]

    def _holds(self, compare):
        found = self._range(compare)
        if not found:
            found = [] if compare.HasField("value") else [KeyValue()]
            if not found:
                return False
        for kv in found:
            theirs, ours = {
                VERSION: (kv.version, compare.version),
                MOD: (kv.mod_revision, compare.mod_revision),
            }.get(compare.target, (kv.value, compare.value))
            if not {EQUAL: theirs == ours, GREATER: theirs > ours, LESS: theirs < ours}[compare.result]:
                return False
        return True

    def _do(self, operation, answer) -> None:
        if operation.HasField("request_range"):
            found = self._range(operation.request_range)
            answer.response_range.count = len(found)
            if not operation.request_range.count_only:
                answer.response_range.kvs.extend(found)
        elif operation.HasField("request_delete_range"):
            gone = self.keys.pop(operation.request_delete_range.key, None)
            answer.response_delete_range.deleted = int(gone is not None)
        else:
            self._put(operation.request_put, answer.response_put)

    def _put(self, put, answer) -> None:
        before = self.keys.get(put.key)
        assert before is not None or not (put.ignore_value or put.ignore_lease)
        if put.prev_kv and before is not None:
            answer.prev_kv.CopyFrom(before)
        kv = self.keys[put.key] = KeyValue(key=put.key, value=before.value if put.ignore_value else put.value)
        kv.lease = before.lease if put.ignore_lease else put.lease
        kv.version = 1 if before is None else before.version + 1
        kv.create_revision = self.revision if before is None else before.create_revision
        kv.mod_revision = self.revision
