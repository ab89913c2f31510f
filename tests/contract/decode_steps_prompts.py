"""What `decode_steps.py` generates from, without its imports."""

PROMPTS = ("In the beginning God created", "And the LORD said unto")
NEW_TOKENS = 6
