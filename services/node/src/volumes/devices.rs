//! Finds the node's devices. What a device is stands on the device: where it is found means nothing.
//!
//! A device that no node has yet (`ashlar device format` made it) and that the configuration names is taken in: it is
//! given this node and the pool of the configuration. From then on its own word holds. Where a device that replicas
//! live on is not found at any place of the configuration, all block devices of the machine are looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ashlar_io::{BLOCK_BYTES, Tearing};
use ashlar_reactor::world::{AnyDevice, FileDevice, HoldError, MemoryDisk, ReactorWorld};
use ashlar_reactor::{CoreId, CoresHandle, Error as ReactorError};
use ashlar_store::device::{
    Existing, FormatError, FormatOptions, GrowError, OpenError, TornBlocks, format, grow, open, restore,
};
use ashlar_store::format::{DeviceId, Label, Superblock};
use uuid::Uuid;

use crate::config::{DevicePlace, Name};

/// How long a device may be busy with what an earlier process left in flight (PROTOCOL S18).
const BUSY_MAX: Duration = Duration::from_secs(10);

/// Pause before a busy device is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Lanes of a device in memory (design §6).
const LANES: u32 = 4;

/// Why a device is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// It cannot be held.
    #[error(transparent)]
    Hold(#[from] HoldError),
    /// No descriptor is left for it.
    #[error("could not open it on a core: {0}")]
    Descriptor(#[from] std::io::Error),
    /// It is no device of ours, or a damaged one.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It could not be formatted; only devices in memory are.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// It has grown, and could not be given its new size.
    #[error(transparent)]
    Grow(#[from] GrowError),
    /// Its superblock could not be written.
    #[error("its superblock could not be written: {0}")]
    Restore(#[from] ashlar_io::DiskError),
    /// It belongs to another node.
    #[error("device {device} belongs to node {node}")]
    OtherNode {
        /// The device.
        device: DeviceId,
        /// Its node.
        node: Uuid,
    },
    /// It belongs to a pool that the configuration does not name.
    #[error("device {device} belongs to pool {pool}, which the configuration does not name")]
    OtherPool {
        /// The device.
        device: DeviceId,
        /// Its pool.
        pool: Uuid,
    },
    /// It may tear blocks.
    #[error(
        "device {device} may tear blocks of 4 KiB when power fails (PROTOCOL S9), and logged writes, which would make \
         up for it, are not there yet; give the disk sectors of 4 KiB, and format it again"
    )]
    Tears {
        /// The device.
        device: DeviceId,
    },
    /// Another one says that it is the same.
    #[error(
        "{} and {} both claim to be device {device}; neither is used: detach one",
        first.display(),
        second.display()
    )]
    Twins {
        /// Who they say they are.
        device: DeviceId,
        /// One of them.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A data core could not be reached.
    #[error("a data core could not be reached: {0}")]
    Core(#[from] ReactorError),
}

/// A device of this node, held.
#[derive(Debug, Clone)]
pub(super) struct Device {
    pub(super) superblock: Superblock,
    pub(super) place: PathBuf,
    pub(super) device: AnyDevice,
}

/// Whose devices are looked for.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    pub(super) node: Uuid,
    /// Pools by name.
    pub(super) pools: BTreeMap<Name, Uuid>,
    /// Devices that replicas live on.
    pub(super) known: BTreeSet<Uuid>,
}

/// All devices that are there; each that is not used is told in the log.
pub(super) async fn find(
    cores: &CoresHandle,
    places: &BTreeMap<Name, Vec<DevicePlace>>,
    owner: &Owner,
) -> Vec<Device> {
    let deadline = Instant::now() + BUSY_MAX;
    let mut found = Vec::new();
    let mut looked_at = BTreeSet::new();
    for (name, places) in places {
        for place in places {
            let device = match place {
                DevicePlace::Memory { bytes } => memory(cores, *bytes, name, owner).await,
                DevicePlace::Path(path) => {
                    looked_at.insert(path.clone());
                    at(cores, path, Some(name), owner, deadline).await
                }
            };
            match device {
                Ok(device) => found.push(device),
                Err(error) => {
                    tracing::error!(place = %shown(place).display(), pool = %name, %error, "a device is not used")
                }
            }
        }
    }
    let here: BTreeSet<Uuid> = found.iter().map(|device| device.superblock.device.0).collect();
    if !owner.known.is_subset(&here) {
        for path in elsewhere(owner, &here, &looked_at) {
            match at(cores, &path, None, owner, deadline).await {
                Ok(device) => {
                    let id = device.superblock.device;
                    tracing::warn!(device = %id, place = %path.display(), "a device was found at another place");
                    found.push(device);
                }
                Err(error) => tracing::error!(place = %path.display(), %error, "a device is not used"),
            }
        }
    }
    let used = without_twins(found);
    let here: BTreeSet<Uuid> = used.iter().map(|device| device.superblock.device.0).collect();
    for missing in owner.known.difference(&here) {
        tracing::error!(device = %missing, "a device that replicas live on is missing");
    }
    used
}

fn shown(place: &DevicePlace) -> PathBuf {
    match place {
        DevicePlace::Path(path) => path.clone(),
        DevicePlace::Memory { bytes } => PathBuf::from(format!("memory:{bytes} B")),
    }
}

