//! Parses a patch. Pure.
//!
//! ```text
//! *** Begin Patch
//! *** Add File: PATH          then lines with +
//! *** Delete File: PATH
//! *** Update File: PATH       then, perhaps, *** Move to: PATH, then hunks:
//! @@ a line above             none, or several, each below the one before
//!  kept / -removed / +added
//! *** End of File             the hunk is the end of the file
//! *** End Patch
//! ```

use std::borrow::Cow;

use super::hunk::{Hunk, Part};
use crate::arguments::without_fence;

/// The most files of one patch.
const MAX_FILES: usize = 100;
/// The most hunks of one patch.
const MAX_HUNKS: usize = 2_000;

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileChange {
    Add { path: String, content: String },
    Delete { path: String },
    Update { path: String, to: Option<String>, hunks: Vec<Hunk> },
}

impl FileChange {
    /// Returns the paths that it changes.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        let (path, to) = match self {
            Self::Add { path, .. } | Self::Delete { path } => (path, None),
            Self::Update { path, to, .. } => (path, to.as_deref()),
        };
        std::iter::once(path.as_str()).chain(to)
    }
}

/// Parses a patch. The error says what is wrong, and in which line of the patch.
pub(crate) fn parse(text: &str) -> Result<Vec<FileChange>, String> {
    let lines = take_off_wrapping(text);
    let mut lines = lines.lines().map(|line| line.strip_suffix('\r').unwrap_or(line));
    if lines.next().map(str::trim) != Some("*** Begin Patch") {
        return Err("the patch must begin with the line `*** Begin Patch`".to_owned());
    }
    let mut parser = Parser { changes: Vec::new(), hunks: 0, blank: 0 };
    for (number, line) in lines.by_ref().enumerate().map(|(at, line)| (at + 2, line)) {
        if line.trim() == "*** End Patch" && !parser.is_kept(line) {
            parser.leave_blank();
            parser.finish()?;
            return match lines.next() {
                None => Ok(parser.changes),
                Some(_) => Err("there is text after `*** End Patch`; send one patch".to_owned()),
            };
        }
        parser.line(line).map_err(|error| format!("line {number} of the patch: {error}"))?;
    }
    Err("the patch must end with the line `*** End Patch`".to_owned())
}

/// Takes off what stands around a patch: a code fence, a heredoc with the command before it, white space, also before each of
/// its lines.
fn take_off_wrapping(text: &str) -> Cow<'_, str> {
    let mut text = without_fence(text.trim_start_matches('\u{FEFF}'));
    if let Some(inner) = find_heredoc(text) {
        text = without_fence(inner);
    }
    let text = text.trim();
    // Of a patch that is indented as a whole each line is.
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let last = lines().next_back().unwrap_or_default();
    let indent = &last[..last.len() - last.trim_start().len()];
    let is_indented = !indent.is_empty()
        && last.trim() == "*** End Patch"
        && lines().skip(1).all(|line| line.starts_with(indent));
    if !is_indented {
        return Cow::Borrowed(text);
    }
    let bare = text.lines().map(|line| line.strip_prefix(indent).unwrap_or(line.trim_end()));
    Cow::Owned(bare.collect::<Vec<_>>().join("\n"))
}

/// Returns the body of `apply_patch <<'EOF'` … `EOF`, also without the program's name.
fn find_heredoc(text: &str) -> Option<&str> {
    let (first, rest) = text.trim().split_once('\n')?;
    let (program, tag) = first.split_once("<<")?;
    let program = program.trim().trim_end_matches(['"', '\'']).trim();
    if !matches!(program, "" | "apply_patch" | "applypatch" | "patch" | "cat") {
        return None;
    }
    let tag = tag.trim_start_matches('-').trim().trim_matches(['"', '\'', '\\']);
    let is_tag = !tag.is_empty() && tag.chars().all(|c| c.is_alphanumeric() || c == '_');
    let rest = rest.trim_end();
    let body = match rest.rsplit_once('\n') {
        Some((body, last)) if last.trim().trim_end_matches(['"', ')']) == tag => body,
        // Its end was forgotten, or a quote hides it.
        Some(_) | None => rest,
    };
    is_tag.then_some(body)
}

