"""Contract checks of normalizers, tasks and analyses, for built-in parts and for parts from outside alike.

A module here is called like the package of its parts and has ``CHECKS``. A check takes a choice such as ``ssa:n=2``,
and raises ``AssertionError`` with a sentence where the part does not keep its promise.
"""
