"""Changes of what a broker knows beside its records, by several clients at once, over every crash.

    plan.py        what a seed does
    belief.py      what may be, after answers, failures and crashes
    subject.py     one thing that is changed: rounds of changes at once, and what is seen between
    topics.py      a topic: its id, partitions and settings, where a group and a share group stand
    registers.py   settings of brokers and groups, quotas, rules, users
    producers.py   ids of producers and their epochs
    records.py     who writes into the topics meanwhile, and what of it has to be there
    run.py         one seed, from start to verdict, on the disk and in the time of tests/simulation
    bugs.py        planted, to prove that they are found

A seed is a run: `python -m tests.soak.admin --seed 7 --trace` repeats one.
"""
