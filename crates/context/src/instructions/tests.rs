use super::*;
use crate::Reconciled;

fn file(origin: &str, text: &str) -> InstructionFile {
    InstructionFile::new(origin, text, false).expect("a text")
}

fn told(context: &SystemContext) -> crate::ContextSnapshot {
    context.initialize().expect("available").snapshot
}

fn updated(context: &SystemContext, told: &crate::ContextSnapshot) -> String {
    let reconciled = context.reconcile(told);
    let Reconciled::Updated { rendered, .. } = reconciled else { panic!("{reconciled:?}") };
    rendered
}

#[test]
fn a_change_tells_the_complete_ordered_set_again() {
    let organisation = || Some(file("your organisation", "Be brief.\n\n"));
    let near = file("/w/AGENTS.md", "Use tabs.");
    let first = instructions(organisation(), vec![file("/AGENTS.md", "Use spaces."), near.clone()]);
    let baseline = first.initialize().expect("available").baseline;
    assert_eq!(
        baseline,
        "Instructions for this workspace:\n\nInstructions from: your organisation\nBe brief.\n\n\
         Instructions from: /AGENTS.md\nUse spaces.\n\nInstructions from: /w/AGENTS.md\nUse tabs."
    );
    assert_eq!(first.reconcile(&told(&first)), Reconciled::Unchanged);
    let second = instructions(organisation(), vec![file("/AGENTS.md", "Use both."), near]);
    assert_eq!(
        updated(&second, &told(&first)),
        baseline.replace("spaces", "both").replace(
            "Instructions for this workspace:",
            "The instructions for this workspace are now the following; they replace all earlier ones:"
        )
    );
    let none = instructions(None, Vec::new());
    let gone = "The instructions for this workspace given before no longer apply.";
    assert_eq!(updated(&none, &told(&second)), gone);
}

#[test]
fn the_snapshot_does_not_grow_with_the_texts() {
    let context = instructions(None, vec![file("/AGENTS.md", &"x".repeat(MAX_FILE_BYTES))]);
    assert!(told(&context).text().len() < 400, "{}", told(&context).text());
}

#[test]
fn a_file_is_cut_at_a_character_and_says_so() {
    let long = "ü".repeat(MAX_FILE_BYTES);
    let cut = file("/AGENTS.md", &format!("x{long}"));
    let end = "\n(cut here: only the first 65536 bytes are told)";
    assert!(cut.text.ends_with(end) && cut.text.len() == MAX_FILE_BYTES - 1 + end.len());
    let read_in_part = InstructionFile::new("/AGENTS.md", "short", true).expect("a text");
    assert_eq!(read_in_part.text, format!("short{end}"));
    assert_eq!(InstructionFile::new("/AGENTS.md", " \n\t\n", false), None);
    assert_eq!(file("/a\nb/AGENTS.md", "a\0b"), file("/a\u{FFFD}b/AGENTS.md", "a\u{FFFD}b"));
}

#[test]
fn too_many_and_too_large_ones_lose_the_farthest_first() {
    let full = "x".repeat(MAX_FILE_BYTES);
    let project: Vec<_> = (0..40).map(|n| file(&format!("/{n}"), &full)).collect();
    let organisation = file("your organisation", "Be brief.");
    let context = instructions(Some(organisation), project);
    let baseline = context.initialize().expect("available").baseline;
    assert!(baseline.len() < MAX_TOTAL_BYTES + 8 * 1024, "{} bytes", baseline.len());
    assert!(baseline.contains("your organisation\nBe brief."), "it is first and stays");
    assert!(!baseline.contains("from: /8\n") && baseline.contains("from: /9\n(left out"));
    assert!(baseline.contains("from: /39\nx") && baseline.contains("from: /37\nx"));
    assert!(baseline.contains("from: /36\n(left out"), "no room beside the organisation's");
}

#[test]
fn a_nested_file_that_is_found_is_told_by_itself() {
    let (a, b) = (file("/w/a/AGENTS.md", "A."), file("/w/b/AGENTS.md", "B."));
    let first = nested_instructions(vec![a.clone()]);
    let both = nested_instructions(vec![a.clone(), b.clone()]);
    let more = updated(&both, &told(&first));
    assert!(more.ends_with("\n\nInstructions from: /w/b/AGENTS.md\nB."), "{more}");
    assert!(!more.contains("A."), "{more}");
    let changed = nested_instructions(vec![file("/w/b/AGENTS.md", "B2.")]);
    let text = updated(&changed, &told(&both));
    assert!(
        text.starts_with("The instructions from /w/a/AGENTS.md no longer apply.\n\nMore "),
        "{text}"
    );
    assert!(text.ends_with("Instructions from: /w/b/AGENTS.md\nB2."), "{text}");
    let turned = updated(&nested_instructions(vec![b, a]), &told(&both));
    assert!(turned.contains("A.") && turned.contains("B."), "{turned}");
}

#[test]
fn what_cannot_be_read_now_stays_in_effect() {
    let first = instructions(None, vec![file("/AGENTS.md", "Use tabs.")]);
    let asleep = instructions_unavailable("the disk is asleep".into());
    assert_eq!(asleep.reconcile(&told(&first)), Reconciled::Unchanged);
    assert!(
        asleep.initialize().is_err()
            && nested_unavailable("it is not there".into()).initialize().is_err()
    );
}
