"""Foundations that import no other room: pytrees, compiling, errors, text, files, progress."""
