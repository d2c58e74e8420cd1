//! Sends one thing to several members at once, and waits for as long as it takes.
//!
//! A member's passing error is tried again; one that lasts, or silence (see `watch`), is reported to the segment, and
//! then the wait goes on until the member has answered or is no member any more (PROTOCOL R2, S1). If whoever
//! waits goes away, a task takes over: a change that began always ends, and its place in line is held until then.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use ashlar_io::{Bug, World};
use ashlar_store::Version;

use crate::member::{MEMBERS_MAX, Member, Role};
use crate::peer::{DataOf, Kind, Peer, PeerError, Update};
use crate::ranges::{MemberBits, Place};
use crate::shard::{Inner, ShardError};

/// Pauses before each further attempt after a passing error: two within the time that hosts do not notice.
const ATTEMPT_PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];

/// What members are asked.
#[derive(Debug)]
pub(crate) enum Job<D> {
    /// See [`Peer::apply`].
    Update(Rc<Update<D>>),
    /// See [`Peer::flush`].
    Flush,
    /// See [`Peer::set_single`].
    Single(bool),
    /// See [`Peer::set_base`].
    Base(Option<Version>),
}

impl<D> Clone for Job<D> {
    fn clone(&self) -> Self {
        match self {
            Job::Update(update) => Job::Update(Rc::clone(update)),
            Job::Flush => Job::Flush,
            Job::Single(single) => Job::Single(*single),
            Job::Base(base) => Job::Base(*base),
        }
    }
}

/// Who is asked.
#[derive(Debug)]
pub(crate) enum Targets<P> {
    /// Every member that gets writes.
    All,
    /// Those members that get writes and have these bits.
    Some(MemberBits),
    /// This one.
    One(Rc<Member<P>>),
}

type Sending = Pin<Box<dyn Future<Output = Result<(), PeerError>>>>;

enum State {
    Waiting(Sending),
    Accepted,
    NoSpace,
    Failed(PeerError),
    Gone,
}

struct Send<P> {
    member: Rc<Member<P>>,
    attempts: usize,
    state: State,
}

enum Outcome {
    Accepted,
    /// These have no room.
    NoSpace(MemberBits),
    Failed(PeerError),
}

/// The wait for all answers. It brings the place back.
#[must_use = "runs in the background once it was polled, but who does not wait does not know"]
pub(crate) struct Fanout<W: World, P: Peer<W>>(Option<Parts<W, P>>);

struct Parts<W: World, P: Peer<W>> {
    shard: Rc<Inner<W, P>>,
    place: Place,
    job: Job<DataOf<W>>,
    /// The job is a change of all members, which a sequence number counts.
    version: Option<Version>,
    sends: [Option<Send<P>>; MEMBERS_MAX],
    /// A task has taken over. If that is dropped, the whole process ends.
    orphan: bool,
}

impl<W: World, P: Peer<W>> Fanout<W, P> {
    /// Starts at once; the answers are heard when it is awaited.
    pub(crate) fn start(
        shard: &Rc<Inner<W, P>>,
        place: Place,
        job: Job<DataOf<W>>,
        targets: Targets<P>,
        version: Option<Version>,
    ) -> Self {
        let mut sends = [const { None }; MEMBERS_MAX];
        let mut send = |index: usize, member: &Rc<Member<P>>| {
            let state = State::Waiting(sending(shard, member, &job, None));
            sends[index] = Some(Send { member: Rc::clone(member), attempts: 0, state });
        };
        match targets {
            Targets::One(member) => send(0, &member),
            Targets::All | Targets::Some(_) => {
                let bits = if let Targets::Some(bits) = targets { bits } else { MemberBits::MAX };
                let members = shard.members.borrow();
                let chosen =
                    |member: &Rc<Member<P>>| member.role.get().gets_writes() && member.bit & bits != 0;
                for (index, member) in members.iter().enumerate().filter(|(_, member)| chosen(member)) {
                    send(index, member);
                }
            }
        }
        place.starts(shard.world.now());
        shard.watch();
        Self(Some(Parts { shard: Rc::clone(shard), place, job, version, sends, orphan: false }))
    }
}

fn sending<W: World, P: Peer<W>>(
    shard: &Rc<Inner<W, P>>,
    member: &Rc<Member<P>>,
    job: &Job<DataOf<W>>,
    pause: Option<Duration>,
) -> Sending {
    let sent = member.sending();
    let peer = Rc::clone(&member.peer);
    let job = job.clone();
    let pause = pause.map(|pause| (shard.world.clone(), pause));
    Box::pin(async move {
        // Counted until the future ends, whoever still waits for it.
        let _sent = sent;
        if let Some((world, pause)) = pause {
            world.sleep(pause).await;
        }
        match job {
            Job::Update(update) => peer.apply(&update).await,
            Job::Flush => peer.flush().await,
            Job::Single(single) => peer.set_single(single).await,
            Job::Base(base) => peer.set_base(base).await,
        }
    })
}

