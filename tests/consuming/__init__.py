"""Programs of group consumers, drawn from seeds: what each is handed, is told and commits.

    plan.py     what a seed does: the topics, what becomes of them, the lives of members, the faults
    written.py  what was written: of each partition of each topic that had the name
    judge.py    the rules
    wires.py    commits as they leave a client, and what is answered
    member.py   one life of a member: its program, act by act, and its callbacks
    topics.py   who writes, deletes, makes again, trims and adds partitions meanwhile
    run.py      one seed, from start to verdict, on the network and in the time of tests/simulation
    smallest.py of a seed with a finding what is needed for it
    bugs.py     rules of the client that are undone, to prove that this is found

A seed is a run: `python -m tests.soak.consuming --seed 7 --trace` repeats one.
"""
