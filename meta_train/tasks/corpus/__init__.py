"""Tasks from hundreds of small public tables of two Python packages, without those that protectors are scored on."""
