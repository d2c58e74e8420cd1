//! What must hold: each block is a linearizable register (design D2), also over crashes (D1), and what is read is
//! what was written (D4).
//!
//! For each block the model knows which values it may hold now. A write adds its value while it is in flight, and
//! when it is acknowledged removes what it certainly followed. A read must bring one of them, and removes those that
//! it has shown to be over. A crash leaves every write that was in flight in doubt, until a read decides; the loss of
//! a volatile cache also brings back what no flush followed (PROTOCOL R19).

use std::collections::BTreeMap;
use std::fmt;

use crate::value::Value;

/// Names a write, zeroing or deallocation that is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(u64);

/// Names a read that is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(u64);

/// Names a flush that is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushId(u64);

/// A promise was broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A read brought what the block cannot hold.
    #[error("block {block} read as {read:?}; it can only hold one of {possible:?} (D1, D2)")]
    Stale {
        /// The block.
        block: u64,
        /// What it read as.
        read: Value,
        /// What it may hold.
        possible: Vec<Value>,
    },
    /// A read brought bytes that nobody wrote there.
    #[error("block {block} read as garbage; it can only hold one of {possible:?} (D4)")]
    Garbage {
        /// The block.
        block: u64,
        /// What it may hold.
        possible: Vec<Value>,
    },
    /// Replicas differ at rest.
    #[error("block {block} is {values:?} on the in-sync replicas (D3)")]
    Unequal {
        /// The block.
        block: u64,
        /// What each replica holds.
        values: Vec<Option<Value>>,
    },
}

/// A value that a block may hold.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    value: Value,
    /// When its write started.
    invoked: u64,
    /// When it was acknowledged or seen, or came in doubt.
    since: u64,
    /// Acknowledged or seen.
    certain: bool,
}

/// A write of one block that is not acknowledged.
#[derive(Debug, Clone, Copy)]
struct Flying {
    value: Value,
    invoked: u64,
    /// A read has seen it: from then on it is a candidate.
    seen: bool,
}

impl Flying {
    fn candidate(self, since: u64, certain: bool) -> Candidate {
        Candidate { value: self.value, invoked: self.invoked, since, certain }
    }
}

#[derive(Debug)]
struct Register {
    /// What it may hold now, but for what is in flight.
    now: Vec<Candidate>,
    /// What a power loss may leave, but for what is in flight: the newest that is durable, and everything after.
    after_power_loss: Vec<Candidate>,
    flying: BTreeMap<WriteId, Flying>,
}

impl Default for Register {
    fn default() -> Self {
        let zero = vec![Candidate { value: Value::Zero, invoked: 0, since: 0, certain: true }];
        Self { now: zero.clone(), after_power_loss: zero, flying: BTreeMap::new() }
    }
}

impl Register {
    fn possible(&self) -> impl Iterator<Item = Value> + '_ {
        let flying = self.flying.values().filter(|flying| !flying.seen).map(|flying| flying.value);
        self.now.iter().map(|candidate| candidate.value).chain(flying)
    }
}

#[derive(Debug)]
struct Reading {
    invoked: u64,
    /// For each block, what it may bring.
    allowed: BTreeMap<u64, Vec<Value>>,
}

/// Whether what was acknowledged can still be lost with the power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged is durable.
    Acknowledged,
    /// Only a flush makes durable.
    Flushed,
}

/// The blocks of a scenario, by addresses of its own.
#[derive(Debug)]
pub struct Model {
    durability: Durability,
    clock: u64,
    blocks: BTreeMap<u64, Register>,
    writes: BTreeMap<WriteId, Vec<u64>>,
    reads: BTreeMap<ReadId, Reading>,
}

