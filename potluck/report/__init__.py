"""Reports: what a run folder shows, as a page, figures and tables."""
