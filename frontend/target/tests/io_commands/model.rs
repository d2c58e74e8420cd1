//! Random commands on random cores leave what they leave in a vector of bytes.

use ashlar_nvme::Status;
use ashlar_nvme::nvm::RwControl;
use ashlar_nvme::opcode::NvmOpcode;
use ashlar_target::backends::{BackendSource, PageCache};
use ashlar_target::inventory::LbaSize;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::world::{World, discard, memory, pair, perform_fused, ranged, with_control};

/// Four stripes of the memory backend, so that ranges straddle two cores.
const BYTES: u64 = 4 << 20;

#[derive(Debug, Clone)]
enum Step {
    Write { slba: u64, nlb: u32, seed: u8, fua: bool },
    Read { slba: u64, nlb: u32 },
    WriteZeroes { slba: u64, nlb: u32, deallocate: bool },
    Discard { ranges: Vec<(u64, u32)> },
    Compare { slba: u64, nlb: u32, spoil: bool },
    CompareAndWrite { slba: u64, seed: u8, spoil: bool },
    Verify { slba: u64, nlb: u32 },
    Flush,
}

/// What a discard does to blocks of 4 KiB that it covers in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Partial {
    Zeroed,
    Kept,
}

fn range(blocks: u64, most: u32) -> impl Strategy<Value = (u64, u32)> {
    (0..blocks, 1..=most).prop_map(move |(slba, nlb)| (slba, nlb.min((blocks - slba) as u32)))
}

fn steps(lba: LbaSize) -> impl Strategy<Value = Vec<(u16, Step)>> {
    let blocks = BYTES >> lba.shift();
    // Three slices and a bit.
    let most = (400 * 1024) >> lba.shift();
    let step = prop_oneof![
        4 => (range(blocks, most), any::<(u8, bool)>())
            .prop_map(|((slba, nlb), (seed, fua))| Step::Write { slba, nlb, seed, fua }),
        2 => (range(blocks, 16), any::<(u8, bool)>())
            .prop_map(|((slba, nlb), (seed, fua))| Step::Write { slba, nlb, seed, fua }),
        3 => range(blocks, most).prop_map(|(slba, nlb)| Step::Read { slba, nlb }),
        2 => (range(blocks, most), any::<bool>())
            .prop_map(|((slba, nlb), deallocate)| Step::WriteZeroes { slba, nlb, deallocate }),
        2 => prop::collection::vec(range(blocks, most), 1..4).prop_map(|ranges| Step::Discard { ranges }),
        1 => (range(blocks, most), any::<bool>())
            .prop_map(|((slba, nlb), spoil)| Step::Compare { slba, nlb, spoil }),
        2 => (0..blocks, any::<(u8, bool)>())
            .prop_map(|(slba, (seed, spoil))| Step::CompareAndWrite { slba, seed, spoil }),
        1 => range(blocks, most).prop_map(|(slba, nlb)| Step::Verify { slba, nlb }),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec((0..2u16, step), 1..24)
}

struct Run {
    world: World,
    model: Vec<u8>,
    shift: u32,
    partial: Partial,
}

impl Run {
    fn span(&self, slba: u64, nlb: u32) -> std::ops::Range<usize> {
        let from = (slba << self.shift) as usize;
        from..from + ((nlb as usize) << self.shift)
    }

    fn pattern(&self, slba: u64, nlb: u32, seed: u8) -> Vec<u8> {
        self.span(slba, nlb).map(|at| (at / 512) as u8 ^ (at % 251) as u8 ^ seed).collect()
    }

    fn ranged(&mut self, core: u16, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Write { slba, nlb, seed, fua } => {
                let data = self.pattern(slba, nlb, seed);
                let control = RwControl(0).with_fua(fua);
                let sqe = with_control(NvmOpcode::Write, slba, nlb, data.len() as u32, control);
                let span = self.span(slba, nlb);
                self.model[span].copy_from_slice(&data);
                prop_assert_eq!(self.world.status(core, sqe, data), Status::SUCCESS);
            }
            Step::Read { slba, nlb } => self.read(core, slba, nlb)?,
            Step::WriteZeroes { slba, nlb, deallocate } => {
                let control = RwControl(0).with_deac(deallocate);
                let sqe = with_control(NvmOpcode::WriteZeroes, slba, nlb, 0, control);
                let span = self.span(slba, nlb);
                self.model[span].fill(0);
                prop_assert_eq!(self.world.status(core, sqe, Vec::new()), Status::SUCCESS);
            }
            Step::Compare { slba, nlb, spoil } => {
                let mut data = self.model[self.span(slba, nlb)].to_vec();
                let expected = if spoil {
                    *data.last_mut().expect("not empty") ^= 1;
                    Status::COMPARE_FAILURE
                } else {
                    Status::SUCCESS
                };
                let sqe = ranged(NvmOpcode::Compare, slba, nlb, data.len() as u32);
                prop_assert_eq!(self.world.status(core, sqe, data), expected);
            }
            Step::Verify { slba, nlb } => {
                let sqe = ranged(NvmOpcode::Verify, slba, nlb, 0);
                prop_assert_eq!(self.world.status(core, sqe, Vec::new()), Status::SUCCESS);
            }
            Step::Discard { .. } | Step::CompareAndWrite { .. } | Step::Flush => {}
        }
        Ok(())
    }

    fn read(&self, core: u16, slba: u64, nlb: u32) -> Result<(), TestCaseError> {
        let expected = &self.model[self.span(slba, nlb)];
        let (status, data) =
            self.world.command(core, ranged(NvmOpcode::Read, slba, nlb, expected.len() as u32), Vec::new());
        prop_assert_eq!(status, Status::SUCCESS);
        if data != expected {
            let at = data.iter().zip(expected).position(|(a, b)| a != b);
            return Err(TestCaseError::fail(format!("read of {nlb} blocks at {slba} differs at {at:?}")));
        }
        Ok(())
    }

    fn discard(&mut self, core: u16, ranges: &[(u64, u32)]) -> Result<(), TestCaseError> {
        let (sqe, list) = discard(ranges);
        prop_assert_eq!(self.world.status(core, sqe, list), Status::SUCCESS);
        for &(slba, nlb) in ranges {
            let span = self.span(slba, nlb);
            let span = match self.partial {
                Partial::Zeroed => span,
                Partial::Kept => span.start.next_multiple_of(4096)..span.end / 4096 * 4096,
            };
            if !span.is_empty() {
                self.model[span].fill(0);
            }
        }
        Ok(())
    }

    fn compare_and_write(
        &mut self,
        core: u16,
        slba: u64,
        seed: u8,
        spoil: bool,
    ) -> Result<(), TestCaseError> {
        let mut expected = self.model[self.span(slba, 1)].to_vec();
        let new = self.pattern(slba, 1, seed);
        if spoil {
            expected[0] ^= 0x80;
        } else {
            let span = self.span(slba, 1);
            self.model[span].copy_from_slice(&new);
        }
        let statuses = self.world.run(core, move |namespace| async move {
            let request = pair(&namespace, slba, 1).expect("one block is within the unit");
            perform_fused(&namespace, &request, expected, new).await
        });
        let wanted = if spoil {
            (Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED)
        } else {
            (Status::SUCCESS, Status::SUCCESS)
        };
        prop_assert_eq!(statuses, wanted);
        Ok(())
    }

    fn all(&mut self, cores: u16, steps: &[(u16, Step)]) -> Result<(), TestCaseError> {
        for (core, step) in steps {
            let core = core % cores;
            match step {
                Step::Discard { ranges } if self.world.zeroes_discarded() => self.discard(core, ranges)?,
                Step::Discard { .. } => {}
                Step::CompareAndWrite { slba, seed, spoil } => {
                    self.compare_and_write(core, *slba, *seed, *spoil)?;
                }
                Step::Flush => {
                    let sqe = ashlar_nvme::nvm::flush(ashlar_nvme::CommandId(1), crate::world::NSID);
                    prop_assert_eq!(self.world.status(core, sqe, Vec::new()), Status::SUCCESS);
                }
                ranged => self.ranged(core, ranged)?,
            }
        }
        let blocks = (BYTES >> self.shift) as u32;
        let most = (1024 * 1024) >> self.shift;
        for slba in (0..blocks).step_by(most as usize) {
            self.read(slba as u16 % cores, u64::from(slba), most.min(blocks - slba))?;
        }
        Ok(())
    }
}

