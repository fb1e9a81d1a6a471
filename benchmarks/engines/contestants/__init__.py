"""The peers, each a program of its own: run in an environment where disavow is not, it does the same workload.

They find each other by relative imports, under whatever name the folder is known there. What a peer is made of
is imported inside its functions, so that this folder can be looked at where no peer is installed.
"""
