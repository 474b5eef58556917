"""Kinds of trainings: each says which parts it has, so that a field that makes no sense for it does not exist."""
