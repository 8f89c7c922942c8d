"""All of DPE: the likelihood, its training, and exact answers from a trained segmenter."""
