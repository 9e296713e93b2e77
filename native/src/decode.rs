//! The messages of a batch to the columns of a keyed stage's changes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::column::{Allocated, Column, Parts, allocate, number_bytes};
use crate::message::{Fields, Message, Operation, RowFields};
use crate::scan::{Doubt, Result, Scan, Token};

/// What is to be read of all messages; it does not change.
#[derive(Debug)]
pub struct Plan {
    pub message: Fields,
    pub row: RowFields,
    /// The columns' indexes of the primary key.
    pub keys: Vec<usize>,
    /// The number of fields that have to be the same in all messages of a call.
    pub same: usize,
    /// Whether the row of a delete is the one before it.
    pub deleted_is_before: bool,
    /// Whether a column that is missing in a row is NULL.
    pub missing_is_null: bool,
    /// Whether an update without the row before it is in doubt.
    pub needs_before: bool,
    pub ignores_deletes: bool,
}

/// The result for the messages of a call.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    /// The index of the message of each change.
    pub places: Vec<i32>,
    pub deleted: Vec<bool>,
    pub key_offsets: Vec<u8>,
    pub keys: Vec<u8>,
    /// The CRC-32 of each key, as the bits of an integer.
    pub hashes: Vec<i32>,
    pub columns: Vec<Parts>,
    /// The indexes of the messages in doubt.
    pub doubtful: Vec<i32>,
    /// The values that are the same in all other messages; empty without one.
    pub same: Vec<Option<Vec<u8>>>,
    /// The index of the first message that is not in doubt.
    pub first: usize,
}

/// A batch's messages: `offsets` has one more element than there are messages.
pub struct Batch<'a> {
    pub bytes: &'a [u8],
    pub offsets: &'a [i32],
    /// The indexes of the messages that are null, in order.
    pub nulls: &'a [usize],
}

impl Batch<'_> {
    /// The bounds of a message; none if it is null, not UTF-8, or out of the bytes.
    fn message(&self, at: usize, is_ascii: bool) -> Option<(usize, usize)> {
        let start = usize::try_from(self.offsets[at]).ok()?;
        let end = usize::try_from(self.offsets[at + 1]).ok()?;
        let text = self.bytes.get(start..end)?;
        let is_text = self.nulls.binary_search(&at).is_err()
            && (is_ascii || std::str::from_utf8(text).is_ok());
        is_text.then_some((start, end))
    }
}

struct Keys {
    packed: Vec<u8>,
    offsets: Vec<i32>,
    hashes: Vec<i32>,
}

/// Returns what a function returns, or the text of its panic: a defect of this crate.
pub fn caught<T>(work: impl FnOnce() -> T) -> std::result::Result<T, String> {
    let text = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => other.downcast_ref::<&str>().copied().unwrap_or("panic").to_string(),
    };
    catch_unwind(AssertUnwindSafe(work)).map_err(text)
}

/// Decodes a batch; `columns` are empty before and after.
pub fn decode(plan: &Plan, columns: &mut [Column], batch: &Batch) -> Allocated<Changes> {
    let count = batch.offsets.len().saturating_sub(1);
    for column in columns.iter_mut() {
        column.reserve(count)?;
    }
    let mut changes = Changes::default();
    let mut keys = Keys { packed: vec![], offsets: vec![0], hashes: vec![] };
    changes.places.try_reserve(count)?;
    changes.deleted.try_reserve(count)?;
    changes.doubtful.try_reserve(count)?;
    keys.offsets.try_reserve(count)?;
    keys.hashes.try_reserve(count)?;
    let mut message = Message::new(columns.len(), plan.same);
    let mut same: Option<Vec<Token>> = None;
    // The messages of a batch in ASCII need not be checked each.
    let is_ascii = batch.bytes.is_ascii();
    for place in 0..count {
        let row = changes.places.len();
        let decoded = batch.message(place, is_ascii).ok_or(Doubt).and_then(|(start, end)| {
            message.read(&mut Scan::new(batch.bytes, start, end), &plan.message, &plan.row)?;
            if same.as_ref().is_some_and(|same| *same != message.same) {
                return Err(Doubt);
            }
            append(plan, columns, &mut keys, &message)
        });
        match decoded {
            Ok(deleted) => {
                if same.is_none() {
                    // A name with escapes is not compared with others.
                    if message.same.iter().any(|token| matches!(token, Token::Escaped(_))) {
                        keys.truncate(row);
                        columns.iter_mut().for_each(|column| column.truncate(row));
                        changes.doubtful.push(place as i32);
                        continue;
                    }
                    same = Some(message.same.clone());
                    changes.first = place;
                }
                if let Some(deleted) = deleted {
                    changes.places.push(place as i32);
                    changes.deleted.push(deleted);
                }
            }
            Err(Doubt) => {
                keys.truncate(row);
                columns.iter_mut().for_each(|column| column.truncate(row));
                changes.doubtful.push(place as i32);
            }
        }
    }
    let text = |token: &Token| match token {
        Token::Text(text) => Some(text.to_vec()),
        _ => None,
    };
    changes.same = same.iter().flatten().map(text).collect();
    changes.key_offsets = number_bytes(&keys.offsets)?;
    changes.keys = keys.packed;
    changes.hashes = keys.hashes;
    changes.columns = columns.iter_mut().map(Column::finish).collect::<Allocated<_>>()?;
    Ok(changes)
}

