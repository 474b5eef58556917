"""Tables from raw cells to rows: how they are read, declared and encoded; public data sets; features of images."""
