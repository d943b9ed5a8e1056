//! Ways to call an agent: data files, decoders, classification, rehearsal.
