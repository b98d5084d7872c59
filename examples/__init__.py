"""Small programs that show what there is; each ends by itself."""
