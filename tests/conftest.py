"""For every test: signals are as a terminal gives them, and Hypothesis does not mind the time."""

import signal

from hypothesis import HealthCheck, settings

# A machine that is busy with something else makes any strategy "too slow".
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell that starts a job in the background makes it ignore SIGINT, and every child inherits
# that: the tests that press Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
