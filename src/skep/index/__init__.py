"""The derived index of words and vectors: immutable, memory-mapped segments beside the bank.

Nothing here is the truth: delete the folder and it is built again from the store.
"""
