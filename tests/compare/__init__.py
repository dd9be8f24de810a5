"""The same requests to segbroker and to an Apache Kafka, answers compared field by field.

    python -m tests.compare [API ...]     or: make compare

| module | has |
|---|---|
| stage.py | one broker as a case sees it: build a request, ask, keep what was answered |
| cases_*.py | the requests: normal, at the edge, wrong; in each version that both serve |
| rules.py | what is not compared, and why |
| accepted*.py | which differences are accepted, and why |
| answers.py | an answer as a flat table of fields; the difference of two tables |
| brokers.py | an Apache Kafka and a segbroker, started for each ground |
| cases.py | the list of cases, and the grounds: how the brokers are set up |
| crowd.py, logins.py | the users of guarded brokers: each may do one thing, or all but one |
| playing.py | plays cases to both; a case with a break in two halves |
| findings.py | what a run has come to |

A case is a coroutine that is run once against each broker, for each version.  What it asks under
one label on one broker is compared with what it asked under the same label on the other.  A
difference that no rule names ends the run with an error: it becomes a fix, or a rule with a
reason.  A rule that nothing needed any more is told too.

A case with a break is an asynchronous generator: at its `yield` the brokers are started again, or
time goes by, once for all cases of a ground.
"""
