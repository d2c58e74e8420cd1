//! Bytes that the store did not write are refused, whatever they are, and never panic.

use ashlar_store::format::{BadBlock, DeviceId, Place};
use proptest::prelude::*;
use uuid::Uuid;

use crate::samples::{self, Opened};

/// Where the CRC of a metadata block stands.
const CRC: std::ops::Range<usize> = 4..8;

/// Makes the CRC of a block right again, so that what is behind the CRC's check is reached.
fn reseal(block: &mut [u8]) {
    block[CRC].fill(0);
    let crc = crc32c::crc32c(block);
    block[CRC].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn every_sample_reads_back() {
    for sample in samples::all() {
        assert_eq!((sample.open)(&sample.bytes), Opened::Same, "{}", sample.name);
    }
}

#[test]
fn every_single_changed_byte_of_a_block_is_noticed() {
    for sample in samples::all() {
        let mut bytes = sample.bytes.clone();
        // Behind a body stands padding that no CRC covers.
        let end = if bytes.len() > 4096 { 4096 + 32 } else { 4096 };
        for at in 0..end {
            bytes[at] ^= 0x10;
            assert_eq!((sample.open)(&bytes), Opened::Refused, "{} with byte {at} changed", sample.name);
            bytes[at] ^= 0x10;
        }
    }
}

#[test]
fn a_block_that_is_cut_short_is_refused() {
    for sample in samples::all() {
        for length in [0, 1, 39, 40, 79, 4095] {
            assert_eq!(
                (sample.open)(&sample.bytes[..length]),
                Opened::Refused,
                "{length} bytes of {}",
                sample.name
            );
        }
    }
}

#[test]
fn a_block_of_another_place_or_device_says_so() {
    let home = samples::slab_header_home();
    assert_eq!(samples::misread_slab_header(home), None);
    let elsewhere = Place { address: home.address + 1, ..home };
    let expected = BadBlock::Address { expected: home.address + 1, found: home.address };
    assert_eq!(samples::misread_slab_header(elsewhere), Some(expected));
    let other = Place { device: DeviceId(Uuid::nil()), ..home };
    assert_eq!(samples::misread_slab_header(other), Some(BadBlock::Device { found: home.device }));
}

proptest! {
    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..=8192)) {
        for sample in samples::all() {
            prop_assert_eq!((sample.open)(&bytes), Opened::Refused);
        }
    }

    /// Fields with any value, under right CRCs.
    #[test]
    fn resealed_nonsense_never_panics(
        changes in prop::collection::vec((8_usize..8192, any::<[u8; 4]>()), 1..8),
        near in prop::collection::vec((40_usize..160, any::<u8>()), 0..8),
    ) {
        for sample in samples::all() {
            let mut bytes = sample.bytes.clone();
            let near = near.iter().map(|(at, value)| (*at, *value));
            let changes = changes.iter().flat_map(|(at, value)| (*at..).zip(*value));
            for (at, value) in changes.chain(near) {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            if sample.name == "root" {
                reseal_root_body(&mut bytes);
            }
            if sample.name != "checksum-page" {
                reseal(&mut bytes[..4096]);
            }
            // Nothing forbids some values, and reserved bytes are ignored: what counts is that this returns.
            let _ = (sample.open)(&bytes);
        }
    }
}

/// Makes the CRC of a root's body right for the length that the root says.
fn reseal_root_body(bytes: &mut [u8]) {
    let (first, body) = bytes.split_at_mut(4096);
    let length = u32::from_le_bytes([first[72], first[73], first[74], first[75]]);
    if let Some(body) = body.get(..length as usize) {
        first[76..80].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    }
}
