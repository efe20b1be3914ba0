"""Runs done by workers: one protocol and one supervisor, however a worker is reached.

A worker is a process that does one run (``icl-lab work``). It says hello, is given its orders, tells its progress and
how it ended. A **place** is where workers are started: this machine, another one behind a command such as ssh or srun,
a Ray cluster. Workers of this machine share its file system. All others work in a scratch folder of theirs: what the
driver has of the run is sent to them, and what they make is sent back, so that the driver alone writes the results.
"""
