"""Text in, tables and figures out. Knows no model."""
