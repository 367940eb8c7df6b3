//! Tells public internet addresses from others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns whether an address is public unicast: not of this machine, a private or shared network, a link, a
/// documentation range, or another range that IANA has set aside
/// (<https://www.iana.org/assignments/iana-ipv4-special-registry>,
/// <https://www.iana.org/assignments/iana-ipv6-special-registry>). An IPv6 address that contains an IPv4 one
/// (mapped, NAT64, 6to4) is judged by that one.
#[must_use]
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    !(ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_documentation()
        || a == 0
        || (a == 100 && (64..128).contains(&b)) // shared by carriers
        || (a == 192 && b == 0 && c == 0) // protocol assignments
        || (a == 192 && b == 88 && c == 99) // 6to4 relays
        || ip.octets() == [168, 63, 129, 16] // what Azure keeps for its machines, in each of its networks
        || (a == 198 && (18..20).contains(&b)) // benchmarks
        || a >= 224) // multicast, reserved, broadcast
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    let v4_at = |at: usize| {
        let [high, low] = [segments[at], segments[at + 1]].map(u16::to_be_bytes);
        Ipv4Addr::new(high[0], high[1], low[0], low[1])
    };
    match segments {
        // Mapped: ::ffff:a.b.c.d.
        [0, 0, 0, 0, 0, 0xffff, ..] => is_public_v4(v4_at(6)),
        // NAT64 (RFC 6052). RFC 8215's prefix is for local networks.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => is_public_v4(v4_at(6)),
        // 6to4 (RFC 3056).
        [0x2002, ..] => is_public_v4(v4_at(1)),
        // Teredo, benchmarks, ORCHID and the other protocol assignments below 2001:200::; documentation.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // All other global unicast addresses.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(ip: &str) -> bool {
        is_public(ip.parse().expect("an address"))
    }

    #[test]
    fn only_global_unicast_addresses_are_public() {
        for inside in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "192.88.99.1",
            "168.63.129.16",
            "198.18.0.1",
            "198.51.100.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "100::1",
            "2001:db8::1",
            "2001::1",
            "3fff::1",
            "64:ff9b:1::1",
        ] {
            assert!(!public(inside), "{inside}");
        }
        for outside in
            ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "2001:4860::1"]
        {
            assert!(public(outside), "{outside}");
        }
    }

    // Finding security 4: NAT64 and 6to4 can reach private networks too.
    #[test]
    fn an_address_that_carries_another_is_judged_by_it() {
        for inside in [
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2002:c0a8:101::1",
        ] {
            assert!(!public(inside), "{inside}");
        }
        for outside in ["::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::1"] {
            assert!(public(outside), "{outside}");
        }
    }
}
