//! Typed columns: each appends a value exactly as the scalar decoder converts it, or is in doubt.

use std::collections::TryReserveError;

use crate::scan::{Doubt, Result, Token, unescape};

/// A result, or the memory is exhausted. A plain allocation that fails would abort the process.
pub type Allocated<T> = std::result::Result<T, TryReserveError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Millis,
    Micros,
    Nanos,
}

/// How text in a DECIMAL column is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecimalText {
    Digits,
    /// Base64 of the unscaled number, big-endian in two's complement.
    Unscaled,
    /// Unknown: text is in doubt.
    Undeclared,
}

/// The type of a column, and how the producer writes its values.
#[derive(Clone, Debug)]
pub enum Kind {
    /// An integer of 1, 2, 4 or 8 bytes.
    Integer(usize),
    Double,
    Boolean,
    /// Text, and the texts of a value that is unavailable.
    Text(Vec<Vec<u8>>),
    Decimal {
        precision: usize,
        scale: usize,
        text: DecimalText,
    },
    /// `numbers`: whether a number of days is a date.
    Date {
        numbers: bool,
    },
    /// `zone`: text has to end with Z, otherwise without a zone. `unit`: that of a number.
    Timestamp {
        zone: bool,
        unit: Option<Unit>,
    },
    /// Any value, as it is written: the caller converts it.
    Raw,
}

/// A column that grows by a value for each row.
#[derive(Debug)]
pub struct Column {
    pub kind: Kind,
    required: bool,
    values: Vec<u8>,
    /// The ends of texts, and a 0 in front of them.
    offsets: Vec<i32>,
    valid: Vec<bool>,
    nulls: usize,
    /// The last day of a TIMESTAMP's text, and its microseconds.
    day: ([u8; 10], i64),
}

/// The parts of an Arrow array.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parts {
    pub nulls: usize,
    /// The bitmap of the values that are not null; empty without nulls.
    pub valid: Vec<u8>,
    /// Offsets of 4 bytes; empty unless the values are texts.
    pub offsets: Vec<u8>,
    pub values: Vec<u8>,
}

pub const DAY: i64 = 86_400_000_000;
const LEAST_DAY: i64 = -719_162;
const MOST_DAY: i64 = 2_932_896;
/// 38 digits, a point and a zero in front of it.
const MOST_DECIMAL: usize = 40;

impl Column {
    pub fn new(kind: Kind, required: bool) -> Column {
        Column {
            kind,
            required,
            values: vec![],
            offsets: vec![0],
            valid: vec![],
            nulls: 0,
            day: (*b"1970-01-01", 0),
        }
    }

    /// The bytes of a value; 0 if they differ.
    fn width(&self) -> usize {
        match &self.kind {
            Kind::Integer(width) => *width,
            Kind::Boolean => 1,
            Kind::Date { .. } => 4,
            Kind::Double | Kind::Timestamp { .. } => 8,
            Kind::Decimal { .. } => 16,
            Kind::Text(_) | Kind::Raw => 0,
        }
    }

    /// Allocates all that these rows need, but for the bytes of texts.
    pub fn reserve(&mut self, rows: usize) -> Allocated<()> {
        let width = self.width();
        self.valid.try_reserve(rows)?;
        self.values.try_reserve(rows * if width == 0 { 16 } else { width })?;
        self.offsets.try_reserve(if width == 0 { rows } else { 0 })
    }

    #[inline(always)]
    pub fn push_null(&mut self) {
        self.valid.push(false);
        self.nulls += 1;
        match self.width() {
            0 => self.offsets.push(self.values.len() as i32),
            width => self.values.extend_from_slice(&[0; 16][..width]),
        }
    }

