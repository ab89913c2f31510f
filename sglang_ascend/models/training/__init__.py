"""How the embedded model tiny-deepseek-v3 was made: corpus, tokenizer, training, report."""
