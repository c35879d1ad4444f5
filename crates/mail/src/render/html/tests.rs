use proptest::prelude::*;

use super::{escape::entity, *};

proptest! {
    #[test]
    fn values_and_texts_are_escaped_sign_by_sign(text in "[a-c&<>\"'é ]{0,80}") {
        let escaped = |escaped: &[u8]| -> String {
            let signs = text.chars().map(|sign| match u8::try_from(sign) {
                Ok(byte) if escaped.contains(&byte) => entity(byte).to_owned(),
                _ => sign.to_string(),
            });
            signs.collect()
        };
        let [mut value, mut between] = [String::new(), String::new()];
        escape_value(&text, &mut value);
        escape_text(&text, &mut between);
        prop_assert_eq!(value, escaped(b"&<>\""));
        prop_assert_eq!(between, escaped(b"&<>"));
    }
}
