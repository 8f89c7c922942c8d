"""The web page: a sentence pair in, its lattice out."""
