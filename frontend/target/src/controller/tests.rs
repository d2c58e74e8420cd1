//! Tests of a whole controller, without a network.
