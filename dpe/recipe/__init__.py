"""An experiment as one file: what it is (`recipe`), and how it is read from TOML (`reading`)."""
