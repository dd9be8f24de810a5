"""Random life of consumer groups against a real daemon; see test_random_groups.py."""
