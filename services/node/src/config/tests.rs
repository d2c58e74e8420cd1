//! What a file means, and what each mistake in it is answered with.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ashlar_nvme::ids::{Nqn, Nsid};
use ashlar_target::inventory::{HostAccess, LbaSize};

use super::*;

const PORTAL: &str = "[[portal]]\nlisten = \"127.0.0.1:4420\"\n";

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("a.toml"), text, &Machine { cpus: vec![0, 1, 2, 6] })
}

fn config(text: &str) -> Config {
    parse(text).expect("a valid configuration")
}

/// The whole error message.
fn refusal(text: &str) -> String {
    parse(text).expect_err("an invalid configuration").to_string()
}

/// The error message for a file that begins with a portal; its lines count from the third.
fn refusal_after_portal(text: &str) -> String {
    refusal(&format!("{PORTAL}{text}"))
}

/// The error message for keys of a namespace; they stand on line 5 and after.
fn refusal_of_namespace(keys: &str) -> String {
    refusal_after_portal(&format!(
        "[[subsystem]]\nnqn = \"nqn.2026-01.io.x:a\"\n[[subsystem.namespace]]\n{keys}"
    ))
}

fn nqn(text: &str) -> Nqn {
    Nqn::parse(text).expect("an NQN")
}

#[test]
fn example_is_valid() {
    let config = config(EXAMPLE);
    assert_eq!(config.portals.len(), 2);
    assert_eq!(config.subsystems.len(), 1);
}

#[test]
fn everything_but_a_portal_has_a_default() {
    let config = config(PORTAL);
    assert_eq!(config.cores.cpus, [Some(0), Some(1), Some(2), Some(6)]);
    assert_eq!(config.cores.spin, Duration::from_micros(50));
    assert_eq!(config.cores.buffers, ashlar_reactor::BufferCounts::default());
    assert_eq!(config.log, LogSettings { level: LogLevel::Info, format: LogFormat::Text });
    assert_eq!(config.metrics, METRICS_LISTEN.parse().ok());
    assert!(config.subsystems.is_empty());
}

#[test]
fn every_key_is_heard() {
    let config = config(
        r#"
        [cores]
        cpus = [6, 1]
        spin_us = 0
        [buffers]
        blocks = 100
        capsules = 200
        slices = 300
        [log]
        level = "debug"
        format = "json"
        [metrics]
        enabled = false
        [[portal]]
        listen = "0.0.0.0"
        advertise = "192.0.2.1"
        [[portal]]
        listen = "::1"
        discovery_only = true
        [[subsystem]]
        nqn = "nqn.2026-01.io.x:a"
        serial = "S1"
        model = "M 1"
        hosts = ["nqn.2026-01.io.x:h"]
        [[subsystem.namespace]]
        nsid = 7
        uuid = "2b6f3a52-8d55-4c62-9a0b-4fd0a1b2c3d4"
        block_size = 512
        backend = { kind = "raw", path = "/dev/x", size = "1 GiB", create = true, page_cache = true }
        [[subsystem.namespace]]
        nsid = 8
        backend = { kind = "memory", size = "8 MiB", memory_max = "4 MiB" }
        [[subsystem]]
        nqn = "nqn.2026-01.io.x:b"
        allow_any_host = true
        "#,
    );
    assert_eq!(config.cores.cpus, [Some(6), Some(1)]);
    assert_eq!(config.cores.spin, Duration::ZERO);
    let buffers = config.cores.buffers;
    assert_eq!((buffers.blocks, buffers.capsules, buffers.slices), (100, 200, 300));
    assert_eq!(config.log, LogSettings { level: LogLevel::Debug, format: LogFormat::Json });
    assert_eq!(config.metrics, None);
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    assert_eq!(
        config.portals,
        [
            PortalSettings {
                listen: address("0.0.0.0:4420"),
                advertise: Some(address("192.0.2.1:4420")),
                discovery_only: false
            },
            PortalSettings { listen: address("[::1]:8009"), advertise: None, discovery_only: true },
        ]
    );
    let a = &config.subsystems[&nqn("nqn.2026-01.io.x:a")];
    assert_eq!((a.serial.as_str(), a.model.as_str()), ("S1", "M 1"));
    assert!(a.hosts.allows(&nqn("nqn.2026-01.io.x:h")));
    assert!(!a.hosts.allows(&nqn("nqn.2026-01.io.x:g")));
    let namespace = &a.namespaces[&Nsid(7)];
    assert_eq!(namespace.uuid.to_string(), "2b6f3a52-8d55-4c62-9a0b-4fd0a1b2c3d4");
    assert_eq!(namespace.block_size, LbaSize::B512);
    let extent = RawExtent::Create { bytes: 1 << 30 };
    let page_cache = PageCache::Used;
    assert_eq!(namespace.backend, BackendSettings::Raw { path: "/dev/x".into(), extent, page_cache });
    let (bytes, memory_max) = (8 << 20, Some(4 << 20));
    assert_eq!(a.namespaces[&Nsid(8)].backend, BackendSettings::Memory { bytes, memory_max });
    assert_eq!(config.subsystems[&nqn("nqn.2026-01.io.x:b")].hosts, HostAccess::Any);
}

