"""The command line as a person uses it: real processes, and the pure parts by themselves."""
