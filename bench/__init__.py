"""Benchmarks: ours beside other libraries in one run. Compare ratios, not seconds."""
