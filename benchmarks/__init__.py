"""Speed, as ratios within one run: `make bench` prints the tables and writes docs/benchmarks.md."""