#[test]
fn floating_cores_may_outnumber_cpus() {
    let config = config(&format!("{PORTAL}[cores]\ncount = 9\npin = false\n"));
    assert_eq!(config.cores.cpus, [None; 9]);
}

#[test]
fn nobody_is_let_in_by_default() {
    let config = config(&format!("{PORTAL}[[subsystem]]\nnqn = \"nqn.2026-01.io.x:a\"\n"));
    assert_eq!(config.subsystems[&nqn("nqn.2026-01.io.x:a")].hosts, HostAccess::default());
}

#[test]
fn identity_left_out_is_derived() {
    let config = config(&format!(
        "{PORTAL}[[subsystem]]\nnqn = \"nqn.2026-01.io.x:a\"\n[[subsystem.namespace]]\nnsid = 3\n\
         backend = {{ kind = \"null\", size = \"1 MiB\" }}\n"
    ));
    let name = nqn("nqn.2026-01.io.x:a");
    let subsystem = &config.subsystems[&name];
    assert_eq!(subsystem.serial, identity::serial(&name));
    assert_eq!(subsystem.namespaces[&Nsid(3)].uuid, identity::namespace_uuid(&name, Nsid(3)));
}

#[test]
fn text_that_is_no_toml_names_its_line() {
    assert_eq!(refusal("[cores]\ncount = = 1\n"), "a.toml:2: extra `=`, expected nothing");
    assert_eq!(refusal("[cores]\ncount = 1\ncount = 2\n"), "a.toml:3: duplicate key");
}

#[test]
fn unknown_keys_name_their_line_and_what_is_allowed() {
    for (text, message) in [
        (
            "x = 1\n",
            "a.toml:1: x: unknown key; expected one of `cores`, `buffers`, `log`, `metrics`, `state`, `scrub`, `pool`, \
             `device`, `volume`, `portal`, `subsystem`",
        ),
        (
            "[cores]\n\nspin = 1\n",
            "a.toml:3: cores.spin: unknown key; expected one of `cpus`, `count`, `pin`, `spin_us`",
        ),
        (
            "[[portal]]\nlisten = \"::\"\nport = 1\n",
            "a.toml:3: portal.port: unknown key; expected one of `listen`, `advertise`, `discovery_only`",
        ),
        (
            "[[subsystem]]\nnqn = \"a\"\n[[subsystem.namespace]]\nnsid = 1\nbackend = { kind = \"null\", \
             sise = \"1 GiB\" }\n",
            "a.toml:5: subsystem.namespace.backend.sise: unknown key; expected one of `kind`, `size`, \
             `path`, `create`, `page_cache`, `memory_max`",
        ),
    ] {
        assert_eq!(refusal(text), message);
    }
}

#[test]
fn values_of_another_type_name_their_key_and_what_is_allowed() {
    for (text, message) in [
        (
            "[cores]\ncount = \"2\"\n",
            "a.toml:2: cores.count: invalid type: string \"2\", expected an integer",
        ),
        ("[portal]\nlisten = \"::\"\n", "a.toml:1: portal: invalid type: table, expected an array"),
        ("[[cores]]\n", "a.toml:1: cores: [[cores]] is not allowed; allowed is [cores], once"),
        ("cores = 3\n", "a.toml:1: cores: invalid type: integer `3`, expected a table"),
        (
            "[log]\nlevel = \"loud\"\n",
            "a.toml:2: log.level: unknown variant `loud`, expected one of `error`, `warn`, `info`, \
             `debug`, `trace`",
        ),
        (
            "[log]\nformat = \"xml\"\n",
            "a.toml:2: log.format: unknown variant `xml`, expected `text` or `json`",
        ),
        ("\n[[subsystem]]\nserial = \"1\"\n", "a.toml:2: subsystem: missing key `nqn`"),
    ] {
        assert_eq!(refusal(text), message);
    }
}

