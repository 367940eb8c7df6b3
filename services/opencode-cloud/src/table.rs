//! Columns for people.

/// Rows with their columns aligned by characters, the first row being the heading. The last column is
/// not padded. No row: nothing.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A time of an event, in this machine's time zone.
pub(crate) fn local_time(ms: domain::TimestampMs) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(at) => {
            at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
        }
        Err(_) => "-".to_owned(), // outside of the calendar: no clock of ours wrote it
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

    #[test]
    fn a_time_that_no_clock_gives_is_a_dash() {
        assert_eq!(local_time(i64::MAX), "-");
        assert_eq!(local_time(1_795_293_590_662).len(), "2026-11-21 22:39:50".len());
    }
}
