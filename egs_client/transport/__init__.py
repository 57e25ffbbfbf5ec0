"""What a request and its answer are, without sending anything: both halves of the SDK use it."""
