"""An experiment as one file: what it is (`experiment`), and how it is read from TOML (`reading`)."""
