//! A scanner that checks each byte of a JSON message, and copies nothing.
//!
//! It accepts a subset of valid JSON. Everything else is `Doubt`: the caller leaves the message to
//! the scalar decoder. So its duty is never to accept what that decoder refuses or reads otherwise.

/// The message is left to the scalar decoder.
#[derive(Debug, PartialEq, Eq)]
pub struct Doubt;
pub type Result<T> = std::result::Result<T, Doubt>;

/// A value as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    Missing,
    Null,
    True,
    False,
    /// A number without a fraction and an exponent.
    Integer(&'a [u8]),
    /// A number with a fraction or an exponent.
    Number(&'a [u8]),
    /// The content of a string without escapes.
    Text(&'a [u8]),
    /// The content of a string with escapes, as written.
    Escaped(&'a [u8]),
    /// Any value but null, as written.
    Raw(&'a [u8]),
}

/// Deeper messages are in doubt: the readers recurse.
const DEEPEST: u32 = 64;
/// Python's reader refuses integers of more digits, and exponents that are out of its range.
const MOST_DIGITS: usize = 1000;
const MOST_EXPONENT_DIGITS: usize = 4;

/// `"name":` as up to 16 bytes, which are compared at once.
#[derive(Debug, Clone)]
pub struct Name {
    pub text: Vec<u8>,
    value: u128,
    mask: u128,
    /// The length with quotes and colon; 0 if it is longer than 16.
    length: usize,
}

impl Name {
    pub fn new(name: &str) -> Name {
        let mut bytes = [0; 16];
        let mut mask = [0; 16];
        let quoted = [b"\"", name.as_bytes(), b"\":"].concat();
        let length = if quoted.len() <= 16 { quoted.len() } else { 0 };
        bytes[..length].copy_from_slice(&quoted[..length]);
        mask[..length].fill(0xff);
        Name {
            text: name.as_bytes().to_vec(),
            value: u128::from_le_bytes(bytes),
            mask: u128::from_le_bytes(mask),
            length,
        }
    }
}

/// A message in a longer buffer.
pub struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Scan<'a> {
    /// The message `bytes[start..end]`, which has to be UTF-8.
    pub fn new(bytes: &'a [u8], start: usize, end: usize) -> Scan<'a> {
        debug_assert!(start <= end && end <= bytes.len());
        Scan { bytes, at: start, end }
    }

    #[inline(always)]
    pub fn peek(&self) -> Result<u8> {
        if self.at < self.end { Ok(self.bytes[self.at]) } else { Err(Doubt) }
    }

    #[inline(always)]
    pub fn blanks(&mut self) {
        while self.at < self.end && matches!(self.bytes[self.at], b' ' | b'\n' | b'\t' | b'\r') {
            self.at += 1;
        }
    }

    #[inline(always)]
    pub fn take(&mut self, byte: u8) -> Result<()> {
        if self.peek()? != byte {
            return Err(Doubt);
        }
        self.at += 1;
        Ok(())
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.end
    }

    /// Skips `"name":` if it is next.
    #[inline(always)]
    pub fn take_name(&mut self, name: &Name) -> bool {
        let Some(chunk) = self.bytes[self.at..].first_chunk::<16>() else { return false };
        let is_next = name.length > 0
            && u128::from_le_bytes(*chunk) & name.mask == name.value
            && self.at + name.length <= self.end;
        self.at += if is_next { name.length } else { 0 };
        is_next
    }

    /// Moves to the next quote, backslash or control character.
    #[inline(always)]
    fn special(&mut self) {
        let mut rest = &self.bytes[self.at..];
        while let Some(chunk) = rest.first_chunk::<8>() {
            let bits = special_bytes(u64::from_le_bytes(*chunk));
            if bits != 0 {
                self.at += bits.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
            rest = &rest[8..];
        }
        let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
        self.at += rest.iter().position(is_special).unwrap_or(rest.len());
    }

    /// Reads a string whose quote has been read; returns its content, and whether it has escapes.
    #[inline(always)]
    fn string(&mut self) -> Result<(&'a [u8], bool)> {
        let start = self.at;
        self.special();
        if self.peek()? == b'"' {
            self.at += 1;
            return Ok((&self.bytes[start..self.at - 1], false));
        }
        self.escaped(start)
    }

    #[cold]
    #[inline(never)]
    fn escaped(&mut self, start: usize) -> Result<(&'a [u8], bool)> {
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Ok((&self.bytes[start..self.at - 1], true));
                }
                b'\\' => {
                    self.at += 1;
                    self.escape()?;
                }
                _ => return Err(Doubt),
            }
            self.special();
        }
    }

    fn escape(&mut self) -> Result<()> {
        let letter = self.peek()?;
        self.at += 1;
        match letter {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => match self.hex()? {
                0xdc00..0xe000 => Err(Doubt),
                0xd800..0xdc00 => {
                    self.take(b'\\')?;
                    self.take(b'u')?;
                    if (0xdc00..0xe000).contains(&self.hex()?) { Ok(()) } else { Err(Doubt) }
                }
                _ => Ok(()),
            },
            _ => Err(Doubt),
        }
    }

    fn hex(&mut self) -> Result<u32> {
        let mut number = 0;
        for _ in 0..4 {
            number = number * 16 + char::from(self.peek()?).to_digit(16).ok_or(Doubt)?;
            self.at += 1;
        }
        Ok(number)
    }

    #[inline(always)]
    fn literal(&mut self, text: &[u8]) -> Result<()> {
        if !self.bytes[self.at..self.end].starts_with(text) {
            return Err(Doubt);
        }
        self.at += text.len();
        Ok(())
    }

    #[inline(always)]
    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.at < self.end && self.bytes[self.at].is_ascii_digit() {
            self.at += 1;
        }
        self.at - start
    }

    /// Reads a number by JSON's grammar; returns whether it is an integer.
    #[inline(always)]
    fn number(&mut self) -> Result<bool> {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        let first = self.peek()?;
        let whole = self.digits();
        if whole == 0 || (whole > 1 && first == b'0') || whole > MOST_DIGITS {
            return Err(Doubt);
        }
        let mut is_integer = true;
        if self.at < self.end && self.bytes[self.at] == b'.' {
            self.at += 1;
            is_integer = false;
            if !(1..=MOST_DIGITS).contains(&self.digits()) {
                return Err(Doubt);
            }
        }
        if self.at < self.end && self.bytes[self.at] | 0x20 == b'e' {
            self.at += 1;
            is_integer = false;
            if matches!(self.peek()?, b'+' | b'-') {
                self.at += 1;
            }
            if !(1..=MOST_EXPONENT_DIGITS).contains(&self.digits()) {
                return Err(Doubt);
            }
        }
        Ok(is_integer)
    }

    /// Reads a value that is no array or object.
    #[inline(always)]
    pub fn value(&mut self) -> Result<Token<'a>> {
        match self.peek()? {
            b'"' => {
                self.at += 1;
                let (text, has_escapes) = self.string()?;
                Ok(if has_escapes { Token::Escaped(text) } else { Token::Text(text) })
            }
            b'n' => self.literal(b"null").map(|_| Token::Null),
            b't' => self.literal(b"true").map(|_| Token::True),
            b'f' => self.literal(b"false").map(|_| Token::False),
            _ => {
                let start = self.at;
                let is_integer = self.number()?;
                let text = &self.bytes[start..self.at];
                Ok(if is_integer { Token::Integer(text) } else { Token::Number(text) })
            }
        }
    }

    /// Reads any value as it is written.
    pub fn raw(&mut self, depth: u32) -> Result<Token<'a>> {
        let start = self.at;
        self.skip(depth)?;
        let text = &self.bytes[start..self.at];
        Ok(if text == b"null" { Token::Null } else { Token::Raw(text) })
    }

    /// Skips a value, and checks it.
    #[inline]
    pub fn skip(&mut self, depth: u32) -> Result<()> {
        match self.peek()? {
            b'{' => self.members(depth, |scan| {
                scan.take(b'"')?;
                scan.string()?;
                scan.colon()?;
                scan.skip(depth + 1)
            }),
            b'[' => self.elements(depth, |scan| scan.skip(depth + 1)),
            _ => self.value().map(|_| ()),
        }
    }

    /// Reads an object; `member` reads a name, the colon and the value.
    #[inline(always)]
    pub fn members(
        &mut self,
        depth: u32,
        member: impl FnMut(&mut Scan<'a>) -> Result<()>,
    ) -> Result<()> {
        self.sequence(depth, b'{', b'}', member)
    }

    /// Reads an array; `element` reads a value.
    #[inline(always)]
    pub fn elements(
        &mut self,
        depth: u32,
        element: impl FnMut(&mut Scan<'a>) -> Result<()>,
    ) -> Result<()> {
        self.sequence(depth, b'[', b']', element)
    }

    #[inline(always)]
    fn sequence(
        &mut self,
        depth: u32,
        first: u8,
        last: u8,
        mut item: impl FnMut(&mut Scan<'a>) -> Result<()>,
    ) -> Result<()> {
        self.take(first)?;
        if depth >= DEEPEST {
            return Err(Doubt);
        }
        self.blanks();
        if self.peek()? == last {
            self.at += 1;
            return Ok(());
        }
        loop {
            item(self)?;
            self.blanks();
            let next = self.peek()?;
            self.at += 1;
            if next == last {
                return Ok(());
            }
            if next != b',' {
                return Err(Doubt);
            }
            self.blanks();
        }
    }

    /// Reads a member's name and colon; a name with escapes is in doubt.
    #[inline(always)]
    pub fn name(&mut self) -> Result<&'a [u8]> {
        self.take(b'"')?;
        let (name, has_escapes) = self.string()?;
        if has_escapes {
            return Err(Doubt);
        }
        self.colon()?;
        Ok(name)
    }

    #[inline(always)]
    fn colon(&mut self) -> Result<()> {
        self.blanks();
        self.take(b':')?;
        self.blanks();
        Ok(())
    }
}

/// The high bit of each byte that is a quote, a backslash or a control character; those above the
/// first one may be wrong.
#[inline(always)]
fn special_bytes(bytes: u64) -> u64 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let equal = |byte: u8| {
        let other = bytes ^ (LOW * u64::from(byte));
        other.wrapping_sub(LOW) & !other & HIGH
    };
    equal(b'"') | equal(b'\\') | (bytes.wrapping_sub(LOW * 0x20) & !bytes & HIGH)
}

