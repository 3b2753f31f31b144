"""The arithmetic of the benchmarks and the contract of their site; nothing here is timed."""
