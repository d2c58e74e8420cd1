//! Asynchronous events, Abort (NVME N11).

use ashlar_nvme::admin::{AbortCommand, RetainEvent, async_event_request};
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::feature::AsyncEventConfig;

use super::*;
use crate::limits;

type Waiting = Pin<Box<dyn Future<Output = AdminReply>>>;

fn request(fixture: &Fixture, cid: u16) -> Waiting {
    let controller = Rc::clone(&fixture.controller);
    Box::pin(async move { controller.execute(&async_event_request(CommandId(cid)), &[]).await })
}

/// The event that a request was answered with, if it was.
fn event(waiting: &mut Waiting) -> Option<AsyncEvent> {
    match poll_once(waiting.as_mut()) {
        Poll::Ready(reply) => {
            assert_eq!(reply.status, Status::SUCCESS);
            Some(AsyncEvent::from_dw0(reply.dw0).expect("an event"))
        }
        Poll::Pending => None,
    }
}

/// A controller whose host wants all events.
fn listening() -> Fixture {
    let fixture = Fixture::io();
    let all = AsyncEventConfig(0).with_namespace_attribute(true).with_ana_change(true);
    assert_eq!(fixture.set(FeatureId::AsyncEventConfiguration, all.0).status, Status::SUCCESS);
    fixture
}

/// Changes the size of namespace 1.
fn resize(fixture: &Fixture, blocks: u64) {
    let mut resized = namespace(1);
    resized.blocks = blocks;
    fixture.change(&inventory([subsystem(SUBSYSTEM, [resized, namespace(2)])], blocks));
}

/// Changes the ANA state of namespace 1 and nothing else.
fn move_to(fixture: &Fixture, ana_state: AnaState) {
    let mut moved = namespace(1);
    moved.ana_state = ana_state;
    fixture.change(&inventory([subsystem(SUBSYSTEM, [moved, namespace(2)])], 9));
}

fn read(fixture: &Fixture, lid: LogId, rae: RetainEvent) {
    let command = GetLogPageCommand { rae, ..GetLogPageCommand::new(lid, 0, 16) };
    fixture.data(&command.to_sqe(CommandId(99), Nsid::BROADCAST));
}

const CHANGED: LogId = LogId::ChangedNamespaces;
const ATTRIBUTE: Option<AsyncEvent> = Some(AsyncEvent::NamespaceAttributeChanged);

#[test]
fn a_request_waits_for_an_event_and_says_which_log_to_read() {
    let fixture = listening();
    let mut first = request(&fixture, 1);
    assert_eq!(event(&mut first), None);
    resize(&fixture, 10);
    match poll_once(first.as_mut()) {
        Poll::Ready(reply) => assert_eq!((reply.status, reply.dw0), (Status::SUCCESS, 0x0004_0002)),
        Poll::Pending => panic!("the event was not reported"),
    }
}

#[test]
fn an_event_that_happened_before_is_reported_at_once() {
    let fixture = listening();
    resize(&fixture, 10);
    assert_eq!(event(&mut request(&fixture, 1)), ATTRIBUTE);
}

#[test]
fn an_event_stays_masked_until_its_log_is_read_with_rae_0() {
    let fixture = listening();
    resize(&fixture, 10);
    assert_eq!(event(&mut request(&fixture, 1)), ATTRIBUTE);
    let mut second = request(&fixture, 2);
    resize(&fixture, 20);
    assert_eq!(event(&mut second), None);
    read(&fixture, CHANGED, RetainEvent::Retain);
    assert_eq!(event(&mut second), None);
    read(&fixture, LogId::Ana, RetainEvent::Clear);
    assert_eq!(event(&mut second), None);
    read(&fixture, CHANGED, RetainEvent::Clear);
    // What had happened was in the log that was read.
    assert_eq!(event(&mut second), None);
    resize(&fixture, 30);
    assert_eq!(event(&mut second), ATTRIBUTE);
}

#[test]
fn a_change_while_the_log_is_read_in_pieces_is_reported_again() {
    let fixture = listening();
    resize(&fixture, 10);
    assert_eq!(event(&mut request(&fixture, 1)), ATTRIBUTE);
    read(&fixture, CHANGED, RetainEvent::Retain);
    resize(&fixture, 20);
    let mut second = request(&fixture, 2);
    assert_eq!(event(&mut second), None);
    read(&fixture, CHANGED, RetainEvent::Clear);
    assert_eq!(event(&mut second), ATTRIBUTE);
}

