"""Text in; numbers, tables and figures out. Independent of any model."""
