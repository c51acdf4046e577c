"""
A log as a streaming table, a report of it as a materialized view, and the same records into another log.

The cluster is `QUIRE_METADATA` of the environment; the logs are `history` and `history again`.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.table(comment="Each record of the log, once.")
def history() -> DataFrame:
    return spark.readStream.format("log").option("log", "history").load().select("index", "key", "value")


@dp.materialized_view(comment="How many records there are of each key.")
def by_key() -> DataFrame:
    return spark.read.table("history").groupBy(F.expr("decode(key, 'UTF-8') as key")).agg(F.count("*").alias("records"))


dp.create_sink("again", "log", {"log": "history again", "create": "true"})


@dp.append_flow(target="again")
def copied() -> DataFrame:
    return spark.readStream.table("history").select("key", "value")
