"""
A stream as users run it: one log into another, batch by batch, to what is there when it starts; ends with status 0 when
it is through.

    python tests/spark/streaming.py URI SOURCE SINK CHECKPOINT MASTER
"""

import sys

from quire.pipeline import session

BATCH = 100


def main(uri: str, source: str, sink: str, checkpoint: str, master: str) -> None:
    spark = session(master, config={"spark.executor.memory": "512m", "spark.task.maxFailures": "4"})
    options = {"metadata": uri, "log": source, "maxRecordsPerTrigger": BATCH, "splitBytes": 4000}
    query = (
        spark.readStream.format("log")
        .options(**options)
        .load()
        .select("value")
        .writeStream.format("log")
        .options(metadata=uri, log=sink, create=True, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
