"""Strings and numpy only: corpora, vocabularies and the count-based segmenters."""
