//! NVMe/TCP host in user space.
