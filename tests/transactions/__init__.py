"""Transactions at the coordinator, over failures of the broker and of its disk: all or nothing.

    plan.py        what a seed does
    attempts.py    what each transaction may have come to, after answers and silence; the judge
    instances.py   producers of both versions of the protocol: request by request, several at once
                   with one transactional id, too slow for their time-out, asking again
    readers.py     what readers of committed records are sent, meanwhile and in the end
    run.py         one seed, from start to verdict, on the disk and in the time of tests/simulation
    undone.py      rules of the coordinator, undone to prove that it is found

A seed is a run: `python -m tests.soak.broker_transactions --seed 7 --count 1 --trace` repeats one.
"""
