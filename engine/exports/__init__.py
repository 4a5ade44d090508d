"""Records as JSON documents."""
