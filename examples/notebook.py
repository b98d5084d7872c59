# %% [markdown]
"""# A topic in a notebook

A broker in this very process, a day of temperatures, and two ways to look at them: with pandas, for
what fits into memory, and with Spark, for what does not.

Editors that know `# %%` show this file as a notebook. `python -m examples.notebook` runs it too.
"""

# %%
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as f

from odradek.client import BlockingConsumer, BlockingProducer
from odradek.spark import session
from odradek.testing.broker import Broker

broker = Broker(topics={"temperatures": 2})
broker.start()
print(f"broker on {broker.bootstrap_servers}")

# %% [markdown]
"""## Records go in

One for each minute of yesterday, of three rooms. (A broker deletes what is older than a week.)
"""

# %%
ROOMS = {"attic": 14.0, "stairs": 11.0, "library": 19.0}
MINUTES = 24 * 60

chance = random.Random(1919)
today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
yesterday = today - timedelta(days=1)
with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
    for minute in range(MINUTES):
        time = yesterday + timedelta(minutes=minute)
        for room, usual in ROOMS.items():
            daylight = 6 * (1 - abs(minute - MINUTES / 2) / (MINUTES / 2))
            value = {"room": room, "celsius": round(usual + daylight + chance.gauss(0, 0.5), 2)}
            producer.send(
                "temperatures",
                json.dumps(value).encode(),
                room.encode(),
                timestamp=int(time.timestamp() * 1000),
            )
    producer.flush()
print(f"{MINUTES * len(ROOMS)} records produced")

# %% [markdown]
"""## With pandas

`poll_arrow` gives what was fetched as one Arrow table, with no Python object per record.
"""

# %%
tables: list[pa.Table] = []
with BlockingConsumer(
    "temperatures",
    bootstrap_servers=broker.bootstrap_servers,
    group_id="notebook",
    auto_offset_reset="earliest",
) as consumer:
    while sum(table.num_rows for table in tables) < MINUTES * len(ROOMS):
        tables.append(consumer.poll_arrow(timeout=1.0))
records = pa.concat_tables(tables).to_pandas()
values = records["value"].map(json.loads)
records = records.assign(
    room=values.str["room"], celsius=values.str["celsius"], hour=records["timestamp"].dt.hour
)
print(records.groupby("room")["celsius"].describe()[["count", "min", "mean", "max"]].round(1))

# %% [markdown]
"""## With Spark

The same topic as a DataFrame. The source decodes JSON by itself, and the work is done where the
executors are: here on two threads, elsewhere on a cluster, by another `master`.
"""

# %%
spark = session("notebook", master="local[2]", conf={"spark.sql.session.timeZone": "UTC"})
topic = (
    spark.read.format("odradek")
    .option("kafka.bootstrap.servers", broker.bootstrap_servers)
    .option("subscribe", "temperatures")
    .option("valueFormat", "json")
    .option("valueSchema", "room STRING, celsius DOUBLE")
    .load()
)
hours: Any = (
    topic.groupBy(f.hour("timestamp").alias("hour"))
    .pivot("value.room", sorted(ROOMS))
    .agg(f.round(f.avg("value.celsius"), 1))
    .orderBy("hour")
    .toPandas()
)
hours = hours.set_index("hour")
print(hours.iloc[::4])

# %% [markdown]
"""## A chart

`hours.plot()` draws one where matplotlib is installed. Everywhere else there are blocks.
"""

# %%
BLOCKS = " ▁▂▃▄▅▆▇█"
low, high = hours.min().min(), hours.max().max()
for room in hours:
    bars = ((hours[room] - low) / (high - low) * (len(BLOCKS) - 1)).round().astype(int)
    print(f"{room:8} {''.join(BLOCKS[bar] for bar in bars)}")

# %%
by_pandas = records.pivot_table("celsius", "hour", "room").round(1)
largest = (by_pandas - hours).abs().max().max()
print(f"pandas and Spark agree within {largest:.1f} °C")
assert largest < 0.11, "each rounds by itself"

spark.stop()
broker.stop()
