"""Data on disk, how it is split among sites, and what happens to it on the way to a model."""
