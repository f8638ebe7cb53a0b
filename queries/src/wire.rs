//! The bytes of advice and bags: numbers of variable length, and text with its length.

use std::sync::Arc;

use crate::value::Value;

/// Appends to bytes.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.wide(number.into());
    }

    /// Seven bits a byte, the lowest first.
    pub(crate) fn wide(&mut self, mut number: u128) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(crate) fn signed(&mut self, number: i128) {
        self.wide(((number << 1) ^ (number >> 127)) as u128);
    }

    pub(crate) fn float(&mut self, number: f64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.byte(0),
            Value::Bool(value) => self.byte(1 + u8::from(*value)),
            Value::Int(number) => {
                self.byte(3);
                self.signed(*number);
            }
            Value::Float(number) => {
                self.byte(4);
                self.float(*number);
            }
            Value::Text(text) => {
                self.byte(5);
                self.text(text);
            }
        }
    }
}

/// Reads untrusted bytes: `None` if they end early or break a rule.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        self.wide()?.try_into().ok()
    }

    pub(crate) fn wide(&mut self) -> Option<u128> {
        let mut number = 0_u128;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            let bits = u128::from(byte & 0x7f);
            let shifted = bits << shift;
            if shifted >> shift != bits {
                return None;
            }
            number |= shifted;
            if byte < 0x80 {
                // One number has one form, so that equal bags have equal bytes.
                return (byte != 0 || shift == 0).then_some(number);
            }
        }
        None
    }

    pub(crate) fn signed(&mut self) -> Option<i128> {
        let number = self.wide()?;
        Some((number >> 1) as i128 ^ -((number & 1) as i128))
    }

    /// A number of items up to a limit. Every item takes a byte at least.
    pub(crate) fn count(&mut self, limit: u64) -> Option<usize> {
        let count = self.number().filter(|&count| count <= limit)?;
        usize::try_from(count).ok().filter(|&count| count <= self.0.len())
    }

    pub(crate) fn float(&mut self) -> Option<f64> {
        let (bytes, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(f64::from_le_bytes(*bytes))
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.count(u64::MAX)?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn value(&mut self) -> Option<Value> {
        Some(match self.byte()? {
            0 => Value::Null,
            1 => Value::Bool(false),
            2 => Value::Bool(true),
            3 => Value::Int(self.signed()?),
            4 => Value::Float(self.float().filter(|number| !number.is_nan())?),
            5 => Value::Text(Arc::from(self.text()?)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_other_bytes_do_not() {
        let values = [
            Value::Null,
            Value::Bool(true),
            Value::Int(0),
            Value::Int(i128::MIN),
            Value::Int(i128::MAX),
            Value::Float(-1.5),
            Value::from("ä"),
        ];
        let mut out = Writer::default();
        values.iter().for_each(|value| out.value(value));
        let bytes = out.into_bytes();
        let mut reader = Reader::new(&bytes);
        for value in &values {
            assert_eq!(reader.value().as_ref(), Some(value));
        }
        assert!(reader.is_empty());
        // Too long, not the shortest form, a flag of 2, text beyond the end.
        assert_eq!(Reader::new(&[0xff; 19]).wide(), None);
        assert_eq!(Reader::new(&[0x80, 0]).wide(), None);
        assert_eq!(Reader::new(&[2]).flag(), None);
        assert_eq!(Reader::new(&[5, b'a']).text(), None);
    }
}