struct Parser {
    changes: Vec<FileChange>,
    hunks: usize,
    /// The lines without any sign at the end of the last hunk so far.
    blank: usize,
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<(), String> {
        // A mark with white space before it is no line of a hunk, unless a hunk has begun: then that is the sign of a kept line.
        let is_in_hunk = matches!(self.changes.last(), Some(FileChange::Update { hunks, .. }) if !hunks.is_empty());
        let marked = if is_in_hunk { line } else { line.trim_start() };
        let after = |mark: &str| marked.strip_prefix(mark).map(str::trim);
        if let Some(path) = after("*** Add File:") {
            let (path, content) = (named(path)?, String::new());
            return self.begin(FileChange::Add { path, content });
        }
        if let Some(path) = after("*** Delete File:") {
            return self.begin(FileChange::Delete { path: named(path)? });
        }
        if let Some(path) = after("*** Update File:") {
            let (path, to, hunks) = (named(path)?, None, Vec::new());
            return self.begin(FileChange::Update { path, to, hunks });
        }
        let Some(change) = self.changes.last_mut() else {
            if line.trim().is_empty() {
                return Ok(());
            }
            return Err("name a file first: `*** Update File: PATH`, or Add or Delete".to_owned());
        };
        match change {
            // Whoever means an empty line of the file writes `+`.
            FileChange::Add { .. } if line.trim().is_empty() => Ok(()),
            FileChange::Add { content, .. } => {
                let added = line.strip_prefix('+');
                let added = added.ok_or("every line of an added file begins with `+`")?;
                content.push_str(added);
                content.push('\n');
                Ok(())
            }
            FileChange::Delete { .. } if line.trim().is_empty() => Ok(()),
            FileChange::Delete { .. } => Err("a deleted file has no lines".to_owned()),
            FileChange::Update { to, hunks, .. } => {
                if let Some(path) = after("*** Move to:") {
                    if to.is_some() || !hunks.is_empty() {
                        return Err(
                            "`*** Move to:` stands right after `*** Update File:`".to_owned()
                        );
                    }
                    *to = Some(named(path)?);
                    return Ok(());
                }
                if line.is_empty() && hunks.is_empty() {
                    return Ok(());
                }
                self.hunks += of_hunk(hunks, line)?;
                self.blank = if line.is_empty() { self.blank + 1 } else { 0 };
                if self.hunks > MAX_HUNKS {
                    return Err(format!(
                        "it has more than {MAX_HUNKS} hunks; send several patches"
                    ));
                }
                Ok(())
            }
        }
    }

    fn begin(&mut self, change: FileChange) -> Result<(), String> {
        self.leave_blank();
        self.finish()?;
        if self.changes.len() == MAX_FILES {
            return Err(format!("it changes more than {MAX_FILES} files; send several patches"));
        }
        let mut paths = change.paths().map(ToOwned::to_owned).collect::<Vec<_>>();
        paths.extend(self.changes.iter().flat_map(FileChange::paths).map(ToOwned::to_owned));
        paths.sort_unstable();
        if let Some([path, _]) = paths.array_windows().find(|[left, right]| left == right) {
            return Err(format!("{path} is named twice; put all of its changes in one place"));
        }
        self.changes.push(change);
        Ok(())
    }

    /// Returns whether a line belongs to a hunk that has begun: it is kept, and looks like a mark.
    fn is_kept(&self, line: &str) -> bool {
        let is_in_hunk = matches!(self.changes.last(), Some(FileChange::Update { hunks, .. }) if !hunks.is_empty());
        is_in_hunk && line.starts_with(' ')
    }

    /// Takes empty lines off the end of the last hunk: they stand between two files of the patch. An empty line of the file
    /// begins with a space there.
    fn leave_blank(&mut self) {
        let Some(FileChange::Update { hunks, .. }) = self.changes.last_mut() else { return };
        let Some(last) = hunks.last_mut() else { return };
        last.parts.truncate(last.parts.len().saturating_sub(self.blank));
        self.blank = 0;
        if *last == Hunk::default() {
            hunks.pop();
        }
    }

