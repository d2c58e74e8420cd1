//! What the runtime alone costs: one core answers 72-byte requests with 4120 bytes, another asks at a given depth.
//!
//! `pingpong [DEPTH] [SECONDS]` prints requests per second and, per core, busy time, system calls and polls per
//! request. It is the ceiling for reads over NVMe/TCP: the same messages without the protocol.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ashlar_reactor::net::{Gather, Listener, Stream, StreamOptions};
use ashlar_reactor::{CoreId, Cores, CoresConfig, spawn_now};

const REQUEST: usize = 72;
const HEADER: usize = 24;
const PAYLOAD: usize = 4096;

async fn send_all(stream: &Stream, mut gather: Box<Gather>) -> std::io::Result<Box<Gather>> {
    while !gather.is_empty() {
        let (result, back) = stream.send(gather).await;
        result?;
        gather = back;
    }
    Ok(gather)
}

async fn serve(stream: Stream) -> std::io::Result<()> {
    stream.set_options(StreamOptions::default())?;
    let mut gather = Box::new(Gather::new());
    let mut carried = 0;
    let mut next = stream.receive().await?;
    while let Some(bytes) = next {
        let have = carried + bytes.len();
        carried = have % REQUEST;
        for _ in 0..have / REQUEST {
            if !gather.has_room(HEADER) {
                gather = send_all(&stream, gather).await?;
            }
            if let Some(header) = gather.header(HEADER) {
                header[0] = 7;
            }
            assert!(gather.zeroes(PAYLOAD), "room was checked");
            // What a command costs that never waits.
            spawn_now(std::future::ready(()));
        }
        drop(bytes);
        // Both go to the kernel in one call.
        let (received, sent) = both(stream.receive(), send_all(&stream, gather)).await;
        (next, gather) = (received?, sent?);
    }
    Ok(())
}

async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut done_a, mut done_b) = (None, None);
    poll_fn(|context| {
        if done_a.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(context)
        {
            done_a = Some(output);
        }
        if done_b.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(context)
        {
            done_b = Some(output);
        }
        match (done_a.take(), done_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (done_a, done_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

async fn ask(address: SocketAddr, depth: usize, time: Duration) -> std::io::Result<u64> {
    let stream = Stream::connect(&address, StreamOptions::default()).await?;
    let end = ashlar_reactor::clock::read() + time;
    let mut gather = Box::new(Gather::new());
    let (mut to_send, mut carried, mut answered) = (depth, 0, 0u64);
    while ashlar_reactor::now() < end {
        for _ in 0..to_send {
            if let Some(request) = gather.header(REQUEST) {
                request[0] = 4;
            }
        }
        let (received, sent) = both(stream.receive(), send_all(&stream, gather)).await;
        gather = sent?;
        let Some(bytes) = received? else { break };
        let have = carried + bytes.len();
        to_send = have / (HEADER + PAYLOAD);
        carried = have % (HEADER + PAYLOAD);
        answered += to_send as u64;
    }
    stream.shut_down();
    Ok(answered)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let depth = arguments.next().map_or(Ok(128), |text| text.parse())?;
    let seconds = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let time = Duration::from_secs(seconds);
    let mut config = CoresConfig::floating(2);
    config.cpus = vec![Some(0), Some(1)];
    let cores = Cores::start(&config)?;
    let handle = cores.handle();
    let address = handle
        .run_on(CoreId(0), || async {
            let any: SocketAddr = ([127, 0, 0, 1], 0).into();
            let mut listener = Listener::bind(&any)?;
            let address = listener.local_address();
            ashlar_reactor::spawn(async move {
                if let Ok(stream) = listener.accept().await {
                    // The other end closes when time is up.
                    let _ = serve(stream).await;
                }
            });
            Ok::<_, std::io::Error>(address)
        })
        .wait()??;
    let before: Vec<_> = handle.ids().map(|core| handle.counters(core)).collect();
    let answered = handle.run_on(CoreId(1), move || ask(address, depth, time)).wait()??;
    println!("depth {depth}: {:.0} requests per second", answered as f64 / time.as_secs_f64());
    for (core, before) in handle.ids().zip(before) {
        let after = handle.counters(core);
        let idle = (after.sleep_ns - before.sleep_ns) + (after.spin_ns - before.spin_ns);
        let per = |value: u64| value as f64 / answered as f64;
        println!(
            "core {core}: busy {:.0} ns, {:.3} system calls, {:.3} submissions, {:.3} polls per request",
            per((time.as_nanos() as u64).saturating_sub(idle)),
            per(after.enters - before.enters),
            per(after.submissions - before.submissions),
            per(after.polls - before.polls),
        );
    }
    cores.stop(Duration::from_secs(5))?;
    Ok(())
}
