"""The paper end to end: a recipe as stages, each of which leaves an artifact and is made only once."""
