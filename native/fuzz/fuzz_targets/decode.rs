//! Any bytes as the second of three messages: nothing panics, and the sound ones keep their changes.

#![no_main]

use kafka_changelog_native::column::{Column, DecimalText, Kind, Unit};
use kafka_changelog_native::decode::{Batch, Plan, decode};
use kafka_changelog_native::message::{Constant, Field, Fields, Operation, RowFields};
use kafka_changelog_native::scan::Name;
use libfuzzer_sys::fuzz_target;

fn sound(many: bool) -> String {
    let (first, last) = if many { ("[", "]") } else { ("", "") };
    format!(r#"{{"after":{first}{{"id":1,"text":"a"}}{last},"source":{{"table":"t"}},"op":"c"}}"#)
}

fn plan(many: bool) -> (Plan, Vec<Column>) {
    let operations = [
        ("c", Operation::Insert),
        ("u", Operation::Update),
        ("d", Operation::Delete),
        ("b", Operation::UpdateBefore),
    ];
    let operations = operations.map(|(text, of)| (text.as_bytes().to_vec(), of)).to_vec();
    let connector = Field::OneOf(vec![Constant::Null, Constant::Text(b"mysql".to_vec())]);
    let source =
        vec![("connector".into(), connector, None), ("table".into(), Field::Text, Some(0))];
    let source = Field::Object { fields: Fields::new(source).unwrap(), optional: true };
    let fields = vec![
        ("before".into(), Field::Before { many }, None),
        ("after".into(), Field::After { many }, None),
        ("source".into(), source, None),
        ("op".into(), Field::Operation(operations), None),
        ("ts_ms".into(), Field::Integer, None),
        ("transaction".into(), Field::Any, None),
        ("schema".into(), Field::Null, None),
    ];
    let columns = [
        ("id", Kind::Integer(8)),
        ("text", Kind::Text(vec![b"gone".to_vec()])),
        ("small", Kind::Integer(1)),
        ("double", Kind::Double),
        ("flag", Kind::Boolean),
        ("digits", Kind::Decimal { precision: 38, scale: 18, text: DecimalText::Digits }),
        ("unscaled", Kind::Decimal { precision: 20, scale: 0, text: DecimalText::Unscaled }),
        ("day", Kind::Date { numbers: true }),
        ("at", Kind::Timestamp { zone: true, unit: Some(Unit::Millis) }),
        ("local", Kind::Timestamp { zone: false, unit: Some(Unit::Nanos) }),
        ("raw", Kind::Raw),
    ];
    let row = RowFields {
        names: columns.iter().map(|(name, _)| Name::new(name)).collect(),
        raw: columns.iter().map(|(_, kind)| matches!(kind, Kind::Raw)).collect(),
        null: vec![b"id_missing".to_vec()],
        no_others: false,
    };
    let plan = Plan {
        message: Fields::new(fields).unwrap(),
        row,
        keys: vec![0, 1],
        same: 1,
        deleted_is_before: !many,
        missing_is_null: true,
        needs_before: many,
        ignores_deletes: false,
    };
    (plan, columns.into_iter().map(|(_, kind)| Column::new(kind, false)).collect())
}

fuzz_target!(|data: &[u8]| {
    for many in [false, true] {
        let (plan, mut columns) = plan(many);
        let sound = sound(many);
        let bytes = [sound.as_bytes(), data, sound.as_bytes()].concat();
        let (start, end) = (sound.len() as i32, (sound.len() + data.len()) as i32);
        let offsets = [0, start, end, bytes.len() as i32];
        let changes =
            decode(&plan, &mut columns, &Batch { bytes: &bytes, offsets: &offsets, nulls: &[] })
                .unwrap();
        assert!(changes.places.starts_with(&[0]) && changes.places.ends_with(&[2]));
        assert!(changes.places.len() + changes.doubtful.len() <= 3);
        let rows = changes.places.len();
        assert_eq!(changes.columns[0].values.len(), rows * 8);
        assert_eq!(changes.columns[1].offsets.len(), (rows + 1) * 4);
        assert!(std::str::from_utf8(&changes.columns[1].values).is_ok());
    }
});
