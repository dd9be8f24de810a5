"""Short programs of consumers in each shell: what is handed, committed and raised is the same.

    programs.py  acts at moments, one by one and then several drawn together
    shells.py    threads, trio and asyncio, driven by one text
    life.py      one program in one shell, and what it was told
    sharing.py   programs of two members of a share group, each record judged as it comes
    bugs.py      rules of the shells that are undone, to prove that this is found

A real broker in a process of its own, a proxy in front of it, and the real clock.  What a program
is told in the shell of trio is what it has to be told in the others; beside that each of them keeps
what it promises: callbacks run in the thread that reads, a call returns in its time, and no thread,
task or socket is left.
"""
