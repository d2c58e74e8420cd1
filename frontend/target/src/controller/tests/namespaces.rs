//! Identify Namespace, byte by byte (NVME N3, N8–N10).

use super::identify::{assert_same, page};
use super::*;
use crate::backend::Deallocated;

#[test]
fn every_byte_of_a_namespace_with_512_byte_blocks() {
    let want = page(&[
        (0, "00 00 01 00"),                                       // NSZE
        (8, "00 00 01 00"),                                       // NCAP
        (16, "00 00 01 00"),                                      // NUSE
        (24, "12"),                                               // NSFEAT: NSABP, OPTPERF
        (30, "01"),                                               // NMIC: shared
        (33, "09"),                                               // DLFEAT: zeroes, WZ deallocates
        (34, "07 00 07 00 07 00"),                                // NAWUN, NAWUPF, NACWU
        (40, "07 00 00 00 07 00 00 00"),                          // NABSN, NABO, NABSPF, NOIOB
        (48, "00 00 00 02"),                                      // NVMCAP: 32 MiB
        (64, "07 00 07 00 07 00 07 00"),                          // NPWG, NPWA, NPDG, NPDA
        (72, "ff 00"),                                            // NOWS: 128 KiB
        (92, "01 00 00 00"),                                      // ANAGRPID
        (104, "b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 ba bb bc bd 00 01"), // NGUID
        (128, "00 00 09 00"),                                     // LBAF0: 512
    ]);
    assert_same(&Fixture::io().identify(Cns::Namespace, 1).data.expect("data"), &want);
}

#[test]
fn every_byte_of_a_namespace_with_4096_byte_blocks() {
    let want = page(&[
        (0, "00 00 01 00"),
        (8, "00 00 01 00"),
        (16, "00 00 01 00"),
        (24, "12"),
        (30, "01"),
        (33, "09"),
        (48, "00 00 00 10"), // NVMCAP: 256 MiB
        (72, "1f 00"),       // NOWS: 128 KiB
        (92, "02 00 00 00"),
        (104, "b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 ba bb bc bd 00 02"),
        (128, "00 00 0c 00"), // LBAF0: 4096
    ]);
    let fixture = Fixture::io();
    assert_same(&fixture.identify(Cns::Namespace, 2).data.expect("data"), &want);
    assert_same(&fixture.identify(Cns::AllocatedNamespace, 2).data.expect("data"), &want);
}

#[test]
fn zeroes_are_promised_only_where_the_backend_returns_them() {
    let mut unsure = namespace(1);
    unsure.backend.deallocated = Deallocated::Unspecified;
    let data = Fixture::of_namespaces([unsure]).identify(Cns::Namespace, 1).data.expect("data");
    assert_eq!(data[33], 0);
}

#[test]
fn the_independent_structure_says_ready_and_where_there_is_no_cache() {
    let mut write_through = namespace(2);
    write_through.backend.volatile_cache = false;
    let fixture = Fixture::of_namespaces([namespace(1), write_through]);
    let independent = |nsid| fixture.identify(Cns::IndependentNamespace, nsid).data.expect("data");
    assert_same(&independent(1), &page(&[(0, "00 01"), (4, "01"), (14, "01")]));
    assert_same(&independent(2), &page(&[(0, "20 01"), (4, "02"), (14, "01")]));
}

#[test]
fn an_unused_nsid_is_all_zero_and_an_impossible_one_is_refused() {
    let fixture = Fixture::io();
    for cns in [Cns::Namespace, Cns::CsiNamespace, Cns::IndependentNamespace, Cns::AllocatedNamespace] {
        for nsid in [3, 4096] {
            assert_eq!(fixture.identify(cns, nsid).data, Some(vec![0; 4096]), "{cns:?}");
        }
        for nsid in [0, 4097, 0xFFFF_FFFE, 0xFFFF_FFFF] {
            let reply = fixture.identify(cns, nsid);
            assert_eq!(reply.status, Status::INVALID_NAMESPACE_OR_FORMAT, "{cns:?} {nsid:#x}");
        }
    }
}
