//! The actors: thin; they do the effects that domain/ decides.
