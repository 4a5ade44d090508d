"""The application: it shows what the engine measured and starts its work."""
