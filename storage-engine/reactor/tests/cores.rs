//! The runtime as its users see it: cores that start, work together and stop without leaving anything behind.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use ashlar_reactor::mailbox::{SendError, mailbox};
use ashlar_reactor::net::{Gather, Listener, Stream, StreamOptions};
use ashlar_reactor::{
    BufferCounts, CoreId, Cores, CoresConfig, Error, IoBuf, Line, Notify, next_turn, sleep, spawn,
    spawn_join, spawn_now, stop_requested, timeout, yield_now,
};

const DRAIN: Duration = Duration::from_secs(20);

fn cores(count: usize) -> Cores {
    let mut config = CoresConfig::floating(count);
    config.buffers = BufferCounts { blocks: 8, capsules: 4, slices: 2 };
    Cores::start(&config).expect("start cores")
}

fn on_core<T: Send + 'static, Fut: Future<Output = T> + 'static>(
    cores: &Cores,
    core: u16,
    f: impl FnOnce() -> Fut + Send + 'static,
) -> T {
    cores.handle().run_on(CoreId(core), f).wait().expect("the core answers")
}

#[test]
fn each_turn_that_a_task_lets_pass_is_a_look_at_the_ring() {
    let cores = cores(1);
    let handle = cores.handle();
    let before = handle.counters(CoreId(0)).turns;
    on_core(&cores, 0, || async {
        for _ in 0..1000 {
            next_turn().await;
        }
    });
    assert!(handle.counters(CoreId(0)).turns >= before + 999);
    cores.stop(DRAIN).expect("nothing is left over");
}

#[test]
fn a_core_runs_what_it_is_given_and_answers() {
    let cores = cores(2);
    assert_eq!(on_core(&cores, 0, || async { ashlar_reactor::current_core() }), Some(CoreId(0)));
    assert_eq!(on_core(&cores, 1, || async { ashlar_reactor::current_core() }), Some(CoreId(1)));
    assert_eq!(ashlar_reactor::current_core(), None);
    cores.stop(DRAIN).expect("nothing is left over");
}

/// The order in which sleeps of so many milliseconds end that begin in this order, with `meanwhile` behind them.
fn order_of_ends(sleeps: [u64; 3], meanwhile: impl FnOnce() + Send + 'static) -> Vec<u64> {
    let cores = cores(1);
    let order = on_core(&cores, 0, move || async move {
        let order = Rc::new(std::cell::RefCell::new(Vec::new()));
        let tasks: Vec<_> = sleeps
            .into_iter()
            .map(|ms| {
                let order = Rc::clone(&order);
                spawn_join(async move {
                    sleep(Duration::from_millis(ms)).await;
                    order.borrow_mut().push(ms);
                })
            })
            .collect();
        spawn_join(async { meanwhile() }).await.expect("the task ends");
        for task in tasks {
            task.await.expect("the task ends");
        }
        order.take()
    });
    cores.stop(DRAIN).expect("nothing is left over");
    order
}

#[test]
fn timers_end_in_the_order_of_their_deadlines() {
    assert_eq!(order_of_ends([30, 10, 20], || {}), [10, 20, 30]);
}

#[test]
fn timers_that_are_due_at_once_end_in_the_order_of_their_deadlines() {
    // The core is kept busy until all are due.
    let busy = || std::thread::sleep(Duration::from_millis(20));
    assert_eq!(order_of_ends([3, 1, 2], busy), [1, 2, 3]);
}

#[test]
fn a_time_limit_ends_a_future_that_never_would() {
    let cores = cores(1);
    on_core(&cores, 0, || async {
        let never = Notify::new();
        assert!(timeout(Duration::from_millis(5), never.notified()).await.is_err());
        assert_eq!(timeout(DRAIN, async { 7 }).await, Ok(7));
    });
    cores.stop(DRAIN).expect("nothing is left over");
}

#[test]
fn a_task_that_never_waits_is_done_when_spawn_now_returns() {
    let cores = cores(1);
    on_core(&cores, 0, || async {
        let done = Rc::new(Cell::new(false));
        let set = Rc::clone(&done);
        spawn_now(async move { set.set(true) });
        assert!(done.get());
    });
    cores.stop(DRAIN).expect("nothing is left over");
}