fn check(cores: u16, lba: LbaSize, partial: Partial, cases: u32, source: impl Fn() -> BackendSource) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&steps(lba), |steps| {
        let world = World::start(cores, &source(), lba);
        let mut run = Run { world, model: vec![0; BYTES as usize], shift: lba.shift(), partial };
        run.all(cores, &steps)
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[test]
fn memory_on_one_core_keeps_what_is_written_with_4096_byte_blocks() {
    check(1, LbaSize::B4096, Partial::Zeroed, 24, || memory(BYTES));
}

#[test]
fn memory_on_one_core_keeps_what_is_written_with_512_byte_blocks() {
    check(1, LbaSize::B512, Partial::Zeroed, 24, || memory(BYTES));
}

#[test]
fn memory_on_two_cores_keeps_what_is_written_with_4096_byte_blocks() {
    check(2, LbaSize::B4096, Partial::Zeroed, 24, || memory(BYTES));
}

#[test]
fn memory_on_two_cores_keeps_what_is_written_with_512_byte_blocks() {
    check(2, LbaSize::B512, Partial::Zeroed, 24, || memory(BYTES));
}

fn check_file(cores: u16, lba: LbaSize) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let number = std::cell::Cell::new(0);
    check(cores, lba, Partial::Kept, 12, || {
        number.set(number.get() + 1);
        BackendSource::Raw {
            path: folder.path().join(format!("file-{}", number.get())),
            create_bytes: Some(BYTES),
            page_cache: PageCache::Bypassed,
        }
    });
}

#[test]
fn a_file_on_one_core_keeps_what_is_written_with_4096_byte_blocks() {
    check_file(1, LbaSize::B4096);
}

#[test]
fn a_file_on_two_cores_keeps_what_is_written_with_512_byte_blocks() {
    check_file(2, LbaSize::B512);
}
