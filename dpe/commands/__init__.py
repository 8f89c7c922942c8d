"""The commands of the command line, grouped as the tree is. Each is one thin function."""
