//! The page over HTTP: `/metrics` for Prometheus, `/healthz` for whoever asks whether the node lives, `/volumes` for
//! `ashlar volume show`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::net::TcpListener;

use super::{Snapshot, page};
use crate::volumes::{DeviceStatus, VolumeStatus};

/// What the exposition format is called (OpenMetrics 1.0).
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Volumes and the devices that they are on.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Volumes {
    /// All volumes that the node remembers.
    pub volumes: Vec<VolumeStatus>,
    /// All devices that are used.
    pub devices: Vec<DeviceStatus>,
}

/// Where snapshots come from.
pub trait Source: Send + Sync + 'static {
    /// All counters as they are now.
    fn snapshot(&self) -> impl Future<Output = Snapshot> + Send;

    /// Volumes and devices as they are now; `None` if they could not be asked.
    fn volumes(&self) -> impl Future<Output = Option<Volumes>> + Send;

    /// Why the node does not do its work, if it does not.
    fn trouble(&self) -> impl Future<Output = Option<String>> + Send;
}

/// Listens; returns the address really bound.
///
/// # Errors
/// If the address is taken or not of this machine.
pub async fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// Serves until the runtime ends.
pub async fn serve<S: Source>(listener: TcpListener, source: Arc<S>) {
    let router = Router::new()
        .route("/metrics", get(metrics::<S>))
        .route("/healthz", get(health::<S>))
        .route("/volumes", get(volumes::<S>))
        .with_state(source);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "metrics are no longer served");
    }
}

async fn metrics<S: Source>(State(source): State<Arc<S>>) -> Response {
    match page(source.snapshot().await) {
        Ok(page) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn volumes<S: Source>(State(source): State<Arc<S>>) -> Response {
    let text = source.volumes().await.and_then(|volumes| serde_json::to_string(&volumes).ok());
    match text {
        Some(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the volumes do not answer\n").into_response(),
    }
}

async fn health<S: Source>(State(source): State<Arc<S>>) -> Response {
    match source.trouble().await {
        None => "ok\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}