    /// Appends a value; a refused one may append a part of it, which `truncate` removes.
    #[inline(always)]
    pub fn push(&mut self, token: Token) -> Result<()> {
        if matches!(token, Token::Null | Token::Missing) {
            if self.required {
                return Err(Doubt);
            }
            self.push_null();
            return Ok(());
        }
        let values = &mut self.values;
        match &self.kind {
            Kind::Integer(width) => push_integer(values, *width, integer_or_text(token)?)?,
            Kind::Double => values.extend_from_slice(&double(token)?.to_ne_bytes()),
            Kind::Boolean => values.push(u8::from(boolean(token)?)),
            Kind::Text(unavailable) => {
                let start = values.len();
                let (Token::Text(written) | Token::Escaped(written)) = token else {
                    return Err(Doubt);
                };
                allocate(values, written.len())?;
                match token {
                    Token::Text(text) => values.extend_from_slice(text),
                    _ => unescape(written, values),
                }
                let text = &values[start..];
                if unavailable.iter().any(|each| each == text) {
                    return Err(Doubt);
                }
                self.offsets.push(i32::try_from(values.len()).map_err(|_| Doubt)?);
            }
            Kind::Decimal { precision, scale, text } => {
                let number = decimal(token, *precision, *scale, *text)?;
                values.extend_from_slice(&number.to_ne_bytes());
            }
            Kind::Date { numbers } => {
                let days = match token {
                    Token::Integer(_) if *numbers => integer(token)?,
                    Token::Text(text) => days(text)?,
                    _ => return Err(Doubt),
                };
                if !(LEAST_DAY..=MOST_DAY).contains(&days) {
                    return Err(Doubt);
                }
                values.extend_from_slice(&(days as i32).to_ne_bytes());
            }
            Kind::Timestamp { zone, unit } => {
                let micros = match token {
                    Token::Text(text) => {
                        let (day, clock) = text.split_first_chunk::<10>().ok_or(Doubt)?;
                        if *day != self.day.0 {
                            self.day = (*day, days(day)? * DAY);
                        }
                        self.day.1 + clock_of(clock, *zone)?
                    }
                    Token::Integer(_) => epoch(integer(token)?, *unit)?,
                    _ => return Err(Doubt),
                };
                values.extend_from_slice(&micros.to_ne_bytes());
            }
            Kind::Raw => {
                let Token::Raw(text) = token else { return Err(Doubt) };
                allocate(values, text.len())?;
                values.extend_from_slice(text);
                self.offsets.push(i32::try_from(values.len()).map_err(|_| Doubt)?);
            }
        }
        self.valid.push(true);
        Ok(())
    }

    /// Removes all but the first values.
    pub fn truncate(&mut self, rows: usize) {
        while self.valid.len() > rows {
            if self.valid.pop() == Some(false) {
                self.nulls -= 1;
            }
        }
        match self.width() {
            0 => {
                self.offsets.truncate(rows + 1);
                self.values.truncate(self.offsets.last().map_or(0, |end| *end as usize));
            }
            width => self.values.truncate(rows * width),
        }
    }

    /// Whether its values can be packed as a part of a key.
    pub fn is_packable(&self) -> bool {
        matches!(
            self.kind,
            Kind::Integer(_) | Kind::Text(_) | Kind::Date { .. } | Kind::Timestamp { .. }
        )
    }

    /// Appends the last value as MessagePack (`normalize.core.packing`).
    pub fn pack_last(&self, to: &mut Vec<u8>) -> Result<()> {
        match &self.kind {
            Kind::Text(_) => {
                let [.., start, end] = self.offsets[..] else { return Err(Doubt) };
                pack_text(&self.values[start as usize..end as usize], to)?;
            }
            Kind::Integer(1) => pack_integer(i8::from_ne_bytes(self.last()?).into(), to),
            Kind::Integer(2) => pack_integer(i16::from_ne_bytes(self.last()?).into(), to),
            Kind::Integer(4) | Kind::Date { .. } => {
                pack_integer(i32::from_ne_bytes(self.last()?).into(), to);
            }
            Kind::Integer(_) | Kind::Timestamp { .. } => {
                pack_integer(i64::from_ne_bytes(self.last()?), to);
            }
            _ => return Err(Doubt),
        }
        Ok(())
    }

    fn last<const WIDTH: usize>(&self) -> Result<[u8; WIDTH]> {
        self.values.last_chunk().copied().ok_or(Doubt)
    }

    /// Returns the values, and keeps none.
    pub fn finish(&mut self) -> Allocated<Parts> {
        let values = std::mem::take(&mut self.values);
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        let valid = std::mem::take(&mut self.valid);
        let nulls = std::mem::take(&mut self.nulls);
        Ok(Parts {
            nulls,
            valid: if nulls > 0 { bitmap(&valid, |flag| *flag)? } else { vec![] },
            offsets: if self.width() == 0 { number_bytes(&offsets)? } else { vec![] },
            values: match self.kind {
                Kind::Boolean => bitmap(&values, |value| *value == 1)?,
                _ => values,
            },
        })
    }
}

