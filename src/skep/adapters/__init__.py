"""A bank in the form that a framework asks for: one file per framework, each thin over `MemoryBank`.

A user of a framework imports the file of that framework; nothing of skep imports them. Each needs the framework itself,
which is an extra of the same name. They keep no memory of their own: what they answer is in the bank.
"""
