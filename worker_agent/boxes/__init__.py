"""What the agent does with its boxes: enter, exit, fence and check nodes. One thread, no clock, no network, no random source."""