/// In place of a number of rows: the message is in doubt.
pub const IN_DOUBT: u8 = 2;

/// Returns how many rows with new values each message has, none or one.
pub fn row_counts(
    fields: &Fields,
    same: usize,
    row: &RowFields,
    batch: &Batch,
) -> Allocated<Vec<u8>> {
    let count = batch.offsets.len().saturating_sub(1);
    let mut counts = vec![];
    counts.try_reserve(count)?;
    let mut message = Message::new(row.names.len(), same);
    let is_ascii = batch.bytes.is_ascii();
    for place in 0..count {
        let read = batch.message(place, is_ascii).ok_or(Doubt).and_then(|(start, end)| {
            message.read(&mut Scan::new(batch.bytes, start, end), fields, row)?;
            match message.operation.ok_or(Doubt)? {
                Operation::Delete | Operation::UpdateBefore => Ok(0),
                _ if message.after.is_there => Ok(1),
                _ => Err(Doubt),
            }
        });
        counts.push(read.unwrap_or(IN_DOUBT));
    }
    Ok(counts)
}

/// Appends a message's change; returns whether it is a delete, and nothing if there is none.
#[inline(always)]
fn append(
    plan: &Plan,
    columns: &mut [Column],
    keys: &mut Keys,
    message: &Message,
) -> Result<Option<bool>> {
    let (after, before) = (&message.after, &message.before);
    let operation = message.operation.ok_or(Doubt)?;
    let removes = matches!(operation, Operation::Delete | Operation::UpdateBefore);
    let image = if removes && plan.deleted_is_before { before } else { after };
    let is_before = removes && plan.deleted_is_before;
    let is_whole = plan.missing_is_null || is_before || !image.tokens.contains(&Token::Missing);
    if !image.is_there || !is_whole {
        return Err(Doubt);
    }
    if operation == Operation::UpdateBefore {
        return Ok(None);
    }
    if removes {
        let row = keys.hashes.len();
        for key in &plan.keys {
            columns[*key].push(not_null(image.tokens[*key])?)?;
        }
        if plan.ignores_deletes {
            plan.keys.iter().for_each(|key| columns[*key].truncate(row));
            return Ok(None);
        }
        keys.push(plan, columns)?;
        // Of a deleted row only the key is needed.
        plan.keys.iter().for_each(|key| columns[*key].truncate(row));
        columns.iter_mut().for_each(Column::push_null);
        return Ok(Some(true));
    }
    if operation == Operation::Update {
        if plan.needs_before && !before.is_there {
            return Err(Doubt);
        }
        // An update that changed the key has two changes. A part that is missing did not change.
        let is_moved = |key: &usize| {
            before.tokens[*key] != Token::Missing && before.tokens[*key] != after.tokens[*key]
        };
        if plan.keys.iter().any(is_moved) {
            return Err(Doubt);
        }
    }
    for key in &plan.keys {
        not_null(after.tokens[*key])?;
    }
    for (column, token) in columns.iter_mut().zip(&after.tokens) {
        column.push(*token)?;
    }
    keys.push(plan, columns)?;
    Ok(Some(false))
}

fn not_null(token: Token) -> Result<Token> {
    if matches!(token, Token::Null | Token::Missing) { Err(Doubt) } else { Ok(token) }
}

impl Keys {
    /// Appends the key of the columns' last values, as a MessagePack array.
    #[inline(always)]
    fn push(&mut self, plan: &Plan, columns: &[Column]) -> Result<()> {
        let start = self.packed.len();
        allocate(&mut self.packed, 1)?;
        // A key of more than 15 columns has another header.
        self.packed.push(0x90 | plan.keys.len() as u8);
        for key in &plan.keys {
            // A number has at most nine bytes; a text allocates its own.
            allocate(&mut self.packed, 9)?;
            columns[*key].pack_last(&mut self.packed)?;
        }
        self.offsets.push(i32::try_from(self.packed.len()).map_err(|_| Doubt)?);
        self.hashes.push(crc32(&self.packed[start..]) as i32);
        Ok(())
    }

