"""Scenarios for Kafka clients of other people, each a program of its own.

A scenario runs under the interpreter that has the client release under test, which is not
always the one that runs pytest; so nothing here imports pytest or segbroker.  `steps` says how
a scenario talks to the test that started it.
"""
