//! The handshake and Connect: what the host refuses, gives up, and reports.

use super::*;

fn handshake_fails(
    config: HostConfig,
    answer: impl FnOnce(&mut Wire) -> Vec<u8> + Send + 'static,
) -> HostError {
    let script = move |wire: &mut Wire| {
        wire.read_exact(128);
        let bytes = answer(wire);
        wire.send(&bytes);
        wire.rest();
    };
    let (address, peer) = listen_raw(Manners::default(), script);
    let error = connect_fails(address, config);
    peer.join().expect("the peer saw what it expected");
    error
}

fn connect_fails(address: SocketAddr, config: HostConfig) -> HostError {
    on_core(move || async move {
        Controller::connect(address, &subsystem(), &config).await.expect_err("it does not connect")
    })
}

#[test]
fn icresp_that_grants_something_else_is_refused() {
    let cases: [(usize, u8, &str); 7] = [
        (0, 5, "PDU-Type"),
        (4, 127, "PLEN"),
        (8, 1, "PFV"),
        (10, 32, "CPDA"),
        (11, 1, "DGST"),
        (12, 2, "MAXH2CDATA"),
        (13, 0x0f, "MAXH2CDATA"),
    ];
    for (at, value, name) in cases {
        let error = handshake_fails(config(), move |wire| {
            let mut response = wire.ic_resp(0);
            response[at] = value;
            response
        });
        let HostError::ConnectionLost { cause: Loss::Protocol(ProtocolError::IcResp { what, .. }), .. } =
            error
        else {
            panic!("byte {at} = {value}: {error}");
        };
        assert_eq!(what, name);
    }
}

#[test]
fn digest_that_is_not_granted_is_refused() {
    let asking = HostConfig { data_digest: DigestUse::On, ..config() };
    let error = handshake_fails(asking, |wire| wire.ic_resp(0));
    assert!(error.to_string().contains("DGST"), "{error}");
}

#[test]
fn terminated_handshake_says_why() {
    let error = handshake_fails(config(), |wire| wire.termination(6, 8));
    let HostError::ConnectionLost { cause: Loss::Terminated { reason, .. }, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(reason, Some(FatalErrorStatus::UnsupportedParameter));
}

#[test]
fn silent_peer_is_given_up_after_the_limit() {
    let config = HostConfig { admin_timeout: Duration::from_millis(200), ..config() };
    let error = handshake_fails(config, |_| Vec::new());
    assert!(matches!(error, HostError::TimedOut { .. }), "{error}");
}

#[test]
fn nobody_there_is_an_error_that_says_whom() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let error = connect_fails(address, config());
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn refused_connect_reports_status_and_parameter() {
    let script = |wire: &mut Wire| {
        wire.read_exact(128);
        let response = wire.ic_resp(0);
        wire.send(&response);
        let command = wire.command();
        let response = wire.response(command.cid(), 256 | 1 << 16, 0, 0x182 | 1 << 14);
        wire.send(&response);
        wire.rest();
    };
    let (address, peer) = listen_raw(Manners::default(), script);
    let error = connect_fails(address, config());
    peer.join().expect("the peer saw what it expected");
    let HostError::Command(error) = error else { panic!("{error}") };
    assert_eq!(error.status(), Status::CONNECT_INVALID_PARAMETERS);
    assert_eq!(error.result, 256 | 1 << 16, "which parameter");
}

#[test]
fn host_that_is_killed_at_work_leaves_nothing_over() {
    let (address, peer) = listen(Manners::default(), |wire| {
        wire.command();
        wire.rest();
    });
    on_core(move || async move {
        let controller = Controller::connect(address, &subsystem(), &config()).await.expect("it connects");
        let queue = IoQueue::connect(&controller.ticket(), Qid(1)).await.expect("the queue connects");
        let pending = queue
            .submit(ashlar_nvme::nvm::flush(ashlar_nvme::CommandId(0), NSID), Data::None)
            .await
            .expect("there is room");
        ashlar_reactor::yield_now().await;
        drop((queue, controller));
        assert!(pending.await.expect_err("it is lost").is_lost());
    });
    peer.join().expect("the peer saw what it expected");
}
