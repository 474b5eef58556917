"""The speed of l2p beside other programs that do the same work."""
