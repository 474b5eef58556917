"""The privacy card of a run: as data, as text and as a page."""
