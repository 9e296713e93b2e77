//! Where a message has its operation, its rows and its other fields (`Envelope` in Python).

use crate::scan::{Doubt, Name, Result, Scan, Token};

/// What an operation means for a keyed stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Insert,
    Update,
    Delete,
    /// The row before an update, of which the row after is a message of its own.
    UpdateBefore,
}

/// What is read of a field, or what its value has to be; the message is in doubt otherwise.
#[derive(Clone, Debug)]
pub enum Field {
    /// Any value.
    Any,
    /// Only null.
    Null,
    /// Text or null.
    Text,
    /// An integer or null.
    Integer,
    /// One of these values; `None` is null, or no such field.
    OneOf(Vec<Constant>),
    /// The operation, by its text.
    Operation(Vec<(Vec<u8>, Operation)>),
    /// The row after the change; in an array of one if `many`.
    After { many: bool },
    /// The row before the change.
    Before { many: bool },
    /// An object of fields, or null if `optional`.
    Object { fields: Fields, optional: bool },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constant {
    Null,
    True,
    False,
    Text(Vec<u8>),
}

/// The fields of an object that are read; others may have any value.
#[derive(Clone, Debug)]
pub struct Fields {
    fields: Vec<(Name, Field, Option<usize>)>,
    /// A bit for each field that has to be there.
    required: u64,
}

impl Fields {
    /// Parameters: each field's name, its content, and its number among the fields that have to be
    /// the same in all messages of a call.
    pub fn new(fields: Vec<(String, Field, Option<usize>)>) -> Result<Fields> {
        if fields.len() > 64 {
            return Err(Doubt);
        }
        let required = fields.iter().enumerate().fold(0, |bits, (at, (_, field, _))| {
            let required = match field {
                Field::OneOf(values) => !values.contains(&Constant::Null),
                Field::Object { fields, .. } => fields.required != 0,
                Field::Operation(_) => true,
                _ => false,
            };
            bits | (u64::from(required) << at)
        });
        let named = |(name, field, same): (String, _, _)| (Name::new(&name), field, same);
        Ok(Fields { fields: fields.into_iter().map(named).collect(), required })
    }
}

/// The columns of a row in a message.
#[derive(Clone, Debug)]
pub struct RowFields {
    pub names: Vec<Name>,
    /// Whether each is kept as it is written.
    pub raw: Vec<bool>,
    /// Names whose value has to be null.
    pub null: Vec<Vec<u8>>,
    /// Whether a row with another name is in doubt.
    pub no_others: bool,
}

/// A row as it is written, by column.
#[derive(Debug)]
pub struct Row<'a> {
    pub is_there: bool,
    pub tokens: Vec<Token<'a>>,
}

impl Row<'_> {
    fn clear(&mut self) {
        self.is_there = false;
        self.tokens.fill(Token::Missing);
    }
}

/// What was read of a message.
#[derive(Debug)]
pub struct Message<'a> {
    pub operation: Option<Operation>,
    pub after: Row<'a>,
    pub before: Row<'a>,
    /// The values that have to be the same in all messages of a call.
    pub same: Vec<Token<'a>>,
}

