"""How much less loss is left where the constants of `universal` are searched on the table itself."""