/// Allocates what a message needs; without memory it is left to Python, whose error is the task's.
#[inline(always)]
pub fn allocate(bytes: &mut Vec<u8>, more: usize) -> Result<()> {
    bytes.try_reserve(more).map_err(|_| Doubt)
}

/// Returns the bytes of an iterator that has at most this number.
fn collected(most: usize, items: impl Iterator<Item = u8>) -> Allocated<Vec<u8>> {
    let mut bytes = vec![];
    bytes.try_reserve_exact(most)?;
    bytes.extend(items);
    Ok(bytes)
}

pub fn bitmap<T>(items: &[T], is_set: impl Fn(&T) -> bool) -> Allocated<Vec<u8>> {
    let byte = |eight: &[T]| {
        let flags = eight.iter().enumerate();
        flags.fold(0, |byte, (at, item)| byte | (u8::from(is_set(item)) << at))
    };
    collected(items.len().div_ceil(8), items.chunks(8).map(byte))
}

pub fn number_bytes(numbers: &[i32]) -> Allocated<Vec<u8>> {
    collected(numbers.len() * 4, numbers.iter().flat_map(|number| number.to_ne_bytes()))
}

/// The number of an integer's token, if it is within 64 bits.
#[inline(always)]
pub fn integer(token: Token) -> Result<i64> {
    let Token::Integer(text) = token else { return Err(Doubt) };
    digits_of(text)
}

#[inline(always)]
fn digits_of(text: &[u8]) -> Result<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        _ => (false, text),
    };
    if digits.len() > 19 {
        return Err(Doubt);
    }
    // 19 digits fit into 64 bits without a sign.
    let number = digits.iter().fold(0u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    // The least number is in doubt, too: it is rare.
    let number = i64::try_from(number).map_err(|_| Doubt)?;
    Ok(if is_negative { -number } else { number })
}

/// A number, or its digits as text, which producers without JSON numbers write.
#[inline(always)]
fn integer_or_text(token: Token) -> Result<i64> {
    match token {
        Token::Integer(text) => digits_of(text),
        Token::Text(text) => {
            let digits = text.strip_prefix(b"-").unwrap_or(text);
            let is_plain = match digits {
                [] => false,
                [b'0'] => text.len() == 1,
                [first, ..] => *first != b'0' && digits.iter().all(u8::is_ascii_digit),
            };
            if is_plain { digits_of(text) } else { Err(Doubt) }
        }
        _ => Err(Doubt),
    }
}

#[inline(always)]
fn push_integer(values: &mut Vec<u8>, width: usize, number: i64) -> Result<()> {
    match width {
        8 => values.extend_from_slice(&number.to_ne_bytes()),
        4 => values.extend_from_slice(&i32::try_from(number).map_err(|_| Doubt)?.to_ne_bytes()),
        2 => values.extend_from_slice(&i16::try_from(number).map_err(|_| Doubt)?.to_ne_bytes()),
        _ => values.extend_from_slice(&i8::try_from(number).map_err(|_| Doubt)?.to_ne_bytes()),
    }
    Ok(())
}

fn boolean(token: Token) -> Result<bool> {
    match token {
        Token::True | Token::Integer(b"1") | Token::Text(b"true" | b"1") => Ok(true),
        Token::False | Token::Integer(b"0") | Token::Text(b"false" | b"0") => Ok(false),
        _ => Err(Doubt),
    }
}

fn double(token: Token) -> Result<f64> {
    let text = match token {
        Token::Integer(b"-0") => return Err(Doubt), // Python has no negative zero of integers
        Token::Integer(text) | Token::Number(text) => text,
        _ => return Err(Doubt),
    };
    let text = std::str::from_utf8(text).map_err(|_| Doubt)?;
    // Both Python and Rust return the nearest number, and the even one of two.
    let number: f64 = text.parse().map_err(|_| Doubt)?;
    if number.is_finite() { Ok(number) } else { Err(Doubt) }
}

