//! What one gathered send carries: protocol headers written in place, and buffers that are sent where they
//! lie.

use std::fmt;
use std::mem;
use std::rc::Rc;

use crate::buffer::IoBuf;
use crate::limits::{GATHER_HEADER_BYTES, GATHER_SEGMENTS};

/// What [`Gather::zeroes`] sends.
static ZEROES: [u8; 128 * 1024] = [0; 128 * 1024];

/// Bytes to be sent, in order, without copying the payload. Reused from send to send, it allocates nothing.
pub struct Gather {
    headers: Box<[u8]>,
    used: usize,
    segments: Vec<libc::iovec>,
    /// The last segment is the end of `headers[..used]`, so a header can extend it.
    open: bool,
    buffers: Vec<IoBuf>,
    shared: Vec<Rc<IoBuf>>,
    message: Box<libc::msghdr>,
    /// Segments sent entirely.
    sent: usize,
    remaining: usize,
}

// Only the addresses in `segments` and `message` keep it from being Send by itself; it is used on one core.

impl Default for Gather {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gather")
            .field("segments", &self.segments.len())
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}

impl Gather {
    /// Nothing to send yet.
    pub fn new() -> Self {
        // SAFETY: an all-zero msghdr names nothing.
        let message = Box::new(unsafe { mem::zeroed::<libc::msghdr>() });
        Self {
            headers: vec![0; GATHER_HEADER_BYTES].into_boxed_slice(),
            used: 0,
            segments: Vec::with_capacity(64),
            open: false,
            buffers: Vec::with_capacity(64),
            shared: Vec::with_capacity(64),
            message,
            sent: 0,
            remaining: 0,
        }
    }

    /// Bytes still to be sent.
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// Nothing is left to be sent.
    pub fn is_empty(&self) -> bool {
        self.remaining == 0
    }

