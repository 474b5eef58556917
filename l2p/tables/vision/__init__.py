"""Features of images and starts from names of classes, by public networks (extra `vision`)."""