/// Appends the content of a string whose escapes have been checked.
pub fn unescape(text: &[u8], to: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        to.extend_from_slice(&rest[..at]);
        let letter = rest[at + 1];
        rest = &rest[at + 2..];
        let character = match letter {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let mut unit = hex_of(&rest[..4]);
                rest = &rest[4..];
                if (0xd800..0xdc00).contains(&unit) {
                    unit = 0x10000 + ((unit - 0xd800) << 10) + (hex_of(&rest[2..6]) - 0xdc00);
                    rest = &rest[6..];
                }
                char::from_u32(unit).expect("a checked escape is a character")
            }
            other => char::from(other),
        };
        to.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    to.extend_from_slice(rest);
}

fn hex_of(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |number, digit| {
        number * 16 + char::from(*digit).to_digit(16).expect("a checked escape has hex digits")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(text: &str) -> bool {
        let mut scan = Scan::new(text.as_bytes(), 0, text.len());
        scan.skip(0).is_ok() && scan.is_at_end()
    }

    #[test]
    fn valid_json_is_accepted() {
        for text in [
            "null",
            "true",
            "false",
            "0",
            "-0",
            "12",
            "-1.50",
            "1e5",
            "1E-05",
            "\"\"",
            "\"a\\\"b\"",
            "\"\\ud83d\\ude00\"",
            "[]",
            "[ ]",
            "[1,2]",
            "{}",
            "{\"a\":{\"b\":[1,null]}}",
            "{ \"a\" : 1 , \"b\" : 2 }",
            "\"0123456789abcdef0123456789\"",
        ] {
            assert!(skipped(text), "{text}");
        }
    }

    #[test]
    fn anything_else_is_in_doubt() {
        for text in [
            "",
            "nul",
            "01",
            "+1",
            "1.",
            ".5",
            "1e",
            "1e99999",
            "-",
            "\"",
            "\"\\x\"",
            "\"\\ud83d\"",
            "\"\\ude00\"",
            "\"\\ud83d\\u0041\"",
            "\"a\nb\"",
            "[1,]",
            "[,]",
            "[1",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\":1",
            "NaN",
            "1 2",
            "[1}",
            "\"0123456789abcdef\u{1}0123456789\"",
        ] {
            assert!(!skipped(text), "{text}");
        }
        assert!(!skipped(&("[".repeat(100) + &"]".repeat(100))));
        assert!(!skipped(&"1".repeat(5000)));
    }

    #[test]
    fn nothing_behind_the_message_is_read() {
        let bytes = b"\"a\"b\"";
        assert!(Scan::new(bytes, 0, 2).value().is_err());
        assert_eq!(Scan::new(bytes, 0, 3).value(), Ok(Token::Text(b"a")));
        assert!(!Scan::new(b"\"name\":123456789012345", 0, 4).take_name(&Name::new("name")));
        assert!(Scan::new(b"truefalse", 0, 3).value().is_err());
    }

    #[test]
    fn escapes_become_characters() {
        let mut to = vec![];
        unescape(b"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00z", &mut to);
        assert_eq!(to, "a\"\\/\u{8}\u{c}\n\r\t\u{e9}\u{1f600}z".as_bytes());
    }
}
