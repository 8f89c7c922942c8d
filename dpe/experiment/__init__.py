"""A whole experiment from one file: recipe, stages, results, tables, report."""
