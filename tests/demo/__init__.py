"""The demo, on a few rows."""
