//! The page over HTTP: `/metrics` for Prometheus, `/healthz` for whoever asks whether the node lives.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use super::{Snapshot, page};

/// What the exposition format is called (OpenMetrics 1.0).
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where snapshots come from.
pub trait Source: Send + Sync + 'static {
    /// All counters as they are now.
    fn snapshot(&self) -> impl Future<Output = Snapshot> + Send;

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

async fn health<S: Source>(State(source): State<Arc<S>>) -> Response {
    match source.trouble().await {
        None => "ok\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}