impl<'a> Message<'a> {
    pub fn new(columns: usize, same: usize) -> Message<'a> {
        let row = || Row { is_there: false, tokens: vec![Token::Missing; columns] };
        Message { operation: None, after: row(), before: row(), same: vec![Token::Missing; same] }
    }

    /// Reads a whole message.
    pub fn read(&mut self, scan: &mut Scan<'a>, fields: &Fields, row: &RowFields) -> Result<()> {
        self.operation = None;
        self.after.clear();
        self.before.clear();
        self.same.fill(Token::Missing);
        scan.blanks();
        self.fields(scan, fields, row, 0)?;
        scan.blanks();
        if scan.is_at_end() { Ok(()) } else { Err(Doubt) }
    }

    fn fields(
        &mut self,
        scan: &mut Scan<'a>,
        fields: &Fields,
        row: &RowFields,
        depth: u32,
    ) -> Result<()> {
        let (mut seen, mut next) = (0u64, 0);
        scan.members(depth, |scan| {
            // Most messages have their fields in one order.
            let expected = fields.fields.get(next);
            let at = if expected.is_some_and(|(name, ..)| scan.take_name(name)) {
                scan.blanks();
                Some(next)
            } else {
                let name = scan.name()?;
                fields.fields.iter().position(|(each, ..)| each.text == name)
            };
            let Some(at) = at else { return scan.skip(depth + 1) };
            if seen & (1 << at) != 0 {
                return Err(Doubt);
            }
            seen |= 1 << at;
            next = at + 1;
            let (_, field, same) = &fields.fields[at];
            let token = self.field(scan, field, row, depth + 1)?;
            if let Some(same) = same {
                self.same[*same] = token;
            }
            Ok(())
        })?;
        if seen & fields.required == fields.required { Ok(()) } else { Err(Doubt) }
    }

    /// Reads a field, and returns its token if it is no object or array.
    #[inline(always)]
    fn field(
        &mut self,
        scan: &mut Scan<'a>,
        field: &Field,
        row: &RowFields,
        depth: u32,
    ) -> Result<Token<'a>> {
        match field {
            Field::Any => scan.skip(depth)?,
            Field::After { many } => read_row(scan, row, &mut self.after, *many, depth)?,
            Field::Before { many } => read_row(scan, row, &mut self.before, *many, depth)?,
            Field::Object { fields, optional } => {
                if scan.peek()? == b'{' {
                    self.fields(scan, fields, row, depth)?;
                } else if !optional || fields.required != 0 || scan.value()? != Token::Null {
                    return Err(Doubt);
                }
            }
            Field::Operation(operations) => {
                let Token::Text(text) = scan.value()? else { return Err(Doubt) };
                let known = operations.iter().find(|(name, _)| name == text);
                self.operation = Some(known.ok_or(Doubt)?.1);
            }
            Field::Null | Field::Text | Field::Integer | Field::OneOf(_) => {
                let token = scan.value()?;
                let is_allowed = match (field, token) {
                    (Field::OneOf(values), _) => values.iter().any(|each| is_constant(each, token)),
                    (_, Token::Null) => true,
                    (Field::Text, Token::Text(_) | Token::Escaped(_)) => true,
                    (Field::Integer, Token::Integer(digits)) => digits.len() <= 18,
                    _ => false,
                };
                return if is_allowed { Ok(token) } else { Err(Doubt) };
            }
        }
        Ok(Token::Missing)
    }
}

fn is_constant(constant: &Constant, token: Token) -> bool {
    match (constant, token) {
        (Constant::Null, Token::Null)
        | (Constant::True, Token::True)
        | (Constant::False, Token::False) => true,
        (Constant::Text(text), Token::Text(other)) => text == other,
        _ => false,
    }
}

#[inline(always)]
fn read_row<'a>(
    scan: &mut Scan<'a>,
    fields: &RowFields,
    row: &mut Row<'a>,
    many: bool,
    depth: u32,
) -> Result<()> {
    if scan.peek()? == b'n' {
        scan.value()?;
        return Ok(());
    }
    if !many {
        return read_object(scan, fields, row, depth);
    }
    scan.elements(depth, |scan| {
        if row.is_there {
            return Err(Doubt);
        }
        read_object(scan, fields, row, depth + 1)
    })?;
    if row.is_there { Ok(()) } else { Err(Doubt) }
}

#[inline(always)]
fn read_object<'a>(
    scan: &mut Scan<'a>,
    fields: &RowFields,
    row: &mut Row<'a>,
    depth: u32,
) -> Result<()> {
    let mut next = 0;
    row.is_there = true;
    scan.members(depth, |scan| {
        let at = if fields.names.get(next).is_some_and(|name| scan.take_name(name)) {
            scan.blanks();
            Some(next)
        } else {
            let name = scan.name()?;
            // A name of more than 12 bytes is here also where it is expected.
            let at = match fields.names.get(next) {
                Some(expected) if expected.text == name => Some(next),
                _ => fields.names.iter().position(|each| each.text == name),
            };
            if at.is_none() && fields.null.iter().any(|each| each == name) {
                return if scan.value()? == Token::Null { Ok(()) } else { Err(Doubt) };
            }
            at
        };
        let Some(at) = at else {
            return if fields.no_others { Err(Doubt) } else { scan.skip(depth + 1) };
        };
        if row.tokens[at] != Token::Missing {
            return Err(Doubt);
        }
        row.tokens[at] = if fields.raw[at] { scan.raw(depth + 1)? } else { scan.value()? };
        next = at + 1;
        Ok(())
    })
}
