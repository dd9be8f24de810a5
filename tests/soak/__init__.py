"""The long tiers: `python -m tests.soak.<what> --seed S`, each a module with a command line."""
