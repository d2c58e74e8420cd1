//! Replays the fuzzer's corpus, with truncations and mutations, on stable Rust.

#[path = "../fuzz/harness.rs"]
mod harness;

use std::fs;
use std::path::Path;

/// Mutations per corpus file: about two seconds of an unoptimised build for the whole corpus.
const MUTATIONS: u32 = 500;

fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/decode");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the corpus is part of the repository")
        .map(|entry| {
            let path = entry.expect("readable folder").path();
            (path.display().to_string(), fs::read(&path).expect("readable file"))
        })
        .collect();
    files.sort();
    files
}

/// A small generator with a fixed seed, so that a failure comes again.
struct XorShift(u64);

impl XorShift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn corpus_and_its_truncations_keep_every_promise() {
    let files = corpus();
    assert!(files.len() >= 16, "only {} files in the corpus", files.len());
    for (name, bytes) in &files {
        println!("{name}");
        for len in 0..=bytes.len() {
            harness::decode_everything(&bytes[..len]);
        }
    }
}

#[test]
fn mutations_of_the_corpus_keep_every_promise() {
    let mut random = XorShift(0x0A51_A201);
    for (name, bytes) in corpus() {
        println!("{name}");
        for _ in 0..MUTATIONS {
            let mut mutant = bytes.clone();
            for _ in 0..=random.next() % 4 {
                let r = random.next();
                // Headers are short: half of the mutations hit the first 32 bytes.
                let reach = if r & 1 == 0 { mutant.len().min(32) } else { mutant.len() };
                let at = (r >> 8) as usize % reach.max(1);
                if let Some(byte) = mutant.get_mut(at) {
                    *byte = (r >> 48) as u8;
                }
            }
            harness::decode_everything(&mutant);
        }
    }
}

#[test]
fn noise_keeps_every_promise() {
    let mut random = XorShift(0x5EED);
    for len in [0, 1, 7, 8, 16, 24, 72, 128, 160, 1032, 4104] {
        for _ in 0..50 {
            let noise: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            harness::decode_everything(&noise);
        }
    }
}
