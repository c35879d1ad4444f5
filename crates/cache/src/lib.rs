//! Part of Nighttrain.
