"""A live migration from Kafka to Odradek and back, with clients that never stop."""
