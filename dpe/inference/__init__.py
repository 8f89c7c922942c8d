"""Trained models in use: cutting text, translating text."""