#[test]
fn messages_between_cores_arrive_in_order_and_wake_a_sleeping_core() {
    const COUNT: u64 = 20_000;
    let cores = cores(2);
    let (to_one, mut at_one) = mailbox::<u64>(64);
    let (to_zero, mut at_zero) = mailbox::<u64>(64);
    let echo = cores.handle().run_on(CoreId(1), move || async move {
        while let Some(message) = at_one.recv().await {
            let mut message = message;
            while let Err(SendError::Full(back)) = to_zero.try_send(message) {
                message = back;
                yield_now().await;
            }
        }
    });
    let sum = on_core(&cores, 0, move || async move {
        let sender = spawn_join(async move {
            for number in 0..COUNT {
                let mut message = number;
                while let Err(SendError::Full(back)) = to_one.try_send(message) {
                    message = back;
                    yield_now().await;
                }
                // Let both sides fall asleep now and then.
                if number % 5000 == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            }
        });
        for expected in 0..COUNT {
            assert_eq!(at_zero.recv().await, Some(expected));
        }
        sender.await.expect("the sender ends");
        assert_eq!(at_zero.recv().await, None, "all senders are gone");
        COUNT
    });
    assert_eq!(sum, COUNT);
    echo.wait().expect("the echo ends");
    cores.stop(DRAIN).expect("nothing is left over");
}

#[test]
fn another_thread_wakes_a_core_that_sleeps() {
    let cores = cores(1);
    let (sender, mut receiver) = mailbox::<u32>(1);
    let answer = cores.handle().run_on(CoreId(0), move || async move { receiver.recv().await });
    let thread = thread::spawn(move || sender.try_send(5));
    assert_eq!(answer.wait().expect("the core answers"), Some(5));
    thread.join().expect("the thread ends").expect("the mailbox is empty");
    cores.stop(DRAIN).expect("nothing is left over");
}

#[test]
fn a_full_mailbox_gives_the_message_back() {
    let (sender, receiver) = mailbox::<u8>(1);
    sender.try_send(1).expect("there is room");
    assert_eq!(sender.try_send(2), Err(SendError::Full(2)));
    drop(receiver);
    assert_eq!(sender.try_send(3), Err(SendError::Closed(3)));
}

async fn send_all(stream: &Stream, bytes: &[u8]) {
    let mut gather = Box::new(Gather::new());
    for piece in bytes.chunks(4096) {
        gather.header(piece.len()).expect("room").copy_from_slice(piece);
        while !gather.is_empty() {
            let (result, back) = stream.send(gather).await;
            result.expect("send");
            gather = back;
        }
    }
}

async fn pair() -> (Stream, Stream) {
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let mut listener = Listener::bind(&any).expect("bind");
    let address = listener.local_address();
    let client = spawn_join(async move { Stream::connect(&address, StreamOptions::default()).await });
    let server = listener.accept().await.expect("accept");
    (server, client.await.expect("the task ends").expect("connect"))
}

#[test]
fn what_is_sent_arrives_through_shared_and_through_own_buffers() {
    let cores = cores(1);
    on_core(&cores, 0, || async {
        let (server, client) = pair().await;
        let sent: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        let expected = sent.clone();
        let sender = spawn_join(async move {
            send_all(&client, &sent).await;
            client
        });
        let mut received = Vec::new();
        while received.len() < 100_000 {
            received.extend_from_slice(&server.receive().await.expect("receive").expect("bytes"));
        }
        while received.len() < expected.len() {
            let buffer = IoBuf::heap(3000);
            let (result, buffer) = server.receive_into(buffer, 100).await;
            let len = result.expect("receive");
            received.extend_from_slice(&buffer[100..100 + len]);
        }
        assert!(received == expected);
        sender.await.expect("the sender ends").shut_down();
        assert!(server.receive().await.expect("receive").is_none(), "the end of the stream");
    });
    cores.stop(DRAIN).expect("nothing is left over");
}

#[test]
fn a_multishot_receive_gets_everything_also_when_it_ran_out_of_buffers() {
    let cores = cores(1);
    on_core(&cores, 0, || async {
        let (server, client) = pair().await;
        let mut many = server.receive_many();
        let mut held = Vec::new();
        let mut sent = 0;
        for _ in 0..ashlar_reactor::limits::PROVIDED_BUFFERS {
            send_all(&client, &[1; 64]).await;
            sent += 64;
            held.push(many.next().await.expect("receive").expect("bytes"));
        }
        let mut received: usize = held.iter().map(|bytes| bytes.len()).sum();
        send_all(&client, &[2; 100_000]).await;
        sent += 100_000;
        held.clear();
        while received < sent {
            received += many.next().await.expect("receive").expect("bytes").len();
        }
        assert_eq!(received, sent);
        client.shut_down();
        assert!(many.next().await.expect("receive").is_none(), "the end of the stream");
    });
    cores.stop(DRAIN).expect("nothing is left over");
}

