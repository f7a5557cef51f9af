"""The parts of peers.py."""
