//! Tables for people.

use crate::wrap::{columns, shortened};

/// Aligns the columns of rows. The first row is the heading. A column that is empty below it is left out, and the last one
/// is not padded. No rows give an empty text.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let rows = without_empty(rows);
    aligned(&rows, &widths(&rows))
}

/// Leaves out the columns of which no row but the heading has anything.
fn without_empty<const N: usize>(rows: &[[String; N]]) -> Vec<Vec<&str>> {
    let below = rows.get(1..).unwrap_or_default();
    let is_kept: [bool; N] = std::array::from_fn(|column| {
        below.is_empty() || below.iter().any(|row| !row[column].is_empty())
    });
    let kept = |row: &'_ [String; N]| -> Vec<usize> {
        (0..row.len()).filter(|column| is_kept[*column]).collect()
    };
    rows.iter().map(|row| kept(row).into_iter().map(|at| row[at].as_str()).collect()).collect()
}

fn widths(rows: &[Vec<&str>]) -> Vec<usize> {
    let count = rows.first().map_or(0, Vec::len);
    let widest = |column: usize| rows.iter().map(|row| columns(row[column])).max().unwrap_or(0);
    (0..count).map(widest).collect()
}

/// Prints as many columns as there are widths, each cut to its own.
fn aligned(rows: &[Vec<&str>], widths: &[usize]) -> String {
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let cell = shortened(cell, Some(*width));
            line.push_str(&cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(columns(&cell)) + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The narrowest width that a column is cut to.
const NARROWEST: usize = 12;

/// Formats like [`table`], within `width` columns. Cuts the widest columns, but neither the first nor one of ids; if that
/// is not enough, leaves out the last ones.
pub(crate) fn fitted<const N: usize>(rows: &[[String; N]], width: Option<usize>) -> String {
    let Some(width) = width else { return table(rows) };
    let rows = &without_empty(rows);
    let whole = widths(rows);
    let is_cut: Vec<bool> =
        (0..whole.len()).map(|column| column > 0 && !has_ids(rows, column)).collect();
    let mut shown = whole.len();
    loop {
        let mut widths = whole[..shown].to_vec();
        let gaps = 2 * shown.saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > width {
            let cut = widths
                .iter_mut()
                .zip(&is_cut)
                .filter(|(its, is_cut)| **is_cut && **its > NARROWEST);
            let Some(wide) = cut.map(|(its, _)| its).max() else { break };
            *wide -= 1;
        }
        let fits = widths.iter().sum::<usize>() + gaps <= width;
        if fits || shown <= 2 {
            return aligned(rows, &widths);
        }
        shown -= 1;
    }
}

/// Returns whether a column has ids below its heading, such as `ses_0123`. Part of one is of no use to anybody.
fn has_ids(rows: &[Vec<&str>], column: usize) -> bool {
    let is_id = |cell: &str| {
        let parts = cell.split_once('_').filter(|_| !cell.contains(' '));
        parts.is_some_and(|(kind, _)| {
            kind.len() == 3 && kind.chars().all(|c| c.is_ascii_lowercase())
        })
    };
    rows.len() > 1 && rows.iter().skip(1).all(|row| is_id(row[column]))
}

/// Formats a number of things: `1 file`, `2 files`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// Formats how long ago something happened: `3 min ago`.
pub(crate) fn ago(ms: domain::TimestampMs, now: domain::TimestampMs) -> String {
    let seconds = now.saturating_sub(ms) / 1_000;
    match seconds {
        ..60 => "just now".to_owned(),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        86_400..2_592_000 => format!("{} d ago", seconds / 86_400),
        _ => local_time(ms).chars().take(10).collect(),
    }
}

/// Formats an event's time in this machine's time zone.
pub(crate) fn local_time(ms: domain::TimestampMs) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(at) => {
            at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
        }
        Err(_) => "-".to_owned(), // outside the calendar: no clock of ours wrote it
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["A", "B"], ["äö", "x"], ["abc", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "A    B\näö   x\nabc\n");
        assert_eq!(table::<2>(&[]), "");
    }

    // Finding trial 21: tables wrapped, times were absolute, and there was "1 files".
    #[test]
    fn a_table_is_cut_to_its_terminal_and_never_its_ids() {
        let rows = [["ID", "PATH"], ["ses_0123456789abcdef", "/a/very/long/directory/of/mine"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        let text = fitted(&rows, Some(40));
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(text.contains("ses_0123456789abcdef  /a/very/long/dire…"), "{text}");
        assert_eq!(fitted(&rows, None), table(&rows));
        assert!(fitted(&rows, Some(3)).contains("/a/very/lon…"), "it stays readable");
        let rows =
            [["ses_0123456789abcdef", "completed", "a rather long title", "a rather long model"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        let narrow = fitted(&rows, Some(50));
        assert_eq!(narrow, "ses_0123456789abcdef  completed  a rather long ti…\n");
        let rows =
            [["ID", "ABOUT", "SESSION"], ["ask_0123456789", "a long text", "ses_0123456789"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert!(fitted(&rows, Some(43)).contains("a long text  ses_0123456789"));
        let narrow = fitted(&rows, Some(40));
        assert!(narrow.contains("a long text") && !narrow.contains("ses_"), "{narrow}");
    }

    // Finding trial-3 polish: `usage` had an empty column PART.
    #[test]
    fn a_column_without_anything_is_left_out() {
        let rows = [["A", "B", "C"], ["a", "", "c"], ["d", "", ""]];
        let rows = rows.map(|row| row.map(str::to_owned));
        for width in [None, Some(80)] {
            assert_eq!(fitted(&rows, width), "A  C\na  c\nd\n");
        }
        assert_eq!(table(&rows[..1]), "A  B  C\n", "a heading alone stays whole");
        let wide = [["A", "B"], ["日本", "x"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&wide), "A     B\n日本  x\n");
    }

    #[test]
    fn numbers_and_times_read_as_people_say_them() {
        assert_eq!((count(1, "file"), count(0, "line")), ("1 file".into(), "0 lines".into()));
        let now = 1_795_293_590_662;
        let ago = |seconds: i64| ago(now - seconds * 1_000, now);
        assert_eq!((ago(-5), ago(59)), ("just now".into(), "just now".into()));
        assert_eq!((ago(61), ago(7_300)), ("1 min ago".into(), "2 h ago".into()));
        assert_eq!(ago(200_000), "2 d ago");
        assert_eq!(ago(9_000_000).len(), "2026-08-11".len());
    }

    #[test]
    fn a_time_that_no_clock_gives_is_a_dash() {
        assert_eq!(local_time(i64::MAX), "-");
        assert_eq!(local_time(1_795_293_590_662).len(), "2026-11-21 22:39:50".len());
    }
}
