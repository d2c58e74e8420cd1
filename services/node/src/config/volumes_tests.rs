//! Pools, devices and volumes: what their tables mean, and what each mistake in them is answered with.

use std::path::Path;

use ashlar_nvme::ids::{Nqn, Nsid};
use ashlar_target::inventory::{HostAccess, LbaSize};

use super::*;

/// Lines 1 to 12.
const POOLS: &str = "[[portal]]\nlisten = \"127.0.0.1:4420\"\n[[pool]]\nname = \"a\"\n[[pool]]\nname = \"b\"\n\
                     [[device]]\npath = \"/dev/x\"\npool = \"a\"\n\
                     [[device]]\npath = \"memory:2 GiB\"\npool = \"b\"\n";

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("a.toml"), &format!("{POOLS}{text}"), &Machine { cpus: vec![0] })
}

/// The error message for keys of a volume; they stand on line 14 and after.
fn refusal(keys: &str) -> String {
    parse(&format!("[[volume]]\n{keys}")).expect_err("an invalid configuration").to_string()
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

#[test]
fn a_volume_is_namespace_1_of_its_own_subsystem() {
    let config =
        parse("[[volume]]\nname = \"db\"\nsize = \"1 GiB\"\nreplicas = [\"a\", \"b\"]\n").expect("valid");
    let settings = &config.volumes[&name("db")];
    assert_eq!(settings.bytes, 1 << 30);
    assert_eq!(settings.replicas, Replicas::Pools(vec![name("a"), name("b")]));
    let nqn = Nqn::parse("nqn.2026-01.io.ashlar:volume:db").expect("an NQN");
    let subsystem = &config.subsystems[&nqn];
    assert_eq!(subsystem.hosts, HostAccess::default());
    let namespace = &subsystem.namespaces[&Nsid(1)];
    assert_eq!(namespace.uuid, identity::namespace_uuid(&nqn, Nsid(1)));
    assert_eq!(namespace.backend, BackendSettings::Volume { name: name("db"), bytes: 1 << 30 });
    assert_eq!(config.state_directory, Path::new(STATE_DIRECTORY));
    assert_eq!(config.pools[&name("a")], [DevicePlace::Path("/dev/x".into())]);
    assert_eq!(config.pools[&name("b")], [DevicePlace::Memory { bytes: 2 << 30 }]);
}

#[test]
fn every_key_of_a_volume_is_heard() {
    let config = parse(
        r#"
        [[volume]]
        name = "db"
        size = "1 GiB"
        replicas = 2
        failure_domain = "device"
        block_size = 512
        nqn = "nqn.2026-01.io.x:db"
        uuid = "2b6f3a52-8d55-4c62-9a0b-4fd0a1b2c3d4"
        serial = "S"
        model = "M"
        hosts = ["nqn.2026-01.io.x:h"]
        [state]
        directory = "/srv/ashlar"
        "#,
    )
    .expect("valid");
    assert_eq!(config.volumes[&name("db")].replicas, Replicas::Count(2));
    assert_eq!(config.state_directory, Path::new("/srv/ashlar"));
    let subsystem = &config.subsystems[&Nqn::parse("nqn.2026-01.io.x:db").expect("an NQN")];
    assert_eq!((subsystem.serial.as_str(), subsystem.model.as_str()), ("S", "M"));
    assert!(subsystem.hosts.allows(&Nqn::parse("nqn.2026-01.io.x:h").expect("an NQN")));
    let namespace = &subsystem.namespaces[&Nsid(1)];
    assert_eq!(namespace.block_size, LbaSize::B512);
    assert_eq!(namespace.uuid.to_string(), "2b6f3a52-8d55-4c62-9a0b-4fd0a1b2c3d4");
}

#[test]
fn replicas_are_in_pools_that_are_there_and_different() {
    let keys = "name = \"db\"\nsize = \"1 GiB\"\nreplicas = ";
    for (value, expected) in [
        ("0", "a.toml:16: volume.replicas: 0 is not allowed; allowed are 1 to 3"),
        ("4", "a.toml:16: volume.replicas: 4 is not allowed; allowed are 1 to 3"),
        ("3", "a.toml:16: volume.replicas: 3 replicas are in 3 different pools, and there are 2"),
        ("[]", "a.toml:16: volume.replicas: 0 pools are named; allowed are 1 to 3, one per replica"),
        ("[\"a\", \"c\"]", "a.toml:16: volume.replicas: there is no [[pool]] with name = \"c\""),
        (
            "[\"a\", \"a\"]",
            "a.toml:16: volume.replicas: pool a is named twice; replicas are in different pools",
        ),
    ] {
        assert_eq!(refusal(&format!("{keys}{value}\n")), expected);
    }
    let other = refusal(&format!("{keys}true\n"));
    assert!(other.contains(":16: volume.replicas: ") && other.contains("list of pools"), "{other}");
}

#[test]
fn sizes_of_volumes_are_whole_blocks() {
    for size in ["0 B", "512 B", "4097 B"] {
        let message = refusal(&format!("name = \"db\"\nsize = \"{size}\"\nreplicas = 1\n"));
        let expected =
            format!("a.toml:15: volume.size: {size:?} is not allowed; allowed are multiples of 4096 B");
        assert_eq!(message, expected);
    }
    let large = refusal("name = \"db\"\nsize = \"257 TiB\"\nreplicas = 1\n");
    assert_eq!(large, "a.toml:15: volume.size: \"257 TiB\" is too large: at most 256 TiB");
}

#[test]
fn names_are_there_once() {
    let volume = "[[volume]]\nname = \"db\"\nsize = \"1 GiB\"\nreplicas = 1\n";
    let twice = parse(&format!("{volume}{volume}")).expect_err("twice").to_string();
    assert_eq!(twice, "a.toml:18: volume.name: volume db is there already (line 14)");
    let pool = parse("[[pool]]\nname = \"a\"\n").expect_err("twice").to_string();
    assert_eq!(pool, "a.toml:14: pool.name: pool a is there already (line 4)");
    let device = parse("[[device]]\npath = \"/dev/x\"\npool = \"b\"\n").expect_err("twice").to_string();
    assert_eq!(device, "a.toml:14: device.path: device /dev/x is there already (line 8)");
}

#[test]
fn the_subsystem_of_a_volume_is_no_other() {
    let message = refusal(
        "name = \"db\"\nsize = \"1 GiB\"\nreplicas = 1\nnqn = \"nqn.2026-01.io.x:a\"\n\
         [[subsystem]]\nnqn = \"nqn.2026-01.io.x:a\"\n",
    );
    assert_eq!(message, "a.toml:17: volume.nqn: subsystem nqn.2026-01.io.x:a is there already (line 19)");
}

#[test]
fn devices_and_pools_belong_together() {
    let unknown = parse("[[device]]\npath = \"/dev/y\"\npool = \"c\"\n").expect_err("no pool").to_string();
    assert_eq!(unknown, "a.toml:15: device.pool: there is no [[pool]] with name = \"c\"");
    let empty = parse("[[pool]]\nname = \"c\"\n").expect_err("no device").to_string();
    assert_eq!(
        empty,
        "a.toml:14: pool.name: pool c has no device: give at least one [[device]] with pool = \"c\""
    );
}

#[test]
fn places_of_devices_are_absolute_paths_or_memory() {
    let device = |path: &str| {
        let text = format!("[[device]]\npath = \"{path}\"\npool = \"a\"\n");
        parse(&text).expect_err("no place").to_string()
    };
    assert_eq!(
        device("nvme0n1"),
        "a.toml:14: device.path: \"nvme0n1\" is not allowed; allowed is an absolute path, or \"memory:10 GiB\""
    );
    assert!(device("memory:big").contains("is not a size"), "{}", device("memory:big"));
    for size in ["memory:2 TiB", "memory:1023 MiB"] {
        assert!(device(size).contains("allowed are 1 GiB to 1 TiB"), "{}", device(size));
    }
    let state = parse("[state]\ndirectory = \"here\"\n").expect_err("relative").to_string();
    assert_eq!(state, "a.toml:14: state.directory: \"here\" is not allowed; allowed is an absolute path");
}

#[test]
fn unknown_keys_are_named_with_their_line() {
    let message = refusal("name = \"db\"\nsize = \"1 GiB\"\nreplicas = 1\ncolour = 1\n");
    assert!(message.starts_with("a.toml:17: volume.colour: unknown key"), "{message}");
    let domain = refusal("name = \"db\"\nsize = \"1 GiB\"\nreplicas = 1\nfailure_domain = \"rack\"\n");
    assert!(domain.starts_with("a.toml:17: volume.failure_domain: "), "{domain}");
}

#[test]
fn volumes_are_scrubbed_weekly_unless_the_file_says_otherwise() {
    let scrub = |text: &str| parse(text).expect("valid").scrub;
    let settings = |bytes_per_s, hours: u64| {
        Some(ScrubSettings { bytes_per_s, interval: Duration::from_secs(hours * 3600) })
    };
    assert_eq!(scrub(""), settings(64 << 20, 168));
    assert_eq!(scrub("[scrub]\nrate = \"1 GiB\"\ninterval_h = 0\n"), settings(1 << 30, 0));
    assert_eq!(scrub("[scrub]\nenabled = false\nrate = \"1 GiB\"\n"), None);
}

#[test]
fn a_senseless_scrub_is_refused() {
    let refused = |text: &str| parse(&format!("[scrub]\n{text}")).expect_err("invalid").to_string();
    assert!(refused("rate = \"1 KiB\"").contains("allowed is at least 1 MiB"));
    assert!(refused("rate = \"fast\"").contains("is not a size"));
    assert!(refused("interval_h = -1").contains("allowed are 0 to 8760"));
    assert!(refused("interval_h = 8761").contains("allowed are 0 to 8760"));
}
