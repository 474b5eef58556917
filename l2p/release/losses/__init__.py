"""Losses of a user's own: their rows, their gradients, and loops of steps that are not ours."""
