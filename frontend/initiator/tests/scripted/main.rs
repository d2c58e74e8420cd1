//! The host against a scripted controller: what it sends, what it makes of good answers in pieces of any
//! size, and which rule it names when an answer breaks one.

mod handshake;
mod peer;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ashlar_initiator::{
    Controller, Data, Done, FlowControl, Handler, HostConfig, HostError, IoQueue, Loss, Outcome, Payload,
    ProtocolError, Sink, Submitter, Token,
};
use ashlar_nvme::pdu::{DigestUse, FatalErrorStatus};
use ashlar_nvme::{HostId, Lba, Nqn, Nsid, Qid, Sqe, Status};
use ashlar_reactor::{CoreId, Cores, CoresConfig, IoBuf};

use peer::{Manners, Wire, listen, listen_raw};

const NSID: Nsid = Nsid(1);

fn config() -> HostConfig {
    let host_nqn = Nqn::parse("nqn.2014-08.org.example:host").expect("an NQN");
    HostConfig { admin_timeout: Duration::from_secs(30), ..HostConfig::new(host_nqn, HostId([7; 16])) }
}

fn subsystem() -> Nqn {
    Nqn::parse("nqn.2014-08.org.example:subsystem").expect("an NQN")
}

/// Runs a test on a core of its own, and ends it clean: nothing of the host may be left over.
fn on_core<T, F, Fut>(test: F) -> T
where
    T: Send + 'static,
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
{
    let cores = Cores::start(&CoresConfig::floating(1)).expect("a core");
    let result = cores.handle().run_on(CoreId(0), test).wait().expect("the test ends");
    cores.stop(Duration::from_secs(30)).expect("nothing is left over");
    result
}

