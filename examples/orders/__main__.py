"""A node, a stream of orders, a pipeline on Spark, and a check of all that comes out.

$ make run
"""

import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.client import BlockingProducer
from odradek.spark import pipeline
from odradek.spark.pipeline.display import Lines, Terminal
from odradek.testing.broker import Broker

ORDERS = 10_000
# By the number of the order that they come after.
BAD = {
    3_000: b"this is no JSON",
    7_000: b'{"order_id": "o-bad", "customer": "c-01", "quantity": -1}',
}
FILE = Path(__file__).with_name("orders.yaml")
TOPICS = {"orders": 3, "revenue": 2, "orders-dead-letters": 1}
PRODUCTS = {"spool": 4.20, "thread": 1.75, "coat": 89.00, "apple": 0.80, "travel trunk": 240.00}


def main() -> int:
    began = time.perf_counter()
    with Broker(topics=TOPICS) as broker, tempfile.TemporaryDirectory() as output:
        os.environ |= {"BROKERS": broker.bootstrap_servers, "OUTPUT": output}
        definition = pipeline.load(FILE)
        print(f"broker on {broker.bootstrap_servers}; {FILE.name} is sound")
        amounts = produce(broker.bootstrap_servers)
        spark = pipeline.make_session(definition)
        print(f"Spark {spark.version} on {definition.spark.master}; the pipeline runs:")
        pipeline.run(
            definition, spark=spark, on_progress=Terminal() if sys.stdout.isatty() else Lines()
        )
        problems = list(check(spark, broker.bootstrap_servers, output, amounts))
        lag = sum(
            each.lag or 0
            for partitions in pipeline.status(definition).queries.values()
            for each in partitions.values()
        )
        problems += [f"lag is {lag}"] if lag else []
        spark.stop()
    for problem in problems:
        print(f"WRONG: {problem}")
    if not problems:
        print(f"all totals are right; {time.perf_counter() - began:.0f} s")
    return 1 if problems else 0


def produce(servers: str) -> Counter[str]:
    """Send a day of orders, and two records that are not; return amounts by customer."""
    chance = random.Random(1883)
    opens = datetime(2026, 7, 3, 8, tzinfo=UTC)
    amounts: Counter[str] = Counter()
    with BlockingProducer(bootstrap_servers=servers, compression_type="zstd") as producer:
        for number in range(ORDERS):
            product, price = chance.choice(list(PRODUCTS.items()))
            quantity, customer = chance.randint(1, 9), f"c-{chance.randrange(10):02}"
            order = {
                "order_id": f"o-{number:05}",
                "customer": customer,
                "product": product,
                "quantity": quantity,
                "price": price,
                "at": (opens + timedelta(seconds=number * 4)).isoformat(),
            }
            amounts[customer] += round(quantity * price * 100)
            key = customer.encode()
            producer.send("orders", key=key, value=json.dumps(order).encode())
            if number in BAD:
                producer.send("orders", key=key, value=BAD[number])
        producer.flush()
    print(f"produced {ORDERS} orders and {len(BAD)} bad records")
    return amounts


def check(spark: SparkSession, servers: str, output: str, amounts: Counter[str]) -> Iterator[str]:
    """Print what came out, and yield what is wrong with it."""
    archive = spark.read.parquet(f"{output}/archive")
    total = sum(amounts.values())
    found = archive.select(
        f.count("*"), f.countDistinct("order_id"), f.sum(f.round(f.col("amount") * 100))
    ).first()
    rows, distinct, cents = (0, 0, 0) if found is None else map(int, found)
    print(f"archive: {rows} rows, {distinct} distinct orders, {cents / 100:,.2f} in all")
    if (rows, distinct, cents) != (ORDERS, ORDERS, total):
        yield f"the archive should have {ORDERS} orders and {total / 100:,.2f}"
    revenue = latest(spark, servers, "revenue")
    schema = "hour TIMESTAMP, country STRING, orders BIGINT, amount DOUBLE"
    table = revenue.select(f.from_json("value", schema).alias("row")).select("row.*")
    table.groupBy("country").agg(
        f.sum("orders").alias("orders"), f.round(f.sum("amount"), 2).alias("amount")
    ).orderBy("country").show()
    summed = table.select(f.sum("orders"), f.sum(f.round(f.col("amount") * 100))).first()
    if summed is None or tuple(map(int, summed)) != (ORDERS, total):
        yield f"revenue in cents is {summed}, not of {ORDERS} orders and {total}"
    dead = read(spark, servers, "orders-dead-letters").collect()
    for each in dead:
        reasons = {header["key"]: header["value"] for header in each["headers"]}
        reason = bytes(reasons["__connect.errors.exception.message"]).decode()
        print(f"dead letter {bytes(each['value']).decode()}: {reason}")
    if len(dead) != len(BAD):
        yield f"there should be {len(BAD)} dead letters, not {len(dead)}"


def read(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true"}
    committed = {"kafka.isolation.level": "read_committed"}
    return spark.read.format("odradek").options(**options, **committed).load()


def latest(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """Return the newest record of each key, as compaction would leave them."""
    newest = f.max_by(f.col("value").cast("string"), "offset").alias("value")
    return read(spark, servers, topic).groupBy("key").agg(newest)


if __name__ == "__main__":
    sys.exit(main())
