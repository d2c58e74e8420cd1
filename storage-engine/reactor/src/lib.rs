//! Per-core executor on io_uring.
