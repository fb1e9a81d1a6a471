"""The evidence pack, part by part."""
