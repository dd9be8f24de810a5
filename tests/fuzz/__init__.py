"""Bytes that nobody should have sent or stored.

`targets` says what must hold for any input; Hypothesis asks for some hundred inputs of each target
in every test run (test_targets), and `soak` asks as long as one likes, guided by coverage.
"""
