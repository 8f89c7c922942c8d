"""A standard subword transformer: its targets, its training, its use."""