impl Model {
    /// Every block is zero.
    pub fn new(durability: Durability) -> Self {
        Self {
            durability,
            clock: 0,

            blocks: BTreeMap::new(),
            writes: BTreeMap::new(),
            reads: BTreeMap::new(),
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A write starts: each of these blocks gets its value.
    pub fn write(&mut self, values: impl IntoIterator<Item = (u64, Value)>) -> WriteId {
        let invoked = self.tick();
        let id = WriteId(invoked);
        let mut addresses = Vec::new();
        for (block, value) in values {
            addresses.push(block);
            self.blocks.entry(block).or_default().flying.insert(id, Flying { value, invoked, seen: false });
            for reading in self.reads.values_mut() {
                if let Some(allowed) = reading.allowed.get_mut(&block) {
                    allowed.push(value);
                }
            }
        }
        self.writes.insert(id, addresses);
        id
    }

    /// A write was acknowledged.
    pub fn acknowledge(&mut self, id: WriteId) {
        let now = self.tick();
        for block in self.writes.remove(&id).unwrap_or_default() {
            let Some(register) = self.blocks.get_mut(&block) else { continue };
            let Some(flying) = register.flying.remove(&id) else { continue };
            let candidate = flying.candidate(now, true);
            register.now.retain(|other| other.since > flying.invoked);
            register.now.push(candidate);
            if self.durability == Durability::Acknowledged {
                register.after_power_loss.clone_from(&register.now);
            } else {
                register.after_power_loss.push(candidate);
            }
        }
    }

    /// A write failed: it may have happened.
    pub fn doubt(&mut self, id: WriteId) {
        let now = self.tick();
        for block in self.writes.remove(&id).unwrap_or_default() {
            let Some(register) = self.blocks.get_mut(&block) else { continue };
            if let Some(flying) = register.flying.remove(&id) {
                let candidate = flying.candidate(now, false);
                register.now.push(candidate);
                register.after_power_loss.push(candidate);
            }
        }
    }

    /// A write certainly did not happen.
    pub fn forget(&mut self, id: WriteId) {
        for block in self.writes.remove(&id).unwrap_or_default() {
            if let Some(register) = self.blocks.get_mut(&block) {
                register.flying.remove(&id);
            }
        }
    }

    /// A flush starts.
    pub fn flush(&mut self) -> FlushId {
        FlushId(self.tick())
    }

    /// A flush was acknowledged: what was acknowledged when it started is durable.
    pub fn flushed(&mut self, id: FlushId) {
        for register in self.blocks.values_mut() {
            let left = &mut register.after_power_loss;
            let durable = left.iter().filter(|candidate| candidate.certain && candidate.since < id.0);
            // What ended before another began that is durable now, is over.
            let over = durable.map(|candidate| candidate.invoked).max().unwrap_or(0);
            left.retain(|candidate| candidate.since >= over);
        }
    }

    /// A read starts.
    pub fn read(&mut self, blocks: impl IntoIterator<Item = u64>) -> ReadId {
        let invoked = self.tick();
        let id = ReadId(invoked);
        let allowed = blocks.into_iter().map(|block| (block, self.possible(block)));
        let allowed = allowed.collect();
        self.reads.insert(id, Reading { invoked, allowed });
        id
    }

    /// What a block may read as now.
    pub fn possible(&self, block: u64) -> Vec<Value> {
        self.blocks.get(&block).map_or_else(|| vec![Value::Zero], |register| register.possible().collect())
    }

    /// A read brought these bytes, in the order of its blocks.
    pub fn returned(&mut self, id: ReadId, bytes: &[u8]) -> Result<(), Violation> {
        let Some(reading) = self.reads.remove(&id) else { return Ok(()) };
        // As large as the scenario's registers are: blocks, or parts of blocks.
        let each = bytes.len() / reading.allowed.len().max(1);
        for ((block, allowed), bytes) in reading.allowed.iter().zip(bytes.chunks_exact(each.max(1))) {
            let Some(value) = Value::of(*block, bytes) else {
                return Err(Violation::Garbage { block: *block, possible: allowed.clone() });
            };
            self.observe(*block, value, allowed, reading.invoked)?;
        }
        Ok(())
    }

    /// A read brought zeroes.
    pub fn returned_zeroes(&mut self, id: ReadId) -> Result<(), Violation> {
        let Some(reading) = self.reads.remove(&id) else { return Ok(()) };
        reading
            .allowed
            .iter()
            .try_for_each(|(block, allowed)| self.observe(*block, Value::Zero, allowed, reading.invoked))
    }

    /// A read failed: it says nothing.
    pub fn read_failed(&mut self, id: ReadId) {
        self.reads.remove(&id);
    }

    fn observe(&mut self, block: u64, read: Value, allowed: &[Value], invoked: u64) -> Result<(), Violation> {
        if !allowed.contains(&read) {
            return Err(Violation::Stale { block, read, possible: allowed.to_vec() });
        }
        let now = self.tick();
        let register = self.blocks.entry(block).or_default();
        if !register.now.iter().any(|candidate| candidate.value == read) {
            let flying = register.flying.values_mut().find(|flying| !flying.seen && flying.value == read);
            // Otherwise something newer was acknowledged or seen meanwhile: the read was before that.
            let Some(flying) = flying else { return Ok(()) };
            flying.seen = true;
            let candidate = flying.candidate(now, true);
            register.now.push(candidate);
            register.after_power_loss.push(candidate);
        }
        let stays = |candidate: &Candidate| candidate.value == read || candidate.since > invoked;
        // Those in doubt of which the read shows that they did not happen, or were not left. What began later shows
        // nothing.
        let seen = register.now.iter().filter(|candidate| candidate.value == read);
        let began = seen.map(|candidate| candidate.invoked).min().unwrap_or(now);
        let refuted = register
            .now
            .iter()
            .filter(|candidate| !stays(candidate) && !candidate.certain && began <= candidate.since);
        let refuted: Vec<_> = refuted.map(|candidate| candidate.invoked).collect();
        register.now.retain(stays);
        register.after_power_loss.retain(|candidate| !refuted.contains(&candidate.invoked));
        for candidate in register.now.iter_mut().chain(&mut register.after_power_loss) {
            if candidate.value == read && !candidate.certain {
                (candidate.certain, candidate.since) = (true, now);
            }
        }
        if self.durability == Durability::Acknowledged {
            register.after_power_loss.clone_from(&register.now);
        }
        Ok(())
    }

    /// The process died that did all this: what was in flight may have happened.
    pub fn crash(&mut self) {
        self.reads.clear();
        let ids: Vec<_> = self.writes.keys().copied().collect();
        ids.into_iter().for_each(|id| self.doubt(id));
    }

    /// The power went: the same, and what only a volatile cache held may be gone.
    pub fn power_loss(&mut self) {
        self.crash();
        let powered = self.tick();
        for register in self.blocks.values_mut() {
            // Which of several is left, is in doubt.
            let certain = register.after_power_loss.len() == 1;
            for candidate in &mut register.after_power_loss {
                (candidate.certain, candidate.since) = (certain, powered);
            }
            register.now.clone_from(&register.after_power_loss);
        }
    }

    /// Every block that was ever written.
    pub fn addresses(&self) -> Vec<u64> {
        self.blocks.keys().copied().collect()
    }

    /// Nothing is in flight, and these are a block's values on its in-sync replicas.
    pub fn at_rest(&self, block: u64, values: &[Option<Value>]) -> Result<(), Violation> {
        let first = values.first().copied().flatten();
        let equal = first.is_some() && values.iter().all(|value| *value == first);
        if equal { Ok(()) } else { Err(Violation::Unequal { block, values: values.to_vec() }) }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks, {} writes in flight", self.blocks.len(), self.writes.len())
    }
}

#[cfg(test)]
mod tests {
    use ashlar_io::BLOCK_BYTES;

    use super::*;

    const BLOCK: u64 = 5;

    fn write(model: &mut Model, id: u64) -> WriteId {
        model.write([(BLOCK, Value::Write(id))])
    }

    fn acknowledged(model: &mut Model, id: u64) {
        let write = write(model, id);
        model.acknowledge(write);
    }

    fn bytes(value: Value) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES];
        value.fill(BLOCK, &mut bytes);
        bytes
    }

