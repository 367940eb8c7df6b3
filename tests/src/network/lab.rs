//! Namespaces, their addresses, and the packets dropped between them.

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::run;

/// The bridge's namespace, in which the driver runs.
pub const HUB: &str = "oc-hub";
/// The address of the driver and the model.
pub(super) const DRIVER: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 254);

/// All hosts of the lab, in the order of their addresses.
pub(crate) const HOSTS: &[&str] = &["pg", "nats", "p1", "p2", "p3", "w1", "w2", "w3", "g1", "g2"];

/// Returns the address of a host.
///
/// # Panics
/// When the host is not one of [`HOSTS`].
pub(crate) fn address(host: &str) -> Ipv4Addr {
    let number = HOSTS.iter().position(|it| *it == host).expect("scenarios name hosts of the lab");
    Ipv4Addr::new(10, 88, 0, u8::try_from(number).expect("a few hosts") + 10)
}

pub(crate) fn namespace(host: &str) -> String {
    format!("oc-{host}")
}

/// The process ids of all processes of a host.
pub(crate) fn processes(host: &str) -> Result<Vec<u32>> {
    let listed = run("ip", &["netns", "pids", &namespace(host)])?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    listed.split_whitespace().map(|pid| pid.parse().context("a process id")).collect()
}

/// The namespaces of one run, removed when dropped.
#[derive(Debug)]
pub struct Lab(());

impl Lab {
    /// Creates the hub, and a namespace with an address for each host.
    ///
    /// # Errors
    /// When this is not root, or a tool is missing.
    pub fn build() -> Result<Self> {
        remove();
        let lab = Self(());
        ip(&["netns", "add", HUB])?;
        ip(&["-n", HUB, "link", "set", "lo", "up"])?;
        ip(&["-n", HUB, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", HUB, "addr", "add", &format!("{DRIVER}/24"), "dev", "br0"])?;
        ip(&["-n", HUB, "link", "set", "br0", "up"])?;
        for host in HOSTS {
            let (space, outside) = (namespace(host), format!("v-{host}"));
            ip(&["netns", "add", &space])?;
            ip(&["-n", HUB, "link", "add", &outside, "type", "veth", "peer", "name", "eth0"])?;
            ip(&["-n", HUB, "link", "set", "eth0", "netns", &space])?;
            ip(&["-n", HUB, "link", "set", &outside, "master", "br0", "up"])?;
            ip(&["-n", &space, "link", "set", "lo", "up"])?;
            let address = format!("{}/24", address(host));
            ip(&["-n", &space, "addr", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &space, "link", "set", "eth0", "up"])?;
        }
        Ok(lab)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        remove();
    }
}

fn remove() {
    for host in HOSTS.iter().map(|host| namespace(host)).chain([HUB.to_owned()]) {
        // It does not exist at the first start.
        let _absent = Command::new("ip").args(["netns", "del", &host]).output();
    }
}

/// Drops everything from `from` to `to`, at the receiver.
pub(crate) fn cut_one_way(from: &str, to: &str) -> Result<()> {
    let source = if from == "driver" { DRIVER } else { address(from) };
    iptables(to, &["-A", "INPUT", "-s", &source.to_string(), "-j", "DROP"])
}

/// Drops everything between two hosts.
pub(crate) fn cut(one: &str, other: &str) -> Result<()> {
    cut_one_way(one, other)?;
    cut_one_way(other, one)
}

/// Drops all flows that `from` has open to `to`, as if a firewall had forgotten them. New ones pass. Returns their
/// number.
pub(crate) fn vanish_flows(from: &str, to: &str) -> Result<usize> {
    let space = namespace(from);
    let listed =
        run("ip", &["netns", "exec", &space, "ss", "-Htn", "dst", &address(to).to_string()])?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut dropped = 0;
    for line in listed.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (Some(local), Some(peer)) = (fields.get(3), fields.get(4)) else { continue };
        let ports = local.rsplit_once(':').zip(peer.rsplit_once(':'));
        let Some(((_, local), (_, remote))) = ports else { continue };
        let tcp = ["-p", "tcp", "--sport", remote, "--dport", local, "-j", "DROP"];
        iptables(from, &[&["-A", "INPUT"], &tcp[..]].concat())?;
        let tcp = ["-p", "tcp", "--sport", local, "--dport", remote, "-j", "DROP"];
        iptables(from, &[&["-A", "OUTPUT"], &tcp[..]].concat())?;
        dropped += 1;
    }
    Ok(dropped)
}

/// Lets everything pass again, everywhere.
pub(crate) fn heal() -> Result<()> {
    HOSTS.iter().try_for_each(|host| iptables(host, &["-F"]))
}

fn iptables(host: &str, args: &[&str]) -> Result<()> {
    let space = namespace(host);
    run("ip", &[&["netns", "exec", &space, "iptables", "-w"], args].concat()).map(|_| ())
}

fn ip(args: &[&str]) -> Result<()> {
    run("ip", args).map(|_| ())
}
