"""The training loop, its curriculum, how a step is executed, and several seeds trained as one ensemble."""
