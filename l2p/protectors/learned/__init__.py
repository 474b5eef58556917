"""Parts of protectors that are meta-trained: the pair of LSTMs, filters, curves."""
