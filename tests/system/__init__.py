"""The whole thing from outside: real daemons, and clients that we did not write."""
