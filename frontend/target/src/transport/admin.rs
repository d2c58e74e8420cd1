//! Admin and Fabrics commands: their data in and out, around the controller that executes them.

use std::rc::Rc;

use ashlar_nvme::fabrics::{self, PropertyCommand, PropertySize};
use ashlar_nvme::opcode::{AdminOpcode, DataDirection, FABRICS, FabricsType};
use ashlar_nvme::sgl::DataPointer;
use ashlar_nvme::{Cqe, Sqe, Status};
use ashlar_reactor::{IoBuf, first};

use crate::backend::{OpenBackend, ReadData};
use crate::controller::{AdminReply, Controller, PropertyEffect};
use crate::io::DataPort;
use crate::limits::{ADMIN_IN_CAPSULE_BYTES, SLICE_BYTES};
use crate::transport::host_data::{Answered, HostData, data_pointer};
use crate::transport::queue::{Arrived, Queue, Reason};
use crate::transport::transfers::DigestCheck;

impl<F: OpenBackend> Queue<F> {
    pub(super) fn start_admin(self: &Rc<Self>, controller: Rc<Controller>, arrived: Arrived<F>) {
        if arrived.sqe.opcode == FABRICS {
            return self.start_fabrics_admin(&controller, arrived);
        }
        ashlar_reactor::spawn_now(execute(controller, arrived));
    }

    fn start_fabrics_admin(self: &Rc<Self>, controller: &Rc<Controller>, arrived: Arrived<F>) {
        let Arrived { running, sqe, .. } = arrived;
        match fabrics::fctype(&sqe) {
            Ok(FabricsType::PropertyGet) => {
                let command = PropertyCommand::of(&sqe);
                let value = command.size().and_then(|size| controller.property_get(command.ofst.get(), size));
                ashlar_reactor::spawn_now(running.respond(move |cid, sqhd| match value {
                    Ok(value) => Cqe::new(cid, sqhd, Status::SUCCESS).with_result(value),
                    Err(status) => Cqe::new(cid, sqhd, status),
                }));
            }
            Ok(FabricsType::PropertySet) => {
                let command = PropertyCommand::of(&sqe);
                let effect = command.size().and_then(|size| {
                    let value = match size {
                        PropertySize::Four => command.value.get() & u64::from(u32::MAX),
                        PropertySize::Eight => command.value.get(),
                    };
                    controller.property_set(command.ofst.get(), size, value)
                });
                if let Ok(PropertyEffect::Disabled | PropertyEffect::ShutDown) = effect {
                    self.core.close_io_queues(&self.controller);
                }
                running.answer(effect.err().unwrap_or(Status::SUCCESS));
            }
            // The queue is connected (NVMe Base 2.0 §6.3).
            Ok(FabricsType::Connect) => running.answer(Status::COMMAND_SEQUENCE_ERROR),
            Ok(FabricsType::Disconnect) => running.answer(Status::DISCONNECT_INVALID_QUEUE_TYPE),
            Ok(FabricsType::AuthenticationSend | FabricsType::AuthenticationReceive) | Err(_) => {
                running.answer(Status::INVALID_FIELD);
            }
        }
    }

    /// On I/O queues only Disconnect has a meaning.
    pub(super) fn start_fabrics_io(self: &Rc<Self>, arrived: Arrived<F>) {
        let Arrived { running, sqe, .. } = arrived;
        match fabrics::fctype(&sqe) {
            Ok(FabricsType::Disconnect) if fabrics::DisconnectCommand::of(&sqe).recfmt.get() != 0 => {
                running.answer(Status::CONNECT_INCOMPATIBLE_FORMAT);
            }
            Ok(FabricsType::Disconnect) => {
                let queue = Rc::clone(self);
                ashlar_reactor::spawn_now(async move {
                    running.respond(|cid, sqhd| Cqe::new(cid, sqhd, Status::SUCCESS)).await;
                    queue.finish_sending(Reason::Disconnected);
                });
            }
            Ok(FabricsType::Connect) => running.answer(Status::COMMAND_SEQUENCE_ERROR),
            Ok(_) | Err(_) => running.answer(Status::INVALID_FIELD),
        }
    }
}

