//! Whether acknowledged writes may lie in a volatile cache (the Volatile Write Cache feature, NVMe Base 2.0 §5.27.1.4).

/// State of the feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCache {
    /// Writes may be acknowledged before they are durable, if the backend has a cache.
    Enabled,
    /// Every write is durable before it is acknowledged (NVME N16).
    Disabled,
}
