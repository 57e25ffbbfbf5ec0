"""Watches waiting pods, lifts them into boxes, drains and notifies them."""
