"""What every room stands on, and what knows none of them: pytrees, compiling, errors, text, files, progress."""