#[test]
fn a_burst_is_one_event() {
    let fixture = listening();
    for blocks in 10..50 {
        resize(&fixture, blocks);
    }
    assert_eq!(event(&mut request(&fixture, 1)), ATTRIBUTE);
    let mut second = request(&fixture, 2);
    read(&fixture, CHANGED, RetainEvent::Clear);
    assert_eq!(event(&mut second), None);
}

#[test]
fn an_ana_change_does_not_wait_for_the_changed_list_to_be_read() {
    let fixture = listening();
    resize(&fixture, 0x1_0000 + 1);
    assert_eq!(event(&mut request(&fixture, 1)), ATTRIBUTE);
    let mut second = request(&fixture, 2);
    let mut moved = namespace(1);
    moved.blocks = 0x1_0000 + 1;
    moved.ana_state = AnaState::Inaccessible;
    fixture.change(&inventory([subsystem(SUBSYSTEM, [moved, namespace(2)])], 9));
    assert_eq!(event(&mut second), Some(AsyncEvent::AnaChange));
}

#[test]
fn an_ana_change_is_no_change_of_attributes() {
    let fixture = listening();
    move_to(&fixture, AnaState::Transition);
    assert_eq!(event(&mut request(&fixture, 1)), Some(AsyncEvent::AnaChange));
    assert_eq!(event(&mut request(&fixture, 2)), None);
    assert_eq!(fixture.log(CHANGED, 0, 4).data, Some(vec![0; 4]));
}

#[test]
fn added_and_removed_namespaces_are_changes() {
    let fixture = listening();
    fixture.change(&inventory([subsystem(SUBSYSTEM, [namespace(1), namespace(2), namespace(3)])], 2));
    assert_eq!(event(&mut request(&fixture, 1)), ATTRIBUTE);
    assert_eq!(fixture.log(CHANGED, 0, 4).data, Some(vec![3, 0, 0, 0]));
    fixture.change(&inventory([subsystem(SUBSYSTEM, [namespace(2), namespace(3)])], 3));
    assert_eq!(event(&mut request(&fixture, 2)), ATTRIBUTE);
    assert_eq!(fixture.log(CHANGED, 0, 4).data, Some(vec![1, 0, 0, 0]));
}

#[test]
fn what_does_not_concern_the_host_raises_nothing() {
    let fixture = listening();
    let mut waiting = request(&fixture, 1);
    let other = subsystem("nqn.2026-01.example:two", [namespace(9)]);
    fixture.change(&inventory([subsystem(SUBSYSTEM, [namespace(1), namespace(2)]), other], 2));
    assert_eq!(event(&mut waiting), None);
}

#[test]
fn events_that_were_not_asked_for_are_not_reported() {
    let fixture = Fixture::io();
    let mut waiting = request(&fixture, 1);
    resize(&fixture, 10);
    assert_eq!(event(&mut waiting), None);
    // The list is kept all the same.
    assert_eq!(fixture.log(CHANGED, 0, 4).data, Some(vec![1, 0, 0, 0]));
    let fixture = listening();
    resize(&fixture, 10);
    assert_eq!(fixture.set(FeatureId::AsyncEventConfiguration, 0).status, Status::SUCCESS);
    assert_eq!(event(&mut request(&fixture, 1)), None);
}

#[test]
fn losing_the_subsystem_or_the_permission_is_losing_access() {
    let fixture = listening();
    assert_eq!(fixture.controller.inventory_changed(&inventory([], 2)), Access::Lost);
    let fixture = listening();
    let mut closed = subsystem(SUBSYSTEM, [namespace(1), namespace(2)]);
    closed.hosts = HostAccess::default();
    assert_eq!(fixture.controller.inventory_changed(&inventory([closed], 2)), Access::Lost);
}

#[test]
fn more_requests_than_the_limit_are_refused() {
    let fixture = listening();
    let mut held: Vec<_> = (0..limits::ASYNC_EVENTS_MAX as u16).map(|cid| request(&fixture, cid)).collect();
    for waiting in &mut held {
        assert_eq!(event(waiting), None);
    }
    let refused = |fixture: &Fixture| fixture.ask(&async_event_request(CommandId(50)));
    assert_eq!(refused(&fixture).status, Status::ASYNC_EVENT_LIMIT_EXCEEDED);
    // Each of the others is answered at most once, and a place becomes free.
    resize(&fixture, 10);
    let answered = held.iter_mut().filter_map(event).count();
    assert_eq!(answered, 1);
    let mut next = request(&fixture, 51);
    assert_eq!(event(&mut next), None);
    assert_eq!(refused(&fixture).status, Status::ASYNC_EVENT_LIMIT_EXCEEDED);
    drop(next);
    let mut after_drop = request(&fixture, 52);
    assert_eq!(event(&mut after_drop), None);
}

