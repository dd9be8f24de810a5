"""For every test: the signals are as a terminal gives them."""

import signal

# A shell that starts a job in the background makes it ignore SIGINT, and every child inherits
# that: the tests that press Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
