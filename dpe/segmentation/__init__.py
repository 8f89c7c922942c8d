"""Every way to cut a word, and exact answers about them. Knows no network."""