#[test]
fn no_portal_is_refused() {
    assert_eq!(
        refusal(""),
        "a.toml:1: no portal: give at least one [[portal]] with listen = \"IP:PORT\", such as \
         \"0.0.0.0:4420\""
    );
}

#[test]
fn cores_outside_the_machine_are_refused() {
    for (text, message) in [
        ("[cores]\ncount = 0\n", "a.toml:4: cores.count: 0 is not allowed; allowed are 1 to 4"),
        ("[cores]\ncount = 5\n", "a.toml:4: cores.count: 5 is not allowed; allowed are 1 to 4"),
        ("[cores]\ncount = -1\n", "a.toml:4: cores.count: -1 is not allowed; allowed are 1 to 4"),
        (
            "[cores]\ncount = 129\npin = false\n",
            "a.toml:4: cores.count: 129 is not allowed; allowed are 1 to 128",
        ),
        (
            "[cores]\ncpus = []\n",
            "a.toml:4: cores.cpus: no CPU is named; give at least one, or leave out cpus",
        ),
        ("[cores]\ncpus = [\n0,\n3]\n", "a.toml:6: cores.cpus: CPU 3 is not usable here; usable are 0-2,6"),
        ("[cores]\ncpus = [0, 0]\n", "a.toml:4: cores.cpus: CPU 0 is named twice"),
        ("[cores]\ncpus = [0]\ncount = 1\n", "a.toml:5: cores.count: give either count or cpus, not both"),
        (
            "[cores]\ncpus = [0]\npin = false\n",
            "a.toml:5: cores.pin: cpus names CPUs to pin to: leave out pin, or give count instead of cpus",
        ),
        ("[cores]\nspin_us = 51\n", "a.toml:4: cores.spin_us: 51 is not allowed; allowed are 0 to 50"),
        (
            "[buffers]\nslices = 1\n",
            "a.toml:4: buffers.slices: 1 is not allowed; allowed are 16 to \
         1048576",
        ),
    ] {
        assert_eq!(refusal_after_portal(text), message);
    }
}

#[test]
fn addresses_that_are_none_are_refused() {
    for (text, message) in [
        (
            "[metrics]\nlisten = \"9420\"\n",
            "a.toml:4: metrics.listen: \"9420\" is not an address; allowed is IP:PORT, such as \
             \"127.0.0.1:9420\" or \"[::1]:9420\"",
        ),
        (
            "[[portal]]\nlisten = \"host:4420\"\n",
            "a.toml:4: portal.listen: \"host:4420\" is not an address; allowed is IP or IP:PORT, such as \
             \"192.0.2.1:4420\" or \"[2001:db8::1]:4420\"",
        ),
        (
            "[[portal]]\nlisten = \"127.0.0.1\"\n",
            "a.toml:4: portal.listen: another portal listens on 127.0.0.1:4420 (line 2)",
        ),
        (
            "[[portal]]\nlisten = \"::\"\nadvertise = \"0.0.0.0\"\n",
            "a.toml:5: portal.advertise: hosts cannot connect to 0.0.0.0:4420; give an address and port \
             that they can reach",
        ),
    ] {
        assert_eq!(refusal_after_portal(text), message);
    }
}

