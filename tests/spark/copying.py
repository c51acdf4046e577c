"""
A job as users submit it: one log into another, from several tasks; the number of rows on standard output.

    spark-submit tests/spark/copying.py URI SOURCE SINK [MASTER]
"""

import sys

from quire.pipeline import session


def main(uri: str, source: str, sink: str, master: str | None = None) -> None:
    config = {"spark.sql.shuffle.partitions": "2"}
    spark = session(master, config=config | ({"spark.executor.memory": "512m"} if master else {}))
    rows = spark.read.format("log").options(metadata=uri, log=source, splitBytes=5000).load()
    print("tasks", rows.rdd.getNumPartitions())
    values = rows.select("index", "value").orderBy("index").select("value")
    values.write.format("log").options(metadata=uri, log=sink, create=True).mode("append").save()
    print("rows", spark.read.format("log").options(metadata=uri, log=sink).load().count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
