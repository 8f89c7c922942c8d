"""Every segmentation of a word, and exact answers about them; no network."""