    /// Checks that the last file is complete.
    fn finish(&self) -> Result<(), String> {
        match self.changes.last() {
            Some(FileChange::Update { path, to: None, hunks }) if hunks.is_empty() => {
                Err(format!("the update of {path} has no hunk"))
            }
            Some(FileChange::Update { path, hunks, .. })
                if hunks.iter().any(|hunk| hunk.parts.is_empty()) =>
            {
                Err(format!("a hunk of {path} has no lines"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn named(path: &str) -> Result<String, String> {
    if path.is_empty() { Err("it names no file".to_owned()) } else { Ok(path.to_owned()) }
}

/// Adds a line to the hunks of a file. Returns how many hunks it begins.
fn of_hunk(hunks: &mut Vec<Hunk>, line: &str) -> Result<usize, String> {
    let before = hunks.len();
    if let Some(header) = line.strip_prefix("@@") {
        let is_new =
            hunks.last().is_none_or(|hunk| !hunk.parts.is_empty() || hunk.headers.is_empty());
        if is_new {
            hunks.push(Hunk::default());
        }
        let header = without_numbers(header.trim());
        let header = if header == "@@" { "" } else { header };
        let last = hunks.last_mut().ok_or("no hunk")?;
        if last.is_unnamed && header.is_empty() {
            return Err("two `@@` lines follow each other".to_owned());
        }
        last.is_unnamed = header.is_empty();
        last.headers.extend((!header.is_empty()).then(|| header.to_owned()));
        return Ok(hunks.len() - before);
    }
    if hunks.last().is_none_or(|hunk| hunk.is_at_end) {
        hunks.push(Hunk::default());
    }
    let begun = hunks.len() - before;
    let hunk = hunks.last_mut().ok_or("no hunk")?;
    if line.trim_end() == "*** End of File" {
        hunk.is_at_end = true;
        return Ok(begun);
    }
    let part = match line.chars().next() {
        None => Part::Kept(String::new()),
        Some(' ') => Part::Kept(line[1..].to_owned()),
        Some('-') => Part::Removed(line[1..].to_owned()),
        Some('+') => Part::Added(line[1..].to_owned()),
        Some(_) => {
            return Err(
                "every line of a hunk begins with a space, `-` or `+`, and every hunk with `@@`"
                    .to_owned(),
            );
        }
    };
    hunk.parts.push(part);
    Ok(begun)
}

/// Takes away line numbers as other patches have them: `-1,3 +1,4 @@ fn a()`.
fn without_numbers(header: &str) -> &str {
    let is_numbers = |text: &str| {
        text.trim().split(' ').all(|word| {
            let digits = word.strip_prefix(['-', '+']).unwrap_or_default();
            !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == ',')
        })
    };
    match header.split_once("@@") {
        Some((numbers, rest)) if is_numbers(numbers) => rest.trim(),
        _ => header,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> Result<Vec<FileChange>, String> {
        parse(&format!("*** Begin Patch\n{body}\n*** End Patch\n"))
    }

    #[test]
    fn each_kind_of_change_is_read() {
        let all = of("*** Add File: a\n+x\n+\n*** Delete File: b\n*** Update File: c\n*** Move to: d\n@@ fn f\n@@ fn g\n x\n-y\n+z\n\n*** End of File")
            .unwrap();
        let parts = vec![
            Part::Kept("x".into()),
            Part::Removed("y".into()),
            Part::Added("z".into()),
            Part::Kept(String::new()),
        ];
        let headers = vec!["fn f".to_owned(), "fn g".to_owned()];
        let hunk = Hunk { headers, parts, is_at_end: true, is_unnamed: false };
        let expected = [
            FileChange::Add { path: "a".into(), content: "x\n\n".into() },
            FileChange::Delete { path: "b".into() },
            FileChange::Update { path: "c".into(), to: Some("d".into()), hunks: vec![hunk] },
        ];
        assert_eq!(all, expected);
        let numbered = of("*** Update File: c\n@@ -1,2 +1,3 @@ fn f\n-x\n@@\n-y").unwrap();
        let FileChange::Update { hunks, .. } = &numbered[0] else { panic!("an update") };
        assert_eq!((hunks.len(), hunks[0].headers[0].as_str()), (2, "fn f"));
        assert_eq!(of("").unwrap(), []);
    }

    #[test]
    fn a_patch_in_a_wrapping_is_the_patch() {
        let patch = "*** Begin Patch\n*** Add File: a\n+x\n+\n*** Update File: b\n@@\n k\n-y\n*** End Patch";
        let expected = parse(patch).unwrap();
        assert_eq!(expected.len(), 2);
        let indented = patch.lines().map(|line| format!("    {line}\n")).collect::<String>();
        for wrapped in [
            format!("\n\n  {patch}\n \n"),
            format!("\u{FEFF}{patch}"),
            format!("```\n{patch}\n```"),
            format!("```diff\n{patch}\n```\n"),
            format!("<<'EOF'\n{patch}\nEOF"),
            format!("<<EOF\n{patch}\nEOF\n"),
            format!("apply_patch <<\"PATCH\"\n{patch}\nPATCH\n"),
            format!("apply_patch <<-'EOF'\n\n{patch}\n\nEOF"),
            format!("apply_patch \"<<'EOF'\n{patch}\nEOF\""),
            format!("```bash\napply_patch <<'EOF'\n{patch}\nEOF\n```"),
            format!("<<'EOF'\n{patch}"),
            indented,
            patch.replace("*** Begin", "  *** Begin").replace("*** Add", " *** Add"),
            patch.replace("*** End Patch", "*** End Patch  "),
            patch.replace('\n', "\r\n"),
        ] {
            assert_eq!(parse(&wrapped).as_ref(), Ok(&expected), "{wrapped:?}");
        }
        for other in [format!("rm x <<'EOF'\n{patch}\nEOF"), format!("text\n{patch}")] {
            assert!(parse(&other).is_err(), "{other}");
        }
    }

    #[test]
    fn empty_lines_between_files_are_no_lines_of_a_file() {
        let tight = "*** Add File: a\n+x\n*** Update File: b\n@@\n k\n-y\n*** Delete File: c\n*** Update File: d\n@@\n-z\n*** End of File";
        let expected = of(tight).unwrap();
        for gap in ["\n\n***", "\n\n\n***"] {
            let loose =
                tight.replace("\n***", gap).replace(&format!("{gap} End of"), "\n*** End of");
            assert_eq!(of(&loose).as_ref(), Ok(&expected), "{loose:?}");
            assert_eq!(of(&format!("{loose}\n\n")).as_ref(), Ok(&expected));
            assert_eq!(of(&loose.replace("\n@@", "\n\n@@")).as_ref(), Ok(&expected));
        }
        let kept = of("*** Update File: b\n@@\n k\n \n-y").unwrap();
        let FileChange::Update { hunks, .. } = &kept[0] else { panic!("an update") };
        assert_eq!(hunks[0].parts.len(), 3, "an empty line of the file has its sign");
    }

    #[test]
    fn a_patch_that_is_wrong_says_where() {
        for (patch, said) in [
            ("*** Update File: a", "no hunk"),
            ("*** Update File: a\n@@ x", "has no lines"),
            ("*** Update File:\n@@\n-x", "names no file"),
            ("*** Update File: a\n@@\nx", "line 4 of the patch"),
            ("*** Add File: a\nx", "begins with `+`"),
            ("*** Delete File: a\n-x", "has no lines"),
            ("-x", "name a file first"),
            ("*** Delete File: a\n*** Add File: a\n+x", "named twice"),
            ("*** Update File: a\n@@\n-x\n*** Move to: b", "right after"),
            ("*** End Patch\nx", "after `*** End Patch`"),
        ] {
            let error = of(patch).unwrap_err();
            assert!(error.contains(said), "{patch}: {error}");
        }
        assert!(parse("x").unwrap_err().contains("begin"));
        assert!(parse("*** Begin Patch\n").unwrap_err().contains("end"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(\\*\\*\\* (Add|Update|Delete) File: [ab]\n|\\*\\*\\* Move to: c\n|@@ ?x?\n|[-+ ]x?\n|\\*\\*\\* End of File\n|é\n){0,12}") {
            let _read = of(&text);
            let _read = parse(&text);
        }
    }
}