impl<P> Send<P> {
    /// Goes as far as it can. The member's bit while it must be waited for.
    fn poll<W: World>(
        &mut self,
        parts: (&Rc<Inner<W, P>>, &Job<DataOf<W>>),
        context: &mut Context<'_>,
    ) -> MemberBits
    where
        P: Peer<W>,
    {
        let (shard, job) = parts;
        while let State::Waiting(future) = &mut self.state {
            let Poll::Ready(answer) = future.as_mut().poll(context) else { break };
            self.state = match answer {
                Ok(()) => State::Accepted,
                Err(PeerError::NoSpace { .. }) if self.member.role.get().counts() => State::NoSpace,
                Err(error)
                    if error.passes()
                        && self.attempts < ATTEMPT_PAUSES.len()
                        && self.member.role.get() != Role::Out =>
                {
                    let pause = ATTEMPT_PAUSES[self.attempts];
                    self.attempts += 1;
                    State::Waiting(sending(shard, &self.member, job, Some(pause)))
                }
                Err(error) => {
                    shard.member_failed(&self.member, error.clone());
                    State::Failed(error)
                }
            };
        }
        let gone = self.member.role.get() == Role::Out;
        match &self.state {
            State::Waiting(_) | State::Failed(_) if gone => {
                self.let_go(shard);
                0
            }
            State::Failed(_) if self.member.must_stay.get() => 0,
            State::Waiting(_) | State::Failed(_) => self.member.bit,
            State::Accepted | State::NoSpace | State::Gone => 0,
        }
    }

    /// Nobody waits for it any more; it ends by itself, because memory and place on the device are its own until then.
    fn let_go<W: World>(&mut self, shard: &Inner<W, P>) {
        if let State::Waiting(future) = std::mem::replace(&mut self.state, State::Gone) {
            shard.world.spawn(async move {
                let _late = future.await;
            });
        }
    }
}

impl<W: World, P: Peer<W>> Parts<W, P> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut waits: MemberBits = 0;
        for send in self.sends.iter_mut().flatten() {
            waits |= send.poll((&self.shard, &self.job), context);
        }
        let accepted = || self.sends.iter().flatten().any(|send| matches!(send.state, State::Accepted));
        if waits != 0 && self.shard.world.bug(Bug::AcknowledgeBeforeAll) && accepted() {
            let shard = Rc::clone(&self.shard);
            self.sends.iter_mut().flatten().for_each(|send| {
                if matches!(send.state, State::Waiting(_)) {
                    send.let_go(&shard);
                }
            });
            waits = 0;
        }
        if waits != 0 {
            self.place.waits_for(waits, context);
            return Poll::Pending;
        }
        self.place.waits_for_nobody();
        let mut without_space: MemberBits = 0;
        let mut failed = None;
        let mut accepted = false;
        for send in self.sends.iter().flatten() {
            match &send.state {
                State::Accepted => accepted = true,
                State::NoSpace => without_space |= send.member.bit,
                State::Failed(error) => failed = Some(error.clone()),
                State::Waiting(_) | State::Gone => {}
            }
        }
        Poll::Ready(match failed {
            _ if without_space != 0 => Outcome::NoSpace(without_space),
            Some(error) => Outcome::Failed(error),
            None if accepted => Outcome::Accepted,
            None => Outcome::Failed(PeerError::Gone),
        })
    }

    /// What follows from the answers.
    fn conclude(self, outcome: Outcome) -> (Option<Place>, Result<(), ShardError>) {
        let Self { shard, place, job, version, .. } = self;
        let id = shard.id;
        let without_space = if let Outcome::NoSpace(bits) = outcome { bits } else { 0 };
        let cause = match outcome {
            Outcome::Accepted => {
                if let Some(version) = version {
                    shard.finish(version);
                }
                return (Some(place), Ok(()));
            }
            Outcome::NoSpace(_) => None,
            Outcome::Failed(cause) => Some(cause),
        };
        let error = |extent| match cause {
            Some(cause) => ShardError::Failed { shard: id, cause },
            None => ShardError::NoSpace { shard: id, extent },
        };
        let Job::Update(update) = job else { return (Some(place), Err(error(0))) };
        let error = error(update.extent);
        let Some(version) = version else { return (Some(place), Err(error)) };
        shard.undone();
        if matches!(update.kind, Kind::Empty) {
            // There is nothing less to ask for. The number is done with: nobody has more than another.
            shard.finish(version);
            return (Some(place), Err(error));
        }
        let task = Rc::clone(&shard).undo(place, update, version, without_space);
        shard.world.spawn(task);
        (None, Err(error))
    }
}

impl<W: World, P: Peer<W>> Future for Fanout<W, P> {
    /// The place comes back unless a change failed: then it is held until its blocks are equal again.
    type Output = (Option<Place>, Result<(), ShardError>);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(parts) = &mut this.0 else { return Poll::Pending };
        let Poll::Ready(outcome) = parts.poll(context) else { return Poll::Pending };
        match this.0.take() {
            Some(parts) => Poll::Ready(parts.conclude(outcome)),
            None => Poll::Pending,
        }
    }
}

impl<W: World, P: Peer<W>> Drop for Fanout<W, P> {
    fn drop(&mut self) {
        let Some(mut parts) = self.0.take().filter(|parts| !parts.orphan) else { return };
        parts.orphan = true;
        let world = parts.shard.world.clone();
        let rest = Fanout(Some(parts));
        world.spawn(async move {
            let (_place, _outcome) = rest.await;
        });
    }
}
