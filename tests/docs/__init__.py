"""The documentation is tested: its code runs, its answers are the real ones, its pages build."""
