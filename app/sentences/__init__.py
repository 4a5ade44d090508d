"""What the pages say: sentences and numbers computed from records."""
