"""One question about every line of a text: in order, resumable, by many workers."""
