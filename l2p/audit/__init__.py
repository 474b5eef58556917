"""What runs gave away and what public rows were worth: diagnostics on runs, most of which read private rows unpaid.

What reads private rows is private itself: it never belongs on a card or into anything that is released.
"""