/// The unscaled number of a DECIMAL.
#[inline(always)]
fn decimal(token: Token, precision: usize, scale: usize, text: DecimalText) -> Result<i128> {
    match (token, text) {
        (Token::Text(text), DecimalText::Digits) => decimal_of(text, precision, scale),
        (Token::Text(text), DecimalText::Unscaled) => unscaled(text, precision),
        // A negative number may be an unsigned one in two's complement.
        (Token::Integer([b'-', ..]), _) if (precision, scale) == (20, 0) => Err(Doubt),
        (Token::Integer(text) | Token::Number(text), _) => decimal_of(text, precision, scale),
        _ => Err(Doubt),
    }
}

/// Digits without an exponent, of which at most `scale` are behind the point.
#[inline(always)]
fn decimal_of(text: &[u8], precision: usize, scale: usize) -> Result<i128> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        _ => (false, text),
    };
    if digits.len() > MOST_DECIMAL {
        return Err(Doubt);
    }
    let (mut number, mut count, mut point) = (0i128, 0, None);
    // Chunks of 64 bits are much faster than 128 bits for each digit.
    let (mut chunk, mut power) = (0u64, 1u64);
    for byte in digits {
        if byte.is_ascii_digit() {
            chunk = chunk * 10 + u64::from(byte - b'0');
            power *= 10;
            count += 1;
            if power == 1_000_000_000_000_000_000 {
                number = number * i128::from(power) + i128::from(chunk);
                (chunk, power) = (0, 1);
            }
        } else if *byte == b'.' && point.is_none() {
            point = Some(count);
        } else {
            return Err(Doubt);
        }
    }
    let whole = point.unwrap_or(count);
    let behind = count - whole;
    let has_digits = whole > 0 && (point.is_none() || behind > 0);
    // Zeros in front, as in 007.5, are left to the scalar decoder.
    let begins_with_zero = digits.first() == Some(&b'0');
    if !has_digits || (whole > 1 && begins_with_zero) || behind > scale {
        return Err(Doubt);
    }
    let significant = if begins_with_zero { 0 } else { whole };
    if significant + scale > precision {
        return Err(Doubt);
    }
    // At most 38 digits: they fit into 128 bits.
    let number =
        (number * i128::from(power) + i128::from(chunk)) * 10i128.pow((scale - behind) as u32);
    Ok(if is_negative { -number } else { number })
}

const BASE64: [u8; 256] = {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut values = [255; 256];
    let mut at = 0;
    while at < 64 {
        values[letters[at] as usize] = at as u8;
        at += 1;
    }
    values
};

/// Base64 of at most 15 bytes, big-endian in two's complement.
fn unscaled(text: &[u8], precision: usize) -> Result<i128> {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    if text.is_empty() || text.len() % 4 != 0 || text.len() > 20 || padding > 2 {
        return Err(Doubt);
    }
    let (mut number, mut bits) = (0u128, 0u32);
    for byte in &text[..text.len() - padding] {
        let value = BASE64[*byte as usize];
        if value == 255 {
            return Err(Doubt);
        }
        number = number << 6 | u128::from(value);
        bits += 6;
    }
    let spare = bits % 8;
    if number & ((1 << spare) - 1) != 0 {
        return Err(Doubt);
    }
    let above = 128 - (bits - spare);
    let number = ((number >> spare) << above) as i128 >> above;
    if number.unsigned_abs() >= 10u128.pow(precision as u32) {
        return Err(Doubt);
    }
    Ok(number)
}

#[inline(always)]
fn two(tens: u8, ones: u8) -> Result<i64> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    if tens > 9 || ones > 9 { Err(Doubt) } else { Ok(i64::from(tens * 10 + ones)) }
}

/// `yyyy-MM-dd` of the years 1 to 9999 as days since 1970-01-01.
fn days(text: &[u8]) -> Result<i64> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *text else { return Err(Doubt) };
    let (year, month, day) = (two(y1, y2)? * 100 + two(y3, y4)?, two(m1, m2)?, two(d1, d2)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return Err(Doubt),
    };
    if year < 1 || !(1..=length).contains(&day) {
        return Err(Doubt);
    }
    // Years that begin in March end with the leap day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    Ok(year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468)
}

