//! Tables of markdown. Pure.

use super::words::{Line, Words, lay_out};

/// A cell.
pub(super) type Cell = Words;

/// The columns between two cells.
const GAP: usize = 2;

/// Returns the lines of a table, the first row of which is its heading. Cells go on in the next line between words; where
/// not even words fit, each row becomes a list of its cells.
pub(super) fn write_table(rows: &[Vec<Cell>], width: usize) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let most = |of: &dyn Fn(&Cell) -> usize| -> Vec<usize> {
        let of_column = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(of).max();
        (0..count).map(|column| of_column(column).unwrap_or(0)).collect()
    };
    let least = most(&Cell::widest);
    let mut widths =
        most(&|cell| lay_out(cell, usize::MAX).iter().map(|line| line.columns).max().unwrap_or(0));
    let room = width.saturating_sub(GAP * count.saturating_sub(1));
    if least.iter().sum::<usize>() > room {
        return list_rows(rows, width);
    }
    while widths.iter().sum::<usize>() > room {
        let wide = widths.iter_mut().zip(&least).filter(|(its, least)| **its > **least);
        match wide.map(|(its, _)| its).max() {
            Some(widest) => *widest -= 1,
            None => break,
        }
    }
    let mut lines = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        lines.extend(write_row(row, &widths, number == 0));
        if number == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            lines.push(rules.join(&" ".repeat(GAP)));
        }
    }
    lines
}

fn write_row(row: &[Cell], widths: &[usize], is_heading: bool) -> Vec<String> {
    let cells: Vec<Vec<Line>> =
        row.iter().zip(widths).map(|(cell, width)| lay_out(cell, *width)).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let of_line = |at: usize| {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            let shown = cell.get(at);
            let used = shown.map_or(0, |shown| shown.columns);
            if let Some(Line { text, .. }) = shown {
                line.push_str(&if is_heading { make_bold(text) } else { text.clone() });
            }
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(used) + GAP));
        }
        line.trim_end().to_owned()
    };
    (0..height).map(of_line).collect()
}

/// Returns each row as lines of `heading: cell`.
fn list_rows(rows: &[Vec<Cell>], width: usize) -> Vec<String> {
    let [heading, rows @ ..] = rows else { return Vec::new() };
    let mut lines = Vec::new();
    for row in rows {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        for (name, cell) in heading.iter().zip(row) {
            let mut both = Words::default();
            both.add(&format!("{}: ", name.text_from(0)), "1");
            both.append(cell.clone());
            lines.extend(lay_out(&both, width).into_iter().map(|line| line.text));
        }
    }
    lines
}

fn make_bold(text: &str) -> String {
    // A style within ends with a reset, after which the heading goes on.
    format!("\x1b[1m{}\x1b[0m", text.replace("\x1b[0m", "\x1b[0;1m"))
}
