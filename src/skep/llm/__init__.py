"""One client for every language model: services over HTTP, a command, or a function; with a budget that holds.

The judge, the distiller, the reranker, learning from content and agents ask through it. It touches no bank.
"""

from skep.llm.budget import Budget, Spent
from skep.llm.language_model import LLM, Reply, open_llm

__all__ = ["LLM", "Budget", "Reply", "Spent", "open_llm"]
