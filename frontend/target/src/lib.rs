//! NVMe/TCP target.