    fn truncate(&mut self, rows: usize) {
        self.hashes.truncate(rows);
        self.offsets.truncate(rows + 1);
        self.packed.truncate(self.offsets.last().map_or(0, |end| *end as usize));
    }
}

const CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut value, mut bit) = (at as u32, 0);
        while bit < 8 {
            value = (value >> 1) ^ (0xedb8_8320 * (value & 1));
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
};

/// The CRC-32 of zlib.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| (crc >> 8) ^ CRC[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::Kind;
    use crate::message::{Constant, Field};
    use crate::scan::Name;

    pub fn plan() -> (Plan, Vec<Column>) {
        let operations =
            [("c", Operation::Insert), ("u", Operation::Update), ("d", Operation::Delete)];
        let operations = operations.map(|(name, of)| (name.as_bytes().to_vec(), of)).to_vec();
        let connector = Field::OneOf(vec![Constant::Null, Constant::Text(b"mysql".to_vec())]);
        let source = Fields::new(vec![
            ("connector".into(), connector, None),
            ("table".into(), Field::Text, Some(0)),
        ]);
        let message = Fields::new(vec![
            ("before".into(), Field::Before { many: false }, None),
            ("after".into(), Field::After { many: false }, None),
            ("source".into(), Field::Object { fields: source.unwrap(), optional: false }, None),
            ("op".into(), Field::Operation(operations), None),
            ("ts_ms".into(), Field::Integer, None),
            ("schema".into(), Field::Null, None),
        ]);
        let row = RowFields {
            names: ["id", "name"].map(Name::new).to_vec(),
            raw: vec![false, false],
            null: vec![],
            no_others: false,
        };
        let plan = Plan {
            message: message.unwrap(),
            row,
            keys: vec![0],
            same: 1,
            deleted_is_before: true,
            missing_is_null: true,
            needs_before: false,
            ignores_deletes: false,
        };
        let kinds = [Kind::Integer(8), Kind::Text(vec![])];
        (plan, kinds.into_iter().map(|kind| Column::new(kind, false)).collect())
    }

    pub fn decoded(messages: &[&[u8]]) -> Changes {
        let (plan, mut columns) = plan();
        let mut offsets = vec![0];
        for message in messages {
            offsets.push(offsets[offsets.len() - 1] + message.len() as i32);
        }
        let batch = Batch { bytes: &messages.concat(), offsets: &offsets, nulls: &[] };
        decode(&plan, &mut columns, &batch).unwrap()
    }

    const SOURCE: &str = r#""source":{"connector":"mysql","table":"t"}"#;

    #[test]
    fn changes_of_sound_messages_are_columns() {
        let texts = [
            format!(
                r#"{{"before":null,"after":{{"id":1,"name":"a"}},{SOURCE},"op":"c","ts_ms":1}}"#
            ),
            format!(r#" {{"op":"u", "after" : {{"name":null,"id":200}},{SOURCE},"x":[{{}}]}} "#),
            format!(r#"{{"op":"d","before":{{"id":1}},{SOURCE}}}"#),
        ];
        let messages: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        let changes = decoded(&messages);
        assert_eq!(changes.places, [0, 1, 2]);
        assert_eq!(changes.deleted, [false, false, true]);
        assert_eq!(changes.keys, [0x91, 1, 0x91, 0xcc, 200, 0x91, 1]);
        assert_eq!(changes.columns[0].values, [1i64, 200, 0].map(i64::to_ne_bytes).concat());
        assert_eq!(changes.columns[1].valid, [1]);
        assert_eq!(changes.same, [Some(b"t".to_vec())]);
    }

    #[test]
    fn doubtful_messages_leave_nothing() {
        let sound = format!(r#"{{"after":{{"id":1,"name":"a"}},{SOURCE},"op":"c"}}"#);
        let other_table = sound.replace("\"t\"", "\"other\"");
        for text in [
            "",
            "{}",
            "[]",
            "null",
            "5",
            "{\"op\":\"c\"}",
            &sound[..sound.len() - 1],
            &sound.replace("\"c\"", "\"x\""),
            &sound.replace("mysql", "spanner"),
            &sound.replace("\"id\":1", "\"id\":1.0"),
            &sound.replace("\"id\":1", "\"id\":null"),
            &sound.replace("\"id\":1", "\"id\":1,\"id\":1"),
            &sound.replace("\"id\"", "\"i\\u0064\""),
            &sound.replace("\"op\":\"c\"", "\"op\":\"c\",\"op\":\"c\""),
            &sound.replace("\"c\"", "\"d\""),
            &sound.replace("\"op\":\"c\"", "\"op\":\"u\",\"before\":{\"id\":2}"),
            &other_table,
            &sound.replace("\"name\":\"a\"", "\"name\":{}"),
            &sound.replace("\"op\":\"c\"", "\"op\":\"c\",\"schema\":{}"),
            &sound.replace("\"op\":\"c\"", "\"op\":\"c\",\"ts_ms\":1.5"),
            &format!("\u{feff}{sound}"),
            &format!("{sound}1"),
        ] {
            let changes = decoded(&[sound.as_bytes(), text.as_bytes(), sound.as_bytes()]);
            assert_eq!(changes.places, [0, 2], "{text}");
            assert_eq!(changes.doubtful, [1], "{text}");
            assert_eq!(changes.columns[1].values, b"aa", "{text}");
            assert_eq!(changes.keys, [0x91, 1, 0x91, 1], "{text}");
        }
        let broken = sound.replace("\"a\"", "\"\u{e9}\"").into_bytes();
        let at = broken.iter().position(|byte| *byte == 0xc3).unwrap();
        let broken = [&broken[..at], &broken[at + 1..]].concat();
        assert_eq!(decoded(&[&broken]).doubtful, [0]);
    }

    #[test]
    fn rows_are_counted_if_all_their_columns_are_known() {
        let (Plan { message, row, .. }, _) = plan();
        let row = RowFields { null: vec![b"empty".to_vec()], no_others: true, ..row };
        let sound = format!(r#"{{"after":{{"id":1,"empty":null}},{SOURCE},"op":"c"}}"#);
        let texts = [
            sound.clone(),
            format!(r#"{{"before":{{"id":1}},"after":null,{SOURCE},"op":"d"}}"#),
            sound.replace("\"id\"", "\"other\""),
            sound.replace("null", "1"),
            sound.replace("\"c\"", "\"t\""),
            format!(r#"{{"after":null,{SOURCE},"op":"c"}}"#),
            sound[..20].to_string(),
        ];
        let mut offsets = vec![0];
        for text in &texts {
            offsets.push(offsets[offsets.len() - 1] + text.len() as i32);
        }
        let bytes = texts.concat();
        let batch = Batch { bytes: bytes.as_bytes(), offsets: &offsets, nulls: &[] };
        let counts = row_counts(&message, 1, &row, &batch).unwrap();
        assert_eq!(counts, [1, 0, IN_DOUBT, IN_DOUBT, IN_DOUBT, IN_DOUBT, IN_DOUBT]);
    }

    #[test]
    fn a_panic_is_an_error_with_its_text() {
        assert_eq!(caught(|| 1), Ok(1));
        assert_eq!(caught(|| -> u8 { panic!("a defect") }), Err("a defect".to_string()));
        let number = decoded(&[]).first;
        let text = caught(|| -> u8 { panic!("{number} defects") });
        assert_eq!(text, Err("0 defects".to_string()));
    }

    #[test]
    fn too_many_rows_are_no_abort() {
        let mut column = Column::new(Kind::Integer(8), false);
        assert!(column.reserve(usize::MAX / 16).is_err());
        assert_eq!(allocate(&mut vec![], usize::MAX / 2), Err(Doubt));
    }

    #[test]
    fn the_hash_is_that_of_zlib() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    /// Bytes drawn without a crate: messages, pieces of them, and damage.
    #[test]
    fn no_bytes_panic() {
        let sound = format!(
            r#"{{"before":{{"id":1}},"after":{{"id":1,"name":"a\n\u00e9"}},{SOURCE},"op":"u","ts_ms":1}}"#
        );
        let mut state = 1u64;
        let mut draw = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let letters = b"\"\\{}[]:,0123456789-+.eEutfn \x00\xc3\xa9\xffd";
        for _ in 0..20_000 {
            let mut text = sound.clone().into_bytes();
            for _ in 0..1 + draw(4) {
                let at = draw(text.len());
                match draw(4) {
                    0 => text[at] = letters[draw(letters.len())],
                    1 => text.insert(at, letters[draw(letters.len())]),
                    2 => text.truncate(at.max(1)),
                    _ => drop(text.remove(at)),
                }
                if text.is_empty() {
                    text.push(b'{');
                }
            }
            let changes = decoded(&[&text, sound.as_bytes()]);
            assert_eq!(changes.places.len() + changes.doubtful.len(), 2);
        }
    }
}
