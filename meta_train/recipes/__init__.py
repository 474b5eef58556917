"""Training recipes of the checkpoints: TOML files of defaults with a row per name, and code that resolves a name."""
