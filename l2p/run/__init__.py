"""The protocol that every protector implements, and the only code that runs one: start, advance, finish."""
