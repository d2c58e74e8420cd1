//! SMART / health information log, 02h (NVMe Base 2.0 §5.16.1.3).

use crate::wire::wire;
use zerocopy::little_endian::{U16, U32, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Health of a controller, 512 bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SmartLog {
    /// Critical warnings: see [`critical_warning`].
    pub critical_warning: u8,
    /// Composite temperature, kelvin.
    pub composite_temperature: U16,
    /// Available spare, percent.
    pub avail_spare: u8,
    /// Available spare threshold, percent.
    pub spare_thresh: u8,
    /// Percentage used; may exceed 100.
    pub percent_used: u8,
    /// Endurance group critical warning summary.
    pub endu_grp_crit_warn_sumry: u8,
    _rsvd7: [u8; 25],
    /// Data read, in units of 1000 × 512 bytes, rounded up.
    pub data_units_read: U128,
    /// Data written, in units of 1000 × 512 bytes, rounded up.
    pub data_units_written: U128,
    /// Read and Compare commands completed.
    pub host_reads: U128,
    /// Write commands completed.
    pub host_writes: U128,
    /// Controller busy time, minutes.
    pub ctrl_busy_time: U128,
    /// Power cycles.
    pub power_cycles: U128,
    /// Power on hours.
    pub power_on_hours: U128,
    /// Unsafe shutdowns.
    pub unsafe_shutdowns: U128,
    /// Media and data integrity errors.
    pub media_errors: U128,
    /// Error log entries over the controller's life.
    pub num_err_log_entries: U128,
    /// Minutes above WCTEMP.
    pub warning_temp_time: U32,
    /// Minutes above CCTEMP.
    pub critical_comp_time: U32,
    /// Temperature sensors 1–8, kelvin; 0 is none.
    pub temp_sensor: [U16; 8],
    /// Thermal management transitions, temperature 1.
    pub thm_temp1_trans_count: U32,
    /// Thermal management transitions, temperature 2.
    pub thm_temp2_trans_count: U32,
    /// Seconds in thermal management, temperature 1.
    pub thm_temp1_total_time: U32,
    /// Seconds in thermal management, temperature 2.
    pub thm_temp2_total_time: U32,
    _rsvd232: [u8; 280],
}

/// Bits of CRITICAL WARNING.
pub mod critical_warning {
    /// Spare below threshold.
    pub const SPARE: u8 = 1 << 0;
    /// Temperature out of range.
    pub const TEMPERATURE: u8 = 1 << 1;
    /// Reliability degraded.
    pub const RELIABILITY: u8 = 1 << 2;
    /// All media read only.
    pub const READ_ONLY: u8 = 1 << 3;
    /// Volatile memory backup failed.
    pub const BACKUP_FAILED: u8 = 1 << 4;
}

wire! { SmartLog = 512, "SMART log"; }