/// Connects a controller with one I/O queue and runs `test` on it.
fn with_queue<T, F, Fut>(
    manners: Manners,
    config: HostConfig,
    script: impl FnOnce(&mut Wire) + Send + 'static,
    test: F,
) -> T
where
    T: Send + 'static,
    F: FnOnce(IoQueue) -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
{
    let (address, peer) = listen(manners, script);
    let result = on_core(move || async move {
        let controller = Controller::connect(address, &subsystem(), &config).await.expect("it connects");
        let queue = IoQueue::connect(&controller.ticket(), Qid(1)).await.expect("the queue connects");
        test(queue).await
    });
    peer.join().expect("the peer saw what it expected");
    result
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn with_digests() -> (Manners, HostConfig) {
    let manners = Manners { header_digest: true, data_digest: true, ..Manners::default() };
    let config = HostConfig { header_digest: DigestUse::On, data_digest: DigestUse::On, ..config() };
    (manners, config)
}

// ---- good answers ----

fn read_answered_in_pieces(manners: Manners, config: HostConfig, slowly: bool) {
    // Single bytes take a wake-up each.
    let len = if slowly { 512 } else { 8192 };
    let half = len / 2;
    let answer = move |wire: &mut Wire| {
        let command = wire.command();
        assert_eq!((command.opcode(), command.dword(1), command.dword(10)), (2, 1, 5), "Read of block 5");
        assert_eq!(command.dword(12) & 0xffff, 1, "two blocks");
        assert_eq!(command.sgl(), (len as u32, 0x5a), "a transport data block");
        let data = pattern(len);
        let cid = command.cid();
        let mut bytes = wire.data(cid, 0, &data[..half], 0);
        bytes.extend(wire.data(cid, half as u32, &data[half..half + 4], 0));
        bytes.extend(wire.data(cid, half as u32 + 4, &data[half + 4..], 4));
        bytes.extend(wire.response(cid, 0, 2, 0));
        if slowly { wire.send_slowly(&bytes) } else { wire.send(&bytes) }
    };
    let data = with_queue(manners, config, answer, move |queue| async move {
        let buffer = queue.read(NSID, Lba(5), 2, IoBuf::heap(len)).await.expect("the read succeeds");
        buffer.to_vec()
    });
    assert!(data == pattern(len), "the bytes are those that were sent");
}

#[test]
fn read_data_arrives_whole() {
    read_answered_in_pieces(Manners::default(), config(), false);
}

#[test]
fn read_data_arrives_whole_in_single_bytes() {
    read_answered_in_pieces(Manners::default(), config(), true);
}

#[test]
fn read_data_arrives_whole_with_digests_and_padding_in_single_bytes() {
    let (manners, config) = with_digests();
    read_answered_in_pieces(Manners { padding: 40, ..manners }, config, true);
}

#[test]
fn large_read_data_arrives_whole_straight_in_its_buffer() {
    const LEN: usize = 1024 * 1024;
    let answer = |wire: &mut Wire| {
        let command = wire.command();
        let data = pattern(LEN);
        for (i, piece) in data.chunks(256 * 1024).enumerate() {
            let flags = if (i + 1) * 256 * 1024 == LEN { 4 } else { 0 };
            let pdu = wire.data(command.cid(), (i * 256 * 1024) as u32, piece, flags);
            wire.send(&pdu);
        }
        wire.succeed(&command, 0);
    };
    let data = with_queue(Manners::default(), config(), answer, |queue| async move {
        queue.read(NSID, Lba(0), 256, IoBuf::heap(LEN)).await.expect("it succeeds").to_vec()
    });
    assert!(data == pattern(LEN));
}

#[test]
fn success_flag_ends_a_read_when_flow_control_is_disabled() {
    let manners = Manners { disable_flow_control: true, ..Manners::default() };
    let config = HostConfig { flow_control: FlowControl::Disabled, ..config() };
    let answer = |wire: &mut Wire| {
        let command = wire.command();
        let pdu = wire.data(command.cid(), 0, &pattern(4096), 4 | 8);
        wire.send(&pdu);
    };
    let data = with_queue(manners, config, answer, |queue| async move {
        assert!(queue.flow_control_is_disabled());
        queue.read(NSID, Lba(0), 1, IoBuf::heap(4096)).await.expect("it succeeds").to_vec()
    });
    assert!(data == pattern(4096));
}

#[test]
fn small_writes_go_in_the_capsule() {
    let (manners, config) = with_digests();
    let answer = |wire: &mut Wire| {
        let command = wire.command();
        assert_eq!((command.opcode(), command.sgl()), (1, (8192, 0x01)), "data at an offset in the capsule");
        assert!(command.data == pattern(8192));
        assert_eq!(command.dword(12), 1 << 30 | 1, "FUA, two blocks");
        wire.succeed(&command, 0);
    };
    with_queue(Manners { alignment: 15, ..manners }, config, answer, |queue| async move {
        let payload = Payload::copy_of(&pattern(8192));
        queue.write(NSID, Lba(0), 2, payload, ashlar_initiator::Fua::Yes).await.expect("it succeeds");
    });
}

#[test]
fn large_writes_answer_every_r2t_in_order_and_within_maxh2cdata() {
    const LEN: u32 = 64 * 1024;
    let (manners, config) = with_digests();
    let answer = |wire: &mut Wire| {
        let command = wire.command();
        assert_eq!(command.sgl(), (LEN, 0x5a), "a transport data block");
        assert!(command.data.is_empty());
        // Three outstanding at once, of sizes that MAXH2CDATA (8192) does and does not divide.
        let requests = [(1, 0, 4), (2, 4, 20_000), (3, 20_004, LEN - 20_004)];
        for (ttag, offset, len) in requests {
            let pdu = wire.request(command.cid(), ttag, offset, len);
            wire.send(&pdu);
        }
        for (ttag, offset, len) in requests {
            let mut at = offset;
            while at < offset + len {
                let part = wire.host_data();
                assert_eq!((part.cid, part.ttag, part.offset), (command.cid(), ttag, at));
                assert!(part.data.len() <= 8192, "MAXH2CDATA");
                assert!(part.data == pattern(LEN as usize)[at as usize..at as usize + part.data.len()]);
                at += part.data.len() as u32;
                assert_eq!(part.last, at == offset + len, "LAST ends each R2T");
            }
        }
        wire.succeed(&command, 0);
    };
    with_queue(manners, config, answer, |queue| async move {
        let payload = Payload::copy_of(&pattern(LEN as usize));
        queue.write(NSID, Lba(0), 16, payload, ashlar_initiator::Fua::No).await.expect("it succeeds");
    });
}

#[test]
fn fused_pair_is_adjacent_while_others_submit() {
    let answer = |wire: &mut Wire| {
        let commands: Vec<_> = (0..22).map(|_| wire.command()).collect();
        let first = commands.iter().position(|command| command.sqe[1] & 3 == 1).expect("the first half");
        assert_eq!(commands[first].opcode(), 5, "Compare");
        assert_eq!((commands[first + 1].opcode(), commands[first + 1].sqe[1] & 3), (1, 2), "then Write");
        for command in &commands {
            wire.succeed(command, 0);
        }
    };
    with_queue(Manners::default(), config(), answer, |queue| async move {
        let mut flushes = Vec::new();
        for _ in 0..10 {
            flushes.push(queue.submit(ashlar_nvme::nvm::flush(ashlar_nvme::CommandId(0), NSID), Data::None));
        }
        let mut pending = Vec::new();
        for flush in flushes {
            pending.push(flush.await.expect("there is room"));
        }
        let (expected, new) = (Payload::copy_of(&pattern(4096)), Payload::copy_of(&pattern(4096)));
        let pair = queue.clone();
        let pair = ashlar_reactor::spawn_join(async move {
            pair.compare_and_write(NSID, Lba(0), 1, expected, new).await
        });
        ashlar_reactor::yield_now().await;
        for _ in 0..10 {
            let flush = ashlar_nvme::nvm::flush(ashlar_nvme::CommandId(0), NSID);
            pending.push(queue.submit(flush, Data::None).await.expect("there is room"));
        }
        for flush in pending {
            flush.await.expect("it succeeds");
        }
        pair.await.expect("it ran").expect("it succeeds");
    });
}

#[test]
fn error_status_is_reported_with_its_bits_and_the_queue_goes_on() {
    let answer = |wire: &mut Wire| {
        let command = wire.command();
        // LBA Out of Range with DNR and More: the field is shifted by the phase bit.
        let response = wire.response(command.cid(), 5, 1, 0x80 | 1 << 14 | 1 << 13);
        wire.send(&response);
        let command = wire.command();
        wire.succeed(&command, 0);
    };
    let error = with_queue(Manners::default(), config(), answer, |queue| async move {
        let error = queue.flush(NSID).await.expect_err("it fails");
        queue.flush(NSID).await.expect("the next one succeeds");
        error
    });
    let HostError::Command(error) = error else { panic!("{error}") };
    assert_eq!((error.status(), error.dnr(), error.more()), (Status::LBA_OUT_OF_RANGE, true, true));
    assert_eq!(error.result, 5);
}

#[test]
fn damaged_data_fails_its_command_only() {
    let (manners, config) = with_digests();
    let answer = |wire: &mut Wire| {
        let command = wire.command();
        let mut pdu = wire.data(command.cid(), 0, &pattern(4096), 4);
        pdu[100] ^= 1;
        wire.send(&pdu);
        wire.succeed(&command, 0);
        let command = wire.command();
        wire.succeed(&command, 0);
    };
    with_queue(manners, config, answer, |queue| async move {
        let error = queue.read(NSID, Lba(0), 1, IoBuf::heap(4096)).await.expect_err("it fails");
        assert!(matches!(error, HostError::DataDigest), "{error}");
        queue.flush(NSID).await.expect("the connection goes on");
    });
}

#[test]
fn write_answered_with_an_error_before_its_data_went_out_still_sends_the_data() {
    let answer = |wire: &mut Wire| {
        let command = wire.command();
        let mut bytes = wire.request(command.cid(), 9, 0, 16 * 1024);
        bytes.extend(wire.response(command.cid(), 0, 1, 0x22));
        wire.send(&bytes);
        let data: u32 = (0..2).map(|_| wire.host_data().data.len() as u32).sum();
        assert_eq!(data, 16 * 1024);
        let command = wire.command();
        wire.succeed(&command, 0);
    };
    with_queue(Manners::default(), config(), answer, |queue| async move {
        let payload = Payload::copy_of(&pattern(16 * 1024));
        let error = queue.write(NSID, Lba(0), 4, payload, ashlar_initiator::Fua::No).await;
        assert_eq!(error.expect_err("it fails").status(), Some(Status::TRANSIENT_TRANSPORT_ERROR));
        queue.flush(NSID).await.expect("the queue goes on");
    });
}

#[test]
fn more_commands_than_entries_wait_for_their_turn() {
    let answer = |wire: &mut Wire| {
        let mut waiting = Vec::new();
        for _ in 0..3 {
            waiting.push(wire.command());
        }
        for _ in 0..7 {
            let command = waiting.remove(0);
            wire.succeed(&command, 0);
            waiting.push(wire.command());
        }
        for command in waiting {
            wire.succeed(&command, 0);
        }
    };
    let config = HostConfig { queue_entries: 4, ..config() };
    with_queue(Manners::default(), config, answer, |queue| async move {
        assert_eq!(queue.depth(), 3, "one entry stays empty");
        let flushes: Vec<_> = (0..10)
            .map(|_| {
                let queue = queue.clone();
                ashlar_reactor::spawn_join(async move { queue.flush(NSID).await })
            })
            .collect();
        for flush in flushes {
            flush.await.expect("it ran").expect("it succeeds");
        }
    });
}

// ---- the handler ----

/// Reads until it has read enough, two at a time.
struct Reader {
    left: u32,
    seen: Rc<RefCell<Vec<(u64, u32, usize)>>>,
    done: Vec<(u64, Outcome)>,
}

impl Reader {
    fn submit(&mut self, queue: &mut Submitter<'_>) {
        if self.left > 0 {
            self.left -= 1;
            let token = Token(u64::from(self.left));
            queue.read(token, NSID, Lba(0), 1, 4096, Sink::Handler).expect("there is room");
        }
    }
}

impl Handler for Reader {
    fn begin(&mut self, queue: &mut Submitter<'_>) {
        self.submit(queue);
        self.submit(queue);
        assert_eq!(queue.outstanding(), 2);
    }

    fn data(&mut self, token: Token, offset: u32, bytes: &[u8]) {
        assert!(bytes == &pattern(4096)[offset as usize..offset as usize + bytes.len()]);
        self.seen.borrow_mut().push((token.0, offset, bytes.len()));
    }

    fn complete(&mut self, queue: &mut Submitter<'_>, done: Done) {
        self.done.push((done.token.0, done.outcome));
        self.submit(queue);
    }
}

#[test]
fn handler_sees_all_data_and_every_completion() {
    let answer = |wire: &mut Wire| {
        for _ in 0..10 {
            let command = wire.command();
            let mut bytes = wire.data(command.cid(), 0, &pattern(4096), 4);
            bytes.extend(wire.response(command.cid(), 0, 1, 0));
            wire.send(&bytes);
        }
    };
    with_queue(Manners::default(), config(), answer, |queue| async move {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let reader = Reader { left: 10, seen: Rc::clone(&seen), done: Vec::new() };
        let (result, reader) = queue.run(reader).await;
        result.expect("nothing is lost");
        assert_eq!(reader.done.len(), 10);
        assert!(reader.done.iter().all(|(_, outcome)| matches!(outcome, Outcome::Completed(field)
            if field.status().is_success())));
        assert_eq!(seen.borrow().iter().map(|(_, _, len)| len).sum::<usize>(), 10 * 4096);
    });
}

#[test]
fn handler_is_told_of_each_command_that_is_lost() {
    let answer = |wire: &mut Wire| {
        wire.command();
        wire.command();
    };
    with_queue(Manners::default(), config(), answer, |queue| async move {
        let reader = Reader { left: 2, seen: Rc::default(), done: Vec::new() };
        let (result, reader) = queue.run(reader).await;
        assert!(result.expect_err("it is lost").is_lost());
        assert_eq!(reader.done, [(1, Outcome::Lost), (0, Outcome::Lost)]);
    });
}

// ---- broken rules ----

/// Sends a Read of 8 KiB, lets the peer answer, and expects the queue to end; checks what termination request
/// the peer is sent.
fn breaks(
    answer: impl FnOnce(&mut Wire, u16) -> Vec<u8> + Send + 'static,
    reason: FatalErrorStatus,
) -> ProtocolError {
    breaks_with(Manners::default(), config(), answer, reason)
}

fn breaks_with(
    manners: Manners,
    config: HostConfig,
    answer: impl FnOnce(&mut Wire, u16) -> Vec<u8> + Send + 'static,
    reason: FatalErrorStatus,
) -> ProtocolError {
    let script = move |wire: &mut Wire| {
        let command = wire.command();
        let bytes = answer(wire, command.cid());
        wire.send(&bytes);
        let rest = wire.rest();
        assert!(rest.len() >= 24, "a termination request comes before the end");
        assert_eq!((rest[0], rest[2]), (2, 24), "H2CTermReq");
        assert_eq!(u16::from_le_bytes([rest[8], rest[9]]), reason.code(), "FES");
    };
    with_queue(manners, config, script, |queue| async move {
        let error = queue.read(NSID, Lba(0), 2, IoBuf::heap(8192)).await.expect_err("the queue ends");
        let HostError::ConnectionLost { cause: Loss::Protocol(error), .. } = error else {
            panic!("{error}");
        };
        assert!(queue.flush(NSID).await.expect_err("it stays ended").is_lost());
        error
    })
}

#[test]
fn unknown_pdu_type_ends_the_queue() {
    let error = breaks(|_, _| vec![0x0b; 24], FatalErrorStatus::SequenceError);
    assert_eq!(error, ProtocolError::UnexpectedPdu { kind: 0x0b });
}

#[test]
fn answer_to_no_command_ends_the_queue() {
    let error =
        breaks(|wire, cid| wire.response(cid ^ 0x1000, 0, 1, 0), FatalErrorStatus::InvalidHeaderField);
    assert!(matches!(error, ProtocolError::UnknownCommand { kind: 5, .. }), "{error}");
}

#[test]
fn second_answer_to_a_command_ends_the_queue() {
    let answer = |wire: &mut Wire| {
        let first = wire.command();
        wire.succeed(&first, 0);
        let second = wire.command();
        assert_ne!(first.cid(), second.cid(), "an identifier is not reused at once");
        wire.succeed(&first, 0);
        wire.rest();
    };
    with_queue(Manners::default(), config(), answer, |queue| async move {
        queue.flush(NSID).await.expect("the first succeeds");
        let error = queue.flush(NSID).await.expect_err("the queue ends");
        let cause = match error {
            HostError::ConnectionLost { cause, .. } => cause,
            other => panic!("{other}"),
        };
        assert!(matches!(cause, Loss::Protocol(ProtocolError::UnknownCommand { .. })), "{cause}");
    });
}

#[test]
fn data_beyond_the_commands_length_ends_the_queue() {
    let error = breaks(|wire, cid| wire.data(cid, 0, &pattern(8196), 4), FatalErrorStatus::DataOutOfRange);
    assert!(matches!(error, ProtocolError::OutOfRange { len: 8196, total: 8192, .. }), "{error}");
}

#[test]
fn data_out_of_order_ends_the_queue() {
    let error = breaks(|wire, cid| wire.data(cid, 4096, &pattern(4096), 4), FatalErrorStatus::DataOutOfRange);
    assert!(matches!(error, ProtocolError::OutOfRange { offset: 4096, expected: 0, .. }), "{error}");
}

#[test]
fn data_twice_ends_the_queue() {
    let answer = |wire: &mut Wire, cid| {
        let mut bytes = wire.data(cid, 0, &pattern(4096), 0);
        bytes.extend(wire.data(cid, 0, &pattern(4096), 0));
        bytes
    };
    let error = breaks(answer, FatalErrorStatus::DataOutOfRange);
    assert!(matches!(error, ProtocolError::OutOfRange { offset: 0, expected: 4096, .. }), "{error}");
}

#[test]
fn last_before_the_end_ends_the_queue() {
    let error =
        breaks(|wire, cid| wire.data(cid, 0, &pattern(4096), 4), FatalErrorStatus::InvalidHeaderField);
    assert!(matches!(error, ProtocolError::Last { .. }), "{error}");
}

#[test]
fn missing_last_ends_the_queue() {
    let error =
        breaks(|wire, cid| wire.data(cid, 0, &pattern(8192), 0), FatalErrorStatus::InvalidHeaderField);
    assert!(matches!(error, ProtocolError::Last { .. }), "{error}");
}

#[test]
fn success_flag_with_flow_control_ends_the_queue() {
    let answer = |wire: &mut Wire, cid| wire.data(cid, 0, &pattern(8192), 4 | 8);
    let error = breaks(answer, FatalErrorStatus::InvalidHeaderField);
    assert!(matches!(error, ProtocolError::SuccessFlag { .. }), "{error}");
}

#[test]
fn success_flag_ends_the_queue_when_disabling_was_asked_but_not_granted() {
    let config = HostConfig { flow_control: FlowControl::Disabled, ..config() };
    let answer = |wire: &mut Wire, cid| wire.data(cid, 0, &pattern(8192), 4 | 8);
    let error = breaks_with(Manners::default(), config, answer, FatalErrorStatus::InvalidHeaderField);
    assert!(matches!(error, ProtocolError::SuccessFlag { .. }), "{error}");
}

#[test]
fn success_without_all_data_ends_the_queue() {
    let answer = |wire: &mut Wire, cid| {
        let mut bytes = wire.data(cid, 0, &pattern(4096), 0);
        bytes.extend(wire.response(cid, 0, 1, 0));
        bytes
    };
    let error = breaks(answer, FatalErrorStatus::SequenceError);
    assert!(matches!(error, ProtocolError::Short { moved: 4096, total: 8192, .. }), "{error}");
}

#[test]
fn r2t_for_a_read_ends_the_queue() {
    let error = breaks(|wire, cid| wire.request(cid, 1, 0, 4096), FatalErrorStatus::InvalidHeaderField);
    assert!(matches!(error, ProtocolError::WrongDirection { kind: 9, .. }), "{error}");
}

#[test]
fn sqhd_beyond_the_queue_ends_it() {
    let answer = |wire: &mut Wire, cid| wire.response(cid, 0, 128, 0x80);
    let error = breaks(answer, FatalErrorStatus::InvalidHeaderField);
    assert!(matches!(error, ProtocolError::Sqhd { sqhd: 128, entries: 128, .. }), "{error}");
}

#[test]
fn wrong_header_digest_ends_the_queue() {
    let (manners, config) = with_digests();
    let answer = |wire: &mut Wire, cid| {
        let mut bytes = wire.response(cid, 0, 1, 0x80);
        bytes[12] ^= 1;
        bytes
    };
    let error = breaks_with(manners, config, answer, FatalErrorStatus::HeaderDigestError);
    assert!(matches!(error, ProtocolError::HeaderDigest { kind: 5, .. }), "{error}");
}

/// As [`breaks`], for a Write of 64 KiB.
fn write_breaks(answer: impl FnOnce(&mut Wire, u16) -> Vec<u8> + Send + 'static) -> ProtocolError {
    let script = move |wire: &mut Wire| {
        let command = wire.command();
        let bytes = answer(wire, command.cid());
        wire.send(&bytes);
        wire.rest();
    };
    let config = HostConfig { r2t_max: 2, ..config() };
    with_queue(Manners::default(), config, script, |queue| async move {
        let payload = Payload::copy_of(&pattern(64 * 1024));
        let error = queue.write(NSID, Lba(0), 16, payload, ashlar_initiator::Fua::No).await;
        match error.expect_err("the queue ends") {
            HostError::ConnectionLost { cause: Loss::Protocol(error), .. } => error,
            other => panic!("{other}"),
        }
    })
}

#[test]
fn r2t_beyond_the_commands_length_ends_the_queue() {
    let error = write_breaks(|wire, cid| wire.request(cid, 1, 0, 64 * 1024 + 4));
    assert!(matches!(error, ProtocolError::OutOfRange { kind: 9, .. }), "{error}");
}

#[test]
fn r2t_with_a_gap_ends_the_queue() {
    let error = write_breaks(|wire, cid| wire.request(cid, 1, 4096, 4096));
    assert!(matches!(error, ProtocolError::OutOfRange { kind: 9, offset: 4096, .. }), "{error}");
}

#[test]
fn empty_r2t_ends_the_queue() {
    let error = write_breaks(|wire, cid| wire.request(cid, 1, 0, 0));
    assert!(matches!(error, ProtocolError::Field { field: "R2TL", .. }), "{error}");
}

#[test]
fn more_r2ts_than_granted_end_the_queue() {
    let answer =
        |wire: &mut Wire, cid| (0..3).flat_map(|i| wire.request(cid, i, u32::from(i) * 4096, 4096)).collect();
    let error = write_breaks(answer);
    assert!(matches!(error, ProtocolError::TooManyR2ts { most: 2, .. }), "{error}");
}

#[test]
fn data_for_a_write_ends_the_queue() {
    let error = write_breaks(|wire, cid| wire.data(cid, 0, &pattern(4096), 0));
    assert!(matches!(error, ProtocolError::WrongDirection { kind: 7, .. }), "{error}");
}

#[test]
fn success_of_a_write_whose_data_was_not_asked_for_ends_the_queue() {
    let error = write_breaks(|wire, cid| wire.response(cid, 0, 1, 0));
    assert!(matches!(error, ProtocolError::Short { moved: 0, .. }), "{error}");
}

// ---- losses ----

#[test]
fn termination_request_of_the_controller_is_reported() {
    let answer = |wire: &mut Wire| {
        wire.command();
        let pdu = wire.termination(1, 72);
        wire.send(&pdu);
        wire.rest();
    };
    let error = with_queue(Manners::default(), config(), answer, |queue| async move {
        queue.flush(NSID).await.expect_err("the queue ends")
    });
    let HostError::ConnectionLost { cause: Loss::Terminated { reason, information }, qid } = error else {
        panic!("{error}");
    };
    assert_eq!(qid, Qid(1));
    assert_eq!((reason, information), (Some(FatalErrorStatus::InvalidHeaderField), 72));
}

#[test]
fn closed_connection_ends_every_outstanding_command() {
    let answer = |wire: &mut Wire| {
        wire.command();
        wire.command();
    };
    with_queue(Manners::default(), config(), answer, |queue| async move {
        let other = queue.clone();
        let other = ashlar_reactor::spawn_join(async move { other.flush(NSID).await });
        let error = queue.flush(NSID).await.expect_err("it is lost");
        let HostError::ConnectionLost { cause, .. } = error else { panic!("{error}") };
        assert!(matches!(cause, Loss::ClosedByPeer | Loss::Io(_)), "{cause}");
        assert!(other.await.expect("it ran").expect_err("it is lost").is_lost());
        assert!(queue.is_lost());
    });
}

#[test]
fn silent_controller_ends_the_queue_after_the_limit() {
    let answer = |wire: &mut Wire| {
        wire.command();
        wire.rest();
    };
    let config = HostConfig { io_timeout: Duration::from_millis(200), ..config() };
    let error = with_queue(Manners::default(), config, answer, |queue| async move {
        queue.flush(NSID).await.expect_err("it is lost")
    });
    let HostError::ConnectionLost { cause, .. } = error else { panic!("{error}") };
    assert!(matches!(cause, Loss::CommandTimeout(_)), "{cause}");
}

#[test]
fn dropped_future_leaves_the_queue_whole() {
    let answer = |wire: &mut Wire| {
        let first = wire.command();
        let second = wire.command();
        wire.succeed(&second, 0);
        let third = wire.command();
        let pdu = wire.data(first.cid(), 0, &pattern(4096), 4);
        wire.send(&pdu);
        wire.succeed(&first, 0);
        wire.succeed(&third, 0);
    };
    with_queue(Manners::default(), config(), answer, |queue| async move {
        let sqe = Sqe::new(2, ashlar_nvme::CommandId(0), NSID);
        let read = queue.submit(sqe, Data::into_buffer(IoBuf::heap(4096))).await.expect("there is room");
        drop(read);
        queue.flush(NSID).await.expect("it succeeds");
        queue.flush(NSID).await.expect("it succeeds");
    });
}