/// ` HH:mm:ss[.ffffff][Z]` in microseconds.
#[inline(always)]
fn clock_of(text: &[u8], zone: bool) -> Result<i64> {
    let [b' ' | b'T', h1, h2, b':', m1, m2, b':', s1, s2, rest @ ..] = text else {
        return Err(Doubt);
    };
    let (hours, minutes, seconds) = (two(*h1, *h2)?, two(*m1, *m2)?, two(*s1, *s2)?);
    if hours > 23 || minutes > 59 || seconds > 59 {
        return Err(Doubt);
    }
    let fraction = if zone { rest.strip_suffix(b"Z").ok_or(Doubt)? } else { rest };
    let mut micros = (hours * 3600 + minutes * 60 + seconds) * 1_000_000;
    match fraction {
        [] => {}
        [b'.', digits @ ..] if (1..=6).contains(&digits.len()) => {
            let mut unit = 100_000;
            for digit in digits {
                if !digit.is_ascii_digit() {
                    return Err(Doubt);
                }
                micros += i64::from(digit - b'0') * unit;
                unit /= 10;
            }
        }
        _ => return Err(Doubt),
    }
    Ok(micros)
}

fn epoch(number: i64, unit: Option<Unit>) -> Result<i64> {
    let micros = match unit.ok_or(Doubt)? {
        Unit::Millis => number.checked_mul(1000).ok_or(Doubt)?,
        Unit::Micros => number,
        Unit::Nanos if number == i64::MAX => return Err(Doubt), // PostgreSQL's infinity
        Unit::Nanos => number.div_euclid(1000),
    };
    if (LEAST_DAY * DAY..(MOST_DAY + 1) * DAY).contains(&micros) { Ok(micros) } else { Err(Doubt) }
}

