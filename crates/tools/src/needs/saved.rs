//! The pattern that a person means who allows a command for good: the program and its subcommand.

use super::word::Word;
use super::wrapped::base;

/// How many words name what a program does. A longer beginning counts before a shorter one; others have one.
const ARITIES: [(&str, usize); 62] = [
    ("apt", 2),
    ("apt-get", 2),
    ("aws", 3),
    ("az", 3),
    ("brew", 2),
    ("bun", 2),
    ("bun run", 3),
    ("bundle", 2),
    ("bundle exec", 3),
    ("cargo", 2),
    ("composer", 2),
    ("conda", 2),
    ("deno", 2),
    ("deno task", 3),
    ("docker", 2),
    ("docker compose", 3),
    ("docker container", 3),
    ("docker image", 3),
    ("docker network", 3),
    ("docker volume", 3),
    ("dotnet", 2),
    ("gcloud", 3),
    ("gh", 3),
    ("git", 2),
    ("git bisect", 3),
    ("git config", 3),
    ("git remote", 3),
    ("git stash", 3),
    ("git submodule", 3),
    ("git worktree", 3),
    ("go", 2),
    ("go mod", 3),
    ("gradle", 2),
    ("helm", 2),
    ("ip", 2),
    ("jj", 2),
    ("just", 2),
    ("kubectl", 2),
    ("kubectl config", 3),
    ("kubectl rollout", 3),
    ("make", 2),
    ("mise", 2),
    ("mvn", 2),
    ("npm", 2),
    ("npm run", 3),
    ("nx", 2),
    ("pip", 2),
    ("pip3", 2),
    ("pnpm", 2),
    ("pnpm run", 3),
    ("podman", 2),
    ("poetry", 2),
    ("poetry run", 3),
    ("rails", 2),
    ("rustup", 2),
    ("systemctl", 2),
    ("terraform", 2),
    ("uv", 2),
    ("uv run", 3),
    ("yarn", 2),
    ("yarn run", 3),
    ("zig", 2),
];
/// Programs that run what an argument says, so that nothing but the very command is meant.
const EXACT: [&str; 27] = [
    "find",
    "fd",
    "fdfind",
    "awk",
    "gawk",
    "mawk",
    "sed",
    "perl",
    "python",
    "python3",
    "node",
    "ruby",
    "php",
    "lua",
    "Rscript",
    "osascript",
    "ssh",
    "tclsh",
    "npx",
    "bunx",
    "pnpx",
    "uvx",
    "pipx",
    "vim",
    "ed",
    "gdb",
    "tar",
];

/// Returns how many words name what a program does, if it has subcommands.
pub(super) fn find_arity(program: &str) -> Option<usize> {
    ARITIES.iter().find(|(name, _)| *name == program).map(|(_, arity)| *arity)
}

/// Returns the pattern, if there is one that means no more than its words.
pub(super) fn pattern(words: &[Word], shown: &str) -> Option<String> {
    let names: Vec<&str> = words.iter().map_while(Word::exact).take(3).collect();
    let program = base(names.first()?);
    let is_one = |text: &str| !text.contains(['*', '?']);
    let very_command = || {
        let is_known = words.iter().all(|word| word.text.is_some());
        (is_known && is_one(shown)).then(|| shown.to_owned())
    };
    if EXACT.contains(&program) {
        return very_command();
    }
    let whole = |count: usize| -> Option<String> {
        let rest = names.get(1..count)?;
        Some(std::iter::once(program).chain(rest.iter().copied()).collect::<Vec<_>>().join(" "))
    };
    let arity = |count: usize| {
        let start = whole(count)?;
        ARITIES.iter().find(|(name, _)| *name == start).map(|(_, arity)| *arity)
    };
    let arity = arity(2).or_else(|| arity(1)).unwrap_or(1);
    let start = names.get(..arity.min(words.len()));
    let is_name = |text: &&str| {
        !text.is_empty()
            && !text.starts_with('-')
            && !text.contains(char::is_whitespace)
            && is_one(text)
    };
    match start.filter(|start| start.iter().all(is_name)) {
        Some(start) => Some(start.join(" ") + " *"),
        None => very_command(),
    }
}
