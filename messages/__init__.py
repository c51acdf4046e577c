"""
Message stores: messages of topics and queues in RocketMQ's record format and offset space, in one named log.

`connect` is the blocking face; `quire.messages.aio` has the asyncio face, `quire.messages.api` the Twisted one below
both.  Errors are `LedgerError`s, those of message stores `MessageError`s.

    from quire.messages import connect

    with connect("sqlite:///var/lib/quire/metadata.db") as stores:
        stores.create("pay", address="10.0.0.5:10911")
        with stores.open("pay", stand=True) as store:
            store.leads(wait_s=30)
            put = store.put("T", b"body", queue=3, tags="A", keys="k1 k2")
            print(store.get(put.offset, wait_s=5).body)
"""

from quire.conf.messages import MessageOptions
from quire.messages.api import (
    Bounds,
    Flaw,
    Plan,
    Pulled,
    Put,
    QueueRow,
    Report,
    StoreInfo,
)
from quire.messages.blocking import Store, Stores, connect
from quire.messages.message import Message, StoredMessage
from quire.protocol.message_errors import (
    BeyondEnd,
    ExportRefused,
    ImportRefused,
    MessageError,
    MessageIllegal,
    NoSuchStore,
    NotAMessage,
    NotReady,
    PropertiesTooLong,
    RowsForeign,
    StoreDamaged,
    StoreExists,
    StoreImporting,
)

# SPDX-License-Identifier: Apache-2.0

__all__ = [
    "BeyondEnd",
    "Bounds",
    "ExportRefused",
    "Flaw",
    "ImportRefused",
    "Message",
    "MessageError",
    "MessageIllegal",
    "MessageOptions",
    "NoSuchStore",
    "NotAMessage",
    "NotReady",
    "Plan",
    "PropertiesTooLong",
    "Pulled",
    "Put",
    "QueueRow",
    "Report",
    "RowsForeign",
    "Store",
    "StoreDamaged",
    "StoreExists",
    "StoreImporting",
    "StoreInfo",
    "StoredMessage",
    "Stores",
    "connect",
]