#[test]
fn receiving_goes_on_after_all_shared_buffers_were_in_use() {
    let cores = cores(1);
    on_core(&cores, 0, || async {
        let (server, client) = pair().await;
        let mut held = Vec::new();
        for _ in 0..ashlar_reactor::limits::PROVIDED_BUFFERS {
            send_all(&client, b"x").await;
            held.push(server.receive().await.expect("receive").expect("a byte"));
        }
        send_all(&client, b"y").await;
        let waiting =
            spawn_join(async move { server.receive().await.expect("receive").expect("a byte").to_vec() });
        yield_now().await;
        held.clear();
        assert_eq!(waiting.await.expect("the task ends"), b"y");
    });
    cores.stop(DRAIN).expect("nothing is left over");
}

#[test]
fn a_socket_moves_to_another_core_with_its_stream_intact() {
    let cores = cores(2);
    let handle = cores.handle();
    on_core(&cores, 0, move || async move {
        let (server, client) = pair().await;
        send_all(&client, b"before").await;
        let fd = server.into_fd().expect("nobody else has it");
        let there = handle.run_on(CoreId(1), move || async move {
            let server = Stream::from_fd(fd);
            let mut all = Vec::new();
            while let Some(bytes) = server.receive().await.expect("receive") {
                all.extend_from_slice(&bytes);
            }
            all
        });
        send_all(&client, b" and after").await;
        client.shut_down();
        assert_eq!(there.await.expect("the core answers"), b"before and after");
    });
    cores.stop(DRAIN).expect("nothing is left over");
}

#[test]
fn a_dropped_receive_loses_no_descriptor_and_no_buffer() {
    let cores = cores(1);
    on_core(&cores, 0, || async {
        for _ in 0..200 {
            let (server, client) = pair().await;
            assert!(timeout(Duration::from_micros(100), server.receive()).await.is_err());
            let buffer = IoBuf::take(4096).expect("a buffer");
            assert!(timeout(Duration::from_micros(100), server.receive_into(buffer, 0)).await.is_err());
            drop((server, client));
        }
    });
    cores.stop(DRAIN).expect("nothing is left over");
}

#[test]
fn spare_buffers_are_handed_out_until_half_are_left() {
    let cores = cores(1);
    on_core(&cores, 0, || async {
        let spare: Vec<IoBuf> = std::iter::from_fn(|| IoBuf::take_spare(4096)).collect();
        assert_eq!(spare.len(), 4, "half of eight");
        let rest: Vec<IoBuf> = (0..4).filter_map(|_| IoBuf::take(4096)).collect();
        assert_eq!(rest.len(), 4, "the others are there for those who need them");
        drop((spare, rest));
        assert!(IoBuf::take_spare(4096).is_some());
    });
    cores.stop(DRAIN).expect("nothing is left over");
}

#[test]
fn whoever_waits_for_a_buffer_is_served_in_turn_also_from_another_core() {
    let cores = cores(2);
    let handle = cores.handle();
    on_core(&cores, 0, move || async move {
        let first = IoBuf::take(128 * 1024).expect("first");
        let second = IoBuf::take(100 * 1024).expect("second");
        assert!(IoBuf::take(128 * 1024).is_none(), "both are out");
        let order = Rc::new(std::cell::RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..2)
            .map(|number| {
                let order = Rc::clone(&order);
                spawn_join(async move {
                    let buffer = IoBuf::wait(128 * 1024).await.expect("in range");
                    order.borrow_mut().push(number);
                    yield_now().await;
                    drop(buffer);
                })
            })
            .collect();
        yield_now().await;
        handle.run_on(CoreId(1), move || async move { drop(first) }).await.expect("dropped there");
        for task in tasks {
            task.await.expect("the task ends");
        }
        assert_eq!(*order.borrow(), [0, 1]);
        drop(second);
        assert!(IoBuf::wait(128 * 1024 + 1).await.is_none(), "larger than any buffer");
    });
    cores.stop(DRAIN).expect("nothing is left over");
}

