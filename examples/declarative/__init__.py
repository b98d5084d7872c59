"""A declarative pipeline of Spark (``spark-pipelines``) with topics as source and sink."""
