"""The networks: a shared transformer, the mixed character-subword model, the translation model."""