/// Leaves out devices that claim to be the same.
fn without_twins(found: Vec<Device>) -> Vec<Device> {
    let mut by_id: BTreeMap<Uuid, Vec<Device>> = BTreeMap::new();
    for device in found {
        by_id.entry(device.superblock.device.0).or_default().push(device);
    }
    let mut used = Vec::new();
    for mut same in by_id.into_values() {
        if let [first, second, ..] = same.as_slice() {
            let error = DeviceError::Twins {
                device: first.superblock.device,
                first: first.place.clone(),
                second: second.place.clone(),
            };
            tracing::error!(%error, "devices are not used");
            continue;
        }
        used.append(&mut same);
    }
    used
}

async fn memory(cores: &CoresHandle, bytes: u64, pool: &Name, owner: &Owner) -> Result<Device, DeviceError> {
    let device = AnyDevice::Memory(MemoryDisk::new(bytes / BLOCK_BYTES as u64));
    let options = FormatOptions {
        device: DeviceId(Uuid::new_v4()),
        cluster: None,
        node: owner.node,
        pool: owner.pools.get(pool).copied().unwrap_or_default(),
        lanes: LANES,
        label: Label::default(),
        formatted_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        torn: TornBlocks::Refuse,
        existing: Existing::Refuse,
    };
    let opened = device.clone();
    let formatted = cores.run_on(CoreId(0), move || async move {
        let disk = opened.open()?;
        Ok::<_, DeviceError>(format(&ReactorWorld, &disk, &options).await?)
    });
    let superblock = formatted.await??;
    Ok(Device { superblock, place: PathBuf::from("memory"), device })
}

/// The device at `path`. One that no node has is given to the pool that the configuration names for this place.
async fn at(
    cores: &CoresHandle,
    path: &Path,
    pool: Option<&Name>,
    owner: &Owner,
    deadline: Instant,
) -> Result<Device, DeviceError> {
    let held = hold(path, deadline).await?;
    let device = AnyDevice::File(held);
    let (opened, new_owner) = (device.clone(), owner.clone());
    let pool = pool.and_then(|name| owner.pools.get(name)).copied();
    let superblock =
        cores.run_on(CoreId(0), move || async move { take_in(&opened, pool, &new_owner).await }).await??;
    Ok(Device { superblock, place: path.to_owned(), device })
}

/// Waits as long as somebody else has it, until `deadline`.
async fn hold(path: &Path, deadline: Instant) -> Result<FileDevice, HoldError> {
    loop {
        match FileDevice::hold(path) {
            Err(HoldError::InUse { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// Opens a device and puts right what can be put right before its lanes are opened.
async fn take_in(device: &AnyDevice, pool: Option<Uuid>, owner: &Owner) -> Result<Superblock, DeviceError> {
    let (world, disk) = (ReactorWorld, device.open()?);
    let opened = open(&world, &disk).await?;
    let needs_restoring = opened.needs_restoring();
    let mut superblock = opened.superblock;
    let id = superblock.device;
    if superblock.torn_prone || device.geometry().tearing == Tearing::Torn {
        return Err(DeviceError::Tears { device: id });
    }
    if superblock.node.is_nil() {
        let pool = pool.ok_or(DeviceError::OtherPool { device: id, pool: superblock.pool })?;
        superblock = restore(&world, &disk, &Superblock { node: owner.node, pool, ..superblock }).await?;
        tracing::info!(device = %id, %pool, "a device was taken in");
    } else if superblock.node != owner.node {
        return Err(DeviceError::OtherNode { device: id, node: superblock.node });
    } else if !owner.pools.values().any(|pool| *pool == superblock.pool) {
        return Err(DeviceError::OtherPool { device: id, pool: superblock.pool });
    } else if needs_restoring {
        superblock = restore(&world, &disk, &superblock).await?;
        tracing::warn!(device = %id, "copies of a superblock were bad and were written again");
    }
    if opened.grown_by > 0 {
        superblock = grow(&world, &disk, &superblock).await?;
        tracing::info!(device = %id, blocks = superblock.layout.device_blocks(), "a device has grown");
    }
    Ok(superblock)
}

/// Block devices that carry a device that is missing.
fn elsewhere(owner: &Owner, here: &BTreeSet<Uuid>, looked_at: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/class/block") else { return Vec::new() };
    let paths = entries.flatten().map(|entry| Path::new("/dev").join(entry.file_name()));
    let missing = |path: &PathBuf| {
        !looked_at.contains(path)
            && front_superblock(path).is_some_and(|superblock| {
                let id = superblock.device.0;
                owner.known.contains(&id) && !here.contains(&id) && superblock.node == owner.node
            })
    };
    paths.filter(missing).collect()
}

/// One of the front copies of the superblock, without holding the device.
fn front_superblock(path: &Path) -> Option<Superblock> {
    let mut bytes = vec![0; 2 * BLOCK_BYTES];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).ok()?;
    (0..2).find_map(|copy| Superblock::decode(&bytes[copy * BLOCK_BYTES..][..BLOCK_BYTES], copy as u64).ok())
}