async fn execute<F: OpenBackend>(controller: Rc<Controller>, arrived: Arrived<F>) {
    let Arrived { running, sqe, capsule } = arrived;
    let queue = Rc::clone(&running.queue);
    if capsule.digest == DigestCheck::Failed {
        return running.respond(|cid, sqhd| Cqe::new(cid, sqhd, Status::TRANSIENT_TRANSPORT_ERROR)).await;
    }
    let pointer = match data_pointer(&sqe, capsule.bytes.len()) {
        Ok(pointer) => pointer,
        Err(status) => return running.respond(move |cid, sqhd| Cqe::new(cid, sqhd, status)).await,
    };
    let port = HostData::new(&queue, running.cid, pointer, capsule.bytes, 0);
    let mut reply = match fetch_all(&sqe, pointer, &port).await {
        // An Abort waits for a command of another queue, which is closed only after this one: it must not hold up the
        // end of this one.
        Ok(data) => first(controller.execute(&sqe, &data), queue.closing())
            .await
            .unwrap_or_else(|()| AdminReply::status(Status::ABORTED_SQ_DELETION)),
        Err(status) => AdminReply::status(status),
    };
    port.settle().await;
    drop(port);
    let data = reply.data.take().filter(|data| !data.is_empty() && reply.status.is_success());
    if let Some(data) = data {
        match deliver_all(&running.queue, running.cid, pointer, &data, reply.dw0).await {
            Ok(Answered::ByData) => return running.answered_by_data(),
            Ok(Answered::No) => {}
            Err(status) => reply = AdminReply::status(status),
        }
    }
    if sqe.opcode == AdminOpcode::Abort.code() {
        // The completion of what was aborted comes first; who waits for room is served in order.
        ashlar_reactor::yield_now().await;
    }
    running.respond(move |cid, sqhd| Cqe::new(cid, sqhd, reply.status).with_dw0(reply.dw0)).await;
}

/// The host's data of an admin command. None of ours has more than fits into a capsule.
async fn fetch_all<F: OpenBackend>(
    sqe: &Sqe,
    pointer: DataPointer,
    port: &HostData<'_, F>,
) -> Result<Vec<u8>, Status> {
    if DataDirection::of(sqe.opcode) != DataDirection::HostToController || pointer.is_empty() {
        return Ok(Vec::new());
    }
    if pointer.len() > ADMIN_IN_CAPSULE_BYTES || !pointer.len().is_multiple_of(4) {
        return Err(Status::DATA_SGL_LENGTH_INVALID);
    }
    port.fetch(0, pointer.len()).await.map(|data| data.to_vec())
}

async fn deliver_all<F: OpenBackend>(
    queue: &Queue<F>,
    cid: ashlar_nvme::CommandId,
    pointer: DataPointer,
    data: &[u8],
    dw0: u32,
) -> Result<Answered, Status> {
    let DataPointer::Transport { len } = pointer else { return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID) };
    if data.len() > len as usize || !data.len().is_multiple_of(4) {
        return Err(Status::DATA_SGL_LENGTH_INVALID);
    }
    let port = HostData::new(queue, cid, pointer, super::host_data::CapsuleBytes::None, data.len() as u32);
    // The success flag says DW0 0 (NVME N1).
    if dw0 != 0 {
        port.needs_response();
    }
    for (index, slice) in data.chunks(SLICE_BYTES as usize).enumerate() {
        let mut buffer = IoBuf::wait(slice.len()).await.ok_or(Status::INTERNAL_ERROR)?;
        buffer.copy_from_slice(slice);
        let offset = index as u32 * SLICE_BYTES;
        port.deliver(offset, slice.len() as u32, ReadData::Buffer(buffer)).await?;
    }
    Ok(port.answered())
}