#[test]
fn subsystems_that_cannot_be_are_refused() {
    let a = "[[subsystem]]\nnqn = \"nqn.2026-01.io.x:a\"\n";
    for (text, message) in [
        (
            "[[subsystem]]\nnqn = \"disks\"\n".to_owned(),
            "a.toml:4: subsystem.nqn: the NQN \"disks\" does not have the form \
             nqn.yyyy-mm.reverse.domain[:name]",
        ),
        (
            "[[subsystem]]\nnqn = \"nqn.2014-08.org.nvmexpress.discovery\"\n".to_owned(),
            "a.toml:4: subsystem.nqn: this name belongs to discovery, which every portal serves anyway",
        ),
        (
            format!("{a}{a}"),
            "a.toml:6: subsystem.nqn: subsystem nqn.2026-01.io.x:a is there already (line 4)",
        ),
        (
            format!("{a}serial = \"123456789012345678901\"\n"),
            "a.toml:5: subsystem.serial: \"123456789012345678901\" is not allowed; allowed are 1 to 20 \
             printable ASCII characters without spaces at either end",
        ),
        (
            format!("{a}model = \"\"\n"),
            "a.toml:5: subsystem.model: \"\" is not allowed; allowed are 1 to 40 printable ASCII \
             characters without spaces at either end",
        ),
        (
            format!("{a}hosts = [\"me\"]\n"),
            "a.toml:5: subsystem.hosts: the NQN \"me\" does not have the form \
             nqn.yyyy-mm.reverse.domain[:name]",
        ),
        (
            format!("{a}hosts = [\"nqn.2026-01.io.x:h\",\n\"nqn.2026-01.io.x:h\"]\n"),
            "a.toml:6: subsystem.hosts: host nqn.2026-01.io.x:h is named twice",
        ),
        (
            format!("{a}hosts = [\"nqn.2026-01.io.x:h\"]\nallow_any_host = true\n"),
            "a.toml:6: subsystem.allow_any_host: every host would be allowed, named or not: leave out \
             this or hosts",
        ),
    ] {
        assert_eq!(refusal_after_portal(&text), message);
    }
}

#[test]
fn namespaces_that_cannot_be_are_refused() {
    let null = "backend = { kind = \"null\", size = \"1 MiB\" }\n";
    for (text, message) in [
        (
            format!("nsid = 0\n{null}"),
            "a.toml:6: subsystem.namespace.nsid: 0 is not allowed; allowed are 1 to 4096",
        ),
        (
            format!("nsid = 4097\n{null}"),
            "a.toml:6: subsystem.namespace.nsid: 4097 is not allowed; allowed are 1 to 4096",
        ),
        (
            format!(
                "nsid = 1\n{null}[[subsystem.namespace]]\nnsid = 1\nuuid = \
                 \"2b6f3a52-8d55-4c62-9a0b-4fd0a1b2c3d4\"\n{null}"
            ),
            "a.toml:9: subsystem.namespace.nsid: namespace 1 is there already (line 6)",
        ),
        (
            format!("nsid = 1\nuuid = \"2b6f\"\n{null}"),
            "a.toml:7: subsystem.namespace.uuid: \"2b6f\" is not a UUID; allowed is a UUID other than \
             zero, such as \"2b6f3a52-8d55-4c62-9a0b-4fd0a1b2c3d4\"",
        ),
        (
            format!("nsid = 1\nblock_size = 1024\n{null}"),
            "a.toml:7: subsystem.namespace.block_size: 1024 is not allowed; allowed are 4096 and 512",
        ),
        ("nsid = 1\n".to_owned(), "a.toml:5: subsystem.namespace: missing key `backend`"),
    ] {
        assert_eq!(refusal_of_namespace(&text), message);
    }
}

#[test]
fn one_uuid_on_two_namespaces_is_refused() {
    let namespace = |nsid| {
        format!(
            "[[subsystem.namespace]]\nnsid = {nsid}\nuuid = \"2b6f3a52-8d55-4c62-9a0b-4fd0a1b2c3d4\"\n\
             backend = {{ kind = \"null\", size = \"1 MiB\" }}\n"
        )
    };
    let subsystem = |name| format!("[[subsystem]]\nnqn = \"nqn.2026-01.io.x:{name}\"\n");
    let text = format!("{PORTAL}{}{}{}{}", subsystem("a"), namespace(1), subsystem("b"), namespace(2));
    assert_eq!(
        refusal(&text),
        "a.toml:13: subsystem.namespace.uuid: UUID 2b6f3a52-8d55-4c62-9a0b-4fd0a1b2c3d4 belongs to another \
         namespace (line 7)"
    );
}

