"""A step in Python: a function from DataFrames to a DataFrame."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def with_price_class(orders: DataFrame) -> DataFrame:
    amount = f.col("amount")
    return orders.withColumn(
        "price_class",
        f.when(amount < 50, "small").when(amount < 200, "middle").otherwise("large"),
    )