    fn read(model: &mut Model, value: Value) -> Result<(), Violation> {
        let read = model.read([BLOCK]);
        model.returned(read, &bytes(value))
    }

    #[test]
    fn acknowledged_write_must_be_read() {
        let mut model = Model::new(Durability::Acknowledged);
        acknowledged(&mut model, 1);
        assert!(matches!(read(&mut model, Value::Zero), Err(Violation::Stale { .. })));
        assert_eq!(read(&mut model, Value::Write(1)), Ok(()));
    }

    #[test]
    fn bytes_of_nobody_are_garbage() {
        let mut model = Model::new(Durability::Acknowledged);
        let id = model.read([BLOCK]);
        assert!(matches!(model.returned(id, &[7; BLOCK_BYTES]), Err(Violation::Garbage { .. })));
    }

    #[test]
    fn crash_leaves_a_write_in_doubt_until_it_is_read() {
        for seen in [1, 2] {
            let mut model = Model::new(Durability::Acknowledged);
            acknowledged(&mut model, 1);
            let _ = write(&mut model, 2);
            model.crash();
            assert_eq!(read(&mut model, Value::Write(seen)), Ok(()));
            assert!(read(&mut model, Value::Write(3 - seen)).is_err(), "decided");
        }
    }

    #[test]
    fn value_in_flight_that_was_read_does_not_go_back() {
        let mut model = Model::new(Durability::Acknowledged);
        acknowledged(&mut model, 1);
        let second = write(&mut model, 2);
        assert_eq!(read(&mut model, Value::Write(1)), Ok(()));
        assert_eq!(read(&mut model, Value::Write(2)), Ok(()));
        assert!(read(&mut model, Value::Write(1)).is_err());
        model.acknowledge(second);
        model.crash();
        assert_eq!(read(&mut model, Value::Write(2)), Ok(()));
    }

