"""A topic becomes a table, and the large ones of its rows become a topic, exactly once."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()

BROKERS = os.environ.get("BROKERS", "localhost:9092")
LARGE = 200


@dp.table(comment="All orders, one row for each record of the topic")
def orders() -> DataFrame:
    records = spark.readStream.format("odradek").options(
        **{
            "kafka.bootstrap.servers": BROKERS,
            "subscribe": "orders",
            "startingOffsets": "earliest",
            "valueFormat": "json",
            "valueSchema": "id INT, product STRING, amount INT",
        }
    )
    return records.load().select("value.*", "timestamp")


dp.create_sink(
    "large_orders", "odradek", {"kafka.bootstrap.servers": BROKERS, "topic": "large-orders"}
)


@dp.append_flow(target="large_orders")
def large_orders_to_their_topic() -> DataFrame:
    large = spark.readStream.table("orders").where(f.col("amount") >= LARGE)
    order = f.to_json(f.struct("id", "product", "amount"))
    return large.select(f.col("product").alias("key"), order.alias("value"))
