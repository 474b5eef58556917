"""What checkpoints are trained with: TOML files of defaults with a row per name, and how a name is resolved."""
