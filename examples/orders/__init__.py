"""A pipeline from orders to revenue, on Spark: see ``orders.yaml`` for what it does."""
