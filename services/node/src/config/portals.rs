//! `[[portal]]`: where hosts connect.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use toml::Spanned;

use super::check::Check;
use super::document::PortalTable;
use super::{DISCOVERY_PORT, PORT, PortalSettings};

/// Portals of one node: each is a discovery entry per subsystem and host.
const PORTALS_MAX: usize = 64;

/// Why a text is no address.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not an address; allowed is {allowed}")]
pub(super) struct AddressError {
    text: String,
    allowed: &'static str,
}

/// An IP address with a port; the port can be left out if there is a default.
pub(super) fn address(text: &str, default_port: Option<u16>) -> Result<SocketAddr, AddressError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    match (bare.parse::<IpAddr>(), default_port) {
        (Ok(ip), Some(port)) => Ok(SocketAddr::new(ip, port)),
        _ => {
            let allowed = match default_port {
                Some(_) => "IP or IP:PORT, such as \"192.0.2.1:4420\" or \"[2001:db8::1]:4420\"",
                None => "IP:PORT, such as \"127.0.0.1:9420\" or \"[::1]:9420\"",
            };
            Err(AddressError { text: text.to_owned(), allowed })
        }
    }
}

pub(super) fn settings(check: &mut Check<'_>, tables: &[Spanned<PortalTable>]) -> Vec<PortalSettings> {
    if tables.is_empty() {
        check.refuse_file(
            "no portal: give at least one [[portal]] with listen = \"IP:PORT\", such as \"0.0.0.0:4420\"",
        );
    }
    if let Some(table) = tables.get(PORTALS_MAX) {
        check.refuse(table.span(), format!("more than {PORTALS_MAX} portals; at most that many are allowed"));
    }
    let mut seen: BTreeMap<SocketAddr, Range<usize>> = BTreeMap::new();
    let mut portals = Vec::new();
    for table in tables {
        let table = table.get_ref();
        let Some(portal) = portal(check, table) else { continue };
        // The kernel gives every portal with port 0 a port of its own.
        if portal.listen.port() != 0
            && let Some(before) = seen.insert(portal.listen, table.listen.span())
        {
            let line = check.line(before);
            check.refuse(
                table.listen.span(),
                format!("another portal listens on {} (line {line})", portal.listen),
            );
        }
        portals.push(portal);
    }
    portals
}

fn portal(check: &mut Check<'_>, table: &PortalTable) -> Option<PortalSettings> {
    let default_port = if table.discovery_only { DISCOVERY_PORT } else { PORT };
    let place = table.listen.span();
    let listen = check.accept(place, address(table.listen.get_ref(), Some(default_port)))?;
    let advertise = match &table.advertise {
        None => None,
        Some(text) => {
            let port = if listen.port() == 0 { None } else { Some(listen.port()) };
            let address = check.accept(text.span(), address(text.get_ref(), port))?;
            // NVME N13
            if address.ip().is_unspecified() || address.port() == 0 {
                check.refuse(
                    text.span(),
                    format!(
                        "hosts cannot connect to {address}; give an address and port that they can reach"
                    ),
                );
            }
            Some(address)
        }
    };
    Some(PortalSettings { listen, advertise, discovery_only: table.discovery_only })
}
