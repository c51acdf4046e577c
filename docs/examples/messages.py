"""
A RocketMQ store directory from end to end: in, searched, added to, and out again, byte for byte.

    make messages                                    a directory that a real broker wrote, on a cluster of its own
    python docs/examples/messages.py --store DIR     another one, of a broker that is stopped

The directory is only read.
"""

import argparse
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path

from quire.client import LedgerError
from quire.messages import MessageOptions, Store, Stores, connect
from quire.tools.local_cluster.cluster import LocalCluster

ARCHIVE = Path(__file__).resolve().parents[2] / "tests" / "messages" / "vectors" / "plain-clean.tar.xz"
NAME = "orders"


def look(store: Store) -> None:
    """Queues, then messages by queue, by key and by id."""
    store.caught_up()
    for topic in store.topics():
        queues = ", ".join(f"{queue}: {each.first} to {each.next}" for queue, each in store.queues(topic).items())
        print(f"  topic {topic}: {queues}")
    topic = next((each for each in store.topics() if each == "T"), store.topics()[0])
    queue, bounds = next(iter(store.queues(topic).items()))
    found = store.pull(topic, queue, bounds.first, max_messages=3)
    print(f"\nqueue {queue} of {topic} from {bounds.first} on: {found.status}, next {found.next}")
    for message in found.messages:
        print(f"  {message.position:4}  {message.message_id}  keys {message.keys or '-'}  {message.body[:40]!r}")
    keyed = next((message for message in found.messages if message.keys), None)
    if keyed is not None:
        key = keyed.keys.split()[0]
        print(f"\nby key {key}: {[message.position for message in store.query(topic, key)]}")
        print(f"by id {keyed.message_id}: {store.by_id(keyed.message_id).body[:40]!r}")


def add(stores: Stores) -> None:
    """A message of ours, behind all that the broker had."""
    with stores.open(NAME, stand=True, rows=False) as store:
        store.leads(wait_s=30)
        put = store.put("T", b"put by quire", queue=0, tags="A", keys="ours")
        print(f"\nput: position {put.position}, offset {put.offset}, id {put.message_id}")


def differ(before: Path, after: Path) -> list[str]:
    """The files of the commit log that are not the same in both directories."""
    files = [*(before / "commitlog").glob("*"), *before.glob("dledger-*/data/*")]
    pairs = [(file, after / file.relative_to(before)) for file in sorted(files)]
    return [mine.name for mine, other in pairs if not other.exists() or mine.read_bytes() != other.read_bytes()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, help="a store directory; one of a test if not given")
    parser.add_argument("--metadata", help="a cluster that runs; one of its own if not given")
    options = parser.parse_args()
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quire-messages-")))
        source = options.store
        if source is None:
            with tarfile.open(ARCHIVE) as archive:
                archive.extractall(work, filter="data")
            source = work / "plain-clean"
        uri = options.metadata
        if uri is None:
            print("starting three bookies")
            uri = stack.enter_context(LocalCluster(work / "cluster", 3)).uri
        stores = stack.enter_context(connect(uri, MessageOptions(derived_dir=work / "rows")))
        plan = stores.plan([source])
        print(f"\n{source.name}: {plan.records} records in {len(plan.files)} files, offsets {plan.begin} to {plan.end}")
        stores.import_([source], into=NAME)
        print(f"imported into {NAME}: each record on {stores.info(NAME).log['settings']['write']} bookies\n")
        with stores.open(NAME) as store:
            look(store)
        report = stores.export(NAME, work / "back")
        others = differ(source, work / "back")
        print(
            f"\nexported: {report.records} records in {report.files} files, {len(others)} of them differ {others or ''}"
        )
        print("lines for broker.conf:", *report.settings, sep="\n  ")
        if all(region.rule == "plain" for region in plan.regions):
            add(stores)
        flaws = list(stores.check(NAME))
        print(f"\nchecked: {len(flaws)} flaws")
        return int(bool(others or flaws))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LedgerError, ValueError) as failure:  # a source that is refused, say
        sys.exit(f"{type(failure).__name__}: {failure}")