#[test]
fn backends_that_cannot_be_are_refused() {
    for (backend, message) in [
        ("{ kind = \"tape\" }", "kind: unknown variant `tape`, expected one of `null`, `memory`, `raw`"),
        ("{ kind = \"null\" }", ": missing key `size`, such as \"10 GiB\""),
        (
            "{ kind = \"null\", size = \"0 B\" }",
            "size: \"0 B\" is not allowed; allowed are multiples of the block size, 4096 B",
        ),
        (
            "{ kind = \"null\", size = \"6 kB\" }",
            "size: \"6 kB\" is not allowed; allowed are multiples of the block size, 4096 B",
        ),
        (
            "{ kind = \"null\", size = \"big\" }",
            "size: \"big\" is not a size: write a whole number and a unit (B, KiB, MiB, GiB, TiB, PiB, \
             kB, MB, GB, TB, PB), such as \"10 GiB\"",
        ),
        (
            "{ kind = \"memory\", size = \"1 GiB\", path = \"/x\" }",
            "path: not for kind \"memory\"; allowed there are kind, size and memory_max",
        ),
        (
            "{ kind = \"raw\", size = \"1 GiB\" }",
            ": missing key `path`: the absolute path of a file or block device",
        ),
        (
            "{ kind = \"null\", size = \"1 GiB\", page_cache = false }",
            "page_cache: not for kind \"null\"; allowed there are kind and size",
        ),
        (
            "{ kind = \"raw\", path = \"/x\", memory_max = \"1 MiB\" }",
            "memory_max: not for kind \"raw\"; allowed there are kind, path, size, create and page_cache",
        ),
        (
            "{ kind = \"raw\", path = \"/x\", size = \"1 GiB\" }",
            "size: the file or device has its own size: leave out size, or give create = true to make or \
             grow a file",
        ),
        ("{ kind = \"raw\", path = \"x\" }", "path: \"x\" is not allowed; allowed is an absolute path"),
        (
            "{ kind = \"raw\", path = \"/x\", create = true }",
            "create: a file is created with a size: give size, such as \"10 GiB\"",
        ),
    ] {
        let message = format!(
            "a.toml:7: subsystem.namespace.backend{}{message}",
            if message.starts_with(':') { "" } else { "." }
        );
        assert_eq!(refusal_of_namespace(&format!("nsid = 1\nbackend = {backend}\n")), message);
    }
}

#[test]
fn one_path_behind_two_namespaces_is_refused() {
    let raw = "backend = { kind = \"raw\", path = \"/dev/x\" }\n";
    let text = format!("nsid = 1\n{raw}[[subsystem.namespace]]\nnsid = 2\n{raw}");
    assert_eq!(
        refusal_of_namespace(&text),
        "a.toml:10: subsystem.namespace.backend.path: /dev/x belongs to another namespace (line 7)"
    );
}

#[test]
fn all_broken_rules_are_told_in_order() {
    let text = "[[subsystem]]\nnqn = \"x\"\n[[portal]]\nlisten = \"y\"\n[cores]\ncount = 0\n";
    let lines: Vec<String> = refusal(text).lines().map(|line| line.chars().take(9).collect()).collect();
    assert_eq!(lines, ["a.toml:2:", "a.toml:4:", "a.toml:6:"]);
}

#[test]
fn what_is_wrong_below_something_wrong_is_told_too() {
    let text = "\
        [[subsystem]]
        nqn = \"x\"
        serial = \" \"
        hosts = [\"y\"]
        [[subsystem.namespace]]
        nsid = 0
        block_size = 1024
        backend = { kind = \"raw\", path = \"z\", size = \"10\", create = true }
        [[subsystem.namespace]]
        nsid = 0
        uuid = \"1\"
        backend = { kind = \"memory\", size = \"1 B\", memory_max = \"2 B\" }
        [[subsystem.namespace]]
        nsid = 1
        backend = { kind = \"null\", size = \"1 MiB\" }
    ";
    let told: Vec<String> = refusal_after_portal(text)
        .lines()
        .map(|line| line.splitn(3, ':').take(2).last().unwrap_or_default().to_owned())
        .collect();
    // Line 10 has a size and a path, 14 two sizes. Nothing is said of numbers that are there twice, for none is.
    assert_eq!(told, ["4", "5", "6", "8", "9", "10", "10", "12", "13", "14", "14"]);
}

#[test]
fn unreadable_file_is_named() {
    let error = Config::load(Path::new("/nonexistent/a.toml")).expect_err("no such file");
    assert_eq!(
        error.to_string(),
        "reading the configuration /nonexistent/a.toml: No such file or directory (os error 2)"
    );
}