fn ended(waiting: &mut Waiting) -> Option<Status> {
    match poll_once(waiting.as_mut()) {
        Poll::Ready(reply) => Some(reply.status),
        Poll::Pending => None,
    }
}

#[test]
fn abort_ends_the_request_that_it_names() {
    let fixture = listening();
    let (mut one, mut two) = (request(&fixture, 1), request(&fixture, 2));
    assert_eq!((ended(&mut one), ended(&mut two)), (None, None));
    let abort = |cid| AbortCommand { sqid: Qid::ADMIN, cid: CommandId(cid) }.to_sqe(CommandId(9));
    assert_eq!(fixture.ask(&abort(3)).dw0, AbortCommand::DW0_NOT_ABORTED);
    assert_eq!(fixture.ask(&abort(2)).dw0, AbortCommand::DW0_ABORTED);
    assert_eq!((ended(&mut one), ended(&mut two)), (None, Some(Status::ABORT_REQUESTED)));
    assert_eq!(fixture.ask(&abort(2)).dw0, AbortCommand::DW0_NOT_ABORTED);
}

#[test]
fn abort_of_an_io_command_is_asked_of_its_queue() {
    let fixture = listening();
    fixture.connect_queue(4).expect("admitted");
    let abort = |qid| AbortCommand { sqid: Qid(qid), cid: CommandId(77) }.to_sqe(CommandId(9));
    assert_eq!(fixture.ask(&abort(4)).dw0, AbortCommand::DW0_ABORTED);
    assert_eq!(fixture.ask(&abort(5)).dw0, AbortCommand::DW0_NOT_ABORTED);
    assert_eq!(*fixture.queues.0.borrow(), [(Qid(4), CommandId(77))]);
}

#[test]
fn more_aborts_than_the_limit_are_refused() {
    struct Slow;
    impl Queues for Slow {
        fn abort(&self, _: Qid, _: CommandId) -> AbortFuture {
            Box::pin(std::future::pending())
        }
    }
    let fixture = listening();
    fixture.connect_queue(1).expect("admitted");
    let slow = Controller::new(
        Arc::clone(fixture.controller.shared()),
        ControllerSettings {
            inventory: inventory([subsystem(SUBSYSTEM, [])], 1),
            kato_ms: 0,
            local_address: "192.0.2.7:4420".parse().expect("an address"),
            queues: Rc::new(Slow),
            health: Rc::new(FixedHealth),
            now,
        },
    );
    let fixture = Fixture { controller: slow, ..fixture };
    fixture.enable();
    fixture.connect_queue(1).expect("admitted");
    let sqe = AbortCommand { sqid: Qid(1), cid: CommandId(1) }.to_sqe(CommandId(9));
    let mut running: Vec<_> = (0..4).map(|_| Box::pin(fixture.controller.execute(&sqe, &[]))).collect();
    for abort in &mut running {
        assert!(poll_once(abort.as_mut()).is_pending());
    }
    assert_eq!(fixture.ask(&sqe).status, Status::ABORT_LIMIT_EXCEEDED);
    running.pop();
    let mut next = Box::pin(fixture.controller.execute(&sqe, &[]));
    assert!(poll_once(next.as_mut()).is_pending());
}

#[test]
fn reset_and_end_leave_no_request_waiting() {
    let reset: fn(&Fixture) = |fixture| {
        fixture.set_cc(CC_ENABLE & !1).expect("disabled");
    };
    let end: fn(&Fixture) = |fixture| fixture.controller.end();
    for stop in [reset, end] {
        let fixture = listening();
        let mut waiting = request(&fixture, 1);
        assert_eq!(ended(&mut waiting), None);
        stop(&fixture);
        assert_eq!(ended(&mut waiting), Some(Status::ABORT_REQUESTED));
    }
}

#[test]
fn a_reset_forgets_events() {
    let fixture = listening();
    resize(&fixture, 10);
    fixture.set_cc(CC_ENABLE & !1).expect("disabled");
    fixture.enable();
    fixture.set(FeatureId::AsyncEventConfiguration, 1 << 8);
    assert_eq!(event(&mut request(&fixture, 1)), None);
    assert_eq!(fixture.log(CHANGED, 0, 4).data, Some(vec![0; 4]));
}
