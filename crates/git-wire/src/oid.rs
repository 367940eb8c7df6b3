use std::fmt;
use std::str::FromStr;

/// The name of a git object: 40 hexadecimal digits in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid([u8; 20]);

/// The error for text that is no [`Oid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an object's name is 40 hexadecimal digits in lower case")]
pub struct OidError;

impl FromStr for Oid {
    type Err = OidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(OidError),
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != 20 || !rest.is_empty() {
            return Err(OidError);
        }
        let mut bytes = [0; 20];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_name_is_forty_digits() {
        let text = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(text.parse::<Oid>().map(|oid| oid.to_string()), Ok(text.to_owned()));
        for bad in ["", "0123", &text.to_uppercase(), &format!("{text}0"), &text.replace('0', "é")]
        {
            assert_eq!(bad.parse::<Oid>(), Err(OidError), "{bad}");
        }
    }
}
