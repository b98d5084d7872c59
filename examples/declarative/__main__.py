"""A broker, orders, ``spark-pipelines run``, more orders, the same again, and a check.

$ python -m examples.declarative

With SPARK_REMOTE=sc://… it runs on a Spark Connect server that is there already, and has its tables
in the folder SPARK_WAREHOUSE. Without, Spark starts one for each run, on port 15002.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pyspark

from odradek.client import BlockingConsumer, BlockingProducer, TopicPartition
from odradek.spark.java import find_java_home
from odradek.testing.broker import Broker

PROJECT = Path(__file__).parent
PRODUCTS = ("spool", "thread", "coat", "apple", "travel trunk")
ORDERS = 600
LARGE = 200  # as in the transformations
RUN_SECONDS_MAX = 600
# Without a metastore a second run would not know the tables of the first.
OPTIONS = ("--driver-memory", "1g", "--conf", "spark.sql.catalogImplementation=hive")
REMOTE = os.environ.get("SPARK_REMOTE")


def main() -> int:
    problems: list[str] = []
    with (
        Broker(topics={"orders": 2, "large-orders": 1}) as broker,
        tempfile.TemporaryDirectory() as folder,
    ):
        project = copy_project(Path(folder))
        for ids in (range(ORDERS // 2), range(ORDERS // 2, ORDERS)):
            produce(broker.bootstrap_servers, ids)
            run_pipeline(project, broker.bootstrap_servers)
            problems += check(project, broker.bootstrap_servers, ids.stop)
    for problem in problems:
        print(f"WRONG: {problem}")
    if not problems:
        print("tables and topic are right")
    return 1 if problems else 0


def copy_project(folder: Path) -> Path:
    """Return a copy, with storage, tables and metastore in its folder."""
    project = Path(shutil.copytree(PROJECT, folder / "declarative"))
    spec = project / "spark-pipeline.yml"
    storage = (project / "storage").as_uri()
    spec.write_text(spec.read_text().replace("file:///tmp/odradek-declarative", storage))
    return project


def amount(order: int) -> int:
    return order * 37 % 251


def produce(servers: str, ids: range) -> None:
    with BlockingProducer(bootstrap_servers=servers) as producer:
        for number in ids:
            product = PRODUCTS[number % len(PRODUCTS)]
            order = {"id": number, "product": product, "amount": amount(number)}
            producer.send("orders", key=product.encode(), value=json.dumps(order).encode())
        producer.flush()
    print(f"produced orders {ids.start} to {ids.stop - 1}")


def run_pipeline(project: Path, servers: str) -> None:
    program = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
    environment = {
        "BROKERS": servers,
        "JAVA_HOME": str(find_java_home(os.environ)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    subprocess.run(
        [program, "run", *(("--remote", REMOTE) if REMOTE else OPTIONS)],
        cwd=project,
        env={**os.environ, **environment},
        check=True,
        timeout=RUN_SECONDS_MAX,
    )


def check(project: Path, servers: str, orders: int) -> Iterator[str]:
    """Yield what is wrong with what came out."""
    expected = Counter[str]()
    for number in range(orders):
        expected[PRODUCTS[number % len(PRODUCTS)]] += amount(number)
    warehouse = Path(os.environ.get("SPARK_WAREHOUSE", project / "spark-warehouse"))
    revenue = pq.read_table(warehouse / "revenue").to_pylist()
    for row in sorted(revenue, key=lambda each: str(each["product"])):
        print(f"{row['product']:12} {row['orders']:5} {row['amount']:8}")
    if {row["product"]: row["amount"] for row in revenue} != expected:
        yield f"after {orders} orders the revenue should be {dict(expected)}"
    large = sorted(json.loads(value)["id"] for value in consume(servers, "large-orders"))
    print(f"{len(large)} large orders in their topic")
    if large != [number for number in range(orders) if amount(number) >= LARGE]:
        yield f"after {orders} orders the large ones are {large}"


def consume(servers: str, topic: str) -> list[bytes]:
    partition = TopicPartition(topic, 0)
    values = []
    with BlockingConsumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            for records in consumer.poll(1.0).values():
                values += [record.value or b"" for record in records]
    return values


if __name__ == "__main__":
    sys.exit(main())