    /// Room for a header of `bytes` bytes and two more segments.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.used + bytes <= self.headers.len() && self.segments.len() + 3 <= GATHER_SEGMENTS
    }

    /// Space for the next `len` bytes, to be filled in by the caller. `None` if there is no room.
    pub fn header(&mut self, len: usize) -> Option<&mut [u8]> {
        if !self.has_room(len) {
            return None;
        }
        let start = self.used;
        self.used += len;
        self.remaining += len;
        let space = &mut self.headers[start..start + len];
        match self.segments.last_mut() {
            Some(last) if self.open => last.iov_len += len,
            _ => {
                self.segments.push(libc::iovec { iov_base: space.as_mut_ptr().cast(), iov_len: len });
                self.open = true;
            }
        }
        Some(space)
    }

    /// Appends `range` of a buffer, which is kept until it has been sent. Gives the buffer back if there is
    /// no room or the range is not within it.
    pub fn buffer(&mut self, buffer: IoBuf, range: std::ops::Range<usize>) -> Result<(), IoBuf> {
        if self.segments.len() >= GATHER_SEGMENTS || range.start > range.end || range.end > buffer.len() {
            return Err(buffer);
        }
        let len = range.len();
        if len > 0 {
            let base = buffer.pointer().wrapping_add(range.start);
            self.segments.push(libc::iovec { iov_base: base.cast(), iov_len: len });
            self.open = false;
            self.remaining += len;
        }
        self.buffers.push(buffer);
        Ok(())
    }

    /// Appends `range` of a buffer that others hold, too, for example one that is sent many times; our
    /// reference is kept until it has been sent. Gives it back if there is no room or the range is not within
    /// the buffer.
    pub fn shared(&mut self, buffer: Rc<IoBuf>, range: std::ops::Range<usize>) -> Result<(), Rc<IoBuf>> {
        if self.segments.len() >= GATHER_SEGMENTS || range.start > range.end || range.end > buffer.len() {
            return Err(buffer);
        }
        let len = range.len();
        if len > 0 {
            // The kernel only reads what is sent, and while we hold a reference nobody can write to it.
            let base = buffer.pointer().wrapping_add(range.start);
            self.segments.push(libc::iovec { iov_base: base.cast(), iov_len: len });
            self.open = false;
            self.remaining += len;
        }
        self.shared.push(buffer);
        Ok(())
    }

    /// Appends `len` zero bytes, which are nowhere written and nowhere kept. False if there is no room or
    /// they are more than 128 KiB.
    #[must_use]
    pub fn zeroes(&mut self, len: usize) -> bool {
        if self.segments.len() >= GATHER_SEGMENTS || len > ZEROES.len() {
            return false;
        }
        if len > 0 {
            // The kernel only reads what is sent.
            self.segments.push(libc::iovec { iov_base: ZEROES.as_ptr().cast_mut().cast(), iov_len: len });
            self.open = false;
            self.remaining += len;
        }
        true
    }

    /// Points the message at what is unsent.
    pub(crate) fn message(&mut self) -> *const libc::msghdr {
        let unsent = &mut self.segments[self.sent..];
        self.message.msg_iov = unsent.as_mut_ptr();
        self.message.msg_iovlen = unsent.len() as _;
        &raw const *self.message
    }

    /// Forgets the first `bytes` bytes; once all are sent it is empty and gives its buffers back.
    pub(crate) fn advance(&mut self, bytes: usize) {
        let mut bytes = bytes.min(self.remaining);
        self.remaining -= bytes;
        if self.remaining == 0 {
            self.clear();
            return;
        }
        while let Some(segment) = self.segments.get_mut(self.sent) {
            if bytes < segment.iov_len {
                segment.iov_base = segment.iov_base.wrapping_byte_add(bytes);
                segment.iov_len -= bytes;
                return;
            }
            bytes -= segment.iov_len;
            self.sent += 1;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.buffers.clear();
        self.shared.clear();
        self.used = 0;
        self.open = false;
        self.sent = 0;
        self.remaining = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(gather: &Gather) -> Vec<u8> {
        let mut all = Vec::new();
        for segment in &gather.segments[gather.sent..] {
            // SAFETY: segments point into the headers or into kept buffers.
            all.extend_from_slice(unsafe {
                std::slice::from_raw_parts(segment.iov_base.cast::<u8>(), segment.iov_len)
            });
        }
        all
    }

    #[test]
    fn bytes_keep_their_order_and_neighbouring_headers_share_a_segment() {
        let mut gather = Gather::new();
        gather.header(2).expect("room").copy_from_slice(b"ab");
        gather.header(2).expect("room").copy_from_slice(b"cd");
        assert_eq!(gather.segments.len(), 1);
        let mut payload = IoBuf::heap(8);
        payload.copy_from_slice(b"01234567");
        gather.buffer(payload, 2..6).expect("room");
        gather.header(1).expect("room").copy_from_slice(b"e");
        assert_eq!(contents(&gather), b"abcd2345e");
        assert_eq!(gather.remaining(), 9);
    }

    #[test]
    fn a_partial_send_at_every_boundary_leaves_exactly_the_rest() {
        for cut in 0..=9 {
            let mut gather = Gather::new();
            gather.header(4).expect("room").copy_from_slice(b"abcd");
            let mut payload = IoBuf::heap(4);
            payload.copy_from_slice(b"2345");
            gather.buffer(payload, 0..4).expect("room");
            gather.header(1).expect("room").copy_from_slice(b"e");
            gather.advance(cut);
            assert_eq!(contents(&gather), &b"abcd2345e"[cut..]);
            assert_eq!(gather.is_empty(), cut == 9);
        }
    }

    #[test]
    fn zeroes_take_no_buffer() {
        let mut gather = Gather::new();
        gather.header(1).expect("room")[0] = 1;
        assert!(gather.zeroes(3));
        assert!(!gather.zeroes(ZEROES.len() + 1));
        assert_eq!(contents(&gather), [1, 0, 0, 0]);
    }

    #[test]
    fn a_shared_buffer_is_sent_several_times_and_released_once_sent() {
        let mut payload = IoBuf::heap(4);
        payload.copy_from_slice(b"wxyz");
        let payload = Rc::new(payload);
        let mut gather = Gather::new();
        for range in [0..4, 1..3] {
            gather.header(1).expect("room")[0] = b'-';
            gather.shared(Rc::clone(&payload), range).expect("room");
        }
        assert_eq!(contents(&gather), b"-wxyz-xy");
        gather.advance(7);
        assert_eq!(Rc::strong_count(&payload), 3, "the rest is still to be sent");
        gather.advance(1);
        assert_eq!(Rc::strong_count(&payload), 1);
    }

    #[test]
    fn a_range_outside_the_buffer_is_refused() {
        let mut gather = Gather::new();
        assert!(gather.buffer(IoBuf::heap(4), 2..5).is_err());
        assert!(gather.shared(Rc::new(IoBuf::heap(4)), 2..5).is_err());
        assert!(gather.is_empty());
    }
}
