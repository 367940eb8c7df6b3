//! Compares a rule's pattern with the address of a page.

use domain::{RuleAction, ToolRule};

use super::{covers, is_like, is_like_without_folders};

/// How patterns of another product begin that are about a host and nothing else: `domain:example.com`.
const HOST: &str = "domain:";

/// Returns whether a rule is about a page. `address` is one of its forms.
pub(super) fn is_about_page(rule: &ToolRule, address: &str) -> bool {
    let pattern = lower_host(&rule.pattern);
    match (rule.action, rule.pattern.strip_prefix(HOST)) {
        (RuleAction::Allow, _) => allows_page(&pattern, address),
        (RuleAction::Deny | RuleAction::Ask, Some(host)) => {
            is_like(&host.to_ascii_lowercase(), find_host(address))
        }
        (RuleAction::Deny | RuleAction::Ask, None) => {
            covers(&pattern, address) || is_like_without_folders(&pattern, address)
        }
    }
}

/// Returns whether a pattern allows a page: what stands before the first slash behind `://` is about the host alone. Without
/// that, a star could stand for another host and a part of its path.
fn allows_page(pattern: &str, address: &str) -> bool {
    let is_of_hosts = pattern.starts_with('*')
        && pattern.split_once('/').is_some_and(|(host, _)| host.contains('.'));
    let (scheme, wanted) = match pattern.split_once("://") {
        Some(parts) => parts,
        None if is_of_hosts => ("*", pattern),
        None => return is_like(pattern, address),
    };
    let Some((own_scheme, own)) = address.split_once("://") else { return false };
    let (own_host, own_rest) = own.split_at(own.find('/').unwrap_or(own.len()));
    let (host, rest) = match wanted.find('/') {
        Some(at) => wanted.split_at(at),
        None if wanted.ends_with('*') => (wanted, "*"),
        None => (wanted, ""),
    };
    is_like(scheme, own_scheme) && is_like(host, own_host) && is_like(rest, own_rest)
}

/// Returns a pattern with its scheme and its host in small letters, as addresses in their normal form have them.
fn lower_host(pattern: &str) -> String {
    let Some(at) = pattern.find("://") else { return pattern.to_owned() };
    let behind = at + "://".len();
    let end = pattern[behind..].find('/').map_or(pattern.len(), |slash| behind + slash);
    pattern[..end].to_ascii_lowercase() + &pattern[end..]
}

/// Returns the host of an address, without a port.
fn find_host(address: &str) -> &str {
    let own = address.split_once("://").map_or(address, |(_, own)| own);
    let authority = own.split(['/', '?', '#']).next().unwrap_or(own);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        Some(_) | None => host,
    }
}