fn pack_text(text: &[u8], to: &mut Vec<u8>) -> Result<()> {
    allocate(to, text.len() + 3)?;
    match text.len() {
        length @ 0..=31 => to.push(0xa0 | length as u8),
        length @ 32..=255 => to.extend_from_slice(&[0xd9, length as u8]),
        length @ 256..=65535 => {
            to.push(0xda);
            to.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => return Err(Doubt),
    }
    to.extend_from_slice(text);
    Ok(())
}

fn pack_integer(number: i64, to: &mut Vec<u8>) {
    let (code, width): (u8, usize) = match number {
        -32..=127 => {
            to.push(number as u8);
            return;
        }
        128..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -0x80..=-33 => (0xd0, 1),
        -0x8000..=-0x81 => (0xd1, 2),
        -0x8000_0000..=-0x8001 => (0xd2, 4),
        _ => (0xd3, 8),
    };
    to.push(code);
    to.extend_from_slice(&number.to_be_bytes()[8 - width..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digits(text: &str, precision: usize, scale: usize) -> Result<i128> {
        decimal_of(text.as_bytes(), precision, scale)
    }

    #[test]
    fn decimals_keep_their_digits() {
        assert_eq!(digits("12.34", 6, 2), Ok(1234));
        assert_eq!(digits("-0.5", 6, 2), Ok(-50));
        assert_eq!(digits("0.5", 2, 2), Ok(50));
        assert_eq!(digits("7", 6, 2), Ok(700));
        let most = "9".repeat(38);
        assert_eq!(digits(&most, 38, 0), Ok(10i128.pow(38) - 1));
        assert_eq!(digits(&format!("-0.{most}"), 38, 38), Ok(1 - 10i128.pow(38)));
        for text in
            ["", "-", ".", "1.", ".5", "00", "007.5", "1e2", "+1", " 1", "12.345", "12345", "1.2.3"]
        {
            assert_eq!(digits(text, 6, 2), Err(Doubt), "{text}");
        }
        assert_eq!(digits(&"9".repeat(40), 38, 0), Err(Doubt));
        assert_eq!(digits(&"9".repeat(400), 38, 0), Err(Doubt));
    }

    #[test]
    fn unscaled_numbers_are_in_twos_complement() {
        assert_eq!(unscaled(b"BNI=", 6), Ok(1234));
        assert_eq!(unscaled(b"/w==", 6), Ok(-1));
        assert_eq!(unscaled(b"AA==", 6), Ok(0));
        for text in [
            "",
            "====",
            "A",
            "AA=A",
            "AB==",
            "BNI",
            "AAAAAAAAAAAAAAAAAAAAAAAA",
            "f///////////////////",
            "????",
        ] {
            assert_eq!(unscaled(text.as_bytes(), 6), Err(Doubt), "{text}");
        }
    }

    #[test]
    fn each_day_has_its_number() {
        assert_eq!(days(b"0001-01-01"), Ok(LEAST_DAY));
        assert_eq!(days(b"1970-01-01"), Ok(0));
        assert_eq!(days(b"2000-02-29"), Ok(11016));
        assert_eq!(days(b"9999-12-31"), Ok(MOST_DAY));
        let mut last = LEAST_DAY - 1;
        for year in 1..=9999 {
            for month in 1..=12 {
                for day in 1..=31 {
                    if let Ok(number) = days(format!("{year:04}-{month:02}-{day:02}").as_bytes()) {
                        assert_eq!(number, last + 1, "{year}-{month}-{day}");
                        last = number;
                    }
                }
            }
        }
        assert_eq!(last, MOST_DAY);
        for text in [
            "0000-01-01",
            "2023-02-29",
            "2023-13-01",
            "2023-00-01",
            "2023-01-32",
            "2023-1-01",
            "20230101",
            "2023-W01-1",
        ] {
            assert_eq!(days(text.as_bytes()), Err(Doubt), "{text}");
        }
    }

    #[test]
    fn a_clock_has_at_most_microseconds() {
        assert_eq!(clock_of(b" 00:00:01.5", false), Ok(1_500_000));
        assert_eq!(clock_of(b"T23:59:59.999999Z", true), Ok(DAY - 1));
        for (text, zone) in [
            (" 24:00:00", false),
            (" 00:60:00", false),
            (" 00:00:60", false),
            (" 00:00:00.", false),
            (" 00:00:00.1234567", false),
            (" 00:00:00Z", false),
            (" 00:00:00", true),
            (" 00:00:00+00", true),
            (" 00:00", false),
            ("-00:00:00", false),
            (" 00:00:00.1x", false),
            ("", false),
            ("Z", true),
        ] {
            assert_eq!(clock_of(text.as_bytes(), zone), Err(Doubt), "{text}");
        }
    }

    #[test]
    fn integers_are_packed_as_short_as_possible() {
        let packed = |number| {
            let mut to = vec![];
            pack_integer(number, &mut to);
            to
        };
        assert_eq!(packed(127), [127]);
        assert_eq!(packed(128), [0xcc, 128]);
        assert_eq!(packed(256), [0xcd, 1, 0]);
        assert_eq!(packed(65536), [0xce, 0, 1, 0, 0]);
        assert_eq!(packed(1 << 32), [0xcf, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(packed(-32), [0xe0]);
        assert_eq!(packed(-33), [0xd0, 0xdf]);
        assert_eq!(packed(-129), [0xd1, 0xff, 0x7f]);
        assert_eq!(packed(-32769), [0xd2, 0xff, 0xff, 0x7f, 0xff]);
        assert_eq!(packed(i64::MIN + 1)[0], 0xd3);
    }

    #[test]
    fn a_refused_value_leaves_nothing() {
        let mut column = Column::new(Kind::Text(vec![b"gone".to_vec()]), false);
        column.push(Token::Text(b"a")).unwrap();
        assert_eq!(column.push(Token::Escaped(b"g\\u006fne")), Err(Doubt));
        column.truncate(1);
        column.push_null();
        let parts = column.finish().unwrap();
        assert_eq!((parts.values, parts.valid, parts.nulls), (b"a".to_vec(), vec![1], 1));
        assert_eq!(parts.offsets, number_bytes(&[0, 1, 1]).unwrap());
    }

    #[test]
    fn numbers_out_of_a_type_are_in_doubt() {
        let refused = |kind: Kind, token| Column::new(kind, false).push(token) == Err(Doubt);
        assert!(refused(Kind::Integer(1), Token::Integer(b"128")));
        assert!(refused(Kind::Integer(8), Token::Integer(b"9223372036854775808")));
        assert!(refused(Kind::Integer(8), Token::Number(b"1.0")));
        assert!(refused(Kind::Integer(8), Token::Text(b"-0")));
        assert!(refused(Kind::Double, Token::Number(b"1e400")));
        assert!(refused(Kind::Double, Token::Integer(b"-0")));
        assert!(refused(Kind::Boolean, Token::Integer(b"2")));
        assert!(refused(Kind::Text(vec![]), Token::Integer(b"2")));
        let unsigned = Kind::Decimal { precision: 20, scale: 0, text: DecimalText::Digits };
        assert!(refused(unsigned, Token::Integer(b"-1")));
    }
}
