//! System calls outside the ring, each in a small safe function.

use std::fs;
use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use crate::clock::Instant;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(crate) fn boottime() -> Instant {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the pointer is valid for one timespec, which the call fills; with a valid clock it cannot fail,
    // and it is zeroed should it fail all the same.
    let time = unsafe {
        if libc::clock_gettime(libc::CLOCK_BOOTTIME, time.as_mut_ptr()) != 0 {
            return Instant::from_ns(0);
        }
        time.assume_init()
    };
    Instant::from_ns(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

pub(crate) fn event_fd() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved; the new descriptor is ours alone.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_CLOEXEC))?)) }
}

pub(crate) fn ring_bell(bell: &OwnedFd) {
    let one = 1u64;
    // SAFETY: the buffer is eight valid bytes. A full counter means that it rings already.
    unsafe { libc::write(bell.as_raw_fd(), (&raw const one).cast(), mem::size_of::<u64>()) };
}

pub(crate) fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a zeroed cpu_set_t is an empty set; `cpu` is within its size; the call reads the set only.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        check(libc::sched_setaffinity(0, mem::size_of::<libc::cpu_set_t>(), &set)).map(drop)
    }
}

/// Asks the scheduler to prefer the calling thread; it may refuse.
pub(crate) fn prefer_this_thread(nice: i32) {
    // SAFETY: no memory is involved. Without the right to do so nothing changes.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

/// Maps zeroed memory that belongs to nobody else.
pub(crate) fn map_memory(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

/// # Safety
/// `address` and `bytes` are those of one mapping of [`map_memory`], and nobody uses it any more.
pub(crate) unsafe fn unmap_memory(address: NonNull<u8>, bytes: usize) {
    // SAFETY: by contract.
    unsafe { libc::munmap(address.as_ptr().cast(), bytes) };
}

/// A stream socket for the address family of `address`.
pub(crate) fn tcp_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no memory is involved; the new descriptor is ours alone.
    unsafe {
        Ok(OwnedFd::from_raw_fd(check(libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0))?))
    }
}

pub(crate) fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value is a valid int of the given size.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            mem::size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// A socket address as the kernel wants it.
#[repr(C)]
pub(crate) struct RawAddress {
    pub(crate) storage: libc::sockaddr_storage,
    pub(crate) len: libc::socklen_t,
}

impl RawAddress {
    pub(crate) fn new(address: &SocketAddr) -> Self {
        // SAFETY: all-zero is a valid sockaddr_storage.
        let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
        let len = match address {
            SocketAddr::V4(v4) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is large and aligned enough for every socket address.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(raw) };
                mem::size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(raw) };
                mem::size_of::<libc::sockaddr_in6>()
            }
        };
        Self { storage, len: len as libc::socklen_t }
    }

    fn parse(&self) -> io::Result<SocketAddr> {
        match i32::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says that this is a sockaddr_in.
                let raw = unsafe { (&raw const self.storage).cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
                Ok(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: the family says that this is a sockaddr_in6.
                let raw = unsafe { (&raw const self.storage).cast::<libc::sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
                let port = u16::from_be(raw.sin6_port);
                Ok(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
            }
            _ => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
        }
    }
}

pub(crate) fn bind_and_listen(fd: BorrowedFd<'_>, address: &SocketAddr, backlog: i32) -> io::Result<()> {
    let raw = RawAddress::new(address);
    // SAFETY: the address is valid for its length.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw.storage).cast(), raw.len) })?;
    // SAFETY: no memory is involved.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) }).map(drop)
}

type NameCall = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;

fn name_of(fd: BorrowedFd<'_>, call: NameCall) -> io::Result<SocketAddr> {
    // SAFETY: all-zero is a valid sockaddr_storage.
    let storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut raw = RawAddress { storage, len: mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t };
    // SAFETY: storage and length are valid and belong together; the call writes no more than that.
    check(unsafe { call(fd.as_raw_fd(), (&raw mut raw.storage).cast(), &raw mut raw.len) })?;
    raw.parse()
}

pub(crate) fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    name_of(fd, libc::getsockname)
}

pub(crate) fn peer_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    name_of(fd, libc::getpeername)
}

pub(crate) fn shut_down(fd: BorrowedFd<'_>) {
    // SAFETY: no memory is involved. Failure means that the connection is gone already.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
}

pub(crate) fn finish_sending(fd: BorrowedFd<'_>) {
    // SAFETY: as above.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) };
}

/// Takes ownership of a descriptor that the kernel gave out in a completion.
pub(crate) fn adopt(fd: i32) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor for us and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
const BLKSSZGET: libc::c_ulong = 0x1268;
const BLKPBSZGET: libc::c_ulong = 0x127b;

/// Size and sector sizes of a block device.
pub(crate) fn block_device_geometry(fd: BorrowedFd<'_>) -> io::Result<(u64, u32, u32)> {
    let (mut bytes, mut logical, mut physical) = (0u64, 0i32, 0u32);
    // SAFETY: each request writes exactly one integer of the type it is given.
    unsafe {
        check(libc::ioctl(fd.as_raw_fd(), BLKGETSIZE64 as _, &raw mut bytes))?;
        check(libc::ioctl(fd.as_raw_fd(), BLKSSZGET as _, &raw mut logical))?;
        check(libc::ioctl(fd.as_raw_fd(), BLKPBSZGET as _, &raw mut physical))?;
    }
    Ok((bytes, logical.unsigned_abs(), physical))
}

/// Device number of a block device, if `fd` is one.
pub(crate) fn block_device_number(fd: BorrowedFd<'_>) -> io::Result<Option<(u32, u32)>> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills the structure when it succeeds.
    let stat = unsafe {
        check(libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()))?;
        stat.assume_init()
    };
    let is_block = stat.st_mode & libc::S_IFMT == libc::S_IFBLK;
    Ok(is_block.then(|| (libc::major(stat.st_rdev), libc::minor(stat.st_rdev))))
}

/// One line of a block device's `queue` folder in sysfs, also when the device is a partition.
pub(crate) fn queue_attribute(device: (u32, u32), name: &str) -> Option<String> {
    let base = format!("/sys/dev/block/{}:{}", device.0, device.1);
    let read = |path: String| fs::read_to_string(path).ok();
    read(format!("{base}/queue/{name}"))
        .or_else(|| read(format!("{base}/../queue/{name}")))
        .map(|text| text.trim().to_owned())
}

/// One line of a block device's own folder in sysfs, such as where a partition starts.
pub(crate) fn device_attribute(device: (u32, u32), name: &str) -> Option<String> {
    let path = format!("/sys/dev/block/{}:{}/{name}", device.0, device.1);
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Sixty-four random bits from the kernel.
pub(crate) fn random() -> u64 {
    let mut bits = 0u64;
    // SAFETY: the buffer is eight valid bytes.
    let got = unsafe { libc::getrandom((&raw mut bits).cast(), mem::size_of::<u64>(), 0) };
    // So few bytes are never refused once the system is up (getrandom(2)).
    assert_eq!(got, mem::size_of::<u64>() as isize, "the kernel gives no random bits");
    bits
}
