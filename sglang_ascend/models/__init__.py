"""The embedded models, and turning ``--model-path`` into a folder."""
