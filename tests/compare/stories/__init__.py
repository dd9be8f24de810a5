"""Stories drawn at random, told to an Apache Kafka and to segbroker step by step.

    python -m tests.compare --stories 100 --seed 1

| module | has |
|---|---|
| moves.py | what a step is, and the list of the moves that a story may make |
| moves_*.py | the moves: how each is drawn, and how it is played |
| plots.py | sequences of steps that belong together: a transaction, a round of a group |
| names.py | what producers, members and topics are called, whatever numbers a broker gave them |
| scene.py | one broker as a story sees it: its producers, members, and what is waited for |
| sameness.py | an answer with what only its broker can know written alike |
| telling.py | tells a story to both, step by step, up to the first difference; makes it shorter |

A story is drawn before it is told: a step names its producer, member or topic by a number, an
epoch or a sequence by its distance from the right one.  So a story without some of its steps is
one, too.  Both brokers are told a step at the same time, and the next one when both have answered
it, or both let it wait.  A story ends at its first difference; it is told again, under other names,
to see that it is no accident, and then with fewer and fewer steps.
"""
