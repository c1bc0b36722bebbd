"""Side by side with peers: ratios in one run, never bare seconds. ``python -m benchmarks [name ...]``."""
