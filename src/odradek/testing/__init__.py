"""Stand-ins for the world, for tests: a disk that crashes, tears, fails and fills up."""
