"""Channels are the addresses to which people and workspaces let notices be sent."""
