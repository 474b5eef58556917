"""What all runs on one data set have spent together."""
