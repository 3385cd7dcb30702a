"""From a prepared data set to what a network reads: encoders, views, frozen features, scaling."""
