"""The built-in English-Finnish corpus, which is generated, with gold morphemes."""
