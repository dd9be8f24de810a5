"""Speed and memory against peers, in one run on one machine: `make bench`.

Nothing here is a test: no threshold fails a build.  Each scenario returns rows; a row carries
its goal where the project has set one, and the ratio to the peer that ran in the same minute.
The page docs/benchmarks.md is written by `python -m bench --write`.
"""
