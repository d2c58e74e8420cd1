//! Reads: from any member in sync, never bytes that are on their way (PROTOCOL R11, S8).

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use ashlar_io::{Bug, World};
use ashlar_store::Blocks;
use ashlar_store::lane::{Memory, ReadData};

use crate::member::{Member, Role};
use crate::peer::{Peer, PeerError};
use crate::ranges::{Place, Want};
use crate::shard::{Inner, Shard, ShardError};

/// A read in flight, for the choice of the least busy member.
struct Reading<'a>(&'a Cell<u32>);

impl<'a> Reading<'a> {
    fn new(reads: &'a Cell<u32>) -> Self {
        reads.set(reads.get() + 1);
        Self(reads)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl<W: World, P: Peer<W>> Inner<W, P> {
    /// The least busy member in sync; those equally busy take turns.
    fn reader(&self) -> Option<Rc<Member<P>>> {
        let members = self.members.borrow();
        let turn = self.next_reader.get();
        self.next_reader.set(turn.wrapping_add(1));
        let stale = self.world.bug(Bug::ReadStaleReplica);
        (0..members.len())
            .map(|step| &members[(turn + step) % members.len()])
            .filter(|member| stale || member.role.get() == Role::InSync)
            .min_by_key(|member| member.reads.get())
            .cloned()
    }

    /// Waits for what a member answers, but not longer than it is what it was.
    pub(crate) async fn ask<T>(
        self: &Rc<Self>,
        member: &Member<P>,
        place: &Place,
        question: impl Future<Output = Result<T, PeerError>>,
    ) -> Result<T, PeerError> {
        let _reading = Reading::new(&member.reads);
        let role = member.role.get();
        place.starts(self.world.now());
        self.watch();
        let mut question = pin!(question);
        let answer = poll_fn(|context| match question.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(answer),
            Poll::Pending => {
                let now = member.role.get();
                if now != role && now != Role::InSync {
                    return Poll::Ready(Err(PeerError::Gone));
                }
                place.waits_for(member.bit, context);
                Poll::Pending
            }
        })
        .await;
        place.waits_for_nobody();
        // What somebody says who has just been given up counts for nothing.
        if member.role.get() == Role::Out { Err(PeerError::Gone) } else { answer }
    }

    /// Reads at a place in line. Those who stand behind it may have all the buffers, so it does not wait for one.
    pub(crate) async fn read_from(
        self: &Rc<Self>,
        member: &Member<P>,
        place: &Place,
        extent: u32,
        blocks: Blocks,
    ) -> Result<ReadData<W::Buffer>, PeerError> {
        self.ask(member, place, member.peer.read(extent, blocks, Memory::Spare)).await
    }

    async fn read(self: &Rc<Self>, extent: u32, blocks: Blocks) -> Result<ReadData<W::Buffer>, ShardError> {
        let in_flight = self.world.bug(Bug::ReadInFlight);
        let mut failed = None;
        if in_flight || !self.ranges.changing(self.line(extent), blocks) {
            let glance = self.place(extent, blocks, Want::Glance).await;
            let undone = self.undone.get();
            if let Some(member) = self.reader() {
                // Nobody waits for a glance, so it waits for its buffer like everybody.
                let read = member.peer.read(extent, blocks, Memory::Shared);
                match self.ask(&member, &glance, read).await {
                    Ok(data) if in_flight || !glance.overtaken() => return Ok(data),
                    Ok(data) => {
                        // The bytes may be those of a change that is not everywhere yet: it must be first.
                        drop(glance);
                        let _place = self.place(extent, blocks, Want::Read).await;
                        if undone == self.undone.get() {
                            return Ok(data);
                        }
                    }
                    Err(error) => failed = Some((member, error)),
                }
            }
        }
        if failed.is_none() {
            let place = self.place(extent, blocks, Want::Read).await;
            if let Some(member) = self.reader() {
                match self.read_from(&member, &place, extent, blocks).await {
                    Ok(data) => return Ok(data),
                    Err(error) => failed = Some((member, error)),
                }
            }
        }
        let first = failed.map(|(member, _)| member);
        let place = self.place(extent, blocks, Want::Change).await;
        let (_place, data) = self.read_alone(place, extent, blocks, first).await;
        data
    }
}

impl<W: World, P: Peer<W>> Shard<W, P> {
    /// Reads whole blocks of one of its extents, at most [`World::MAX_BUFFER_BLOCKS`].
    pub async fn read(&self, extent: u32, blocks: Blocks) -> Result<ReadData<W::Buffer>, ShardError> {
        self.0.fits(blocks)?;
        let began = self.0.world.now();
        let data = self.0.read(extent, blocks).await;
        self.0.load.served(began, self.0.world.now());
        data
    }
}
