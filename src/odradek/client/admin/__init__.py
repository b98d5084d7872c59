"""Looking after a cluster: topics, configs, groups, offsets, transactions, brokers, users."""
