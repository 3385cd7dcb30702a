"""The inputs of a network, made from a prepared data set: encoders, views, frozen features, scaling."""