    #[test]
    fn read_that_overlaps_a_write_may_bring_either() {
        let mut model = Model::new(Durability::Acknowledged);
        acknowledged(&mut model, 1);
        let slow = model.read([BLOCK]);
        acknowledged(&mut model, 2);
        assert_eq!(read(&mut model, Value::Write(2)), Ok(()));
        assert_eq!(model.returned(slow, &bytes(Value::Write(1))), Ok(()));
        assert!(read(&mut model, Value::Write(1)).is_err());
    }

    #[test]
    fn concurrent_writes_take_either_order() {
        for last in [1, 2] {
            let mut model = Model::new(Durability::Acknowledged);
            let (first, second) = (write(&mut model, 1), write(&mut model, 2));
            model.acknowledge(second);
            model.acknowledge(first);
            assert_eq!(read(&mut model, Value::Write(last)), Ok(()));
            assert!(read(&mut model, Value::Write(3 - last)).is_err());
        }
    }

    #[test]
    fn power_loss_takes_what_no_flush_followed() {
        for left in [1, 2, 3] {
            let mut model = Model::new(Durability::Flushed);
            acknowledged(&mut model, 0);
            acknowledged(&mut model, 1);
            let flush = model.flush();
            acknowledged(&mut model, 2);
            acknowledged(&mut model, 3);
            model.flushed(flush);
            model.power_loss();
            assert!(read(&mut model, Value::Write(0)).is_err());
            assert_eq!(read(&mut model, Value::Write(left)), Ok(()));
        }
    }

    #[test]
    fn flush_after_a_power_loss_does_not_decide_what_it_left() {
        let mut model = Model::new(Durability::Flushed);
        acknowledged(&mut model, 1);
        acknowledged(&mut model, 2);
        model.power_loss();
        let flush = model.flush();
        model.flushed(flush);
        assert_eq!(read(&mut model, Value::Write(1)), Ok(()));
        model.power_loss();
        assert!(read(&mut model, Value::Write(2)).is_err());
        assert_eq!(read(&mut model, Value::Write(1)), Ok(()));
    }

    #[test]
    fn process_crash_takes_nothing_that_was_acknowledged() {
        let mut model = Model::new(Durability::Flushed);
        acknowledged(&mut model, 1);
        acknowledged(&mut model, 2);
        model.crash();
        assert!(read(&mut model, Value::Write(1)).is_err());
    }

    #[test]
    fn replicas_must_be_equal_at_rest() {
        let model = Model::new(Durability::Acknowledged);
        let one = Some(Value::Write(1));
        assert_eq!(model.at_rest(BLOCK, &[one, one]), Ok(()));
        assert!(model.at_rest(BLOCK, &[one, Some(Value::Zero)]).is_err());
        assert!(model.at_rest(BLOCK, &[None, None]).is_err());
    }
}
