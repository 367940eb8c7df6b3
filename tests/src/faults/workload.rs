//! Prompts that the simulated model turns into several tools each, and disturbances of its answers. Pure.

use rand::RngExt;
use rand::rngs::StdRng;
use simulated_model::Script;

/// A file in each Location to which every unsafe call appends its own line.
pub(crate) const EFFECTS: &str = "effects.txt";

/// A prompt, and the disturbances of its answers.
#[derive(Debug, Clone)]
pub(crate) struct Prompt {
    pub(crate) text: String,
    /// `steer` or `queue`.
    pub(crate) delivery: &'static str,
    pub(crate) scripts: Vec<Script>,
}

/// Returns the `number`th prompt of a session: two to four steps of one to three parallel tools.
pub(crate) fn prompt(session: usize, number: usize, random: &mut StdRng) -> Prompt {
    // All markers have one width, so that none is a part of another.
    let marker = format!("s{session:02}p{number:04}");
    let file = format!("{marker}.txt");
    let mut effects = (b'a'..=b'z').map(|letter| format!("{marker}{}", char::from(letter)));
    let mut shell = |random: &mut StdRng| shell(&effects.next().unwrap_or_default(), random);
    let mut steps = vec![format!("{} and also create {file} containing one", shell(random))];
    if random.random_bool(0.5) {
        steps[0] = format!("{} and also {}", steps[0], shell(random));
    }
    for step in 1..random.random_range(2..=4) {
        let mut actions = vec![match random.random_range(0..3) {
            0 if step == 1 => format!("edit {file} replacing one with two"),
            // The same call a third time in a row would wait for a person.
            1 if step <= 2 => format!("read {file}"),
            _ => shell(random),
        }];
        if random.random_bool(0.6) {
            actions.push(shell(random));
        }
        steps.push(actions.join(" and also "));
    }
    let scripts = disturbances(&marker, random);
    if scripts.iter().any(|script| script.cut_after_chunks.is_some()) {
        // Text of a cut reply stays, but calls alone would be requested again.
        steps[0] = format!("say 8 words and also {}", steps[0]);
    }
    let delivery = if random.random_bool(0.5) { "queue" } else { "steer" };
    Prompt { text: steps.join(" then "), delivery, scripts }
}

/// Returns a command that appends the line, before or after some time.
fn shell(line: &str, random: &mut StdRng) -> String {
    let seconds = f64::from(random.random_range(3..15)) / 10.0;
    if random.random_bool(0.6) {
        format!("run echo {line} >> {EFFECTS}; sleep {seconds}")
    } else {
        format!("run sleep {seconds}; echo {line} >> {EFFECTS}")
    }
}

/// Returns the line that a shell command of [`prompt`] appends.
pub(crate) fn line_of(command: &str) -> Option<&str> {
    command.split_once("echo ")?.1.split_once(" >> ").map(|(line, _)| line)
}

/// Returns at most one script of each kind, each used once: slow answers, refusals, cut streams.
fn disturbances(marker: &str, random: &mut StdRng) -> Vec<Script> {
    let mut scripts = Vec::new();
    let base = |round| Script {
        matches: marker.to_owned(),
        round: Some(round),
        times: Some(1),
        ..Script::default()
    };
    if random.random_bool(0.2) {
        let retry_after_ms = Some(random.random_range(20..400));
        scripts.push(Script { status: Some(429), retry_after_ms, ..base(0) });
    }
    if random.random_bool(0.25) {
        let cut_after_chunks = Some(random.random_range(1..14));
        scripts.push(Script { cut_after_chunks, chunk_delay_ms: 5, ..base(0) });
    }
    if random.random_bool(0.6) {
        let (delay_ms, chunk_delay_ms) = (random.random_range(0..400), random.random_range(0..60));
        let round = random.random_range(0..3);
        scripts.push(Script { delay_ms, chunk_delay_ms, ..base(round) });
    }
    scripts
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::SeedableRng;

    use super::*;

    #[test]
    fn every_unsafe_call_has_a_line_of_its_own() {
        let mut random = StdRng::seed_from_u64(1);
        let texts: Vec<String> = (0..200).map(|n| prompt(1, n, &mut random).text).collect();
        let commands = texts.iter().flat_map(|text| text.split("run ").skip(1));
        let lines: Vec<&str> = commands.map(|command| line_of(command).unwrap()).collect();
        let different: HashSet<&&str> = lines.iter().collect();
        assert!(lines.len() > 300);
        assert_eq!(different.len(), lines.len());
    }
}
