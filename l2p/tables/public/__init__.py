"""Public data sets by name: known before they are read, downloaded once, checked, cut to variants."""
