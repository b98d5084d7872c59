"""A driver program that tests kill: files of a folder, one for each micro-batch, into a topic.

``python -m tests.spark.sink_program SERVERS TOPIC FOLDER [OPTION=VALUE ...]``. It ends when all
files are through, or with what went wrong. ``maxFilesPerTrigger`` is for the source, all else for
the sink.
"""

import sys
from pathlib import Path

from odradek.spark import session
from tests.spark.quick_java import QUICK_JAVA

TASKS = 4
MASTER = "local[2,20]"
"""Two cores, and twenty attempts for each task: its workers are killed."""
CONF = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
}


def main(servers: str, topic: str, folder: Path, options: dict[str, str]) -> None:
    spark = session("sink-program", master=MASTER, conf=CONF)
    reader = spark.readStream.format("text")
    reader = reader.option("maxFilesPerTrigger", options.pop("maxFilesPerTrigger", "1"))
    lines = reader.load(str(folder / "in"))
    writer = (
        lines.repartition(TASKS)
        .writeStream.format("odradek")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .options(**options)
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    _, servers_given, topic_given, folder_given, *pairs = sys.argv
    given = {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
    main(servers_given, topic_given, Path(folder_given), given)
