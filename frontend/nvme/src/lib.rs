//! NVMe, NVMe over Fabrics and NVMe/TCP structures and constants; no I/O.
