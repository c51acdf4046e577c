"""
A stream as users run it: logs into logs, batch by batch, to what is there when it starts; ends with status 0 when it is
through.

    python tests/spark/streaming.py URI SOURCES SINK CHECKPOINT MASTER [SHAPE]

`one`: a log into a log.  `several`: logs with commas between, by Kafka's names, into `SINK 0` and `SINK 1` by a column
`topic`.  `update`: in that output mode, by `foreachBatch`.
"""

import sys

from quire.pipeline import each_batch, session

BATCH = 100


def main(uri: str, sources: str, sink: str, checkpoint: str, master: str, shape: str = "one") -> None:
    spark = session(master, config={"spark.executor.memory": "512m", "spark.task.maxFailures": "4"})
    named = {"subscribe": sources, "startingOffsets": "earliest"} if shape == "several" else {"log": sources}
    options = {"metadata": uri, "maxRecordsPerTrigger": BATCH, "splitBytes": 40_000, **named}
    rows = spark.readStream.format("log").options(**options).load()
    if shape == "several":
        topic = f"concat('{sink} ', int(string(value)) % 2) as topic"
        to_log = rows.selectExpr(topic, "value").writeStream.format("log").options(metadata=uri, create=True)
    elif shape == "update":
        write = each_batch(metadata=uri, log=sink, create=True)
        to_log = rows.select("value").writeStream.foreachBatch(write).outputMode("update")
    else:
        to_log = rows.select("value").writeStream.format("log").options(metadata=uri, log=sink, create=True)
    query = to_log.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
