"""The heads of one layer: their order, what turns and matrices are between them, what they do."""
