"""From what a user asks for to processes that can honour it: the checks before anything starts."""
