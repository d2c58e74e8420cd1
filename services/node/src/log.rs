//! Logs: text or JSON on the standard error stream; the level can change while the node runs.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::config::{LogFormat, LogLevel, LogSettings};

/// Changes the level of the logs.
#[derive(Debug, Clone)]
pub struct LevelSwitch(reload::Handle<LevelFilter, Registry>);

impl LevelSwitch {
    /// Logs this and everything graver from now on.
    pub fn set(&self, level: LogLevel) {
        // It fails only if the subscriber is gone, and then there are no logs.
        let _ = self.0.reload(filter(level));
    }
}

/// Starts logging. `format` overrides the one of the settings.
pub fn start(settings: LogSettings, format: Option<LogFormat>) -> LevelSwitch {
    let (level, handle) = reload::Layer::new(filter(settings.level));
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = match format.unwrap_or(settings.format) {
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
        LogFormat::Text => layer.with_ansi(std::io::stderr().is_terminal()).boxed(),
    };
    // It fails only if the process logs already, as tests in one process may: that goes on.
    let _ = tracing::subscriber::set_global_default(Registry::default().with(level).with(layer));
    LevelSwitch(handle)
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