#[test]
fn a_wait_that_was_given_up_holds_nobody_up() {
    let cores = cores(1);
    on_core(&cores, 0, || async {
        let held = [IoBuf::take(128 * 1024).expect("first"), IoBuf::take(128 * 1024).expect("second")];
        let mut gone = Box::pin(IoBuf::wait(128 * 1024));
        assert!(timeout(Duration::from_millis(1), gone.as_mut()).await.is_err());
        drop(gone);
        let also_gone = spawn_join(timeout(Duration::from_millis(20), IoBuf::wait(128 * 1024)));
        yield_now().await;
        drop(held);
        assert!(also_gone.await.expect("the task ends").is_ok(), "it was next");
        assert!(timeout(DRAIN, IoBuf::wait(128 * 1024)).await.expect("buffers are free").is_some());
    });
    cores.stop(DRAIN).expect("nothing is left over");
}

#[test]
fn a_line_serves_in_order_also_past_those_who_left() {
    let cores = cores(1);
    on_core(&cores, 0, || async {
        let line = Rc::new(Line::new());
        let order = Rc::new(std::cell::RefCell::new(Vec::new()));
        let first = line.turn().await;
        let stand = |number: u32| {
            let (line, order) = (Rc::clone(&line), Rc::clone(&order));
            spawn_join(async move {
                let _turn = line.turn().await;
                order.borrow_mut().push(number);
                yield_now().await;
            })
        };
        let one = stand(1);
        assert!(timeout(Duration::from_millis(1), line.turn()).await.is_err(), "somebody has the turn");
        let two = stand(2);
        yield_now().await;
        drop(first);
        let three = stand(3);
        for task in [one, two, three] {
            task.await.expect("the task ends");
        }
        assert_eq!(*order.borrow(), [1, 2, 3]);
        drop(timeout(DRAIN, line.turn()).await.expect("nobody stands in it"));
    });
    cores.stop(DRAIN).expect("nothing is left over");
}

#[test]
fn stopping_lets_tasks_end_by_themselves() {
    let cores = cores(2);
    let ended = Arc::new(AtomicUsize::new(0));
    for core in cores.handle().ids() {
        let ended = Arc::clone(&ended);
        let started = cores.handle().run_on(core, move || async move {
            spawn(async move {
                stop_requested().await;
                sleep(Duration::from_millis(20)).await;
                ended.fetch_add(1, Ordering::Relaxed);
            });
        });
        started.wait().expect("started");
    }
    cores.stop(DRAIN).expect("nothing is left over");
    assert_eq!(ended.load(Ordering::Relaxed), 2);
}

#[test]
fn a_task_that_does_not_end_is_dropped_and_reported() {
    struct Told(mpsc::Sender<()>);
    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let cores = cores(1);
    let (sender, receiver) = mpsc::channel();
    on_core(&cores, 0, move || async move {
        let told = Told(sender);
        spawn(async move {
            let _told = told;
            Notify::new().notified().await;
        });
    });
    let result = cores.stop(Duration::from_millis(10));
    assert!(
        matches!(result, Err(Error::Leaked { tasks: 1, operations: 0, buffers: 0, .. })),
        "unexpected: {result:?}"
    );
    receiver.try_recv().expect("the task was dropped");
}

#[test]
fn a_buffer_that_is_not_given_back_is_reported_and_stays_valid() {
    let cores = cores(1);
    let mut kept = on_core(&cores, 0, || async { IoBuf::take(4096).expect("a buffer") });
    let result = cores.stop(DRAIN);
    assert!(matches!(result, Err(Error::Leaked { buffers: 1, .. })), "unexpected: {result:?}");
    kept.fill(7);
    assert_eq!(kept[4095], 7);
}

#[test]
fn an_answer_that_will_never_come_is_an_error() {
    let cores = cores(1);
    let reply = cores.handle().run_on(CoreId(0), || async { Notify::new().notified().await });
    assert!(cores.stop(Duration::ZERO).is_err(), "the function was still waiting");
    assert!(matches!(reply.wait(), Err(Error::Stopped { .. })));
}

#[test]
fn no_cores_is_an_error() {
    assert!(matches!(Cores::start(&CoresConfig::floating(0)), Err(Error::NoCores)));
}

#[test]
fn an_idle_core_sleeps() {
    let cores = cores(1);
    on_core(&cores, 0, || async { sleep(Duration::from_millis(300)).await });
    let counters = cores.handle().counters(CoreId(0));
    assert!(counters.turns < 1000, "an idle core turned {} times", counters.turns);
    cores.stop(DRAIN).expect("nothing is left over");
}
